"""A journal as it is found: what a writer, dead or alive, had staged and not yet put into its file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from simlab.errors import SimlabError
from simlab.metadata import from_json
from simlab.schema import Schema, Variable
from simlab.schema.keeping import variables_from_json
from simlab.staging.jobs import Block
from simlab.staging.lanes import Lanes
from simlab.staging.windows import CLOCK, SEQUENCE, Window, window_arrays
from simlab.storage.journal_files import Mapped, read_events, read_maps

Array = np.ndarray[Any, np.dtype[Any]]

_TRIES: Final = 10
_DAMAGE: Final = (KeyError, TypeError, ValueError, IndexError)
"""What files that are too short end in."""
_PLAIN: Final = {bool: np.bool_, int: np.int64, float: np.float64}


@dataclass(slots=True)
class Found:
    """What a journal holds.

    Attributes
    ----------
    simulation : str
        Whose rows they are; "" where there are none.
    windows : list of Window
        Staged rows, in the order in which they were.
    schema : Schema
        The schema that was given, with the variables that appeared since.
    agents : list of tuple
        Agents that appeared: population, place, label, JSON key.
    series : dict of str to dict
        Rows of the environment's arrays: by name, then by row, time and values.
    begun, ended : dict of int to dict
        Fields of episodes, by number.
    gaps : list of str
        What could not be read.
    """

    schema: Schema
    simulation: str = ""
    windows: list[Window] = field(default_factory=list)
    agents: list[tuple[str, int, str, str]] = field(default_factory=list)
    series: dict[str, dict[int, tuple[int, Array]]] = field(default_factory=dict)
    begun: dict[int, dict[str, Any]] = field(default_factory=dict)
    ended: dict[int, dict[str, Any]] = field(default_factory=dict)
    gaps: list[str] = field(default_factory=list)

    def blocks(self) -> list[Block]:
        """Return the rows of the environment's arrays; of each variable, those that follow each other without a gap."""
        known = {v.name: v for v in self.schema.environment}
        out = []
        for name, rows in self.series.items():
            if name not in known:
                continue
            first = min(rows)
            last = next(n for n in range(first, len(rows) + first + 1) if n not in rows)
            if last - first < len(rows):
                self.gaps.append(f"{len(rows) - (last - first)} rows of {name!r}")
            time = np.array([rows[n][0] for n in range(first, last)], np.int64)
            out.append(Block(known[name], first, time, np.stack([rows[n][1] for n in range(first, last)])))
        return out


@dataclass(frozen=True, slots=True)
class Copied:
    """The bytes of a journal.

    Attributes
    ----------
    maps : list of Mapped
        Files of staged rows.
    events : list of tuple or None
        Events with their bytes; None for each segment that ends in the middle of one.
    broken : list of str
        Files that are not whole.
    """

    maps: list[Mapped]
    events: list[tuple[dict[str, Any], bytes] | None]
    broken: list[str]


def copy_journal(folder: Path) -> Copied:
    """Copy a journal, which its writer may go on filling.

    How many rows a window has is read before the rows, and the events last: they tell of what is in the rows. A window that was used
    anew meanwhile shows by its sequence.
    """
    for _ in range(_TRIES):
        maps, broken = read_maps(folder, first=CLOCK)
        now = {m.name: _sequence(m) for m in read_maps(folder, only=CLOCK)[0]}
        if all(_sequence(m) == now.get(m.name) for m in maps if m.name.endswith(CLOCK)):
            break
    else:  # the writer is quicker than this: what was used anew meanwhile is in the file, or read the next time
        changed = {m.head["window"] for m in maps if m.name.endswith(CLOCK) and _sequence(m) != now.get(m.name)}
        maps = [m for m in maps if m.head.get("window") not in changed]
    return Copied(maps, list(read_events(folder)), broken)


def _sequence(clock: Mapped) -> int | None:
    """Return a window's sequence; None where its file is cut short, which `read_journal` tells."""
    try:
        return int(window_arrays(clock.data, clock.head["capacity"])[0][SEQUENCE])
    except _DAMAGE:
        return None


def read_journal(copied: Copied, schema: Schema) -> Found:
    """Return what a journal holds.

    Parameters
    ----------
    copied : Copied
        The journal.
    schema : Schema
        The schema as the run file has it.
    """
    found = Found(schema)
    for event in copied.events:
        if event is None:
            found.gaps.append("the end of the journal's log")
            continue
        try:
            _take(found, *event)
        except (SimlabError, KeyError, TypeError, ValueError) as e:
            found.gaps.append(f"an event of the journal ({e})")
    maps = copied.maps
    found.gaps += [f"the journal's file {name}" for name in copied.broken]
    by_window: dict[int, list[Mapped]] = {}
    clocks = []
    for each in maps:
        found.simulation = str(each.head.get("simulation", "")) or found.simulation
        if each.name.endswith(CLOCK):
            clocks.append(each)
        else:
            by_window.setdefault(each.head["window"], []).append(each)
    staged = []
    for each in clocks:
        try:
            sequence = int(window_arrays(each.data, each.head["capacity"])[0][SEQUENCE])
            if sequence > 0:
                lanes = dict(_lanes(found, by_window.get(each.head["window"], ())))
                staged.append((sequence, Window.found(each.head, each.data, lanes)))
        except _DAMAGE as e:
            found.gaps.append(f"the rows of the journal's file {each.name} ({e})")
    found.windows = [window for _, window in sorted(staged, key=lambda pair: pair[0])]
    return found


def _lanes(found: Found, maps: Iterable[Mapped]) -> Iterator[tuple[str | None, Lanes]]:
    for each in maps:
        try:
            yield each.head["population"], Lanes.found(each.head, each.data)
        except _DAMAGE as e:
            found.gaps.append(f"the rows of the journal's file {each.name} ({e})")


def _take(found: Found, event: dict[str, Any], data: bytes) -> None:
    if "agent" in event:
        population, place, label, key = event["agent"]
        found.agents.append((population, place, label, key))
    elif "variables" in event:
        _grow(found, event["population"], event["at"], variables_from_json(event["variables"]))
    elif "series" in event:
        values = np.frombuffer(data, np.dtype(event["dtype"])).reshape(event["shape"])
        found.series.setdefault(event["series"], {})[event["row"]] = (event["time"], values)
    elif "begin" in event:
        found.begun[event["begin"]] = _fields(event["fields"])
    elif "end" in event:
        found.ended[event["end"]] = _fields(event["fields"])


def _grow(found: Found, population: str | None, at: int, new: list[Variable]) -> None:
    """Add variables at their places. What was told there before and is another one belongs to a call that was refused in the end."""
    schema = found.schema
    known = schema.environment if population is None else schema.variables(population)
    if at > len(known):
        raise ValueError(f"{', '.join(v.name for v in new)}: variables before them are missing")
    if list(known[at : at + len(new)]) == new:
        return
    found.schema = (schema.cut(population, at) if len(known) > at else schema).extended(new, population)


def _fields(text: str) -> dict[str, Any]:
    return {name: _PLAIN.get(type(value), lambda v: v)(value) for name, value in from_json(text).items()}
