"""One writer that is killed and goes on, and readers that watch it: ``python -m tests.soak --minutes 10``."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import faulthandler
import mmap
import os
import shutil
import signal
import sys
import tempfile
import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

import simlab
from simlab.errors import FormatError, RunInUseError, RunNotFoundError, StateError, StorageError
from tests.crash import PLACE
from tests.killing import fork
from tests.recorded import small_windows

LIFE: Final = 20.0
BORN_EVERY, VARIABLE_EVERY, MOST_AGENTS, MOST_VARIABLES = 61, 97, 24, 12


def value_of(variable: int, agent: int, row: int, life: int) -> float:
    """Return what an agent logs; never 0, never NaN."""
    return 1.0 + row + 1e-3 * variable + 1e-5 * agent + 1e-7 * life


def agents_at(row: int) -> range:
    """Return who lives at a row."""
    return range(row // 400 if row > 2000 else 0, min(MOST_AGENTS, 2 + row // BORN_EVERY))


def variables_at(row: int) -> range:
    """Return which variables are logged at a row."""
    return range(min(MOST_VARIABLES, 1 + row // VARIABLE_EVERY))


def write(path: Path, life: int, progress: Any, pace: float) -> int:
    """Record a simulation until somebody kills this process."""
    with warnings.catch_warnings(), small_windows(32 if life % 2 else None):
        warnings.simplefilter("ignore")
        options: dict[str, Any] = {"simulation": f"life_{life:04d}", "compression": None if life % 3 == 2 else "gzip"}
        log = simlab.HDF5Logger(path, mode="a", **options)
        progress[0], progress[1] = life, 0
        row = 0
        while True:
            step = row % 300
            if row and not step:
                log.end_episode(score=row)
            for agent in agents_at(row):
                values = {f"v{i}": value_of(i, agent, row, life) for i in variables_at(row)}
                log.log_agent_step(f"agent_{agent}", step, values | {"vision": np.full((3, 3), row % 250 + 1, np.uint8)})
            if row % 5 == 0:
                log.log_env_step(step, {"grid": np.full((6, 6), row + 1, np.int32)})
            log.log_env_step(step, {"n": row + 1, "weather": "w" * (1 + row % 50)})
            if row % 250 == 100:
                log.flush()
            if row % 700 == 500:
                log.attach(f"a{row}", {"row": row})
            row += 1
            progress[1] = row
            time.sleep(pace)


class Violation(AssertionError):
    """What a reader must never see."""


def check(path: Path, name: str, life: int, returned: int, seen: int, dice: np.random.Generator) -> int:
    """Open a simulation as it is now, check a part of it, and return how many rows it has."""
    with simlab.open_run(path, simulation=name) as ds:
        n = ds.sizes["time"]
        if n < returned:
            raise Violation(f"{n} rows are there, {returned} had returned before")
        if n < seen:
            raise Violation(f"{n} rows are there, {seen} were seen before")
        if n == 0 or "agent" not in ds.dims:
            return n
        time.sleep(float(dice.random()) * 0.05)  # what is read later has to be as it was
        low = max(0, n - 400) if dice.random() < 0.7 else int(dice.integers(n))
        high = n if dice.random() < 0.7 else min(n, low + 500)
        part = ds.isel(time=slice(low, high))
        names = part.agent.values.tolist()
        rows = np.arange(low, high)
        for v in [int(i) for i in dice.choice(MOST_VARIABLES, 3, replace=False)]:
            if f"v{v}" not in part:
                if v in variables_at(max(0, returned - 1)):
                    raise Violation(f"variable v{v} is missing at {n} rows; {list(part.data_vars)}")
                continue
            got = part[f"v{v}"].values
            if got.shape != (len(names), high - low):
                raise Violation(f"v{v} has shape {got.shape}")
            there = part.sim.present(f"v{v}").values
            for i, agent in enumerate(names):
                number = int(agent.removeprefix("agent_")) if agent.startswith("agent_") else -1
                if number < 0:
                    raise Violation(f"an agent is called {agent!r}: {names}")
                logged = np.array([number in agents_at(r) and v in variables_at(r) for r in rows])
                wanted = np.where(logged, value_of(v, number, rows, life), np.nan)
                unsure = rows >= returned  # the row of a call that is under way
                wrong = ~((got[i] == wanted) | (np.isnan(got[i]) & (np.isnan(wanted) | unsure)))
                if wrong.any():
                    at = np.flatnonzero(wrong)
                    raise Violation(
                        f"v{v} of {agent} at rows {rows[at][:5]} ({at.size}) is {got[i][at][:5]}, not {wanted[at][:5]}; {n} rows, "
                        f"{returned} had returned; present: {there[i][at][:5]}"
                    )
                if ((there[i] != logged) & ~unsure).any():
                    raise Violation(f"presence of v{v} of {agent} is wrong at {rows[(there[i] != logged) & ~unsure][:5]} of {n}")
        if "n" not in part:
            if returned:
                raise Violation(f"n is missing, {returned} rows had returned")
            return n
        numbers = part.n.values
        if not ((numbers == rows + 1) | ((rows >= returned) & ~part.sim.present("n").values)).all():
            raise Violation(f"n is {numbers[numbers != rows + 1][:5]} at {rows[numbers != rows + 1][:5]} of {n}, {returned} had returned")
        vision = part.vision.values[:, :, 1, 1]
        first = part.sim.present("vision").values
        if (vision[first] != np.broadcast_to(rows % 250 + 1, vision.shape)[first]).any():
            raise Violation(f"vision is wrong, {n} rows")
        if "grid" in ds:
            grid, times = ds.grid.values, ds.grid_time.values if "grid_time" in ds.coords else ds.time.values
            wanted_times = ds.time.values[::5][: len(times)]
            if len(times) < len(ds.time.values[:returned:5]) or (times != wanted_times).any():
                raise Violation(f"grid has times {times[-3:]} ({len(times)}), not {wanted_times[-3:]}, {n} rows, {returned} had returned")
            if (grid != (np.arange(len(times)) * 5 + 1)[:, None, None]).any():
                bad = np.flatnonzero((grid != (np.arange(len(times)) * 5 + 1)[:, None, None]).any(axis=(1, 2)))
                raise Violation(f"grid is wrong in its rows {bad[:5]} of {len(times)}: {grid[bad[0]].ravel()[:4]}; {n} rows")
        table = ds.sim.episodes
        if table.sizes.get("episode", 0) and "score" in table:
            scores = table.score.values[:-1]  # the last one is open
            if (scores != 300 * (1 + np.arange(len(scores)))).any():
                raise Violation(f"scores are {scores}")
        return n


def read(path: Path, number: int, progress: Any, told: Any, until: float) -> int:
    """Watch a run until a time: open it, check it, again and again."""
    faulthandler.enable()
    dice = np.random.default_rng(number)
    seen: dict[str, int] = {}
    warnings.simplefilter("ignore")
    while time.monotonic() < until:
        life, rows = int(progress[0]), int(progress[1])
        if int(progress[0]) != life or life < 0:
            continue
        if dice.random() < 0.2 and life > 0:
            life, rows = int(dice.integers(life)), 0
        name = f"life_{life:04d}"
        try:
            n = check(path, name, life, rows, seen.get(name, 0), dice)
        except (RunNotFoundError, RunInUseError, StateError) as e:
            if isinstance(e, StateError) and "written again" not in str(e):
                raise
            told[1] += 1
            if os.environ.get("SIMLAB_SOAK_TELL"):
                print(repr(e)[:300], file=sys.stderr)
            # between two lives, or too busy: it says so
            continue
        except (FormatError, StorageError) as e:
            if "no simulation was recorded" in str(e):
                continue
            raise
        seen[name] = n
        told[0] += 1
    return 0


def soak(minutes: float, readers: int = 4, life: float = LIFE, pace: float = 0.001, seed: int = 1) -> tuple[str, int]:
    """Write, kill and watch for some minutes; return a line about it and the number of violations."""
    folder = Path(tempfile.mkdtemp(prefix="simlab-soak-", dir=PLACE))
    path = folder / "run.h5"
    progress = memoryview(mmap.mmap(-1, 8 * 512)).cast("q")
    progress[0] = -1
    counts = [memoryview(mmap.mmap(-1, 16)).cast("q") for _ in range(readers)]
    dice = np.random.default_rng(seed)
    ends = time.monotonic() + 60 * minutes
    lives, begun, kills, total, bad = 0, 0, 0, 0, 0
    writer = 0
    watching: dict[int, int] = {}
    try:
        while time.monotonic() < ends:
            number = lives
            writer = fork(partial(write, path, number, progress, pace))
            lives += 1
            if not watching:
                while progress[0] < 0:
                    time.sleep(0.01)
                watching = {fork(partial(read, path, i, progress, counts[i], ends)): i for i in range(readers)}
            dies = min(ends, time.monotonic() + life * (0.75 + 0.5 * float(dice.random())))
            while time.monotonic() < dies:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == writer:
                    raise RuntimeError(f"the writer ended by itself: {status}")
                if pid in watching:
                    i = watching.pop(pid)
                    if status:
                        bad += 1
                        print(f"a reader ended with {os.waitstatus_to_exitcode(status)}", file=sys.stderr)
                        if bad < 20:
                            watching[fork(partial(read, path, i + 100 * bad, progress, counts[i], ends))] = i
                time.sleep(0.01)
            os.kill(writer, signal.SIGKILL)
            os.waitpid(writer, 0)
            writer, kills = 0, kills + 1
            if progress[0] == number:
                begun, total = begun + 1, total + int(progress[1])
        for pid in list(watching):
            if status := os.waitpid(pid, 0)[1]:
                bad += 1
                print(f"a reader ended with {os.waitstatus_to_exitcode(status)}", file=sys.stderr)
        simlab.repair(path)
        table = simlab.list_runs(path)
        if len(table) not in (begun, begun + 1) or not table.complete.all() or int(table.rows.sum()) < total:
            bad += 1
            print(f"{len(table)} simulations with {table.rows.sum()} rows; {begun} with {total} were recorded", file=sys.stderr)
    finally:
        for pid in [*watching, *([writer] if writer else [])]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)
    looks, refused = sum(int(c[0]) for c in counts), sum(int(c[1]) for c in counts)
    today = datetime.datetime.now(datetime.UTC).date()
    line = (
        f"{today}: {minutes:g} minutes, {lives} lives, {kills} kills, {total} rows, {readers} readers looked {looks} times "
        f"({refused} times they were told to wait): {bad} violations"
    )
    return line, bad


def main(arguments: list[str] | None = None) -> int:
    """Soak for as long as asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--readers", type=int, default=4)
    parser.add_argument("--life", type=float, default=LIFE)
    asked = parser.parse_args(arguments)
    line, bad = soak(asked.minutes, asked.readers, asked.life)
    print(line)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
