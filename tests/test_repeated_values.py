"""Values that are logged again, early and late: what the run holds, and what the report counts."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import simlab
from simlab.errors import StorageError, TimestepError
from simlab.record import pending
from simlab.staging import encoders


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.h5"


@pytest.mark.parametrize("handed_over", ["not", "flushed", "sent", "twice"])
@pytest.mark.parametrize("rows", [1, 3, 64, 65])
def test_array_of_the_environment_at_the_same_step(path: Path, monkeypatch: pytest.MonkeyPatch, handed_over: str, rows: int) -> None:
    """The rule does not depend on whether the first one left for the disk."""
    if handed_over == "sent":
        monkeypatch.setattr(pending, "ENOUGH_BYTES", 1)
    with simlab.HDF5Logger(path) as log:
        for t in range(rows):
            log.log_env_step(t, {"grid": np.full((2, 2), t), "note": ["w" * t]})
        for value in (-1, -2):
            if handed_over in ("flushed", "twice"):
                log.flush()
            log.log_env_step(rows - 1, {"grid": np.full((2, 2), value), "note": ["again"]})
            if handed_over == "twice":
                log.flush()
        if rows > 1:
            with pytest.raises(TimestepError, match="'grid' of the environment runs backwards"):
                log.log_env_step(0, {"grid": np.full((2, 2), 7)})
        log.log_env_step(rows, {"grid": np.full((2, 2), 8), "note": ["end"]})
    report = log.report
    assert (report.overwritten, report.values) == (4, 2 * (rows + 1))
    with simlab.open_run(path) as ds:
        assert ds.grid[:, 1, 1].values.tolist() == [*range(rows - 1), -2, 8]
        assert ds.note[:, 0].values.tolist() == [*("w" * t for t in range(rows - 1)), "again", "end"]
        assert len(ds.grid) == rows + 1


@pytest.mark.parametrize("flush", [False, True])
def test_late_values_that_replace_others_are_counted_once(path: Path, flush: bool) -> None:
    with simlab.HDF5Logger(path) as log:
        for t in range(600):
            log.log_agent_step("a", t, {"x": 1.0, "picture": np.zeros(3, np.float32)})
        if flush:
            log.flush()
        for t in range(600, 610):
            log.log_agent_step("b", t, {"x": 1.0})
        log.log_agent_step("c", 100, {"x": 2.0})
        log.log_agent_step("c", 100, {"x": 3.0, "picture": np.ones(3, np.float32)})
        log.flush()
        log.log_agent_step("c", 100, {"picture": np.full(3, 2, np.float32)})
    report = log.report
    assert (report.values, report.overwritten) == (2 * 600 + 10 + 2, 2)
    assert report.bytes_raw == 8 * (600 + 10 + 1) + 12 * 601
    with simlab.open_run(path) as ds:
        assert ds.x.sel(agent="c").values[100] == 3.0
        assert ds.picture.sel(agent="c").values[100].tolist() == [2, 2, 2]


def test_late_values_on_a_disk_that_refuses_are_counted_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put, refuses = encoders.put, [False]

    def sometimes(encoded: Any) -> None:
        put(encoded)
        if refuses[0]:
            raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(encoders, "put", sometimes)
    with simlab.HDF5Logger(path) as log:
        for t in range(600):
            log.log_agent_step("a", t, {"x": 1.0})
        log.flush()
        log.log_agent_step("late", 5, {"x": 2.0})
        refuses[0] = True
        for _ in range(2):
            with pytest.raises(StorageError):
                log.flush()
        refuses[0] = False
        log.flush()
        log.log_agent_step("late", 5, {"x": 3.0})
    report = log.report
    assert (report.values, report.late, report.overwritten) == (601, 2, 1)
