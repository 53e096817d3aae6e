"""Where two episodes first differ."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from simlab.view.frames import Episode

_ROWS: Final = 256
_BYTES: Final = 16 << 20


def first_difference(one: Episode, other: Episode) -> tuple[int | None, str]:
    """Return the first row at which two episodes differ, and in what.

    Variables are compared by name and agents by label; NaN equals NaN, and so do two values that were not logged.

    Parameters
    ----------
    one, other : Episode
        Two episodes of the same or of different runs.

    Returns
    -------
    int or None
        The row; None where what both have is the same.
    str
        Which variable differs, or that nothing does.
    """
    shared = [name for name in one.variables if name in other.variables and one.own_shape(name) == other.own_shape(name)]
    shared = [name for name in shared if one.on_main_clock(name) and other.on_main_clock(name)]
    rows = min(len(one.time), len(other.time))
    pairs = {name: _places(one, other, name) for name in shared}
    start, size = 0, _ROWS
    while start < rows:
        stop = min(rows, start + size)
        found = [(row, name) for name in shared if (row := _differs(one, other, name, pairs[name], start, stop)) is not None]
        if found:
            row, name = min(found)
            return row, f"first difference: {name} at step {one.steps[row]}"
        start, size = stop, min(4 * size, 1 << 16)
    if len(one.time) != len(other.time):
        longer = one if len(one.time) > rows else other
        return rows, f"the same until one of them ends, at step {longer.steps[rows]}"
    return None, "no difference in what both have" if shared else "the two have no variable in common"


def _places(one: Episode, other: Episode, name: str) -> tuple[NDArray[Any], NDArray[Any]] | None:
    first, second = one.agent_dim(name), other.agent_dim(name)
    if first is None or second is None:
        return None
    labels, others = one.agents(first), other.agents(second)
    where = {label: i for i, label in enumerate(others)}
    both = [(i, where[label]) for i, label in enumerate(labels) if label in where]
    return np.array([a for a, _ in both], int), np.array([b for _, b in both], int)


def _differs(one: Episode, other: Episode, name: str, places: Any, start: int, stop: int) -> int | None:
    """Return the first row between two at which a variable differs. Wide values are read a few rows at a time."""
    width = max(1, int(np.prod(one.own_shape(name))) * one.data[name].dtype.itemsize * (1 if places is None else max(1, len(places[0]))))
    each = max(1, _BYTES // width)
    for low in range(start, stop, each):
        high = min(stop, low + each)
        first, second = _part(one, name, places, 0, low, high), _part(other, name, places, 1, low, high)
        with np.errstate(invalid="ignore"):
            same = (first[0] == second[0]) | ((first[0] != first[0]) & (second[0] != second[0]))
        wrong = (first[1] != second[1]) | (first[1] & ~same.reshape(*first[1].shape, -1).all(axis=-1))
        hit = np.flatnonzero(wrong.any(axis=0))
        if hit.size:
            return int(hit[0]) + low
    return None


def _part(episode: Episode, name: str, places: Any, which: int, low: int, high: int) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    wanted: dict[str, Any] = {"time": slice(low, high)}
    there = episode.present(name)
    if places is None:
        return np.asarray(episode.data[name].isel(wanted).values)[np.newaxis], there[np.newaxis, low:high]
    dim = episode.agent_dim(name)
    assert dim is not None
    return np.asarray(episode.data[name].isel({**wanted, dim: places[which]}).values), there[places[which], low:high]
