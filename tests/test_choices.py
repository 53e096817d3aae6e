"""What the caller may choose about durability: checksums, what is dropped on a slow disk, where the journal lies, when it is synced."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import simlab
from simlab.errors import InputError, RunInUseError, RunNotFoundError, StateError, StorageError, UnfinishedRunWarning
from simlab.storage.journal import Journal
from simlab.storage.simulation import SimulationStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.h5"


@pytest.mark.parametrize("compression", ["gzip", None, 6, "lzf"])
def test_a_flipped_bit_is_found(path: Path, compression: Any) -> None:
    rng = np.random.default_rng(0)
    kept = rng.random((300, 50))
    with simlab.HDF5Logger(path, compression=compression, checksums=True) as log:
        for t in range(300):
            log.log_agent_step("a", t, {"x": kept[t], "say": "hello", "n": t})
    with simlab.open_run(path) as ds:
        np.testing.assert_array_equal(ds.x.values[0], kept)
    with h5py.File(path) as file:  # HDF5 itself verifies them
        dataset = file["simulation_0001/agents/observations/x"]
        assert dataset.fletcher32
        assert file["simulation_0001/agents/logged"].fletcher32
        np.testing.assert_array_equal(dataset[0, :300], kept)
        place = dataset.id.get_chunk_info(0)
    raw = bytearray(path.read_bytes())
    raw[place.byte_offset + place.size // 2] ^= 4
    path.write_bytes(raw)
    with simlab.open_run(path) as ds, pytest.raises(StorageError, match="damaged in 1 chunk"):
        ds.x.load()


def test_a_slow_disk_drops_what_was_chosen_and_counts_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, commit = threading.Event(), SimulationStore.commit

    def slow(self: SimulationStore, *given: Any) -> None:
        gate.wait(20)
        commit(self, *given)

    monkeypatch.setattr(SimulationStore, "commit", slow)
    log = simlab.HDF5Logger(path, drop_when_slow=["vision"])
    for t in range(700):
        log.log_agent_step("a", t, {"vision": np.full((40, 40), t, np.float32), "rewards": float(t)})
        if t == 600:
            gate.set()
    report = log.finalize()
    assert report.dropped > 0
    with simlab.open_run(path) as ds:
        assert ds.rewards.values[0].tolist() == list(range(700))
        there = ds.sim.present("vision").values[0]
        assert 700 - there.sum() == report.dropped
        assert (ds.vision.values[0, there, 1, 1] == np.flatnonzero(there)).all()
    with pytest.raises(InputError, match="list of variables"):
        simlab.HDF5Logger(path, mode="w", drop_when_slow="vision")


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False, timeout=60)


def test_a_journal_elsewhere(path: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "scratch"
    with pytest.raises(RunNotFoundError, match="mkdir"):
        simlab.HDF5Logger(path, journal_dir=elsewhere)
    elsewhere.mkdir()
    done = run(f"""
        import os, simlab
        log = simlab.HDF5Logger({str(path)!r}, journal_dir={str(elsewhere)!r})
        for t in range(100):
            log.log_env_step(t, {{"n": t}})
        os.kill(os.getpid(), {int(signal.SIGKILL)})
    """)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert len(list(elsewhere.iterdir())) == 1
    assert all(p.name.startswith("owner.json") for p in path.with_name("run.h5.journal").iterdir())
    with pytest.warns(UnfinishedRunWarning), simlab.open_run(path) as ds:
        assert ds.n.values.tolist() == list(range(100))
    simlab.repair(path)
    assert list(elsewhere.iterdir()) == []
    with simlab.HDF5Logger(path, mode="a", journal_dir=elsewhere) as log:
        log.log_env_step(0, {"n": 0})
    assert sorted(os.listdir(tmp_path)) == ["run.h5", "scratch"]
    assert list(elsewhere.iterdir()) == []


def test_a_journal_that_is_not_here_is_told_and_never_given_up(path: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "scratch"
    elsewhere.mkdir()
    run(f"""
        import os, simlab
        log = simlab.HDF5Logger({str(path)!r}, journal_dir={str(elsewhere)!r})
        for t in range(1000):
            log.log_env_step(t, {{"n": t}})
        log.attach("so_far", {{"t": t}})
        os.kill(os.getpid(), {int(signal.SIGKILL)})
    """)
    elsewhere.rename(tmp_path / "away")
    with pytest.warns(UnfinishedRunWarning, match="the rows of the journal .* which is not here"):
        simlab.open_run(path).close()
    with pytest.raises(StorageError, match="bring it back"):
        simlab.repair(path)
    told = simlab.repair(path, tmp_path / "copy.h5")
    assert "which is not here" in str(told)
    (tmp_path / "away").rename(elsewhere)
    assert simlab.repair(path).rows == {"simulation_0001": 1000}


def test_a_killed_run_may_be_moved_with_its_folder(path: Path, tmp_path: Path) -> None:
    run(f"""
        import os, simlab
        log = simlab.HDF5Logger({str(path)!r})
        for t in range(100):
            log.log_env_step(t, {{"n": t}})
        os.kill(os.getpid(), {int(signal.SIGKILL)})
    """)
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    for name in ("run.h5", "run.h5.journal"):
        (tmp_path / name).rename(moved / name)
    with pytest.warns(UnfinishedRunWarning) as told, simlab.open_run(moved / "run.h5") as ds:
        assert ds.n.values.tolist() == list(range(100))
    assert "Lost" not in str(told[0].message)
    assert simlab.repair(moved / "run.h5").gaps == []
    with simlab.open_run(moved / "run.h5") as ds:
        assert ds.n.values.tolist() == list(range(100))
    assert os.listdir(moved) == ["run.h5"]


def test_without_a_journal_the_last_window_is_lost_and_nothing_else(path: Path) -> None:
    done = run(f"""
        import os, simlab
        log = simlab.HDF5Logger({str(path)!r}, durability="none")
        for t in range(300):
            log.log_env_step(t, {{"n": t}})
        log.flush()
        log.log_env_step(300, {{"n": 300}})
        os.kill(os.getpid(), {int(signal.SIGKILL)})
    """)
    assert done.returncode == -signal.SIGKILL, done.stderr
    with pytest.warns(UnfinishedRunWarning, match="300 rows"), simlab.open_run(path) as ds:
        assert ds.n.values.tolist() == list(range(300))


def test_fsync_syncs_by_time_and_by_steps(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(Journal, "sync", lambda self: synced.append(1))
    with simlab.HDF5Logger(path, durability="fsync", fsync_seconds=1000, fsync_steps=10) as log:
        for t in range(95):
            log.log_env_step(t, {"n": t})
        assert len(synced) == 9
    synced.clear()
    with simlab.HDF5Logger(path, mode="w", durability="fsync", fsync_seconds=0.05) as log:
        log.log_env_step(0, {"n": 0})
        for _ in range(200):
            if synced:
                break
            threading.Event().wait(0.02)
        assert synced
    for wrong in ({"durability": "much"}, {"fsync_seconds": 0}, {"fsync_steps": 0.5}):
        with pytest.raises(InputError):
            simlab.HDF5Logger(path, mode="w", **wrong)  # type: ignore[arg-type]


def test_a_second_writer_is_told_who_the_first_one_is(path: Path) -> None:
    with simlab.HDF5Logger(path) as log:
        log.log_env_step(0, {"n": 0})
        for mode in ("w", "a"):
            with pytest.raises(RunInUseError, match="a logger of this process"):
                simlab.HDF5Logger(path, mode=mode)  # type: ignore[arg-type]
        done = run(f"import simlab; simlab.HDF5Logger({str(path)!r}, mode='a')")
        assert f"is being recorded by process {os.getpid()}" in done.stderr
        log.log_env_step(1, {"n": 1})
    with simlab.open_run(path) as ds:
        assert ds.n.values.tolist() == [0, 1]


def test_a_journal_that_vanishes_costs_durability_and_no_rows(path: Path) -> None:
    log = simlab.HDF5Logger(path)
    log.log_env_step(0, {"n": 0})
    shutil.rmtree(path.with_name("run.h5.journal"))
    kept, told = [0], []
    for t in range(1, 1000):
        try:
            log.log_env_step(t, {"n": t})
            kept.append(t)
        except StorageError as e:
            told.append(str(e))
    assert len(told) == 1
    assert "was removed while it was used" in told[0]
    assert log._file.beat()
    log.finalize()
    with simlab.open_run(path) as ds:
        assert ds.n.values.tolist() == kept
    assert [p.name for p in path.parent.iterdir()] == ["run.h5"]


@pytest.mark.parametrize("how", ["deleted", "replaced"])
def test_a_file_that_vanishes_under_the_writer_is_told(path: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simlab.record.writer.BEAT_SECONDS", 0.05)
    log = simlab.HDF5Logger(path)
    log.log_env_step(0, {"n": 0})
    path.unlink()
    if how == "replaced":
        path.write_bytes(b"something else")

    def go_on() -> None:
        for t in range(1, 1000):
            log.log_env_step(t, {"n": t})
            threading.Event().wait(0.01)

    with pytest.raises(StorageError, match="was deleted, replaced or taken over"):
        go_on()
    with pytest.raises(StorageError):
        log.finalize()
    if how == "replaced":
        assert path.read_bytes() == b"something else"
    log._stage = None  # nothing is left to finalize


def test_a_run_of_another_machine_says_that_rows_may_come_late(path: Path) -> None:
    with simlab.HDF5Logger(path) as log:
        for t in range(10):
            log.log_env_step(t, {"n": t})
        owner = path.with_name("run.h5.journal") / "owner.json"
        mine = owner.read_text()
        owner.write_text(json.dumps(json.loads(mine) | {"host": "elsewhere"}))
        with pytest.warns(UserWarning, match="is being recorded on elsewhere"):
            assert simlab.open_run(path).n.values.tolist() == list(range(10))
        owner.write_text(mine)


def test_another_file_in_its_place_is_never_touched(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.h5"
    with simlab.HDF5Logger(other) as log:
        for t in range(500):
            log.log_env_step(t, {"m": t})
    theirs = other.read_bytes()
    log = simlab.HDF5Logger(path)
    for t in range(100):
        log.log_env_step(t, {"n": t})
    os.replace(other, path)

    def go_on() -> None:
        for t in range(100, 3000):
            log.log_env_step(t, {"n": t, f"late_{t // 500}": 1})
        log.finalize()

    with pytest.raises(StorageError):
        go_on()
    with pytest.raises(StorageError):
        log.finalize()
    assert path.read_bytes() == theirs
    log._stage = None  # nothing is left to finalize


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"durability": "fsync", "fsync_steps": True}, "fsync_steps=True is no whole number"),
        ({"durability": "fsync", "fsync_seconds": True}, "fsync_seconds=True is no number"),
        ({"fsync_steps": 5}, "belongs to durability='fsync'"),
        ({"durability": "none", "journal_dir": "."}, "there is no journal then"),
        ({"checksums": "no"}, "checksums='no' is neither True nor False"),
        ({"drop_when_slow": "vision"}, "no list of variables"),
        ({"drop_when_slow": 3}, "no list of variables"),
    ],
)
def test_choices_that_make_no_sense_are_refused(path: Path, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        simlab.HDF5Logger(path, **options)
    assert not path.exists()


def test_names_to_drop_that_no_variable_has_are_told(path: Path) -> None:
    log = simlab.HDF5Logger(path, drop_when_slow=["vison", "n"])
    log.log_step(0, {"a": {"vision": np.zeros((2, 2))}}, environment={"n": 1})
    with pytest.warns(UserWarning, match=r"drop_when_slow names 'vison', which was never logged\. Did you mean 'vision'"):
        log.finalize()


def test_a_logger_cannot_be_sent_to_another_process(path: Path) -> None:
    with simlab.HDF5Logger(path) as log, pytest.raises(StateError, match="one process writes a file"):
        pickle.dumps(log)
