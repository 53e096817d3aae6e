"""Record the grid world: its schema, its episodes, its run file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal

from simlab.demo.world import ACTIONS, CHANNELS, HEIGHT, SEASONS, SIGHT, SNAPSHOT_EVERY, WIDTH, World, rooms
from simlab.schema import Schema, Variable

if TYPE_CHECKING:
    from simlab.record.logger import HDF5Logger
    from simlab.record.report import Report


def demo_schema() -> Schema:
    """Return what a run of the grid world holds.

    Examples
    --------
    >>> demo_schema().variables()[0].channels
    ('walls', 'food', 'agents')
    """
    side = 2 * SIGHT + 1
    return Schema(
        observations=[
            Variable(
                "vision", (side, side, 3), "uint8", kind="image", channels=CHANNELS, long_name="cells around the agent", low=0, high=255
            ),
            Variable(
                "proprioception", (4,), channels=("x", "y", "energy", "age"), long_name="place (cells), energy, age (steps)"
            ),
            Variable(
                "abstract_state",
                (4,),
                channels=("food_seen", "food_distance", "food_bearing", "others_seen"),
                long_name="nearest food seen: steps to it, direction (radians); others in view",
            ),
        ],
        actions=Variable("actions", dtype="int8", categories=ACTIONS, long_name="move"),
        rewards=Variable("rewards", long_name="food eaten, less the effort"),
        states=Variable(
            "states", (4,), channels=("hunger", "memory_dx", "memory_dy", "confidence"), long_name="hunger and memory of food (cells)"
        ),
        terminations=Variable("terminated", dtype="bool", long_name="starved in this step"),
        environment=[
            Variable("resource_count", dtype="int32", long_name="cells with food"),
            Variable("population", dtype="int32", long_name="living agents"),
            Variable(
                "state_snapshots", (HEIGHT, WIDTH, 3), "uint8", kind="image", channels=CHANNELS, every=SNAPSHOT_EVERY,
                long_name="the whole world", low=0, high=255,
            ),
        ],
    )  # fmt: skip


def simulate(seed: int = 7, episodes: int = 6, steps: int = 240) -> Iterator[World]:
    """Yield the world after every step of every episode; a new `World` is a new episode.

    Parameters
    ----------
    seed : int, optional
        The same seed gives the same worlds, step by step.
    episodes, steps : int, optional
        How many episodes, and the time limit of each; an episode ends earlier when everybody has starved.

    Examples
    --------
    >>> [world.time for world in simulate(seed=1, episodes=2, steps=3)]
    [1, 2, 3, 1, 2, 3]
    """
    for episode in range(episodes):
        world = World([seed, episode], SEASONS[episode % len(SEASONS)][0])
        for _ in range(steps):
            world.step()
            yield world
            if world.extinct:
                break


def record_demo(
    path: str | os.PathLike[str],
    *,
    seed: int = 7,
    episodes: int = 6,
    steps: int = 240,
    mode: Literal["x", "w", "a"] = "x",
    progress: Callable[[int], object] | None = None,
) -> Report:
    """Record the grid world into a run file.

    Parameters
    ----------
    path : str or path-like
        The file to write.
    seed, episodes, steps : int, optional
        As for `simulate`.
    mode : {"x", "w", "a"}, optional
        As for `HDF5Logger`: "x" never overwrites.
    progress : callable, optional
        Called with the number of the episode that begins.

    Returns
    -------
    Report
        What the logger counted.

    Examples
    --------
    >>> import tempfile, os.path
    >>> report = record_demo(os.path.join(tempfile.mkdtemp(), "demo.h5"), episodes=1, steps=10)
    >>> report.rows
    10
    """
    import simlab

    config: dict[str, Any] = {"world": {"shape": [HEIGHT, WIDTH], "torus": True}, "sight": SIGHT, "steps": steps, "seasons": dict(SEASONS)}
    with simlab.HDF5Logger(path, demo_schema(), mode=mode, seed=seed, config=config, environment_type="grid_world") as log:
        world: World | None = None
        episode = 0

        def end() -> None:
            if world is not None:
                log.end_episode(outcome="starved" if world.extinct else "time limit", terminated=world.extinct, truncated=not world.extinct)

        for now in simulate(seed, episodes, steps):
            if now is not world:
                end()
                world = now
                if progress is not None:
                    progress(episode)
                log.begin_episode(seed=seed + episode, season=world.season)
                episode += 1
            record_step(log, now)
        end()
        log.attach("world", {"walls": rooms(), "policy": {"follow_memory": 0.93, "turn": 0.08}, "note": None})
    return log.report


def record_step(log: HDF5Logger, world: World) -> None:
    """Log one step of the world."""
    t = world.time - 1
    for agent in world.agents:
        log.log_agent_step(
            agent.id,
            t,
            {
                "observations": {"vision": agent.view, "proprioception": agent.body, "abstract_state": agent.abstract},
                "actions": agent.action, "rewards": agent.reward, "states": agent.memory, "terminated": agent.terminated,
            },
        )  # fmt: skip
    log.log_env_step(t, {"resource_count": world.food, "population": sum(not agent.terminated for agent in world.agents)})
    if t % SNAPSHOT_EVERY == 0:
        log.log_env_step(t, {"state_snapshots": world.grid})
