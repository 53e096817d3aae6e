"""Which simulations a run file holds, and which one is meant."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import h5py

from simlab.conventions import COMMITTED, EPISODE, GROUP_AGENTS, GROUP_ENVIRONMENT, GROUP_EPISODES, STEP, TIME
from simlab.errors import FormatError, InputError, RunNotFoundError, SimlabError, did_you_mean
from simlab.storage.damage import ODD, reason
from simlab.storage.entries import address, entries
from simlab.storage.opening import RunSource

_DIGITS: Final = re.compile(r"(\d+)")
_DEEPEST: Final = 32
_COMMITTED: Final = COMMITTED.encode()
_MARKS: Final = tuple(name.encode() for name in (TIME, STEP, EPISODE, GROUP_AGENTS, GROUP_ENVIRONMENT, GROUP_EPISODES))
"""What lies in a simulation; of one that lost its row count, some of it is still there."""
_ENOUGH_MARKS: Final = 3


def natural_key(name: str) -> list[tuple[int, int, str]]:
    """Return a key that sorts numbers inside names by value.

    Examples
    --------
    >>> sorted(["demo_10", "demo_2", "demo_1"], key=natural_key)
    ['demo_1', 'demo_2', 'demo_10']
    """
    # Python refuses to make a number of more digits than that.
    return [(0, int(part[-4000:]), "") if part.isdecimal() else (1, 0, part) for part in _DIGITS.split(name) if part]


def find_simulations(source: RunSource | str) -> list[str]:
    """Return the names of the simulations in a run file, in natural order; damaged ones are among them.

    Parameters
    ----------
    source : RunSource or str
        The file.

    Raises
    ------
    FormatError
        If the file is too damaged to be looked through.
    """
    if isinstance(source, str):
        opened = RunSource(source)
        try:
            return find_simulations(opened)
        finally:
            opened.close()
    try:
        return source.persistently(lambda: sorted(simulations_below(source.file(), damaged=True), key=natural_key))
    except ODD as error:
        if isinstance(error, SimlabError):
            raise
        raise FormatError(f"{source.path!r} is damaged: {reason(error)}. Restore it from a copy.") from error


def simulations_below(
    group: h5py.Group, path: str = "", depth: int = 0, seen: set[int] | None = None, damaged: bool = False
) -> Iterator[str]:
    """Yield the names of the simulations below a group; none of them is looked into.

    Parameters
    ----------
    group : h5py.Group
        Where to look.
    damaged : bool, optional
        Yield those too that have lost what tells their rows.
    """
    seen = set() if seen is None else seen
    for name, inner in entries(group).groups.items():
        place = address(inner)
        if place in seen:
            continue
        seen.add(place)
        if _is_simulation(inner, damaged):
            yield path + name
        elif depth < _DEEPEST:
            yield from simulations_below(inner, f"{path}{name}/", depth + 1, seen, damaged)


def _is_simulation(group: h5py.Group, damaged: bool = True) -> bool:
    """Whether a group is a simulation, or was one before it was damaged."""
    try:
        links: Any = group.id.links
        if damaged:
            return bool(links.exists(_COMMITTED)) or sum(map(links.exists, _MARKS)) >= _ENOUGH_MARKS
        scalar = links.exists(_COMMITTED) and isinstance(found := group[COMMITTED], h5py.Dataset) and found.shape == ()
        return bool(scalar)
    except ODD:
        return False


def select_simulation(source: RunSource, simulation: str | None) -> str:
    """Return the name of the simulation that was asked for or, where none was, of the only one.

    Raises
    ------
    FormatError
        If the file holds none.
    InputError
        If it holds several and none was asked for.
    RunNotFoundError
        If it does not hold the one that was asked for.
    """
    if simulation is not None:
        if not isinstance(simulation, str):
            raise InputError(f"simulation={simulation!r} is no name. Give the name of a simulation, such as 'simulation_0001'.")
        wanted = simulation.strip("/")
        if wanted and source.persistently(lambda: _lies_at(source.file(), wanted)):
            return wanted
    names = find_simulations(source)
    if not names:
        raise FormatError(f"{source.path!r} is a run file, but no simulation was recorded in it yet.")
    if simulation is None:
        if len(names) == 1:
            return names[0]
        raise InputError(
            f"{source.path!r} holds {len(names)} simulations: {_some(names)}. "
            f"Choose one: open_run(path, simulation={names[0]!r}); list_runs(path) shows them all."
        )
    raise RunNotFoundError(f"{source.path!r} has no simulation {simulation!r}; it holds {_some(names)}.{did_you_mean(simulation, names)}")


def _lies_at(group: h5py.Group, path: str) -> bool:
    """Whether a simulation lies at a path, without looking at any other; a path that leaves the file is none."""
    try:
        for name in path.split("/"):
            if group.id.links.get_info(name.encode()).type != h5py.h5l.TYPE_HARD:
                return False
            found = h5py.h5o.open(group.id, name.encode())
            if not isinstance(found, h5py.h5g.GroupID):
                return False
            group = h5py.Group(found)
    except ODD:
        return False
    return _is_simulation(group)


def _some(names: list[str], most: int = 10) -> str:
    return ", ".join(map(repr, names[:most])) + (f" and {len(names) - most} more" if len(names) > most else "")
