"""A disk that is full, a second writer, files that go away, children that exit: told, and nothing else lost."""

from __future__ import annotations

import contextlib
import errno
import gc
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import simlab
from simlab.errors import RunInUseError, SimlabError, StateError, StorageError
from tests.recorded import small_windows

IS_ROOT = hasattr(os, "geteuid") and os.geteuid() == 0
needs_mount = pytest.mark.skipif(not IS_ROOT or sys.platform != "linux", reason="a small disk is mounted by root")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(place)], capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"nothing can be mounted here: {done.stderr!r}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=False)


def fill(folder: Path, leave: int = 0) -> Path:
    """Take all the room of a disk but for some bytes."""
    ballast = folder / "ballast"
    stat = os.statvfs(folder)
    free = stat.f_bavail * stat.f_frsize
    with open(ballast, "wb", buffering=0) as file, contextlib.suppress(OSError):  # the writer's thread takes room too
        for _ in range(max(0, free - leave) // 4096):
            file.write(bytes(4096))
    return ballast


def step(log: Any, t: int, extra: dict[str, Any] | None = None) -> None:
    dice = np.random.default_rng(t)
    log.log_step(t, {"a": {"x": dice.random(64), "rewards": float(t)} | (extra or {})}, environment={"n": t + 1})


def check(path: Path, steps: list[int], extra: dict[str, list[int]] | None = None) -> None:
    """See that these steps are there, with their values, and no others."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with simlab.open_run(path) as ds:
            assert ds.step.values.tolist() == steps
            if steps:
                np.testing.assert_array_equal(ds.x.values[0], np.stack([np.random.default_rng(t).random(64) for t in steps]))
                np.testing.assert_array_equal(ds.n.values, np.array(steps) + 1)


FAULTS: dict[str, Callable[[Any, int], None]] = {
    "chunk": lambda log, t: step(log, t),
    "commit": lambda log, t: log.flush(),
    "structure": lambda log, t: step(log, t, {f"late_{t}": np.zeros(40)}),
    "journal": lambda log, t: step(log, t, {f"wide_{t}": np.zeros(20_000)}),
    "attach": lambda log, t: log.attach(f"a{t}", {"big": np.random.default_rng(1).random(60_000)}),
    "finalize": lambda log, t: log.finalize(),
}


@needs_mount
@pytest.mark.parametrize("leave", [0, 9_000, 120_000])
@pytest.mark.parametrize("fault", FAULTS)
def test_full_disk(small_disk: Path, fault: str, leave: int) -> None:
    path, logged = small_disk / "run.h5", []
    with small_windows(8):
        log = simlab.HDF5Logger(path)
        for t in range(20):
            step(log, t)
            logged.append(t)
        ballast = fill(small_disk, leave)
        refused, told = 0, []
        for t in range(20, 60):
            try:
                if fault != "chunk" and t % 3 == 0:
                    FAULTS[fault](log, t)
                    if fault == "finalize":
                        break
                    if fault in ("structure", "journal"):
                        logged.append(t)
                        log.flush()
                else:
                    step(log, t)
                    logged.append(t)
            except StorageError as e:
                refused += 1
                told.append(str(e))
                if refused > 6:
                    break
            except StateError:
                break
        check(path, logged)
        ballast.unlink()
        if repr(log).find("finalized") < 0:
            for t in range(100, 120):
                for _ in range(3):
                    try:
                        step(log, t)
                        logged.append(t)
                        break
                    except StorageError as e:
                        told.append(str(e))
                else:
                    raise AssertionError("it goes on refusing after there is room")
            finalize(log)
    assert all(str(path) in text for text in told), told
    check(path, logged)
    assert [p.name for p in small_disk.iterdir()] == ["run.h5"]


def finalize(log: Any) -> None:
    for _ in range(3):
        try:
            log.finalize()
            return
        except StorageError:
            continue
    log.finalize()


HOLDER = """
    import os, sys, time
    import simlab
    log = simlab.HDF5Logger(sys.argv[1])
    log.log_env_step(0, {"n": 1})
    print(os.getpid(), flush=True)
    time.sleep(60)
"""


def holder(path: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(HOLDER), str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def test_second_writer_is_refused_and_a_dead_ones_right_taken(tmp_path: Path) -> None:
    path = tmp_path / "run.h5"
    process = holder(path)
    try:
        for mode in ("a", "w"):
            with pytest.raises(RunInUseError, match=f"process {process.pid}"):
                simlab.HDF5Logger(path, mode=mode)  # type: ignore[arg-type]
        with pytest.raises(RunInUseError, match=f"process {process.pid}"):
            simlab.repair(path)
        owner = path.with_name("run.h5.journal") / "owner.json"
        told = json.loads(owner.read_text())
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    with simlab.HDF5Logger(path, mode="a", simulation="next") as log:
        log.log_env_step(0, {"n": 2})
    assert simlab.open_run(path, "simulation_0001").n.values.tolist() == [1]
    assert simlab.open_run(path, "next").n.values.tolist() == [2]
    # A writer on another machine, which was heard of just now
    owner.parent.mkdir()
    owner.write_text(json.dumps(told | {"host": "elsewhere", "machine": "other"}))
    with pytest.raises(RunInUseError, match="on elsewhere"):
        simlab.HDF5Logger(path, mode="a")
    os.utime(owner, (1, 1))
    simlab.HDF5Logger(path, mode="a", simulation="later").finalize()


@pytest.mark.parametrize("what", ["sidecar", "file", "replaced", "folder"])
def test_things_go_away_under_the_writer(tmp_path: Path, what: str) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    path = folder / "run.h5"
    with small_windows(8):
        log = simlab.HDF5Logger(path)
        for t in range(12):
            step(log, t)
        log.flush()
        if what == "sidecar":
            shutil.rmtree(folder / "run.h5.journal")
        elif what == "file":
            path.unlink()
        elif what == "replaced":
            path.unlink()
            path.write_bytes(b"something else")
        else:
            shutil.rmtree(folder)
        told, accepted = [], list(range(12))
        for t in range(12, 60):
            try:
                step(log, t, {f"late_{t}": 1.0})
                accepted.append(t)
            except SimlabError as e:
                told.append(str(e))
        try:
            log.finalize()
        except SimlabError as e:
            told.append(str(e))
    assert told
    if what == "replaced":
        assert path.read_bytes() == b"something else"
    log._stage = None  # nobody is left to try again
    if what == "sidecar":
        (only,) = told
        assert "This call did nothing: repeat it." in only
        check(path, accepted)


@needs_mount
@pytest.mark.parametrize("seed", range(6))
def test_a_disk_that_is_full_now_and_then(small_disk: Path, tmp_path: Path, seed: int) -> None:
    """What HDF5 was refused in the middle of a flush is nowhere; so the disk has to be asked before."""
    dice = np.random.default_rng(seed)
    log = simlab.HDF5Logger(small_disk / "run.h5", compression=None if seed % 2 else "gzip", journal_dir=tmp_path)
    ballast = small_disk / "ballast"
    for t in range(2500):
        until_accepted(lambda t=t: log.log_agent_step("a", t, {"rewards": float(t), "x": np.full(3, t, "i4")}), ballast)
        if t % 50 == 0:
            with contextlib.suppress(StorageError):
                log.flush()
        if dice.random() < 0.01:
            fill(small_disk, int(dice.choice([0, 0, 4096, 20000])))
        elif dice.random() < 0.02:
            ballast.unlink(missing_ok=True)
    ballast.unlink(missing_ok=True)
    until_accepted(log.finalize, ballast)
    with simlab.open_run(small_disk / "run.h5") as ds:
        assert ds.rewards.values[0].tolist() == list(range(2500))
        assert (ds.x.values[0] == np.arange(2500)[:, None]).all()
        assert ds.sim.present("x").values.all()


def until_accepted(call: Callable[[], Any], ballast: Path) -> None:
    """Make a call until it is not refused; after some tries there is room."""
    for n in range(10):
        try:
            call()
            return
        except StorageError:
            if n > 4:
                ballast.unlink(missing_ok=True)
    raise AssertionError("refused again and again")


@pytest.mark.parametrize("known", [True, False])
def test_a_file_in_its_place_is_not_touched_whenever_it_came(tmp_path: Path, known: bool) -> None:
    path = tmp_path / "run.h5"
    log = simlab.HDF5Logger(path)
    for t in range(256 + known):
        step(log, t)
    path.unlink()
    path.write_bytes(b"something else")
    told = []
    for t in range(300, 1300):
        try:
            step(log, t, {"new": 1.0} if t > 600 else None)
        except SimlabError as e:
            told.append(str(e))
            break
    with pytest.raises(SimlabError):
        log.finalize()
    assert "it was replaced by another file" in told[0]
    assert path.read_bytes() == b"something else"
    log._stage = None  # nobody is left to try again


def test_the_journal_is_synced_while_its_log_goes_on(tmp_path: Path) -> None:
    ends = time.monotonic() + 1.5
    n = 0
    with simlab.HDF5Logger(tmp_path / "run.h5", durability="fsync", fsync_seconds=0.0005, fsync_steps=3) as log:
        while time.monotonic() < ends:
            log.begin_episode(seed=n)
            log.log_agent_step("a", 0, {"x": n})
            n += 1
    with simlab.open_run(tmp_path / "run.h5") as ds:
        assert ds.x.values[0].tolist() == list(range(n))
        assert ds.sim.episodes.seed.values.tolist() == list(range(n))


@pytest.mark.parametrize("what", ["sync", "steps", "beat"])
def test_a_journal_that_cannot_be_kept_up_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    started: list[float] = []
    refused: list[float] = []

    def refuse(*_: Any) -> Any:
        if started and not refused:
            refused.append(time.monotonic())
            raise OSError(errno.EIO, "Input/output error")
        return True

    monkeypatch.setattr("simlab.record.writer.BEAT_SECONDS", 0.02)
    monkeypatch.setattr("simlab.storage.journal.Journal.sync" if what != "beat" else "simlab.storage.runfile.RunFile.beat", refuse)
    path = tmp_path / "run.h5"
    told = []
    with simlab.HDF5Logger(path, durability="fsync", fsync_seconds=60 if what == "steps" else 0.02, fsync_steps=7) as log:
        started.append(time.monotonic())
        for t in range(60):
            try:
                step(log, t)
            except StorageError as e:
                told.append(str(e))
                step(log, t)
            time.sleep(0.005)
    assert refused
    assert len(told) == 1
    assert "Input/output error" in told[0]
    check(path, list(range(60)))


CHILDREN = [("fork", how) for how in ("exit", "os_exit", "exception", "kill", "return")]
# One that is started anew has nothing of its parent: two ways to end are enough.
CHILDREN += [(method, how) for method in ("spawn", "forkserver") for how in ("exit", "return")]


@pytest.mark.parametrize(("method", "how"), [c for c in CHILDREN if c[0] in multiprocessing.get_all_start_methods()])
def test_children_never_harm_the_file(tmp_path: Path, method: str, how: str) -> None:
    path = tmp_path / "run.h5"
    with small_windows(8):
        log = simlab.HDF5Logger(path)
        for t in range(20):
            step(log, t)
        child = multiprocessing.get_context(method).Process(target=leave, args=(how,))
        child.start()
        child.join(60)
        assert not child.is_alive()
        for t in range(20, 40):
            step(log, t)
        assert (path.parent / "run.h5.journal" / "owner.json").exists()
        check(path, list(range(40)))
        log.finalize()
    check(path, list(range(40)))


def leave(how: str) -> None:
    """End a process in some way."""
    if how == "exit":
        sys.exit(3)
    elif how == "os_exit":
        os._exit(3)
    elif how == "exception":
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
        raise RuntimeError("a child's own")
    elif how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)


def test_logging_from_a_forked_child_is_refused(tmp_path: Path) -> None:
    if not hasattr(os, "fork"):
        pytest.skip("nothing forks here")
    log = simlab.HDF5Logger(tmp_path / "run.h5")
    step(log, 0)
    pid = os.fork()
    if not pid:
        status = 1
        try:
            step(log, 1)
        except StateError as e:
            status = 0 if "forked" in str(e) else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    step(log, 1)
    log.finalize()
    check(tmp_path / "run.h5", [0, 1])


@needs_mount
def test_read_only_remount(small_disk: Path) -> None:
    path = small_disk / "run.h5"
    with small_windows(8):
        log = simlab.HDF5Logger(path)
        for t in range(12):
            step(log, t)
        log.flush()
    copy = small_disk / "copy"
    copy.mkdir()
    for place in (path, path.with_name("run.h5.journal")):
        (shutil.copytree if place.is_dir() else shutil.copy)(place, copy / place.name)  # type: ignore[operator]
    owner = copy / "run.h5.journal" / "owner.json"
    owner.write_text(json.dumps(json.loads(owner.read_text()) | {"pid": 0}))
    log.finalize()
    del log
    gc.collect()  # what is mapped from the journal
    assert subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=False).returncode == 0
    check(copy / "run.h5", list(range(12)))  # a dead writer's run, where nobody may write
    with pytest.raises(StorageError):
        simlab.repair(copy / "run.h5")
    with pytest.raises(StorageError):
        simlab.HDF5Logger(path, mode="a", simulation="more")
    with pytest.raises(StorageError):
        simlab.HDF5Logger(small_disk / "new.h5")


WORKS = {
    "new": "simlab.HDF5Logger(path, mode='w')",
    "repair": "simlab.repair(source, path)",
    "snapshot": "simlab.snapshot(source, path)",
}


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="nothing is killed so here")
@pytest.mark.parametrize("what", WORKS)
@pytest.mark.parametrize("then", WORKS)
def test_what_a_killed_process_left_beside_a_run_is_removed(tmp_path: Path, what: str, then: str) -> None:
    from simlab.storage.leftovers import work_name

    source, path = tmp_path / "source.h5", tmp_path / "run.h5"
    log = simlab.HDF5Logger(source, durability="process")
    step(log, 0)
    if "repair" in (what, then):
        log.finalize()
    code = f"""
        import os, signal, simlab
        source, path = {str(source)!r}, {str(path)!r}
        replace = os.replace
        os.replace = lambda a, b: os.kill(os.getpid(), signal.SIGKILL) if ".{what}-" in str(a) else replace(a, b)
        {WORKS[what]}
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL, done.stderr
    left = list(tmp_path.glob(f".run.h5.{what}-*"))
    assert len(left) == 1
    strange = tmp_path / ".run.h5.new-1"
    others = [work_name(path, each) for each in WORKS]  # of this process, which lives
    for place in (strange, *others):
        place.write_bytes(b"x")
    if then == "new":
        simlab.HDF5Logger(path).close()
    else:
        getattr(simlab, then)(source, path)
    assert path.exists()
    assert not left[0].exists()
    assert strange.exists()
    assert all(other.exists() for other in others if f".{then}-" not in other.name)
    log.finalize()


def test_what_was_left_before_the_machine_was_started_anew_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from simlab.storage import leftovers

    path = tmp_path / "run.h5"
    work: dict[str, Path] = {}
    for host, machine in (("here", "boot-1 view-1"), ("here", "boot-2 view-2"), ("there", "boot-1 view-1")):
        monkeypatch.setattr(leftovers.platform, "node", lambda host=host: host)
        monkeypatch.setattr(leftovers, "machine", lambda machine=machine: machine)
        place = work[f"{host} {machine}"] = leftovers.work_name(path, "new")
        place.write_bytes(b"x")
        os.utime(place, (0, 0))
    monkeypatch.setattr(leftovers.platform, "node", lambda: "here")
    monkeypatch.setattr(leftovers, "machine", lambda: "boot-2 view-1")
    young = work["young"] = work["here boot-1 view-1"].with_name(work["here boot-1 view-1"].name.replace("new", "repair"))
    young.write_bytes(b"x")
    leftovers.remove_leftovers(path)
    assert [name for name, place in work.items() if place.exists()] == ["here boot-2 view-2", "there boot-1 view-1", "young"]


def test_readers_wait_for_structure_that_was_changed_halfway_until_it_is_changed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from simlab.storage import handles
    from simlab.storage.turns import Turns, is_steady, turn

    log = simlab.HDF5Logger(tmp_path / "run.h5")
    step(log, 0)
    folder = tmp_path / "run.h5.journal"
    turns = Turns(folder)
    for _ in range(2):
        with contextlib.suppress(OSError), turns.change():
            raise OSError(errno.EIO, "Input/output error")
        assert not is_steady(turn(folder))
    monkeypatch.setattr(handles, "PATIENCE_SECONDS", 0.2)
    with pytest.raises(RunInUseError, match="changing its structure"):
        simlab.open_run(tmp_path / "run.h5")
    with turns.change():
        assert not is_steady(turn(folder))
    assert is_steady(turn(folder))
    check(tmp_path / "run.h5", [0])
    log.finalize()
