"""Forks beside a busy writer: the child is told or ends as it likes, and the parent's file has every value."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import simlab

if not hasattr(os, "fork"):
    pytest.skip("nothing forks here", allow_module_level=True)

ROUNDS = 25
BEGIN = """
import collections, json, multiprocessing, os, sys, threading, time, warnings
import numpy as np
import simlab
warnings.simplefilter("ignore")  # newer Pythons warn of forks beside threads
path = sys.argv[1]

def row(log, t, **more):
    log.log_agent_step("a", t, {"x": np.float32(t), **more})

def end_of(pid, patience=20):
    gives_up_at = time.monotonic() + patience
    while time.monotonic() < gives_up_at:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return "hangs"

def told(log, t):
    try:
        row(log, t)
    except simlab.errors.StateError as e:
        return 0 if "forked" in str(e) else 5
    return 6
"""


def run(path: Path, code: str, *given: object) -> Any:
    """Run a program and return what it printed last, as JSON."""
    program = BEGIN + textwrap.dedent(code)
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", program, str(path), *map(str, given)],
        capture_output=True, text=True, check=False, timeout=240, cwd=path.parent,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Exception ignored" not in done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def check(path: Path, rows: int) -> None:
    """Compare the file with what was logged."""
    with simlab.open_run(path) as ds:
        np.testing.assert_array_equal(ds.x.values[0], np.arange(rows, dtype=np.float32))
        for name in ds.data_vars:
            if str(name).startswith("v"):
                first = 8 * int(str(name)[1:])
                present = ds.sim.present(str(name)).values[0]
                assert np.flatnonzero(present).tolist() == [first, first + 1, first + 2]
                np.testing.assert_array_equal(ds[name].values[0][present], np.arange(first, first + 3, dtype=np.float32))


CHILDREN = {
    "sys.exit": "sys.exit(0)",
    "os._exit": "os._exit(0)",
    "exec": "os.execv('/bin/sh', ['sh', '-c', 'exit 0'])",
    "log": "os._exit(told(log, n))",
    "log and exit": "sys.exit(told(log, n))",
    "finalize": "log.finalize(); sys.exit(0)",
    "record": "with simlab.HDF5Logger(f'{path}.{i}') as own: row(own, 0)\n        sys.exit(0)",
}


@pytest.mark.parametrize("how", CHILDREN)
def test_children_beside_a_busy_writer(tmp_path: Path, how: str) -> None:
    path = tmp_path / "run.h5"
    code = """
log, n, ends = simlab.HDF5Logger(path), 0, collections.Counter()
other = simlab.HDF5Logger(path + ".other")
for i in range(int(sys.argv[2])):
    for t in range(8):
        row(log, n, **({f"v{i}": np.float32(n)} if t < 3 else {}))
        row(other, n)
        n += 1
    flushing = threading.Thread(target=log.flush)
    flushing.start()
    time.sleep(i % 7 * 0.004)
    pid = os.fork()
    if not pid:
        CHILD
    flushing.join()
    ends[end_of(pid)] += 1
log.finalize()
other.finalize()
print(json.dumps(ends))
"""
    assert run(path, code.replace("CHILD", CHILDREN[how]), ROUNDS) == {"0": ROUNDS}
    check(path, 8 * ROUNDS)
    check(tmp_path / "run.h5.other", 8 * ROUNDS)


def test_workers_of_multiprocessing_are_told(tmp_path: Path) -> None:
    path = tmp_path / "run.h5"
    code = """
        log, n, ends = simlab.HDF5Logger(path), 0, collections.Counter()

        def work(t):
            return told(log, t)

        for i in range(8):
            for t in range(8):
                row(log, n, **({f"v{i}": np.float32(n)} if t < 3 else {}))
                n += 1
            flushing = threading.Thread(target=log.flush)
            flushing.start()
            with multiprocessing.get_context("fork").Pool(2) as pool:
                ends.update(pool.map_async(work, [n] * 4).get(30))
            flushing.join()
        log.finalize()
        print(json.dumps(ends))
    """
    assert run(path, code) == {"0": 32}
    check(path, 64)


def test_children_beside_threads_that_read_and_make_runs(tmp_path: Path) -> None:
    path = tmp_path / "run.h5"
    code = """
        log, n, ends, stop = simlab.HDF5Logger(path), 8, collections.Counter(), []
        for t in range(8):
            row(log, t, **({"v0": np.float32(t)} if t < 3 else {}))
        with simlab.open_run(path) as ds:  # loads what it needs
            ds.x.values

        def read():
            while not stop:
                with simlab.open_run(path) as ds:
                    ds.x.values

        def make():
            made = 0
            while not stop:
                made += 1
                with simlab.HDF5Logger(f"{path}.{made}") as other:
                    row(other, 0)

        threads = [threading.Thread(target=each) for each in (read, make)]
        for thread in threads:
            thread.start()
        for i in range(1, 20):
            for t in range(8):
                row(log, n, **({f"v{i}": np.float32(n)} if t < 3 else {}))
                n += 1
            pid = os.fork()
            if not pid:
                if i % 3 == 0:
                    with simlab.open_run(path) as ds:
                        assert ds.x.values[0].tolist() == list(range(ds.sizes["time"]))
                sys.exit(0)
            ends[end_of(pid, 30)] += 1
        stop.append(1)
        for thread in threads:
            thread.join()
        log.finalize()
        print(json.dumps(ends))
    """
    assert run(path, code) == {"0": 19}
    check(path, 160)


def test_a_child_reads_the_run_while_it_is_recorded_and_when_it_is_finished(tmp_path: Path) -> None:
    path = tmp_path / "run.h5"
    code = """
        log = simlab.HDF5Logger(path)
        for t in range(1000):
            row(log, t)
        log.flush()
        for t in range(1000, 1500):
            row(log, t)
        go_on, tell = os.pipe()
        pid = os.fork()
        if not pid:
            messages = []
            for act in (lambda: simlab.repair(path), lambda: simlab.HDF5Logger(path, mode="w")):
                try:
                    act()
                except simlab.errors.RunInUseError as e:
                    messages.append(str(e))
            assert all(f"by process {os.getppid()}" in m for m in messages) and len(messages) == 2, messages
            with simlab.open_run(path) as ds:
                assert ds.sizes["time"] >= 1500
            os.read(go_on, 1)
            with simlab.open_run(path) as ds:
                assert ds.x.values[0].tolist() == list(range(1600))
            assert simlab.repair(path).was_closed
            sys.exit(0)
        time.sleep(0.2)
        for t in range(1500, 1600):
            row(log, t)
        log.finalize()
        os.write(tell, b"x")
        print(json.dumps(end_of(pid, 60)))
    """
    assert run(path, code) == 0
    check(path, 1600)


@pytest.mark.parametrize("child", ["os._exit(0)", "sys.exit(0)", "return np.array(7, np.float32)"])
def test_a_fork_inside_a_call(tmp_path: Path, child: str) -> None:
    path = tmp_path / "run.h5"
    code = """
        children = []

        class Forks:
            def __array__(self, dtype=None, copy=None):
                pid = os.fork()
                if pid:
                    children.append(pid)
                    return np.array(7, np.float32)
                child.append(1)
                CHILD

        log, child = simlab.HDF5Logger(path), []
        for t in range(7):
            row(log, t)
        log.flush()
        log.log_agent_step("a", 7, {"x": Forks(), "new": np.float32(1)})
        if child:
            os._exit(told(log, 8))
        ends = {end_of(pid) for pid in children}
        row(log, 8)
        log.finalize()
        print(json.dumps([len(children) > 0, sorted(ends)]))
    """
    assert run(path, code.replace("CHILD", child)) == [True, [0]]
    check(path, 9)


def test_a_fork_does_not_wait_for_ever(tmp_path: Path) -> None:
    code = """
        import simlab.storage.forking as forking
        forking.PATIENCE_SECONDS = 0.3
        begun, end = threading.Event(), threading.Event()

        def work():
            with forking.undisturbed():
                begun.set()
                end.wait()

        thread = threading.Thread(target=work)
        thread.start()
        begun.wait()
        said, sys.stderr = sys.stderr, open(path, "w")
        pid = os.fork()
        if not pid:
            with forking.undisturbed():  # the other thread's work is none of the child's
                os._exit(0)
        sys.stderr.close()
        sys.stderr = said
        end.set()
        thread.join()
        with forking.undisturbed():
            print(json.dumps(end_of(pid)))
    """
    assert run(tmp_path / "said", code) == 0
    assert "forked beside" in (tmp_path / "said").read_text()


def test_a_child_keeps_no_lock_of_its_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl

    from simlab.storage.lock import _let_the_next, _one_at_a_time
    from simlab.storage.runfile import refuse_if_open_elsewhere

    number = _one_at_a_time(tmp_path)
    assert number is not None
    kept = [os.dup(number)]  # as in a child
    _let_the_next(number)
    again = os.open(tmp_path / "owner.json.turnstile", os.O_RDWR)
    fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(again)
    path = tmp_path / "run.h5"
    path.write_bytes(b"")
    flock = fcntl.flock

    def keeping(file: Any, what: int) -> None:
        kept.append(os.dup(file.fileno()))
        flock(file, what)

    monkeypatch.setattr(fcntl, "flock", keeping)
    refuse_if_open_elsewhere(path)
    refuse_if_open_elsewhere(path)
    for each in kept:
        os.close(each)
