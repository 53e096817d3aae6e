"""Writers that were killed: what they committed is there after a repair, and everybody opens it."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import h5py
import netCDF4
import numpy as np
import pytest

import simlab
from simlab.cli import main
from simlab.errors import DamageWarning, FormatError, RunExistsError, RunInUseError, RunNotFoundError, StorageError, UnfinishedRunWarning
from simlab.storage.superblock import is_marked

WRITER = """
    import os, signal, sys
    import numpy as np
    import simlab
    log = simlab.HDF5Logger({path!r}, seed=3)
    for t in range(100_000):
        for a in range(3 + t // 400):
            log.log_agent_step(f"agent_{{a}}", t % 1000, {{"x": np.full(16, t + a, np.float32), "rewards": 1.0}})
        if t % 50 == 0:
            log.log_env_step(t % 1000, {{"grid": np.full((4, 4), t), "n": t}})
        if t % 100 == 99:
            log.flush()
            print(t + 1, flush=True)
        if t % 1000 == 999:
            log.begin_episode()
        if t + 1 == {stop}:
            {end}
"""


def killed_run(path: Path, stop: int, end: str = "os.kill(os.getpid(), signal.SIGKILL)") -> int:
    """Record until `stop`, be killed, and return the rows that had been flushed by then."""
    code = textwrap.dedent(WRITER.format(path=str(path), stop=stop, end=end))
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert out.returncode in (-signal.SIGKILL, 9), out.stderr
    return int(out.stdout.split()[-1])


@pytest.mark.parametrize("stop", [150, 512, 731, 1300])
def test_killed_run_is_whole_after_repair(tmp_path: Path, stop: int) -> None:
    path = tmp_path / "run.h5"
    killed_run(path, stop)
    before = {p: p.read_bytes() for p in sorted(tmp_path.rglob("*")) if p.is_file()}
    with pytest.warns(UnfinishedRunWarning, match="simlab repair"):
        unfinished = simlab.open_run(path).load()
    assert unfinished.sizes["time"] == stop
    assert {p: p.read_bytes() for p in sorted(tmp_path.rglob("*")) if p.is_file()} == before
    told = simlab.repair(path)
    assert told.rows["simulation_0001"] == stop
    assert (told.unfinished, told.unreadable, told.was_closed) == (["simulation_0001"], {}, False)
    with simlab.open_run(path) as ds:
        rows = ds.sizes["time"]
        assert rows == stop
        assert ds.drop_attrs(deep=False).identical(unfinished.drop_attrs(deep=False))
        for a in range(3):
            np.testing.assert_array_equal(ds.x.sel(agent=f"agent_{a}").values[:, 0], np.arange(rows, dtype=np.float32) + a)
        assert ds.grid.values[:, 0, 0].tolist() == list(range(0, rows, 50))
    with netCDF4.Dataset(path) as nc:
        assert len(nc["simulation_0001"].dimensions["time"]) == rows
    again = simlab.repair(path)
    assert again.was_closed
    assert again.rows == told.rows


def test_repair_on_a_copy_leaves_the_file_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, copy = tmp_path / "run.h5", tmp_path / "mended.h5"
    killed_run(path, 150)
    before = path.read_bytes()
    assert main(["repair", str(path), "--output", str(copy)]) == 0
    assert "150 rows, 50 of them from the journal; it was not finalized" in capsys.readouterr().out
    assert path.read_bytes() == before
    assert is_marked(path)
    assert not is_marked(copy)
    with pytest.raises(RunExistsError, match="exists already"):
        simlab.repair(path, copy)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mended.h5", "run.h5", "run.h5.journal"]


def test_repair_refuses_what_it_cannot_mend(tmp_path: Path) -> None:
    path = tmp_path / "run.h5"
    with pytest.raises(RunNotFoundError, match="does not exist"):
        simlab.repair(path)
    path.write_bytes(b"not HDF5 at all" * 100)
    with pytest.raises(FormatError):
        simlab.repair(path)
    path.unlink()
    with simlab.HDF5Logger(path) as log:
        log.log_env_step(0, {"n": 1})
        log.flush()
        with pytest.raises(RunInUseError):
            simlab.repair(path)
        log.log_env_step(1, {"n": 2})
    assert simlab.repair(path).was_closed
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 3])
    with pytest.raises(FormatError, match=r"truncated|damaged"):
        simlab.repair(path)
    assert os.listdir(tmp_path) == ["run.h5"]


def test_a_damaged_run_that_was_left_shows_what_can_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.h5"
    killed_run(path, 150)
    copy = tmp_path / "copy.h5"
    simlab.repair(path, copy)
    with h5py.File(copy) as file:
        header = h5py.h5o.get_info(file["simulation_0001/agents/observations/x"].id).addr
    with open(path, "r+b") as file:
        file.seek(header + 20)
        byte = file.read(1)
        file.seek(header + 20)
        file.write(bytes([byte[0] ^ 1]))
    with pytest.warns(DamageWarning) as told:
        ds = simlab.open_run(path)
    text = " ".join(str(w.message) for w in told)
    assert "Lost: rows that only its journal holds" in text
    assert "is being written" not in text
    with ds:
        assert "x" not in ds
        assert ds.rewards.values[0].tolist() == [1.0] * 100
        assert ds.n.values[[0, 50]].tolist() == [0, 50]
    assert main(["repair", str(path)]) == 1
    err = capsys.readouterr().err
    assert "damaged" in err
    assert "simlab.open_run shows" in err
    assert "is being written" not in err


def test_rows_whose_clock_was_lost_are_told(tmp_path: Path) -> None:
    path, copy = tmp_path / "run.h5", tmp_path / "copy.h5"
    killed_run(path, 150)
    simlab.repair(path, copy)
    with h5py.File(copy, "r+") as file:
        run = file["simulation_0001"]
        run["episode"][90:] = 0
        run["step"][90:] = 0
        run["time"][90:] = 0
        run["complete"][()] = 0
    with pytest.warns(DamageWarning, match=r"rows from 90 on are lost \(60\)"):
        ds = simlab.open_run(copy)
    with ds:
        assert ds.step.values.tolist() == list(range(90))
        assert ds.grid.values[:, 0, 0].tolist() == [0, 50]


def test_a_clock_that_was_cut_short_costs_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "run.h5"
    killed_run(path, 731)
    clocks = sorted((tmp_path / "run.h5.journal").glob("*-clock.rows"))
    for clock in clocks:
        os.truncate(clock, 200)
    with pytest.warns(UnfinishedRunWarning, match=r"Lost: .*the rows of the journal's file \d-clock"):
        ds = simlab.open_run(path)
    with ds:
        assert ds.x.values[0, :, 0].tolist() == list(range(ds.sizes["time"]))
        assert ds.sizes["time"] >= 512
    assert any("clock" in gap for gap in simlab.repair(path).gaps)


def test_a_folder_that_may_not_be_written_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.h5"
    killed_run(path, 150)

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", "owner.json")

    monkeypatch.setattr("simlab.storage.lock._one_at_a_time", refuse)
    for call in (lambda: simlab.repair(path), lambda: simlab.HDF5Logger(path, mode="a", resume=True)):
        with pytest.raises(StorageError, match="Permission denied"):
            call()
