"""Calls of a logger that follow from a seed, and what has to be in the file once so many of them have returned."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

import simlab
import simlab.record.pool
import simlab.record.stage
from simlab.errors import RunNotFoundError

Cell = tuple[str, str]
"""A variable, and whose."""
LAGGING: Final = "prey_slow"
SECOND: Final = "second"


@dataclass(slots=True)
class Step:
    """One call: its name and arguments, and what is recorded once it has returned."""

    name: str
    arguments: tuple[Any, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    effects: list[tuple[Any, ...]] = field(default_factory=list)


@dataclass(slots=True)
class Held:
    """What one simulation holds."""

    rows: list[tuple[int, int]] = field(default_factory=list)
    cells: dict[Cell, dict[int, Any]] = field(default_factory=dict)
    world: dict[str, dict[int, Any]] = field(default_factory=dict)
    episodes: dict[int, dict[str, Any]] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)
    attachments: dict[str, Any] = field(default_factory=dict)
    complete: bool = False


@dataclass(slots=True)
class Model:
    """What a file holds, by simulation."""

    simulations: dict[str, Held] = field(default_factory=dict)

    def take(self, step: Step) -> None:
        """Take what a call records."""
        for kind, simulation, *rest in step.effects:
            held = self.simulations.setdefault(simulation, Held())
            if kind == "row":
                held.rows.append((rest[0], rest[1]))
            elif kind == "cell":
                variable, agent, row, value = rest
                held.cells.setdefault((variable, agent), {})[row] = value
            elif kind == "world":
                variable, row, value = rest
                held.world.setdefault(variable, {})[row] = value
            elif kind == "episode":
                held.episodes.setdefault(rest[0], {}).update(rest[1])
            elif kind == "ended":
                held.ended.add(rest[0])
            elif kind == "attachment":
                held.attachments[rest[0]] = rest[1]
            elif kind == "complete":
                held.complete = True


class Script:
    """Makes the calls of a run.

    Parameters
    ----------
    seed : int
        All of it follows from it.
    steps : int
        Steps of the first simulation.
    """

    def __init__(self, seed: int, steps: int) -> None:
        self.dice = np.random.default_rng(seed)
        self.steps = steps
        self.calls: list[Step] = []

    def make(self) -> list[Step]:
        """Return the calls."""
        self._simulation("first", self.steps)
        self.calls.append(Step("reopen", (SECOND,), {}, [("begin", SECOND)]))
        self._simulation(SECOND, max(4, self.steps // 3))
        return self.calls

    def _simulation(self, name: str, steps: int) -> None:
        dice = self.dice
        rows, episode, step, left = 0, -1, -1, 0
        born, dead = 1, 0
        lag = -1  # the newest step of the agent that lags
        clock: dict[int, int] = {}  # rows of the open episode by step
        score: Any = 1
        is_open = False
        while rows < steps:
            if left == 0:
                if is_open and dice.random() < 0.6:
                    told: dict[str, Any] = {"outcome": "x" * int(dice.integers(1, 60)), "score": score}
                    self._add("end_episode", (), told, [("episode", name, episode, told), ("ended", name, episode)])
                    is_open = False
                left = int(dice.integers(2, 14))
                began = [("ended", name, episode)] if is_open else []
                if dice.random() < 0.2:  # a whole trajectory: an episode of its own
                    episode += 1
                    n = int(dice.integers(1, 9))
                    x, r = dice.random((n, 3), np.float32), dice.random(n)
                    effects: list[tuple[Any, ...]] = [*began, ("episode", name, episode, {})]
                    for t in range(n):
                        effects.append(("row", name, episode, t))
                        effects.append(("cell", name, "x", "prey_0", rows + t, x[t]))
                        effects.append(("cell", name, "rewards", "prey_0", rows + t, r[t]))
                    effects.append(("ended", name, episode))
                    self._add("log_episode", ({"x": x, "rewards": r},), {"agent_id": "prey_0"}, effects)
                    rows += n
                    left, is_open = 0, False
                    continue
                episode, step, lag, clock = episode + 1, -1, -1, {}
                fields: dict[str, Any] = {"level": int(dice.integers(9))} if rows < steps // 2 else {"level": float(dice.random())}
                if dice.random() < 0.5:
                    fields["seed"] = int(dice.integers(1000))
                score = int(dice.integers(5)) if rows < steps // 2 else float(dice.random())
                self._add("begin_episode", (), fields, [*began, ("episode", name, episode, fields)])
                is_open = True
            left -= 1
            step += int(dice.integers(1, 3))
            row = clock[step] = rows
            rows += 1
            new: list[tuple[Any, ...]] = [("row", name, episode, step)]
            if dice.random() < 0.25 and born < 12:
                born += 1
            if dice.random() < 0.15 and dead < born - 1:
                dead += 1
            late = [f"late_{i}" for i in range(row * 6 // max(1, steps))]
            kind = dice.random()
            living = [f"prey_{i}" for i in range(dead, born)]
            if kind < 0.3:
                arrays = {"x": dice.random((len(living), 3), np.float32), "rewards": dice.random(len(living))}
                effects = [("cell", name, v, a, row, arrays[v][i]) for v in arrays for i, a in enumerate(living)]
                self._add("log_step", (step, arrays), {"agent_ids": living}, new + effects)
            elif kind < 0.6:
                each, effects = {}, []
                for agent in living:
                    each[agent] = self._values(late)
                    effects += [("cell", name, v, agent, row, value) for v, value in each[agent].items()]
                world = self._world(row)
                effects += [("world", name, v, row, value) for v, value in world.items()]
                self._add("log_step", (step, each), {"environment": world}, new + effects)
            else:
                for agent in living:
                    values = self._values(late)
                    effects = [("cell", name, v, agent, row, value) for v, value in values.items()]
                    self._add("log_agent_step", (agent, step, values), {}, new + effects)
                    new = []
                world = self._world(row)
                self._add("log_env_step", (step, world), {}, [("world", name, v, row, value) for v, value in world.items()])
            if dice.random() < 0.5:
                values = {"x": dice.random(5, np.float32), "rewards": float(dice.random()), "howl": int(dice.integers(-(2**60), 2**60))}
                agent = f"wolf_{int(dice.integers(3))}"
                effects = [("cell", name, f"wolf.{v}", agent, row, value) for v, value in values.items()]
                self._add("log_agent_step", (agent, step, values), {}, effects)
            for then in [s for s in clock if s > lag and s < step - 3][:2]:
                if dice.random() < 0.5:
                    values = self._values(late[:1])
                    effects = [("cell", name, v, LAGGING, clock[then], value) for v, value in values.items()]
                    self._add("log_agent_step", (LAGGING, then, values), {}, effects)
                    lag = then
            what = dice.random()
            if what < 0.06:
                self._add("flush", (), {}, [])
            elif what < 0.1:
                value = {"weights": dice.random((4, 3)), "word": "w" * int(dice.integers(9)), "n": int(dice.integers(99))}
                self._add("attach", (f"a{row}", value), {}, [("attachment", name, f"a{row}", value)])
        self._add("finalize", (), {}, [("ended", name, episode), ("complete", name)])

    def _add(self, call: str, arguments: tuple[Any, ...], options: dict[str, Any], effects: list[tuple[Any, ...]]) -> None:
        self.calls.append(Step(call, arguments, options, effects))

    def _values(self, late: list[str]) -> dict[str, Any]:
        dice = self.dice
        out: dict[str, Any] = {"x": dice.random(3, np.float32)}
        if dice.random() < 0.9:
            out["rewards"] = float(dice.random())
        if dice.random() < 0.5:
            out["hp"] = int(dice.integers(-(2**62), 2**62))
            out["alive"] = bool(dice.integers(2))
        if dice.random() < 0.3:
            out["name"] = "ä" * int(dice.integers(1, 3 + len(self.calls) // 4))
        if dice.random() < 0.3:
            out["picture"] = dice.integers(0, 255, (4, 4, 3), np.uint8)
        for name in late:
            if dice.random() < 0.3:
                out[name] = float(dice.random())
        return out

    def _world(self, row: int) -> dict[str, Any]:
        dice = self.dice
        out: dict[str, Any] = {"n": row * 7 + 1}
        if dice.random() < 0.5:
            out["weather"] = "rain" * int(dice.integers(1, 4 + row // 8))
        if dice.random() < 0.4:
            out["grid"] = dice.integers(1, 99, (4, 4), np.int16)
        if dice.random() < 0.7:
            out["wind"] = dice.random(2)
        return out


def script(seed: int, steps: int = 40) -> list[Step]:
    """Return the calls of a run, which follow from a seed."""
    return Script(seed, steps).make()


@contextlib.contextmanager
def small_windows(rows: int | None) -> Iterator[None]:
    """Have windows of few rows, so that a short run sends many to the file."""
    before = simlab.record.pool.MOST_ROWS
    if rows:
        simlab.record.pool.MOST_ROWS = simlab.record.stage.MOST_ROWS = rows  # type: ignore[misc]
    try:
        yield
    finally:
        simlab.record.pool.MOST_ROWS = simlab.record.stage.MOST_ROWS = before  # type: ignore[misc]


def record(path: Path, calls: list[Step], returned: Any, window: int | None = None, **options: Any) -> None:
    """Make the calls, and note in ``returned[0]`` how many have returned."""
    with small_windows(window), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        log = simlab.HDF5Logger(path, simulation="first", seed=5, **options)
        for i, step in enumerate(calls):
            if step.name == "reopen":
                log = simlab.HDF5Logger(path, mode="a", simulation=step.arguments[0], **options)
            else:
                getattr(log, step.name)(*step.arguments, **step.options)
            returned[0] = i + 1


def expected(calls: list[Step], returned: int) -> tuple[Model, Model]:
    """Return what has to be in the file after so many calls, and what may be there: the next call was under way."""
    must, may = Model(), Model()
    must.simulations["first"], may.simulations["first"] = Held(), Held()
    for i, step in enumerate(calls[: returned + 1]):
        may.take(step)
        if i < returned:
            must.take(step)
    return must, may


class Wrong(AssertionError):
    """What is in the file is not what was logged."""


def compare(path: Path, must: Model, may: Model, gaps: bool = False) -> int:
    """Compare a run file with what was logged, and return how many values were looked at.

    Parameters
    ----------
    path : Path
        The file.
    must, may : Model
        What has to be there, and what may be.
    gaps : bool, optional
        Whether something may be missing; what is there has to be right all the same.
    """
    count = 0
    for name, allowed in may.simulations.items():
        needed = must.simulations.get(name)
        try:
            ds = simlab.open_run(path, simulation=name)
        except RunNotFoundError:
            if needed is None or gaps:
                continue
            raise
        with ds:
            count += _compare(ds, needed or Held(), allowed, gaps)
    return count


def _compare(ds: Any, must: Held, may: Held, gaps: bool) -> int:
    if gaps and not {"episode", "step"} <= set(ds.coords):
        return 0  # what happened at which step is lost, and a warning said so
    rows = list(zip(ds.episode.values.tolist(), ds.step.values.tolist(), strict=True))
    if rows != may.rows[: len(rows)] or (not gaps and len(rows) < len(must.rows)):
        raise Wrong(f"rows: {len(rows)} are there, {len(must.rows)} returned, {len(may.rows)} may be; {rows[-3:]} of {may.rows[-3:]}")
    if np.any(np.diff(ds.time.values) <= 0):
        raise Wrong("the run clock does not rise")
    n, count = len(rows), 0
    known = {v for v, _ in may.cells} | set(may.world)
    if set(map(str, ds.data_vars)) - known:
        raise Wrong(f"variables that nobody logged: {set(map(str, ds.data_vars)) - known}")
    read: dict[str, tuple[Any, Any]] = {}
    for (variable, agent), allowed in may.cells.items():
        needed = must.cells.get((variable, agent), {})
        dim = "wolf" if variable.startswith("wolf.") else "agent"
        if variable not in ds or agent not in (names := ds[dim].values.tolist() if dim in ds.dims else []):
            if needed and not gaps:
                raise Wrong(f"{variable} of {agent} is missing: {list(ds.data_vars)}, {ds.get(dim)}")
            continue
        if variable not in read:
            read[variable] = (ds[variable].values, ds.sim.present(variable).values)
        values, present = read[variable]
        at = names.index(agent)
        count += _column(f"{variable} of {agent}", values[at], present[at], needed, allowed, n, gaps)
    for variable, allowed in may.world.items():
        needed = must.world.get(variable, {})
        if variable not in ds:
            if needed and not gaps:
                raise Wrong(f"{variable} of the environment is missing")
            continue
        array = ds[variable]
        if array.dims[0] == "time" and variable not in ("grid", "wind"):
            count += _column(variable, array.values, ds.sim.present(variable).values, needed, allowed, n, gaps)
        else:
            count += _series(variable, array, ds.time.values, needed, allowed, gaps)
    _compare_episodes(ds, must, may, gaps, n)
    for name, value in may.attachments.items():
        if name not in ds.sim.attachments:
            if name in must.attachments and not gaps:
                raise Wrong(f"attachment {name} is missing")
            continue
        found = ds.sim.attachment(name)
        if not (np.array_equal(found["weights"], value["weights"]) and found["word"] == value["word"] and found["n"] == value["n"]):
            raise Wrong(f"attachment {name}: {found} for {value}")
    return count


def _column(what: str, values: Any, present: Any, needed: dict[int, Any], allowed: dict[int, Any], n: int, gaps: bool) -> int:
    if len(values) != n or len(present) != n:
        raise Wrong(f"{what} has {len(values)} rows, the run has {n}")
    there = set(np.flatnonzero(present).tolist())
    if not gaps and not there >= set(needed):
        raise Wrong(f"{what} lacks rows {sorted(set(needed) - there)[:9]} of {n}")
    if there - set(allowed):
        raise Wrong(f"{what} has rows {sorted(there - set(allowed))[:9]} that nobody logged")
    for row in there:
        if not same(values[row], allowed[row]) and not (row in needed and same(values[row], needed[row])):
            raise Wrong(f"{what} at row {row} is {values[row]!r}, logged was {allowed[row]!r}")
    return len(there)


def _series(what: str, array: Any, clock: Any, needed: dict[int, Any], allowed: dict[int, Any], gaps: bool) -> int:
    times = array[array.dims[0]].values
    row_of = {t: i for i, t in enumerate(clock.tolist())}
    strange = [t for t in times.tolist() if t not in row_of]
    if strange:
        raise Wrong(f"{what} has times {strange[:9]} that are no rows")
    there = [row_of[t] for t in times.tolist()]
    if not gaps and not set(there) >= set(needed):
        raise Wrong(f"{what} lacks rows {sorted(set(needed) - set(there))[:9]}, it has {len(there)}")
    values = array.values
    for i, row in enumerate(there):
        if row not in allowed:
            raise Wrong(f"{what} has row {row} that nobody logged")
        if not same(values[i], allowed[row]) and not (row in needed and same(values[i], needed[row])):
            raise Wrong(f"{what} at row {row} is {values[i]!r}, logged was {allowed[row]!r}")
    return len(there)


def _compare_episodes(ds: Any, must: Held, may: Held, gaps: bool, n: int) -> None:
    table = ds.sim.episodes
    if "episode" not in table.dims:
        return
    known = table.sizes["episode"]
    places = {int(e): i for i, e in enumerate(table["episode"].values)}
    if known > len(may.episodes) or (not gaps and known < len(must.ended)):
        raise Wrong(f"{known} episodes, {len(must.ended)} ended, {len(may.episodes)} began")
    for number, fields in must.episodes.items():
        if number not in places:
            if number in must.ended and not gaps:
                raise Wrong(f"episode {number} is missing")
            continue
        for name, value in fields.items():
            if gaps and name not in table:
                continue
            if name not in table:
                if number not in must.ended:
                    continue
                raise Wrong(f"episode {number} lacks the field {name}: {list(table)}")
            there = ds.sim.present(name)
            present = bool(there.values[there["episode"].values.tolist().index(number)])
            if not present:
                if not gaps and number in must.ended:
                    raise Wrong(f"field {name} of episode {number} is missing")
                continue
            found = table[name].values[places[number]]
            if gaps and found != found:
                continue  # some of its rows are lost, and what was said at its end with them
            if found != value and found != may.episodes[number].get(name):
                raise Wrong(f"field {name} of episode {number} is {found!r}, given was {value!r}")
        if number in must.ended and not gaps:
            rows = [i for i, (e, _) in enumerate(must.rows) if e == number]
            if int(table["length"].values[places[number]]) != len(rows):
                raise Wrong(f"episode {number} has length {table['length'].values[places[number]]}, not {len(rows)}")
            sums: dict[str, float] = {}
            for (variable, agent), values in must.cells.items():
                if variable.rsplit(".", 1)[-1] == "rewards":
                    here = [values[i] for i in rows if i in values]
                    if here:
                        sums[agent] = float(np.sum(here))
            told = float(table["return_sum"].values[places[number]]) if "return_sum" in table else float("nan")
            if sums and may.cells == must.cells and not np.isclose(told, sum(sums.values())):
                raise Wrong(f"episode {number} has return {told}, not {sum(sums.values())}")


def same(found: Any, logged: Any) -> bool:
    """Whether a value came back bit for bit."""
    if isinstance(logged, str):
        return bool(found == logged)
    wanted = np.asarray(logged)
    got = np.asarray(found)
    return got.shape == wanted.shape and got.astype(wanted.dtype).tobytes() == wanted.tobytes()
