"""Which simulations a run file holds, and which one is meant."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import h5py

from simlab.conventions import COMMITTED
from simlab.errors import FormatError, InputError, RunNotFoundError, did_you_mean
from simlab.storage.opening import RunSource

_DIGITS: Final = re.compile(r"(\d+)")
_DEEPEST: Final = 32


def natural_key(name: str) -> list[tuple[int, int, str]]:
    """Return a key that sorts numbers inside names by value.

    Examples
    --------
    >>> sorted(["demo_10", "demo_2", "demo_1"], key=natural_key)
    ['demo_1', 'demo_2', 'demo_10']
    """
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in _DIGITS.split(name) if part]


def find_simulations(source: RunSource | str) -> list[str]:
    """Return the names of the simulations in a run file, in natural order.

    Parameters
    ----------
    source : RunSource or str
        The file.
    """
    if isinstance(source, str):
        opened = RunSource(source)
        try:
            return find_simulations(opened)
        finally:
            opened.close()
    return source.persistently(lambda: sorted(simulations_below(source.file()), key=natural_key))


def simulations_below(group: h5py.Group, path: str = "", depth: int = 0) -> Iterator[str]:
    """Yield the names of the simulations below a group; none of them is looked into."""
    for name in groups_below(group):
        inner = group[name]
        if _is_simulation(inner):
            yield path + name
        elif depth < _DEEPEST:
            yield from simulations_below(inner, f"{path}{name}/", depth + 1)


def _is_simulation(group: h5py.Group) -> bool:
    return group.get(COMMITTED, getclass=True) is h5py.Dataset and group[COMMITTED].shape == ()


def _holds(file: h5py.File, name: str) -> bool:
    found = file.get(name)
    return isinstance(found, h5py.Group) and _is_simulation(found)


def groups_below(group: h5py.Group) -> list[str]:
    """Return the names of the groups that lie in a group."""
    # A link may lead out of the file, nowhere, or in a circle: only what lies here counts.
    return [n for n in group if group.get(n, getclass=True, getlink=True) is h5py.HardLink and group.get(n, getclass=True) is h5py.Group]


def data_below(group: h5py.Group) -> list[h5py.Dataset]:
    """Return the datasets that lie in a group."""
    out = []
    for name in group:
        if group.get(name, getclass=True, getlink=True) is h5py.HardLink:
            inner = group[name]
            if isinstance(inner, h5py.Dataset):
                out.append(inner)
    return out


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
        if wanted and source.persistently(lambda: _holds(source.file(), wanted)):
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


def _some(names: list[str], most: int = 10) -> str:
    return ", ".join(map(repr, names[:most])) + (f" and {len(names) - most} more" if len(names) > most else "")
