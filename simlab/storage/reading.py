"""One stored variable, read by the chunk: only the chunks that a selection touches, decoded in threads outside HDF5.

HDF5's own filter pipeline runs in one thread and under h5py's lock. Here the compressed chunks are fetched as they lie
(`read_direct_chunk`), and a small pool inflates them straight into the result. Chunks that were never written are fill and cost
nothing. What has other filters than shuffle and deflate goes through HDF5.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product
from typing import Any, Final

import h5py
import numpy as np

from simlab.errors import SimlabError, StateError, StorageError
from simlab.storage.damage import ODD, reason
from simlab.storage.decoding import DEFLATE, DIRECT, FLETCHER32, PLUGIN_NAMES, SHUFFLE, Job, decode_all, decode_into, ensure_filters
from simlab.storage.dtypes import Array, StoredType
from simlab.storage.opening import RunSource
from simlab.storage.selection import AxisPart, AxisSelection, Piece, Selector, copy_piece, finish, positions, select_axis
from simlab.storage.written import never_written, written_chunks

_BLOCK_BYTES: Final = 4 << 20
"""What is read at once of a variable without chunks."""
_SMALL: Final = 64 << 20
"""Up to this much is read without asking whether it fits."""
_MOST_PIECES: Final = 1 << 24
_MOST_TOLD: Final = 5


@dataclass(frozen=True, slots=True)
class StoredVariable:
    """A variable of a run file: what it is, and how to read it.

    Attributes
    ----------
    source : RunSource
        The file.
    path : str
        The dataset inside it.
    dims : tuple of str
        Names of the axes, without those that only the stored form has (``*_strlen``).
    shape : tuple of int
        Lengths of these axes; the reader may have cut them to the rows that count.
    dtype : dtype
        The type that was logged; of text ``<U<n>``.
    attrs : dict
        The attributes as they lie in the file.
    type : StoredType
        How the logged type lies on disk.
    stored : dtype
        The dtype of the dataset.
    tail : tuple of int
        Lengths of the axes that only the stored form has.
    chunks : tuple of int or None
        Of the dataset, all axes.
    filters : tuple of int
        HDF5's numbers of its filters, in order.
    fill : numpy scalar
        What was never written.
    plain : bool
        Whether numbers lie in the file as numpy has them.
    extent : tuple of int
        Lengths along `dims` that the dataset has; where `shape` is longer, the rest is fill, as netCDF has it.
    gaps : tuple of str
        What of the description was damaged, and how it is shown.
    """

    source: RunSource
    path: str
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    attrs: dict[str, Any] = field(repr=False)
    type: StoredType = field(repr=False)
    stored: np.dtype[Any]
    tail: tuple[int, ...]
    chunks: tuple[int, ...] | None
    filters: tuple[int, ...]
    fill: Any
    plain: bool = True
    extent: tuple[int, ...] = ()
    gaps: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The last part of `path`."""
        return self.path.rsplit("/", 1)[-1]

    @property
    def own_chunks(self) -> tuple[int, ...] | None:
        """Chunk lengths along `dims`."""
        return None if self.chunks is None else self.chunks[: len(self.dims)]

    @property
    def compression(self) -> str | None:
        """Name of the filter that compresses; None where none does."""
        names = ["gzip" if f == DEFLATE else PLUGIN_NAMES.get(f, f"filter {f}") for f in self.filters if f not in (SHUFFLE, FLETCHER32)]
        return names[0] if names else None

    def limited(self, dim: str, length: int) -> StoredVariable:
        """Return the same variable, cut to the first entries along one dimension."""
        shape = tuple(min(n, length) if d == dim else n for d, n in zip(self.dims, self.shape, strict=True))
        return replace(self, shape=shape)

    def fitted(self, dim: str, length: int) -> StoredVariable:
        """Return the same variable, cut or filled to a length along one dimension; a gap says where it was filled."""
        if dim not in self.dims:
            return self
        held = self.shape[self.dims.index(dim)]
        shape = tuple(length if d == dim else n for d, n in zip(self.dims, self.shape, strict=True))
        gaps = self.gaps
        if held < length:
            gaps = (*gaps, f"{self.path!r} is cut short: it holds {held:,} of {length:,} along {dim!r}; the rest reads as not there")
        return replace(self, shape=shape, gaps=gaps)

    def read(self, *selection: Selector) -> Array:
        """Read a part of the variable, in the type that was logged.

        Parameters
        ----------
        *selection : int, slice or 1-D ndarray of int
            One for each axis, from the first; axes that are left out are read whole. Axes are selected independently.

        Returns
        -------
        ndarray
            An array of its own, with one axis less for each whole number.

        Raises
        ------
        IndexError
            If a number is out of range.
        StateError
            If the file was closed, replaced or written again.
        StorageError
            If a filter is missing or a chunk is damaged.
        """
        if len(selection) > len(self.shape):
            raise IndexError(f"{self.name!r} has {len(self.shape)} axes {self.dims}; {len(selection)} indices were given")
        wanted = [*selection, *(slice(None) for _ in range(len(self.shape) - len(selection)))]
        if any(n > held for n, held in zip(self.shape, self.extent, strict=False)):
            return self._read_what_is_there(wanted)
        chunks = self._blocks()
        self._check_size(wanted, chunks)
        axes = [select_axis(s, n, c) for s, n, c in zip(wanted, self.shape, chunks, strict=False)]
        axes += [select_axis(slice(None), n, c) for n, c in zip(self.tail, chunks[len(axes) :], strict=True)]
        result = np.empty(tuple(a.length for a in axes), self.stored.newbyteorder("="))
        if result.size:
            self.source.persistently(lambda: self._fill_in(result, axes, chunks))
        return self._typed(finish(result, axes))

    def _read_what_is_there(self, wanted: list[Selector]) -> Array:
        """Read of a dataset that is shorter than its dimensions what it holds; the rest is fill."""
        self._check_size(wanted, self._blocks())
        held = tuple(min(n, there) for n, there in zip(self.shape, self.extent, strict=True))
        places = [_positions(s, n) for s, n in zip(wanted, self.shape, strict=True)]
        kept = [np.flatnonzero(p < n) for p, n in zip(places, held, strict=True)]
        out = np.empty(tuple(p.size for p in places), self.dtype)
        out[...] = self._typed(np.full(self.tail, self.fill, self.stored.newbyteorder("=")))
        inner = replace(self, shape=held)
        out[np.ix_(*kept)] = inner.read(*(p[k] for p, k in zip(places, kept, strict=True)))
        return out[tuple(0 if isinstance(s, (int, np.integer)) else slice(None) for s in wanted)]

    def _check_size(self, wanted: list[Selector], chunks: tuple[int, ...]) -> None:
        """Refuse what no memory holds, before it is asked for: a damaged file may claim any length."""
        lengths = [*(_length(s, n) for s, n in zip(wanted, self.shape, strict=True)), *self.tail]
        needed = math.prod(lengths) * self.stored.itemsize
        pieces = math.prod(min(n, n // c + 2) for n, c in zip(lengths, chunks, strict=True))
        if needed > _SMALL and (needed > memory() or pieces > _MOST_PIECES):
            raise StorageError(
                f"{self.path!r} in {self.source.path!r} has the shape {self.shape}; reading {tuple(lengths)} of it takes "
                f"{needed / 2**30:,.1f} GiB in {pieces:,} chunks. Select a part of it."
            )

    def _blocks(self) -> tuple[int, ...]:
        """Return the chunk lengths or, where there are none, blocks of rows that are small enough."""
        if self.chunks is not None:
            return self.chunks
        full = (*self.shape, *self.tail)
        row = max(1, math.prod(full[1:]) * self.stored.itemsize)
        return tuple(max(1, n) if i else max(1, _BLOCK_BYTES // row) for i, n in enumerate(full))

    def _fill_in(self, result: Array, axes: list[AxisSelection], chunks: tuple[int, ...]) -> None:
        damaged: list[tuple[tuple[int, ...], str]] = []
        try:
            dataset = self.source.dataset(self.path)
            if dataset.dtype != self.stored or dataset.chunks != self.chunks:
                raise StateError(f"{self.path!r} in {self.source.path!r} was made anew after this Dataset was opened. Open the run again.")
            if self.chunks is not None and self.filters in DIRECT and self.stored.kind in "iufS" and self.plain:
                self._read_direct(dataset, result, axes, chunks, damaged)
            else:
                self._read_through_hdf5(dataset, result, axes, chunks, damaged)
        except ODD as error:
            if isinstance(error, SimlabError):
                raise
            self._check_open(error)
            raise StorageError(f"{self.path!r} in {self.source.path!r} could not be read: {reason(error)}") from error
        if damaged:
            self._check_open(None)
            raise StorageError(self._told(damaged, chunks))

    def _check_open(self, error: Exception | None) -> None:
        if self.source.closed:
            raise StateError(f"{self.source.path!r} was closed while {self.path!r} was read. Open the run again.") from error

    def _told(self, damaged: list[tuple[tuple[int, ...], str]], chunks: tuple[int, ...]) -> str:
        """Say which chunks cannot be read, in words of the axes."""
        damaged.sort()
        full = (*self.shape, *self.tail)
        places = []
        for offset, why in damaged[:_MOST_TOLD]:
            spans = (f"{d} {o}-{min(o + c, n) - 1}" for d, o, c, n in zip(self.dims, offset, chunks, full, strict=False) if c < n)
            places.append(f"{', '.join(spans) or 'all of it'} ({why})")
        more = f"; and {len(damaged) - _MOST_TOLD} more" if len(damaged) > _MOST_TOLD else ""
        word = "chunk" if self.chunks is not None else "part"
        return (
            f"{self.path!r} in {self.source.path!r} is damaged in {len(damaged)} {word}{'s' if len(damaged) > 1 else ''}, by place: "
            f"{'; '.join(places)}{more}. The rest of it can be read: select around."
        )

    def _read_direct(
        self,
        dataset: h5py.Dataset,
        result: Array,
        axes: list[AxisSelection],
        chunks: tuple[int, ...],
        damaged: list[tuple[tuple[int, ...], str]],
    ) -> None:
        parts, count, exact = written_chunks(self.source, self.path, axes, chunks)
        if exact and count < math.prod(len(a.parts) for a in axes):
            result.fill(self.fill)

        def decode(offset: tuple[int, ...], raw: bytes, mask: int, inside: tuple[Piece, ...], where: tuple[Piece, ...]) -> None:
            try:
                decode_into(result, self.stored, chunks, self.filters, raw, mask, inside, where)
            except ValueError as error:
                damaged.append((offset, reason(error)))

        chunk_bytes = math.prod(chunks) * self.stored.itemsize
        decode_all(decode, self._fetch(dataset.id, result, parts, chunks, damaged), chunk_bytes, count)

    def _fetch(
        self,
        dataset: h5py.h5d.DatasetID,
        result: Array,
        touched: Iterator[tuple[AxisPart, ...]],
        chunks: tuple[int, ...],
        damaged: list[tuple[tuple[int, ...], str]],
    ) -> Iterator[Job]:
        """Yield the touched chunks as they lie in the file; those that were never written are filled in on the way."""
        for parts in touched:
            offset = tuple(p.chunk * c for p, c in zip(parts, chunks, strict=True))
            where = tuple(p.target for p in parts)
            try:
                mask, raw = dataset.read_direct_chunk(offset)
            except (RuntimeError, OSError, ValueError, MemoryError, SystemError) as error:
                if not never_written(dataset, offset, error):
                    damaged.append((offset, reason(error)))
                    continue
                result[where if all(isinstance(w, slice) for w in where) else np.ix_(*map(positions, where))] = self.fill
                continue
            yield offset, raw, mask, tuple(p.inside for p in parts), where

    def _read_through_hdf5(
        self,
        dataset: h5py.Dataset,
        result: Array,
        axes: list[AxisSelection],
        chunks: tuple[int, ...],
        damaged: list[tuple[tuple[int, ...], str]],
    ) -> None:
        ensure_filters(self.path, self.filters)
        if not axes:
            result[()] = dataset[()]
            return
        for parts in product(*(a.parts for a in axes)):
            offset = tuple(p.chunk * c for p, c in zip(parts, chunks, strict=True))
            try:
                block = dataset[tuple(slice(o, o + c) for o, c in zip(offset, chunks, strict=True))]
                copy_piece(result, tuple(p.target for p in parts), block, tuple(p.inside for p in parts))
            except (OSError, RuntimeError, ValueError, MemoryError) as error:
                damaged.append((offset, reason(error)))

    def _typed(self, stored: Array) -> Array:
        stored = np.asarray(stored)
        if self.dtype.kind == "U":
            return _text(stored, self.dtype)
        shape = stored.shape[: stored.ndim - len(self.tail)]
        return self.type.from_disk(stored).reshape(shape).astype(self.dtype, copy=False)


def _text(stored: Array, dtype: np.dtype[Any]) -> Array:
    """Turn rows of characters into text."""
    width = stored.shape[-1]
    if width == 0:
        return np.zeros(stored.shape[:-1], dtype)
    octets = np.ascontiguousarray(stored).view(np.uint8).reshape(*stored.shape)
    if octets.size == 0 or int(octets.max()) < 128:  # ASCII is UCS-4 with zeros between: no text is made one by one
        return octets.astype(np.uint32).view(f"U{width}").reshape(stored.shape[:-1]).astype(dtype, copy=False)
    joined = octets.view(f"S{width}").reshape(stored.shape[:-1])
    return np.char.decode(joined, "utf-8", "replace").astype(dtype, copy=False)


def _positions(selector: Selector, size: int) -> Array:
    """Return the entries that a selection names along an axis, one of them for a single number."""
    if isinstance(selector, (int, np.integer)):
        place = int(selector) + (size if selector < 0 else 0)
        if not 0 <= place < size:
            raise IndexError(f"index {selector} is out of range for an axis of length {size}")
        return np.array([place])
    if isinstance(selector, slice):
        return np.arange(*selector.indices(size))
    wanted = np.asarray(selector)
    wanted = np.flatnonzero(wanted) if wanted.dtype == bool else wanted.astype(np.int64)
    return np.where(wanted < 0, wanted + size, wanted)


def _length(selector: Selector, size: int) -> int:
    if isinstance(selector, slice):
        return len(range(*selector.indices(size)))
    return 1 if isinstance(selector, (int, np.integer)) else int(np.size(selector))


@cache
def memory() -> int:
    """Return the bytes of memory that the machine has."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 1 << 40
