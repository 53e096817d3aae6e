"""Which chunks a selection touches, and what of each goes where. Arithmetic only; no file is asked.

A selection has one entry for each axis: a whole number, a slice, or a 1-D array of whole numbers. Axes are selected
independently of each other (as xarray's outer indexing does), not point by point.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
Selector = int | slice | Array
Piece = slice | Array


@dataclass(frozen=True, slots=True)
class AxisPart:
    """What is read of one chunk along one axis.

    Attributes
    ----------
    chunk : int
        Which chunk.
    inside : slice or ndarray of int
        Entries of the chunk.
    target : slice or ndarray of int
        Entries of the result.
    """

    chunk: int
    inside: Piece
    target: Piece


@dataclass(frozen=True, slots=True)
class AxisSelection:
    """What is read along one axis.

    Attributes
    ----------
    parts : list of AxisPart
        One for each touched chunk, in order.
    length : int
        Entries of the result.
    dropped : bool
        Whether the axis was selected by one number and is no axis of the result.
    backwards : bool
        Whether the result is to be turned round.
    """

    parts: list[AxisPart]
    length: int
    dropped: bool = False
    backwards: bool = False


def select_axis(selector: Selector, size: int, chunk: int) -> AxisSelection:
    """Work out one axis.

    Parameters
    ----------
    selector : int, slice or 1-D ndarray of int
        Negative numbers count from the end.
    size : int
        Length of the axis.
    chunk : int
        Length of a chunk along it.

    Raises
    ------
    IndexError
        If a number is out of range.

    Examples
    --------
    >>> [(p.chunk, p.inside, p.target) for p in select_axis(slice(3, 6), 10, 4).parts]
    [(0, slice(3, 4, 1), slice(0, 1, 1)), (1, slice(0, 2, 1), slice(1, 3, 1))]
    """
    if isinstance(selector, slice):
        return _select_range(range(*selector.indices(size)), chunk)
    if isinstance(selector, (int, np.integer)):
        position = int(selector) + (size if selector < 0 else 0)
        if not 0 <= position < size:
            raise IndexError(f"index {selector} is out of range for an axis of length {size}")
        inside = position % chunk
        return AxisSelection([AxisPart(position // chunk, slice(inside, inside + 1, 1), slice(0, 1, 1))], 1, dropped=True)
    wanted = np.asarray(selector)
    if wanted.dtype == bool:
        wanted = np.flatnonzero(wanted)
    wanted = wanted.astype(np.int64, copy=False)
    wanted = np.where(wanted < 0, wanted + size, wanted)
    if wanted.size and (int(wanted.min()) < 0 or int(wanted.max()) >= size):
        raise IndexError(f"indices up to {wanted.max()} are out of range for an axis of length {size}")
    if wanted.size and np.array_equal(wanted, np.arange(wanted[0], wanted[0] + wanted.size)):
        return _select_range(range(int(wanted[0]), int(wanted[0]) + wanted.size), chunk)
    order = np.argsort(wanted, kind="stable")
    chunks = wanted[order] // chunk
    starts = np.flatnonzero(np.diff(chunks, prepend=-1))
    parts = [
        AxisPart(int(chunks[group[0]]), wanted[order[group]] - int(chunks[group[0]]) * chunk, order[group])
        for group in np.split(np.arange(wanted.size), starts[1:])
        if group.size
    ]
    return AxisSelection(parts, int(wanted.size))


def _select_range(wanted: range, chunk: int) -> AxisSelection:
    backwards = wanted.step < 0
    if backwards:
        wanted = wanted[::-1]
    parts = []
    done = 0
    while done < len(wanted):
        index, inside = divmod(wanted[done], chunk)
        count = min(len(wanted) - done, -(-(chunk - inside) // wanted.step))
        parts.append(AxisPart(index, slice(inside, inside + (count - 1) * wanted.step + 1, wanted.step), slice(done, done + count, 1)))
        done += count
    return AxisSelection(parts, len(wanted), backwards=backwards)


def copy_piece(target: Array, where: tuple[Piece, ...], block: Array, inside: tuple[Piece, ...]) -> None:
    """Copy a piece of a chunk to its place in the result."""
    if all(isinstance(piece, slice) for piece in where):
        target[where] = block[inside]
        return
    target[np.ix_(*map(positions, where))] = block[np.ix_(*map(positions, inside))]


def positions(piece: Piece) -> Array:
    """Return the entries that a piece names."""
    return np.arange(piece.start, piece.stop, piece.step) if isinstance(piece, slice) else piece


def finish(result: Array, axes: Sequence[AxisSelection]) -> Array:
    """Turn backward axes round and take away those that were selected by one number."""
    if any(axis.dropped or axis.backwards for axis in axes):
        result = result[tuple(0 if a.dropped else slice(None, None, -1) if a.backwards else slice(None) for a in axes)]
    return result
