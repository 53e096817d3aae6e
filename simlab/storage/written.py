"""Which chunks of a dataset were ever written; reading the others costs nothing.

HDF5 has no cheap answer for one chunk that is missing: some of its versions search the whole index for it, and h5py answers with
one of several errors. So a read of many chunks asks once for all that there are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, Final

import h5py
import numpy as np

from simlab.storage.dtypes import Array
from simlab.storage.opening import RunSource
from simlab.storage.selection import AxisPart, AxisSelection

_ASK_FOR_ALL: Final = 64
"""From so many chunks on, the list of all chunks pays."""

Parts = tuple[AxisPart, ...]


def chunk_numbers(shape: Sequence[int], chunks: Sequence[int]) -> tuple[int, ...]:
    """Return how many chunks there are along each axis."""
    return tuple(-(-n // c) for n, c in zip(shape, chunks, strict=True))


def written_chunks(source: RunSource, path: str, axes: list[AxisSelection], chunks: tuple[int, ...]) -> tuple[Iterator[Parts], int, bool]:
    """Return the chunks that a selection touches, without those that are known not to be there.

    Returns
    -------
    iterator of tuple of AxisPart
        One for each chunk.
    int
        How many they are.
    bool
        Whether the list is known to be exact. If not, each chunk may turn out to be missing.
    """
    touched = math.prod(len(a.parts) for a in axes)
    dataset = source.dataset(path)
    if source.remembered(f"{path} is empty", lambda: dataset.id.get_num_chunks() == 0):
        return iter(()), 0, True
    if (touched < _ASK_FOR_ALL and not source.remembers(path)) or not hasattr(dataset.id, "chunk_iter"):
        return product(*(a.parts for a in axes)), touched, False
    grid = chunk_numbers(dataset.shape, chunks)
    known: Array = source.remembered(path, lambda: _all_written(dataset.id, grid, chunks))
    beyond = any(part.chunk >= n for axis, n in zip(axes, grid, strict=True) for part in axis.parts)
    if touched == 0 or beyond:  # a dataset that is shorter than its dimension: what it lacks is missing
        axes = [AxisSelection([p for p in a.parts if p.chunk < n], a.length) for a, n in zip(axes, grid, strict=True)]
    numbers = np.zeros((1,) * len(axes), np.int64)
    for i, (axis, step) in enumerate(zip(axes, _steps(grid), strict=True)):
        place = np.array([p.chunk for p in axis.parts], np.int64) * step
        numbers = numbers + place.reshape((-1,) + (1,) * (len(axes) - 1 - i))
    there = np.argwhere(np.isin(numbers, known, assume_unique=True).reshape(numbers.shape))
    return (tuple(a.parts[i] for a, i in zip(axes, at, strict=True)) for at in there.tolist()), len(there), True


def _steps(grid: tuple[int, ...]) -> list[int]:
    return [math.prod(grid[i + 1 :]) for i in range(len(grid))]


def _all_written(dataset: h5py.h5d.DatasetID, grid: tuple[int, ...], chunks: tuple[int, ...]) -> Array:
    """Return the numbers of the chunks that were written, counted row by row."""
    found: list[Any] = []
    dataset.chunk_iter(lambda info: found.append(info.chunk_offset))
    offsets = np.array(found, np.int64).reshape(len(found), len(chunks))
    return np.asarray(offsets // np.array(chunks, np.int64) @ np.array(_steps(grid), np.int64))


def never_written(dataset: h5py.h5d.DatasetID, offset: tuple[int, ...], error: Exception) -> bool:
    """Say whether an error on reading a chunk means that there is none."""
    if "not allocated" in str(error) or any(o >= n for o, n in zip(offset, dataset.shape, strict=True)):
        return True
    # h5py 3.16 takes a size that HDF5 never set for that of a missing chunk, and ends in a MemoryError or a SystemError.
    try:
        return dataset.get_chunk_info_by_coord(offset).byte_offset is None
    except (OSError, RuntimeError, ValueError, SystemError):
        return False  # the index itself is damaged: the first error says more
