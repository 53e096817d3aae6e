"""Lazy arrays that xarray indexes: a variable of the file, or one of its logged bits."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np
import xarray as xr
from xarray.backends import BackendArray
from xarray.core import indexing

from simlab.storage.dtypes import Array
from simlab.storage.reading import StoredVariable

_XARRAY_UNITS = ("s", "ms", "us", "ns")
_KEPT_BYTES = 64 << 20
"""Of logged bits, for each file."""


def shown_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype in which xarray holds values of a logged one.

    It is the same, but for dates: xarray counts them in s, ms, us or ns. Coarser units become seconds, which loses nothing; finer
    ones stay the whole numbers they are on disk.

    Examples
    --------
    >>> import numpy as np
    >>> shown_dtype(np.dtype("float16")), shown_dtype(np.dtype("M8[D]")), shown_dtype(np.dtype("M8[ps]"))
    (dtype('float16'), dtype('<M8[s]'), dtype('int64'))
    """
    if dtype.kind not in "Mm":
        return dtype
    unit, count = np.datetime_data(dtype)
    if unit in _XARRAY_UNITS and count == 1:
        return dtype
    if unit in ("ps", "fs", "as") or (dtype.kind == "m" and unit in ("Y", "M")):
        return np.dtype(np.int64)
    return np.dtype(f"{dtype.kind}8[{unit if unit in _XARRAY_UNITS else 's'}]")


class StoredArray(BackendArray):
    """A variable of the file as xarray wants it; pickles as a path."""

    def __init__(self, stored: StoredVariable) -> None:
        self.stored = stored
        self.shape = stored.shape
        self.dtype = shown_dtype(stored.dtype)

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.OUTER, self._read)

    def _read(self, key: tuple[Any, ...]) -> Array:
        values = self.stored.read(*key)
        if values.dtype.kind in "Mm" and self.dtype.kind == "i":
            return values.view(np.int64)
        return values.astype(self.dtype, copy=False)


class BitArray(BackendArray):
    """One bit of a variable of logged bits, as truth values.

    Many variables share the same bits, and each asks for its own: what was read last is kept for the next one, as long as the file
    is not being written.
    """

    def __init__(self, stored: StoredVariable, mask: int) -> None:
        self.stored = stored
        self.mask = stored.dtype.type(mask)
        self.shape = stored.shape
        self.dtype = np.dtype(bool)

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.OUTER, self._read)

    def _read(self, key: tuple[Any, ...]) -> Array:
        recent: OrderedDict[Any, Array] = self.stored.source.remembered("recent bits", OrderedDict)
        # Of a run that is being recorded, every variable's bits are put together by themselves.
        own = getattr(self.stored, "masks", None)
        name = (self.stored.path, own, self.shape, tuple(k.tobytes() if isinstance(k, np.ndarray) else str(k) for k in key))
        bits = recent.get(name)
        if bits is None:
            bits = self.stored.read(*key)
            if bits.nbytes <= _KEPT_BYTES:
                recent[name] = bits
                while sum(kept.nbytes for kept in list(recent.values())) > _KEPT_BYTES:
                    recent.popitem(last=False)
        return np.asarray((bits & self.mask) != 0)


def lazy(dims: tuple[str, ...], array: BackendArray, attrs: dict[str, Any] | None = None) -> xr.Variable:
    """Return an xarray variable that reads when it is asked for values."""
    return xr.Variable(dims, indexing.LazilyIndexedArray(array), attrs)
