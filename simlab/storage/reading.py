"""One stored variable, read by the chunk: only the chunks that a selection touches, decoded in threads outside HDF5.

HDF5's own filter pipeline runs in one thread and under h5py's lock. Here the compressed chunks are fetched as they lie
(`read_direct_chunk`), and a small pool inflates them straight into the result. Chunks that were never written are fill and cost
nothing. What has other filters than shuffle and deflate goes through HDF5.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from typing import Any, Final

import h5py
import numpy as np

from simlab.conventions import STRLEN_SUFFIX
from simlab.errors import SimlabError, StateError, StorageError
from simlab.storage.attributes import read_attributes
from simlab.storage.decoding import DEFLATE, PLUGIN_NAMES, SHUFFLE, Job, decode_all, decode_into, ensure_filters
from simlab.storage.dtypes import Array, StoredType, logged_type
from simlab.storage.opening import RunSource
from simlab.storage.selection import AxisPart, AxisSelection, Selector, copy_piece, finish, positions, select_axis
from simlab.storage.written import never_written, written_chunks

_DIRECT: Final = ((), (SHUFFLE,), (DEFLATE,), (SHUFFLE, DEFLATE))
_NOT_A_VARIABLE: Final = b"This is a netCDF dimension but not a netCDF variable"
_BLOCK_BYTES: Final = 4 << 20
"""What is read at once of a variable without chunks."""


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
        names = ["gzip" if f == DEFLATE else PLUGIN_NAMES.get(f, f"filter {f}") for f in self.filters if f != SHUFFLE]
        return names[0] if names else None

    def limited(self, dim: str, length: int) -> StoredVariable:
        """Return the same variable, cut to the first entries along one dimension."""
        shape = tuple(min(n, length) if d == dim else n for d, n in zip(self.dims, self.shape, strict=True))
        return replace(self, shape=shape)

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
        chunks = self._blocks()
        axes = [select_axis(s, n, c) for s, n, c in zip(wanted, self.shape, chunks, strict=False)]
        axes += [select_axis(slice(None), n, c) for n, c in zip(self.tail, chunks[len(axes) :], strict=True)]
        result = np.empty(tuple(a.length for a in axes), self.stored.newbyteorder("="))
        if result.size:
            self.source.persistently(lambda: self._fill_in(result, axes, chunks))
        return self._typed(finish(result, axes))

    def _blocks(self) -> tuple[int, ...]:
        """Return the chunk lengths or, where there are none, blocks of rows that are small enough."""
        if self.chunks is not None:
            return self.chunks
        full = (*self.shape, *self.tail)
        row = max(1, math.prod(full[1:]) * self.stored.itemsize)
        return tuple(max(1, n) if i else max(1, _BLOCK_BYTES // row) for i, n in enumerate(full))

    def _fill_in(self, result: Array, axes: list[AxisSelection], chunks: tuple[int, ...]) -> None:
        try:
            dataset = self.source.dataset(self.path)
            if dataset.dtype != self.stored or dataset.chunks != self.chunks:
                raise StateError(f"{self.path!r} in {self.source.path!r} was made anew after this Dataset was opened. Open the run again.")
            if self.chunks is not None and self.filters in _DIRECT and self.stored.kind in "iufS":
                self._read_direct(dataset, result, axes, chunks)
            else:
                self._read_through_hdf5(dataset, result, axes, chunks)
        except (OSError, RuntimeError, ValueError, KeyError) as error:
            if isinstance(error, SimlabError):
                raise
            if self.source.closed:
                raise StateError(f"{self.source.path!r} was closed while {self.path!r} was read. Open the run again.") from error
            raise StorageError(f"{self.path!r} in {self.source.path!r} could not be read: {error}") from error

    def _read_direct(self, dataset: h5py.Dataset, result: Array, axes: list[AxisSelection], chunks: tuple[int, ...]) -> None:
        parts, count, exact = written_chunks(self.source, self.path, axes, chunks)
        if exact and count < math.prod(len(a.parts) for a in axes):
            result.fill(self.fill)
        decode = partial(decode_into, result, self.stored, chunks, self.filters)
        chunk_bytes = math.prod(chunks) * self.stored.itemsize
        decode_all(decode, self._fetch(dataset.id, result, parts, chunks), chunk_bytes, count)

    def _fetch(
        self, dataset: h5py.h5d.DatasetID, result: Array, touched: Iterator[tuple[AxisPart, ...]], chunks: tuple[int, ...]
    ) -> Iterator[Job]:
        """Yield the touched chunks as they lie in the file; those that were never written are filled in on the way."""
        for parts in touched:
            offset = tuple(p.chunk * c for p, c in zip(parts, chunks, strict=True))
            where = tuple(p.target for p in parts)
            try:
                mask, raw = dataset.read_direct_chunk(offset)
            except (RuntimeError, OSError, ValueError, MemoryError, SystemError) as error:
                if not never_written(dataset, offset, error):
                    raise
                result[where if all(isinstance(w, slice) for w in where) else np.ix_(*map(positions, where))] = self.fill
                continue
            yield raw, mask, tuple(p.inside for p in parts), where

    def _read_through_hdf5(self, dataset: h5py.Dataset, result: Array, axes: list[AxisSelection], chunks: tuple[int, ...]) -> None:
        ensure_filters(self.path, self.filters)
        if not axes:
            result[()] = dataset[()]
            return
        for parts in product(*(a.parts for a in axes)):
            block = dataset[tuple(slice(p.chunk * c, (p.chunk + 1) * c) for p, c in zip(parts, chunks, strict=True))]
            copy_piece(result, tuple(p.target for p in parts), block, tuple(p.inside for p in parts))

    def _typed(self, stored: Array) -> Array:
        stored = np.asarray(stored)
        if self.dtype.kind == "U":
            return _text(stored, self.dtype)
        shape = stored.shape[: stored.ndim - len(self.tail)]
        return self.type.from_disk(stored).reshape(shape).astype(self.dtype, copy=False)


def describe(source: RunSource, dataset: h5py.Dataset) -> StoredVariable:
    """Return what there is to know about a dataset without reading its data."""
    attrs = read_attributes(dataset)
    stored = np.dtype(dataset.dtype)
    kind = logged_type(stored, attrs)
    shape = tuple(int(n) for n in dataset.shape or ())
    dims = _dimension_names(source.scales, dataset, shape)
    extra = min(len(kind.extra), len(shape))
    if stored.kind == "S" and (stored.itemsize > 1 or not extra or not dims[-1].endswith(STRLEN_SUFFIX)):
        kind, extra = StoredType(stored, stored, (), {}), 0
    cut = len(shape) - extra
    dtype = np.dtype(f"U{max(1, shape[-1])}") if kind.logged.kind == "S" and extra else kind.logged
    options = dataset.id.get_create_plist()
    filters = tuple(options.get_filter(i)[0] for i in range(options.get_nfilters()))
    return StoredVariable(
        source, str(dataset.name), dims[:cut], shape[:cut], dtype.newbyteorder("="), attrs, kind, stored, shape[cut:],
        dataset.chunks, filters, _fill_of(dataset, stored),
    )  # fmt: skip


def note_scales(source: RunSource, datasets: Iterable[h5py.Dataset]) -> None:
    """Remember where the scales among some datasets lie.

    A reference holds an address; HDF5 would search the whole file for the name that belongs to it.
    """
    known = source.scales
    for dataset in datasets:
        if h5py.h5ds.is_scale(dataset.id):
            known[h5py.h5o.get_info(dataset.id).addr] = str(dataset.name).rsplit("/", 1)[-1]


def _dimension_names(scales: dict[int, str], dataset: h5py.Dataset, shape: tuple[int, ...]) -> tuple[str, ...]:
    own = str(dataset.name).rsplit("/", 1)[-1]
    if "DIMENSION_LIST" in dataset.attrs:
        names = []
        for axis, references in enumerate(dataset.attrs["DIMENSION_LIST"]):
            scale = h5py.h5r.dereference(references[0], dataset.id) if len(references) else None
            name = None if scale is None else scales.get(h5py.h5o.get_info(scale).addr)
            if name is None and scale is not None:
                found = h5py.h5r.get_name(references[0], dataset.id)
                name = found.decode().rsplit("/", 1)[-1] if found else None
            names.append(name or f"{own}_dim_{axis}")
        return tuple(names)
    if len(shape) == 1 and h5py.h5ds.is_scale(dataset.id):
        return (own,)
    return tuple(f"{own}_dim_{axis}" for axis in range(len(shape)))


def is_plain_dimension(dataset: h5py.Dataset) -> bool:
    """Whether a dataset is a dimension without values, as netCDF-4 writes it."""
    return bool(h5py.h5ds.is_scale(dataset.id)) and (h5py.h5ds.get_scale_name(dataset.id) or b"").startswith(_NOT_A_VARIABLE)


def _fill_of(dataset: h5py.Dataset, stored: np.dtype[Any]) -> Any:
    try:
        return dataset.fillvalue
    except (RuntimeError, TypeError, ValueError):
        return np.zeros((), stored)[()]


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
