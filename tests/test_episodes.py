from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import simlab
from simlab.errors import InputError, NotInRunError, StateError
from tests import handmade

IDS = handmade.IDS
V = handmade.values()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return handmade.write(tmp_path_factory.mktemp("episodes") / "run.h5")


@pytest.fixture
def ds(path: Path) -> Any:
    with simlab.open_run(path) as opened:
        yield opened


# -- the table


def test_the_table(ds: xr.Dataset) -> None:
    table = ds.sim.episodes
    assert table.episode.values.tolist() == [0, 1, 2]
    assert table.start.values.tolist() == [0, 100, 200]
    assert table.length.values.tolist() == [100] * 3
    assert table.seed.values.tolist() == [7, 8, 9]
    assert table.seed.dtype == np.int64
    assert table.terminated.dtype == bool
    assert table.outcome.values.tolist() == ["starved", "won", "lost in the wööds"]
    assert table.complete.values.all()
    assert table.to_dataframe().loc[1, "outcome"] == "won"


@pytest.mark.parametrize(("committed", "ended", "length"), [(300, 2, 100), (230, 2, 30), (230, 3, 30), (101, 1, 1)])
def test_an_episode_that_was_not_ended_is_the_last_one(tmp_path: Path, committed: int, ended: int, length: int) -> None:
    with simlab.open_run(handmade.write(tmp_path / "run.h5", committed=committed, ended=ended)) as ds:
        table = ds.sim.episodes
        assert table.length.values[-1] == length
        assert table.complete.values.tolist() == [True] * (table.sizes["episode"] - 1) + [False]
        assert table.start.values.tolist() == [0, 100, 200][: table.sizes["episode"]]
        assert np.isnan(table.return_mean.values[-1])
        assert table.outcome.values[-1] == ""
        assert ds.sim.episode(-1).sizes["time"] == length


def test_several_episodes_that_are_in_no_table(tmp_path: Path) -> None:
    with simlab.open_run(handmade.write(tmp_path / "run.h5", ended=0)) as ds:
        assert ds.sim.episodes.length.values.tolist() == [100] * 3
        assert not ds.sim.episodes.complete.values.any()
        assert ds.sim.episode(1).time.values.tolist() == list(range(100, 200))


def test_one_episode(ds: xr.Dataset) -> None:
    for number, first in ((1, 100), (-1, 200), (-3, 0), (np.int64(2), 200)):
        part = ds.sim.episode(number)
        assert part.time.values.tolist() == list(range(first, first + 100))
        assert part.step.values.tolist() == list(range(100))
        assert part.state_snapshots_time.values.tolist() == [first]
        np.testing.assert_array_equal(part.vision.values, V["vision"][:, first : first + 100])


@pytest.mark.parametrize("number", [3, -4, 100])
def test_an_episode_that_is_not_there(ds: xr.Dataset, number: int) -> None:
    with pytest.raises(NotInRunError, match=rf"no episode {number}; the run has episodes 0 to 2"):
        ds.sim.episode(number)


@pytest.mark.parametrize("number", ["1", 1.0, True, None])
def test_an_episode_is_a_whole_number(ds: xr.Dataset, number: Any) -> None:
    with pytest.raises(InputError, match="whole number"):
        ds.sim.episode(number)


def test_episodes_of_a_part(ds: xr.Dataset) -> None:
    part = ds.isel(time=slice(50, 150), agent=2)
    assert part.sim.episode(0).time.values.tolist() == list(range(50, 100))
    assert part.sim.episode(1).sim.present("actions").shape == (50,)
    with pytest.raises(NotInRunError, match="no rows of episode 2"):
        part.sim.episode(2)
    with pytest.raises(StateError, match="no `time` axis"):
        ds.isel(time=0).sim.episode(0)


def test_an_episode_without_rows(tmp_path: Path) -> None:
    with simlab.HDF5Logger(tmp_path / "run.h5") as log:
        for n in (2, 0, 3):
            log.begin_episode()
            for t in range(n):
                log.log_agent_step("a", t, {"rewards": 1.0})
            log.end_episode(outcome=f"{n} steps")
    with simlab.open_run(tmp_path / "run.h5") as ds:
        assert ds.sim.episodes.length.values.tolist() == [2, 0, 3]
        assert [ds.sim.episode(k).sizes["time"] for k in range(3)] == [2, 0, 3]
        assert ds.sim.episodes.outcome.values.tolist() == ["2 steps", "0 steps", "3 steps"]


# -- transitions


def make(path: Path, steps: dict[tuple[str, int], list[tuple[int, dict[str, Any]]]], **ends: Any) -> Path:
    """Record steps: for (agent, episode) a list of (t, what was logged)."""
    episodes = sorted({episode for _, episode in steps})
    with simlab.HDF5Logger(path) as log:
        for episode in episodes:
            log.begin_episode()
            rows = [(t, agent, data) for (agent, e), done in steps.items() if e == episode for t, data in done]
            for t, agent, data in sorted(rows, key=lambda r: r[0]):
                log.log_agent_step(agent, t, data)
            log.end_episode(**{name: given[episode] for name, given in ends.items()})
    return path


def step(o: float, **more: Any) -> dict[str, Any]:
    return {"observations": {"o": float(o)}, "actions": int(o), "rewards": float(o) / 2, **more}


def test_transitions_are_aligned_within_their_episode(tmp_path: Path) -> None:
    run = make(tmp_path / "run.h5", {("a", 0): [(t, step(t)) for t in range(4)], ("a", 1): [(t, step(10 + t)) for t in range(3)]})
    with simlab.open_run(run) as ds:
        got = ds.sim.transitions(agent_id="a")
        assert got.observation.values.tolist() == [0, 1, 2, 10, 11]
        assert got.next_observation.values.tolist() == [1, 2, 3, 11, 12]
        assert got.action.values.tolist() == [0, 1, 2, 10, 11]
        assert got.reward.values.tolist() == [0, 0.5, 1, 5, 5.5]
        assert got.episode.values.tolist() == [0, 0, 0, 1, 1]
        assert got.step.values.tolist() == [0, 1, 2, 0, 1]
        assert got.has_next.values.all()
        assert not got.terminated.values.any()
        assert got.observation.dtype == ds.o.dtype
        assert got.action.dtype == ds.actions.dtype


def test_a_terminal_step_is_kept_without_a_successor(tmp_path: Path) -> None:
    rows = [(t, step(t, terminated=t == 3, truncated=False)) for t in range(4)]
    cut = [(t, step(10 + t, terminated=False, truncated=t == 2)) for t in range(3)]
    with simlab.open_run(make(tmp_path / "run.h5", {("a", 0): rows, ("a", 1): cut})) as ds:
        got = ds.sim.transitions("a")
        assert got.observation.values.tolist() == [0, 1, 2, 3, 10, 11, 12]
        assert got.reward.values.tolist() == [0, 0.5, 1, 1.5, 5, 5.5, 6]
        assert got.terminated.values.tolist() == [False, False, False, True, False, False, False]
        assert got.truncated.values.tolist() == [False] * 6 + [True]
        assert got.has_next.values.tolist() == [True, True, True, False, True, True, False]
        assert np.isnan(got.next_observation.values[[3, 6]]).all()


def test_what_is_said_of_the_episode_flags_its_last_row(tmp_path: Path) -> None:
    steps = {("a", e): [(t, step(10 * e + t)) for t in range(3)] for e in range(3)} | {("b", 0): [(t, step(50 + t)) for t in range(2)]}
    run = make(tmp_path / "run.h5", steps, terminated=[False, True, False], truncated=[True, False, False])
    with simlab.open_run(run) as ds:
        got = ds.sim.transitions("a")
        assert got.observation.values.tolist() == [0, 1, 2, 10, 11, 12, 20, 21]  # nothing is said of the last one
        assert got.truncated.values.tolist() == [False, False, True] + [False] * 5
        assert got.terminated.values.tolist() == [False] * 5 + [True, False, False]
        assert got.has_next.values.tolist() == [True, True, False, True, True, False, True, True]
        assert ds.sim.transitions("b").truncated.values.tolist() == [False, True]


def test_what_agents_say_goes_before_what_is_said_of_the_episode(tmp_path: Path) -> None:
    rows = [(t, step(t, terminated=False, truncated=False)) for t in range(3)]
    with simlab.open_run(make(tmp_path / "run.h5", {("a", 0): rows}, terminated=[False], truncated=[True])) as ds:
        got = ds.sim.transitions("a")
        assert got.observation.values.tolist() == [0, 1]
        assert not got.truncated.values.any()


def test_a_last_observation_without_an_action_is_a_successor(tmp_path: Path) -> None:
    rows = [(t, step(t)) for t in range(3)] + [(3, {"observations": {"o": 3.0}})]
    with simlab.open_run(make(tmp_path / "run.h5", {("a", 0): rows}, terminated=[True], truncated=[False])) as ds:
        got = ds.sim.transitions("a")
        assert got.next_observation.values.tolist() == [1, 2, 3]
        assert got.terminated.values.tolist() == [False, False, True]  # what is said of the episode holds for its last transition
        assert got.has_next.values.all()


def test_sparse_steps_use_the_next_one_that_was_logged(tmp_path: Path) -> None:
    a = [(t, step(t)) for t in (0, 10, 20)]
    b = [(t, step(100 + t)) for t in range(0, 21, 5)]
    b[2] = (10, {"rewards": 1.0})  # saw nothing
    with simlab.open_run(make(tmp_path / "run.h5", {("a", 0): a, ("b", 0): b})) as ds:
        assert ds.sim.transitions("a").next_observation.values.tolist() == [10, 20]
        got = ds.sim.transitions("b")
        assert got.observation.values.tolist() == [100, 105, 115]
        assert got.next_observation.values.tolist() == [105, 115, 120]
        everyone = ds.sim.transitions()
        assert everyone.agent.values.tolist() == ["a"] * 2 + ["b"] * 3
        assert everyone.time.values.tolist() == [ds.time.values[ds.step.values == s][0] for s in (0, 10, 0, 5, 15)]


def test_several_observations(ds: xr.Dataset) -> None:
    got = ds.sim.transitions(IDS[4], observation=["vision", "camera.rgb"])
    assert {"observation.vision", "next_observation.camera.rgb", "action", "reward"} <= set(got.data_vars)
    assert got["observation.vision"].dims == ("transition", "vision_y", "vision_x", "vision_channel")
    np.testing.assert_array_equal(got["observation.vision"].values, V["vision"][4, 250:300])
    np.testing.assert_array_equal(got["next_observation.vision"].values[:-1], V["vision"][4, 251:300])
    assert got.vision_channel.values.tolist() == ["walls", "food", "agents"]
    single = ds.sim.transitions(IDS[4], observation="vision")
    assert "observation" in single
    assert single.terminated.values.tolist() == [False] * 49 + [True]  # the handmade run logs `done`
    with pytest.raises(NotInRunError, match="Did you mean 'vision'"):
        ds.sim.transitions(IDS[4], observation="vison")


def test_transitions_against_a_plain_loop(tmp_path: Path) -> None:
    dice = np.random.default_rng(5)
    steps: dict[tuple[str, int], list[tuple[int, dict[str, Any]]]] = {}
    for agent in "abcd":
        for episode in range(3):
            rows = []
            for t in range(12):
                full = step(dice.integers(1000), terminated=bool(t == 11 and episode == 1))
                data = {k: v for k, v in full.items() if dice.random() > 0.2}
                if data:
                    rows.append((t, data))
            steps[agent, episode] = rows
    expected = []
    for agent in "abcd":
        for episode in range(3):
            rows = [(t, d) for t, d in steps[agent, episode] if "observations" in d]
            for i, (t, d) in enumerate(rows):
                if "actions" in d and (i + 1 < len(rows) or d.get("terminated")):
                    after = rows[i + 1][1]["observations"]["o"] if i + 1 < len(rows) else np.nan
                    expected.append((agent, episode, t, d["observations"]["o"], d["actions"], d.get("rewards", np.nan), after))
    with simlab.open_run(make(tmp_path / "run.h5", steps)) as ds:
        got = ds.sim.transitions()
        columns = [got[n].values.tolist() for n in ("agent", "episode", "step", "observation", "action", "reward", "next_observation")]
        for row, wanted in zip(zip(*columns, strict=True), expected, strict=True):
            assert row[:3] == wanted[:3]
            np.testing.assert_array_equal(row[3:], wanted[3:])


def test_transitions_of_parts(ds: xr.Dataset) -> None:
    part = ds.isel(time=slice(0, 150)).sim.episode(1).sim.transitions(IDS[1], observation="proprioception")
    assert part.time.values.tolist() == list(range(100, 149))
    one = ds.sel(agent=IDS[1]).sim.transitions(observation="vision")
    assert one.equals(ds.sim.transitions(IDS[1], observation="vision"))
    with pytest.raises(NotInRunError, match="no observations"):
        ds[["rewards"]].sim.transitions()
    with pytest.raises(InputError, match="single row"):
        ds.isel(time=3).sim.transitions()
