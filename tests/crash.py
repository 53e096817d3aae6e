"""Kill writers, again and again, and look whether every call that had returned is in the file: ``python -m tests.crash --kills 1000``."""

from __future__ import annotations

import argparse
import collections
import contextlib
import datetime
import faulthandler
import importlib
import io
import json
import mmap
import os
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import netCDF4
import numpy as np

import simlab
from simlab.errors import UnfinishedRunWarning
from tests.killing import ALL, CHANGING, can_trace, fork, run_killed_after, run_traced
from tests.recorded import Step, compare, expected, record, script

# What children need is loaded here, once, and not in each of them.
for _module in ("read.runs", "read.accessor", "staging.recovery", "record.logger"):
    importlib.import_module(f"simlab.{_module}")

PLACE: Final = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""Where files are made: a kill is the same in memory, and nothing waits for a disk."""
LIMIT: Final = 60.0
WINDOW: Final = 8
"""Rows of a window, so that a short run sends many to the file."""


class Violation(AssertionError):
    """A promise that was broken."""


@dataclass(slots=True)
class Tally:
    """What was done."""

    kills: collections.Counter[str] = field(default_factory=collections.Counter)
    values: int = 0
    calls: int = 0
    violations: list[str] = field(default_factory=list)


def counter() -> Any:
    """Return a number that a forked process shares with this one."""
    return memoryview(mmap.mmap(-1, 8)).cast("q")


def apart(child: Callable[[], Any], what: str, limit: float = LIMIT) -> str:
    """Run a function in a process of its own and return what it returned, as text.

    Raises
    ------
    Violation
        If it raises, crashes or hangs.
    """
    with tempfile.TemporaryFile() as told:
        number = told.fileno()

        def run() -> int:
            faulthandler.enable(told)
            try:
                os.write(number, str(child()).encode())
                return 0
            except BaseException:
                os.lseek(number, 0, os.SEEK_SET)
                os.write(number, traceback.format_exc().encode())
                return 1

        pid = fork(run)
        deadline = time.monotonic() + limit
        while True:
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                break
            if time.monotonic() > deadline:
                os.kill(pid, 9)
                os.waitpid(pid, 0)
                raise Violation(f"{what}: hung for {limit} s")
            time.sleep(0.002)
        told.seek(0)
        text = told.read().decode("utf-8", "replace")
    if status:
        raise Violation(f"{what}: {f'signal {os.WTERMSIG(status)}' if os.WIFSIGNALED(status) else ''}\n{text}")
    return text


def contents(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def look(path: Path, calls: list[Step], returned: int, finished: bool = False) -> int:
    """Open a run and compare it with what was logged; nothing on the disk may change."""
    must, may = expected(calls, returned)
    before = contents(path.parent)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        count = compare(path, must, may)
    lost = [str(w.message) for w in told if "Lost" in str(w.message)]
    if lost:
        raise Violation(f"a gap is told after a kill: {lost}")
    if finished and any(issubclass(w.category, UnfinishedRunWarning) for w in told):
        raise Violation("the run still counts as unfinished")
    if contents(path.parent) != before:
        raise Violation(f"looking changed files: {sorted(before)} became {sorted(contents(path.parent))}")
    return count


def look_at_the_repaired(path: Path, calls: list[Step], returned: int) -> int:
    """Check a run that was repaired: finished, opened by netCDF, alone in its folder."""
    count = look(path, calls, returned, finished=True)
    table = simlab.list_runs(path)
    if not table.complete.all():
        raise Violation(f"not complete: {table.complete.to_dict()}")
    must, _ = expected(calls, returned)
    with netCDF4.Dataset(path) as nc:
        for name, held in must.simulations.items():
            if held.rows and len(nc[name].dimensions["time"]) < len(held.rows):
                raise Violation(f"netCDF sees {len(nc[name].dimensions['time'])} rows")
        for group in nc.groups.values():
            for variable in group["agents"].variables.values() if "agents" in group.groups else ():
                variable[...]
    if sorted(p.name for p in path.parent.iterdir()) != [path.name]:
        raise Violation(f"left over: {sorted(p.name for p in path.parent.iterdir())}")
    if not simlab.repair(path).was_closed:
        raise Violation("a repaired file is repaired again")
    return count


def repair(path: Path) -> int:
    """Repair a run; this is what a process does that may be killed."""
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        told = simlab.repair(path)
    return 3 if told.gaps or told.unreadable else 0


def one_kill(folder: Path, seed: int, how: str, place: float, steps: int, tally: Tally, **options: Any) -> None:
    """Record, be killed, look, repair (and be killed at it), look again.

    Parameters
    ----------
    folder : Path
        An empty folder.
    seed : int
        Of the run.
    how : {"time", "call", "torn"}
        Whether the writer is killed after a time, when it is about to make a system call, or in the middle of a write.
    place : float
        Where, as a part of the whole.
    steps : int
        Steps of the run.
    tally : Tally
        Counts.
    **options
        Of the logger.
    """
    path, calls, returned = folder / "run.h5", script(seed, steps), counter()
    dice = np.random.default_rng([seed, int(place * 2**31)])
    window = WINDOW if seed % 3 else None

    def write() -> int:
        record(path, calls, returned, window, **options)
        return 0

    if how == "time":
        run_killed_after(write, place * _usual(steps, window))
    else:
        names = ALL if how == "call" else CHANGING
        total = _calls_of(seed, steps, window, names, options)
        run_traced(write, int(place * total), float(dice.random()) if how == "torn" else None, names)
    tally.kills[f"writer, {how}"] += 1
    tally.calls += returned[0]
    here = f"seed {seed}, {how} at {place:.4f}, {steps} steps, window {window}, {options}, {returned[0]} of {len(calls)} calls returned"
    if not path.exists():
        if returned[0]:
            raise Violation(f"{here}: there is no file")
    else:
        done = int(returned[0])
        tally.values += int(apart(lambda: look(path, calls, done), here))
        if dice.random() < 0.7:
            if dice.random() < 0.3 or not can_trace():
                run_killed_after(lambda: repair(path), float(dice.random()) * 0.5)
            else:
                tear = float(dice.random()) if dice.random() < 0.4 else None
                run_traced(lambda: repair(path), int(dice.integers(0, 90)), tear)
            tally.kills["repair"] += 1
            tally.values += int(apart(lambda: look(path, calls, done), f"{here}; then a repair that was killed"))
        if apart(lambda: repair(path), f"{here}; repair") != "0":
            raise Violation(f"{here}: gaps are told after a kill")
        tally.values += int(apart(lambda: look_at_the_repaired(path, calls, done), f"{here}; after the repair"))
    if dice.random() < 0.8:
        return
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    again = counter()
    apart(lambda: record(path, script(1, 2), again, **options), f"{here}; another run of that name")


_totals: dict[tuple[Any, ...], int] = {}


def _calls_of(seed: int, steps: int, window: int | None, names: tuple[str, ...], options: dict[str, Any]) -> int:
    """Return how many system calls a run makes that is not killed."""
    key = (seed, steps, names)
    if key not in _totals:
        with tempfile.TemporaryDirectory(dir=PLACE) as folder:
            calls, returned = script(seed, steps), counter()
            _totals[key] = run_traced(lambda: record(Path(folder) / "run.h5", calls, returned, window, **options), -1, None, names).calls
    return _totals[key]


def _usual(steps: int, window: int | None) -> float:
    """Return the seconds that a run takes."""
    key = ("seconds", steps, window)
    if key not in _totals:
        with tempfile.TemporaryDirectory(dir=PLACE) as folder:
            calls, returned, began = script(1, steps), counter(), time.monotonic()
            apart(lambda: record(Path(folder) / "run.h5", calls, returned, window), "a run")
            _totals[key] = int(1e6 * (time.monotonic() - began))
    return _totals[key] / 1e6


def cases(kills: int, seed: int) -> list[tuple[int, str, float]]:
    """Return kills at random places: a seed, how and where."""
    dice = np.random.default_rng(seed)
    ways = ("time", "call", "torn") if can_trace() else ("time",)
    return [(seed * 100_000 + i // 4, ways[i % len(ways)], float(dice.random())) for i in range(kills)]


def sweep(seed: int, steps: int, names: tuple[str, ...], part: float = 1.0) -> list[tuple[int, str, float]]:
    """Return a kill at every system call of a short run (or a part of them)."""
    how = "call" if names == ALL else "torn"
    total = _calls_of(seed, steps, WINDOW if seed % 3 else None, names, {})
    places = np.arange(total)[:: max(1, round(1 / part))]
    return [(seed, how, (float(n) + 0.5) / total) for n in places]


def run_cases(todo: list[tuple[int, str, float]], steps: int, tally: Tally, stop_at: int = 20, **options: Any) -> None:
    """Do kills one after the other."""
    for seed, how, place in todo:
        folder = Path(tempfile.mkdtemp(prefix="simlab-crash-", dir=PLACE))
        try:
            one_kill(folder, seed, how, place, steps, tally, **options)
        except Violation as e:
            tally.violations.append(str(e))
            print(e, file=sys.stderr)
            if len(tally.violations) >= stop_at:
                return
            keep = os.environ.get("SIMLAB_KEEP_CRASHES")
            if keep:
                shutil.copytree(folder, Path(keep) / folder.name)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _share(asked: argparse.Namespace, kills: int, job: int, place: Path) -> int:
    """Do a part of the kills, and write down what came of them."""
    tally = Tally()
    todo = cases(kills, asked.seed * 100 + job)
    while todo and sum(tally.kills.values()) < kills and len(tally.violations) < 20:
        some, todo = todo[:5], todo[5:]
        run_cases(some, asked.steps, tally)
        print(f"{job}: {sum(tally.kills.values())} kills, {len(tally.violations)} violations", file=sys.stderr)
    place.write_text(json.dumps({"kills": tally.kills, "calls": tally.calls, "values": tally.values, "violations": tally.violations}))
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Kill as many times as asked for, and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=int(time.time()) % 1000)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    asked = parser.parse_args(arguments)
    began = time.monotonic()
    share = -(-asked.kills // asked.jobs)
    with tempfile.TemporaryDirectory() as name:
        work = {fork(lambda j=j: _share(asked, share, j, Path(name) / f"{j}.json")): j for j in range(asked.jobs)}
        for pid in work:
            os.waitpid(pid, 0)
        tally = Tally()
        for job in work.values():
            told = json.loads((Path(name) / f"{job}.json").read_text())
            tally.kills.update(told["kills"])
            tally.calls, tally.values = tally.calls + told["calls"], tally.values + told["values"]
            tally.violations += told["violations"]
    print(f"{time.monotonic() - began:.0f} s", file=sys.stderr)
    for violation in tally.violations:
        print(violation)
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(tally.kills.items()))
    today = datetime.datetime.now(datetime.UTC).date()
    print(
        f"{today}: {sum(tally.kills.values())} kills ({kinds}); {tally.calls} calls had returned, {tally.values} values compared; "
        f"{len(tally.violations)} violations (seed {asked.seed})"
    )
    return 1 if tally.violations else 0


if __name__ == "__main__":
    sys.exit(main())
