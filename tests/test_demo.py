"""The grid world is deterministic, legal and worth looking at."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import simlab
from simlab.demo import World, demo_schema, record_demo, simulate
from simlab.demo.world import SIGHT, rooms
from simlab.errors import InputError


def trace(seed: int) -> list[tuple[object, ...]]:
    return [
        (world.time, world.food, world.grid.tobytes(), *((a.id, a.action, a.reward, a.memory.tobytes()) for a in world.agents))
        for world in simulate(seed, episodes=2, steps=40)
    ]


def test_everything_follows_from_the_seed() -> None:
    assert trace(3) == trace(3)
    assert trace(3) != trace(4)


def test_values_fit_the_schema() -> None:
    schema = demo_schema()
    vision, body, abstract = schema.variables()[:3]
    for world in simulate(7, episodes=3, steps=60):
        for agent in world.agents:
            assert (agent.view.shape, agent.view.dtype) == (vision.shape, vision.dtype)
            assert (agent.body.shape, agent.body.dtype) == (body.shape, body.dtype)
            assert (agent.abstract.shape, agent.abstract.dtype) == (abstract.shape, abstract.dtype)
            assert np.isfinite([*agent.body, *agent.abstract, *agent.memory]).all()
            assert 0 <= agent.action < 5
            assert agent.view[SIGHT, SIGHT, 2] == 0
        assert world.grid.shape == schema.environment[-1].shape
        assert world.food == np.count_nonzero(world.grid[..., 1])


def test_nobody_walks_through_walls_and_an_agent_sees_where_it_is() -> None:
    walls = rooms()
    for world in simulate(7, episodes=1, steps=80):
        for agent in world.agents:
            assert not walls[agent.y, agent.x]
            if agent.age > 1:
                x, y = int(agent.body[0]), int(agent.body[1])
                around = np.roll(walls, (SIGHT - y, SIGHT - x), (0, 1))[: 2 * SIGHT + 1, : 2 * SIGHT + 1]
                np.testing.assert_array_equal(agent.view[..., 0] > 0, around)


def test_agents_are_born_starve_and_find_food() -> None:
    lengths: dict[World, int] = {}
    born, starved, rewards = 0, 0, []
    for world in simulate(7):
        lengths[world] = world.time
        born = max(born, *(int(agent.id.split("_")[1]) for agent in world.agents))
        starved += sum(agent.terminated for agent in world.agents)
        rewards += [agent.reward for agent in world.agents]
    assert len(lengths) == 6
    assert len(set(lengths.values())) > 1
    assert max(lengths.values()) == 240
    assert born > 12
    assert starved > 20
    assert np.mean(np.array(rewards) > 0) > 0.1


def test_agents_walk_to_the_food_they_see_around_walls() -> None:
    walls = np.zeros((32, 48), bool)
    walls[9:12, 12] = True
    world = World(seed=0, foragers=1, walls=walls)
    agent = world.agents[0]
    agent.y, agent.x, agent.energy = 10, 10, 50.0
    world.growth = 0.0
    world.grid[..., 1] = 0
    world.grid[10, 13, 1] = 200
    moves = []
    while world.food:
        world.step()
        moves.append(agent.action)
    assert len(moves) == 7  # two up or down, three across, two back
    assert agent.reward == pytest.approx(200 / 255 - 0.05, abs=1e-4)


def test_an_empty_world_takes_steps() -> None:
    world = World(seed=0, foragers=0)
    assert world.extinct
    world.step()
    assert world.agents == []


def test_an_unknown_season_is_refused() -> None:
    with pytest.raises(InputError, match="plenty, lean, drought"):
        World(seed=0, season="winter")


def test_the_recorded_run_equals_the_simulation(tmp_path: Path) -> None:
    begun: list[int] = []
    report = record_demo(tmp_path / "run.h5", seed=5, episodes=3, steps=50, progress=begun.append)
    assert begun == [0, 1, 2]
    ds = simlab.open_run(tmp_path / "run.h5")
    worlds = simulate(5, episodes=3, steps=50)
    row = -1
    for row, world in enumerate(worlds):
        here = ds.isel(time=row)
        assert int(here.step) == world.time - 1
        present = ds.sim.present("actions").isel(time=row)
        assert set(present.agent.values[present.values]) == {agent.id for agent in world.agents}
        if row % 25 == 0:
            for agent in world.agents:
                seen = here.sel(agent=agent.id)
                np.testing.assert_array_equal(seen.vision, agent.view)
                np.testing.assert_array_equal(seen.proprioception, agent.body)
                np.testing.assert_array_equal(seen.states, agent.memory)
                assert float(seen.rewards) == np.float32(agent.reward)
        assert int(here.resource_count) == world.food
    assert report.rows == ds.sizes["time"] == row + 1
    assert ds.sim.config["sight"] == SIGHT
    np.testing.assert_array_equal(ds.sim.attachment("world")["walls"], rooms())
    assert list(ds.sim.episodes.season.values) == ["plenty", "lean", "drought"]


def test_the_same_seed_gives_the_same_run(tmp_path: Path) -> None:
    for name in "ab":
        record_demo(tmp_path / f"{name}.h5", episodes=1, steps=30)
    a, b = (simlab.open_run(tmp_path / f"{name}.h5").load() for name in "ab")
    assert a.drop_attrs().identical(b.drop_attrs())
