"""Fields of episodes: what may become of their types, and that nothing is lost on the way."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import simlab
from simlab.errors import MetadataError, StorageError
from simlab.storage import episodes


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.h5"


@pytest.mark.parametrize("flush", [False, True])
def test_whole_numbers_may_turn_into_floats(path: Path, flush: bool) -> None:
    with simlab.HDF5Logger(path) as log:
        for i, fields in enumerate([{"score": 3}, {}, {"score": 2.5, "deaths": 1}, {"score": 2**53}, {"score": -1, "deaths": 2}]):
            log.log_agent_step("a", 0, {"x": i})
            log.end_episode(**fields)
            if flush:
                log.flush()
    with simlab.open_run(path) as ds:
        table = ds.sim.episodes
        assert table.score.dtype == np.float64
        np.testing.assert_array_equal(table.score.values, [3.0, np.nan, 2.5, 2.0**53, -1.0])
        assert "strlen" not in " ".join(map(str, table.variables))
        assert table.deaths.values[[2, 4]].tolist() == [1, 2]


def test_what_a_float_may_not_hold_is_refused(path: Path) -> None:
    with simlab.HDF5Logger(path) as log:
        log.log_agent_step("a", 0, {"x": 1.0})
        log.end_episode(key=2**53 + 1, score=0.5)
        log.begin_episode()
        with pytest.raises(MetadataError, match=r"'key' is 0\.5; it holds floats and 9007199254740993"):
            log.end_episode(key=0.5)
        with pytest.raises(MetadataError, match=r"'score' is 9007199254740993"):
            log.end_episode(score=2**53 + 1)
        log.end_episode(key=7, score=7)
    with simlab.open_run(path) as ds:
        assert ds.sim.episodes.key.values.tolist() == [2**53 + 1, 7]
        assert ds.sim.episodes.score.values.tolist() == [0.5, 7.0]


def test_types_of_a_refused_call_are_not_remembered(path: Path) -> None:
    with simlab.HDF5Logger(path) as log:
        with pytest.raises(simlab.errors.ValueMismatchError):
            log.log_episode({"x": [1.0, 2.0], "y": [1.0]}, result="lost")
        log.log_episode({"x": [1.0, 2.0]}, result=7)
    with simlab.open_run(path) as ds:
        assert ds.sim.episodes.result.values.tolist() == [7]


def test_a_disk_that_refuses_the_column_of_floats_loses_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make, refusals = episodes.create_variable, [2]

    def sometimes(group: Any, name: str, dims: Any, dtype: Any, **named: Any) -> Any:
        made = make(group, name, dims, dtype, **named)
        if name == "score" and dtype == "float64" and refusals[0]:
            refusals[0] -= 1
            raise OSError(errno.ENOSPC, "full")
        return made

    monkeypatch.setattr(episodes, "create_variable", sometimes)
    log = simlab.HDF5Logger(path)
    log.log_agent_step("a", 0, {"x": 1.0})
    log.end_episode(score=3)
    log.flush()
    log.log_agent_step("a", 0, {"x": 1.0})
    log.end_episode(score=2.5)
    for _ in range(2):
        with pytest.raises(StorageError):
            log.flush()
    log.finalize()
    with simlab.open_run(path) as ds:
        assert ds.sim.episodes.score.values.tolist() == [3.0, 2.5]


def test_presence_goes_with_the_table(tmp_path: Path) -> None:
    """The open episode is in both, with its start, its length and what was told at its begin."""
    path = tmp_path / "run.h5"
    log = simlab.HDF5Logger(path)
    for number, told in enumerate(({"seed": 3}, {}, {"seed": 5})):
        log.begin_episode(**told)
        log.log_step(0, {"a": {"x": 1.0}})
        if number < 2:
            log.end_episode()
    log.flush()
    with simlab.open_run(path) as ds:
        assert ds.sim.episodes["episode"].values.tolist() == [0, 1, 2]
        for name, wanted in (("seed", [True, False, True]), ("start", [True] * 3), ("length", [True] * 3)):
            there = ds.sim.present(name)
            assert there["episode"].values.tolist() == [0, 1, 2]
            assert there.values.tolist() == wanted
    log.finalize()
    with simlab.open_run(path) as ds:
        assert ds.sim.present("seed").values.tolist() == [True, False, True]
