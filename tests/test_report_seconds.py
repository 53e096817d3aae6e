"""The time that the report says was spent inside calls, on a clock that only the test moves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import simlab
from simlab.record import gate
from simlab.record.stage import Stage


@pytest.mark.parametrize("agents", [1, 64, 100])
def test_estimate_of_calls_by_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, agents: int) -> None:
    """The call that makes the row is the slow one; timing every so many calls would always, or never, hit it."""
    now, append, rows = [0.0], Stage._append, 128_000 // agents

    def slow(self: Stage, step: int) -> None:
        now[0] += 1.0
        append(self, step)

    monkeypatch.setattr(gate, "perf_counter", lambda: now[0])
    monkeypatch.setattr(Stage, "_append", slow)
    ids = list(range(agents))
    with simlab.HDF5Logger(tmp_path / "run.h5") as log:
        for t in range(rows):
            for i in ids:
                log.log_agent_step(i, t, {"x": 1.0})
    assert log.report.values == rows * agents
    assert log.report.seconds_logging == pytest.approx(rows, rel=0.2)


def test_the_call_that_is_timed_goes_the_way_of_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow, long_way = [0], simlab.HDF5Logger._log_agent

    def counted(*given: Any) -> None:
        slow[0] += 1
        long_way(*given)

    monkeypatch.setattr(simlab.HDF5Logger, "_log_agent", staticmethod(counted))
    with simlab.HDF5Logger(tmp_path / "run.h5") as log:
        for i in range(50):
            log.log_agent_step(i, 0, {"x": 1.0})
        for t in range(1, 5):
            for i in range(50):
                log.log_agent_step(i, t, {"x": 1.0})
        slow[0] = 0
        for t in range(5, 105):
            for i in range(50):
                log.log_agent_step(i, t, {"x": 1.0})
    assert slow[0] <= 100 + 50  # the first of each row, and once all of them where arrays moved


def test_a_clock_read_is_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = [0]

    def read() -> float:
        reads[0] += 1
        return float(reads[0])

    monkeypatch.setattr(gate, "perf_counter", read)
    with simlab.HDF5Logger(tmp_path / "run.h5") as log:
        for t in range(1000):
            log.log_agent_step("a", t, {"x": 1.0})
        assert reads[0] > 6
    assert log.report.seconds_logging == 0.0
