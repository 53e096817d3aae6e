"""What of a journal counts: all that was recorded by a call, and nothing that a call had only made room for, or that is damaged.

A writer that dies in the middle of a call leaves room for agents and variables that no event tells of yet; none of their bits is set. A
bit without an event, a row out of order or an agent in a place that cannot be is damage: it is left out and told.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from simlab.schema import Variable
from simlab.staging.found import Found
from simlab.staging.lanes import WORD, Lanes
from simlab.staging.windows import Window


def screen(found: Found, agents_of: Callable[[str], int], rows: int | None = None) -> None:
    """Take out of a journal what does not count, and note what is lost by it.

    Parameters
    ----------
    found : Found
        The journal.
    agents_of : callable
        Returns how many agents of a population the file has.
    rows : int, optional
        Rows that are in the file; left out where it goes on growing.
    """
    populations = {p for p in found.schema.population_names if found.schema.variables(p)}
    found.agents = [each for each in found.agents if each[0] in populations]
    found.windows = _in_order(found, rows)
    numbers = tuple(v for v in found.schema.environment if not v.is_series)
    for window in found.windows:
        for name in list(window.lanes):
            lanes = window.lanes[name]
            if name not in populations:
                del window.lanes[name]
                if _logged(lanes, window.count).any():
                    found.gaps.append(f"{window.count} rows of agents of the unknown kind {name!r}")
                continue
            _screen_agents(found, window, name, lanes, agents_of(name))
            _screen_variables(found, window, lanes, found.schema.variables(name), f"agents{name and ' of ' + repr(name)}")
        if window.environment.agents != [0][: len(window.environment.agents)]:
            found.gaps.append(f"{window.count} rows of the environment")
            window.environment.agents = []
        _screen_variables(found, window, window.environment, numbers, "the environment")


def _in_order(found: Found, rows: int | None) -> list[Window]:
    """Return the windows whose rows follow those of the file and each other; the others are lost."""
    kept: list[Window] = []
    late: list[Window] = []
    at = None
    for window in found.windows:
        count, first = window.count, window.first
        if not 0 <= count <= window.capacity or first < 0:
            found.gaps.append(f"the rows of the journal's window {window.number}: it is damaged")
            continue
        if window.late:
            late.append(window)
            continue
        if (at is None and rows is not None and first > rows) or (at is not None and first != at):
            found.gaps.append(f"{count} rows from row {first} on, which do not follow those before")
            continue
        wrong = _damaged_clock(window, kept[-1] if kept else None)
        if wrong.any():
            n = int(np.argmax(wrong))
            found.gaps.append(f"{count - n} rows from row {first + n} on, whose clock is damaged")
            window.cut(n)
        at = first + count
        kept.append(window)
        if wrong.any():
            at = -1  # nothing follows what was cut
    end = max([w.first + w.count for w in kept], default=rows)
    for window in late:
        if end is not None and window.first >= end:
            found.gaps.append(f"values that came late, for rows from {window.first} on")
        else:
            kept.append(window)
    return [w for w in found.windows if any(w is k for k in kept)]


def _damaged_clock(window: Window, before: Window | None) -> Any:
    """Return which rows cannot follow those before them: the run clock goes with the steps, and on from where an episode ended."""
    count = window.count
    known = 1 if before is not None and before.count else 0
    clocks = []
    for name in ("time", "step", "episode"):
        here = getattr(window, name)[:count].astype(np.int64)
        clocks.append(np.concatenate([getattr(before, name)[before.count - 1 : before.count], here]) if known and before else here)
    time, step, episode = clocks
    wrong = (step < 0) | (time < step) | (episode < 0)
    same = episode[1:] == episode[:-1]
    begins = np.where(same, time[:-1] - step[:-1], time[:-1] + 1)
    wrong[1:] |= (time[1:] - step[1:] != begins) | (episode[1:] < episode[:-1]) | (same & (step[1:] <= step[:-1]))
    return wrong[known:]


def _logged(lanes: Lanes, count: int) -> Any:
    """Return which slots have a bit set."""
    n = len(lanes.agents)
    return np.logical_or.reduce([word[:n, :count].any(axis=1) for word in lanes.words]) if lanes.words else np.zeros(n, bool)


def _screen_agents(found: Found, window: Window, name: str, lanes: Lanes, known: int) -> None:
    """Keep the slots of agents that are known, or told of, or at least possible."""
    told = {place for population, place, _, _ in found.agents if population == name}
    logged = _logged(lanes, window.count)
    most = max([known, *(place + 1 for place in told)]) + len(lanes.agents)
    keep, seen, lost = [], set(), 0
    for slot, place in enumerate(lanes.agents):
        possible = 0 <= place < most and place not in seen
        if possible and (place < known or place in told or logged[slot]):
            keep.append(slot)
            seen.add(place)
        elif logged[slot]:
            lost += 1
    if lost:
        found.gaps.append(f"the rows {window.first} ... {window.first + window.count - 1} of {lost} agents, whose places are damaged")
    if len(keep) < len(lanes.agents):
        lanes.keep(keep)


def _screen_variables(found: Found, window: Window, lanes: Lanes, variables: tuple[Variable, ...], whose: str) -> None:
    """Take out what belongs to no variable."""
    n, count, lost = len(lanes.agents), window.count, False
    for i, word in enumerate(lanes.words):
        here = max(0, min(WORD, len(variables) - WORD * i))
        allowed = np.uint64((1 << here) - 1)
        for index in range(WORD * i, WORD * i + here):
            if index not in lanes.cells or not _fits(lanes.cells[index], variables[index]):
                allowed &= ~np.uint64(1 << (index - WORD * i))
        beyond = word[:n, :count] & ~allowed
        if beyond.any():
            lost = True
            word[:n, :count] &= allowed
    lanes.cells = {i: cells for i, cells in lanes.cells.items() if i < len(variables) and _fits(cells, variables[i])}
    if lost:
        found.gaps.append(f"values of {whose} at rows {window.first} ... {window.first + count - 1} whose variable is not known")


def _fits(cells: Any, variable: Variable) -> bool:
    """Whether cells hold a variable's values."""
    kind = cells.dtype.kind == "S" if variable.is_text else cells.dtype == variable.dtype
    return bool(kind) and cells.shape[2:] == variable.shape
