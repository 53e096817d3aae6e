"""The journal where mapped files cannot be renamed or removed."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import simlab
from simlab.errors import UnfinishedRunWarning
from tests.windows import imitated, is_mapped

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="imitates Windows with what Linux tells of mapped files")
ROWS = 900
ROOT = Path(__file__).parents[1]


def log_row(log: simlab.HDF5Logger, t: int) -> None:
    """Log a row; agents, variables and the length of texts grow, so that files of the journal are replaced all the time."""
    for agent in range(1 + t // 90):
        values = {"x": np.full(6, t + agent / 100), "rewards": float(t)}
        if t >= 200:
            values["late"] = np.int16(t)
        if t % 7 == 0:
            values["said"] = "ab" * (1 + t // 40)
        log.log_agent_step(agent, t, values)
    log.log_env_step(t, {"grid": np.full((4, 4), t, np.int32), "level": t})


def check(ds: object, rows: int) -> None:
    assert ds.sizes["time"] >= rows
    for t in (0, 1, rows // 2, rows - 1):
        row = ds.isel(time=t)
        for agent in range(1 + t // 90):
            assert (row.x.values[agent] == t + agent / 100).all()
            assert row.rewards.values[agent] == t
            if t >= 200:
                assert row.late.values[agent] == t
            assert str(row.said.values[agent]) == ("ab" * (1 + t // 40) if t % 7 == 0 else "")
        assert row.level.values == t


def test_recording_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "run.h5"
    with imitated():
        for mode, name in (("w", "a"), ("a", "b"), ("a", "c")):
            with simlab.HDF5Logger(path, mode=mode, simulation=name) as log:
                for t in range(ROWS):
                    log_row(log, t)
                    if t == 500:
                        assert any(is_mapped(p) for p in path.parent.glob("*/*.rows"))
                        live = simlab.open_run(path, simulation=name, live=True)
                        check(live, 501)
                        live.close()
    gc.collect()
    assert [p.name for p in tmp_path.iterdir()] == ["run.h5"]
    for name in "abc":
        with simlab.open_run(path, simulation=name) as ds:
            check(ds, ROWS)


WRITER = """
import sys
from tests.windows import imitated
from tests.test_windows import log_row
import simlab
from simlab.errors import UnfinishedRunWarning
path, start = sys.argv[1], int(sys.argv[2])
with imitated():
    log = simlab.HDF5Logger(path, mode="a", resume=True) if start else simlab.HDF5Logger(path)
    for t in range(start, 900):
        log_row(log, t)
        print(t, flush=True)
"""


def run_until(path: Path, row: int, start: int) -> int:
    """Start a writer at a row, kill it soon after another, and return the last row whose calls returned."""
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(start)], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert writer.stdout is not None
    last = -1
    for line in writer.stdout:
        last = int(line)
        if last >= row:
            time.sleep(np.random.default_rng(row).random() / 50)
            os.kill(writer.pid, signal.SIGKILL)
            break
    last = max([last, *(int(line) for line in writer.stdout.read().split("\n")[:-1] if line)])
    writer.wait()
    return last


def test_what_was_logged_survives(tmp_path: Path) -> None:
    path = tmp_path / "run.h5"
    last = -1
    for row in (40, 210, 330, 480, 640):
        last = run_until(path, row, last + 1)
        with pytest.warns(UnfinishedRunWarning), simlab.open_run(path) as ds:
            check(ds, last + 1)
    report = simlab.repair(path, tmp_path / "mended.h5")
    assert report is not None
    with simlab.open_run(tmp_path / "mended.h5") as ds:
        check(ds, last + 1)
