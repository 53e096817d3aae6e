"""Which simulation and which episode goes on, and with which fields."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import simlab

K: list[simlab.HDF5Logger] = []


def killed(record: Callable[[], None]) -> None:
    """Run something in a process that is killed afterwards; loggers that it keeps are not finalized."""
    child = os.fork()
    if child == 0:
        try:
            record()
        finally:
            os.kill(os.getpid(), 9)
    os.waitpid(child, 0)


pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def entry(path: Path, simulation: str | None, name: str) -> list[object]:
    with simlab.open_run(path, simulation=simulation) as ds:
        return list(ds.sim.episodes[name].values.tolist())


def log(logger: simlab.HDF5Logger, steps: range) -> None:
    for t in steps:
        logger.log_agent_step("a", t, {"r": np.float32(t)})


def test_the_simulation_that_was_left_open_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "run.h5"

    def record() -> None:
        with simlab.HDF5Logger(path, simulation="zebra") as first:
            first.begin_episode(seed=1, own="z")
            log(first, range(1))
        K.append(second := simlab.HDF5Logger(path, mode="a", simulation="alpha"))
        second.begin_episode(seed=7, own="a")
        log(second, range(5))

    killed(record)
    with simlab.HDF5Logger(path, mode="a", resume=True) as again:
        assert again.simulation == "alpha"
        log(again, range(5, 6))
    assert entry(path, "alpha", "seed") == [7]
    assert entry(path, "alpha", "own") == ["a"]
    assert entry(path, "alpha", "length") == [6]
    assert entry(path, "zebra", "own") == ["z"]
    with simlab.HDF5Logger(path, mode="a", resume=True) as again:
        assert again.simulation in ("alpha", "zebra")


def test_another_simulation_goes_on_with_fields_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "run.h5"
    with simlab.HDF5Logger(path, simulation="s0") as first:
        first.begin_episode(seed=1, own="s0")
        log(first, range(1))

    def record() -> None:
        K.append(second := simlab.HDF5Logger(path, mode="a", simulation="s1"))
        for k in range(3):
            second.begin_episode(seed=70 + k, own="S1")
            log(second, range(1))

    killed(record)
    with simlab.HDF5Logger(path, mode="a", simulation="s0", resume=True) as again:
        log(again, range(1))
    with simlab.open_run(path, simulation="s0") as ds:
        assert ds.sim.episodes.own.values.tolist() == ["s0", ""]
        assert ds.sim.present("seed").values.tolist() == [True, False]
    assert entry(path, "s1", "seed") == [70, 71, 72]


def test_an_episode_that_had_ended_goes_on_with_its_fields(tmp_path: Path) -> None:
    path = tmp_path / "run.h5"
    with simlab.HDF5Logger(path) as first:
        first.begin_episode(seed=41)
        log(first, range(2))
        first.begin_episode(seed=42, own="b", level=2.5, hard=True)
        log(first, range(5))
        first.end_episode(terminated=True)

    def resume() -> None:
        K.append(again := simlab.HDF5Logger(path, mode="a", resume=2))
        log(again, range(3, 4))

    killed(resume)
    with simlab.open_run(path) as ds:
        assert ds.sim.episodes.seed.values.tolist() == [41, 42]
        assert ds.sim.episodes.own.values.tolist() == ["", "b"]
    with simlab.HDF5Logger(path, mode="a", resume=True) as again:
        log(again, range(4, 6))
    with simlab.open_run(path) as ds:
        table = ds.sim.episodes
        assert table.seed.values.tolist() == [41, 42]
        assert table.own.values.tolist() == ["", "b"]
        assert (table.level.values[1], table.hard.values[1]) == (2.5, True)
        assert table.length.values.tolist() == [2, 6]
        assert ds.sim.present("terminated").values.tolist() == [False, False]


def test_an_episode_that_began_after_the_step_did_not_happen(tmp_path: Path) -> None:
    path = tmp_path / "run.h5"

    def record() -> None:
        K.append(first := simlab.HDF5Logger(path))
        for seed in (41, 42):
            first.begin_episode(seed=seed)
            log(first, range(5))
        first.begin_episode(seed=43)

    def resume() -> None:
        K.append(again := simlab.HDF5Logger(path, mode="a", resume=2))
        log(again, range(3, 4))

    killed(record)
    killed(resume)
    for _ in range(2):
        with simlab.open_run(path) as ds:
            table = ds.sim.episodes
            assert table.episode.values.tolist() == [0, 1]
            assert table.start.values.tolist() == [0, 5]
            assert table.length.values.tolist() == [5, 4]
            assert table.seed.values.tolist() == [41, 42]
            assert ds.episode.values.tolist() == [0] * 5 + [1] * 4
        with simlab.HDF5Logger(path, mode="a", resume=True):
            pass
