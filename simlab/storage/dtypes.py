"""How a logged type lies on disk, and the way back.

netCDF has integers, float32, float64 and characters. Everything else is stored in one of them, with attributes that let the
reader give back the very type: see FORMAT rule 3 in docs/reference/file-format.md.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from simlab.conventions import ATTR_BOOL, ATTR_ENCODING, ATTR_LOGGED_DTYPE

Array = np.ndarray[Any, np.dtype[Any]]

TEXT_BLOCK: Final = 32
"""Characters of one chunk along a text variable's strlen dimension; longer text takes more chunks."""

_CF_EPOCH_UNITS: Final = {
    "ns": "nanoseconds", "us": "microseconds", "ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "D": "days",
}  # fmt: skip
_UDUNITS: Final = {"ns": "ns", "us": "us", "ms": "ms", "s": "s", "m": "min", "h": "h", "D": "day"}


_TOLD: Final = re.compile(r"(float|complex)\d+|[Mm]8(\[\d*[A-Za-z]{1,2}\])?")
"""What `stored_type` writes into ``simlab_dtype``."""


@dataclass(frozen=True, slots=True)
class StoredType:
    """The type on disk of one logged dtype.

    Attributes
    ----------
    logged : dtype
        What the simulation logs and the reader gives back.
    stored : dtype
        What lies in the file.
    extra : tuple of (str, int)
        Suffix and length of the dimension that the stored array has after the variable's own (complex: 2 parts).
    attributes : dict
        What tells the reader about it.
    """

    logged: np.dtype[Any]
    stored: np.dtype[Any]
    extra: tuple[tuple[str, int], ...]
    attributes: dict[str, str]

    @property
    def fill(self) -> Any:
        """What the file holds where nothing was logged: NaN for floats, else 0."""
        return np.nan if self.stored.kind == "f" else b"" if self.stored.kind == "S" else 0

    def to_disk(self, values: Array) -> Array:
        """Turn logged values of any shape into stored ones; a view where the bytes are the same."""
        kind = self.logged.kind
        if kind == "S":
            return np.ascontiguousarray(values).view("S1").reshape(*values.shape, values.dtype.itemsize)
        if kind == "c":
            return np.ascontiguousarray(values).view(self.stored).reshape(*values.shape, 2)
        if kind in "bMm":
            return values.view(self.stored)
        if self.logged.char == "g" and self.logged.itemsize > 8:
            # Rows that were never logged hold whatever was in memory.
            with np.errstate(invalid="ignore", over="ignore"):
                high = values.astype(np.float64)
                low = np.where(np.isfinite(high), values - high, 0).astype(np.float64)
            return np.stack([high, low], axis=-1)
        return values.astype(self.stored, copy=False)

    def from_disk(self, stored: Array) -> Array:
        """Turn stored values into the logged ones (text into ``str``)."""
        kind = self.logged.kind
        if kind == "S" and self.extra:
            width = stored.shape[-1]
            if width == 0:
                return np.zeros(stored.shape[:-1], "U1")
            joined = np.ascontiguousarray(stored).view(f"S{width}").reshape(stored.shape[:-1])
            return np.char.decode(joined, "utf-8", "replace")
        if kind == "c":
            return np.ascontiguousarray(stored).view(self.logged).reshape(stored.shape[:-1])
        if kind == "b":
            return np.asarray(stored != 0)  # a view would make truth values of other bytes than 0 and 1
        if kind in "Mm":
            # ascontiguousarray alone makes one row of a single value.
            return np.ascontiguousarray(stored).view(self.logged).reshape(stored.shape)
        if self.logged.char == "g" and self.logged.itemsize > 8:
            parts = stored.astype(self.logged)
            return np.asarray(parts[..., 0] + parts[..., 1])
        return stored.astype(self.logged, copy=False)


def stored_type(logged: np.dtype[Any]) -> StoredType:
    """Return how a logged dtype is stored.

    Parameters
    ----------
    logged : dtype
        A native dtype out of ``storable_dtype``; text is ``dtype("S")``.

    Examples
    --------
    >>> import numpy as np
    >>> t = stored_type(np.dtype("float16"))
    >>> t.stored, t.attributes
    (dtype('float32'), {'simlab_dtype': 'float16'})
    >>> stored_type(np.dtype(bool)).attributes
    {'dtype': 'bool'}
    """
    kind, size = logged.kind, logged.itemsize
    told = {ATTR_LOGGED_DTYPE: logged.str[1:] if kind in "Mm" else str(logged)}
    if kind == "b":
        return StoredType(logged, np.dtype("int8"), (), {ATTR_BOOL: "bool"})
    if kind == "S":
        return StoredType(np.dtype("S"), np.dtype("S1"), (("strlen", TEXT_BLOCK),), {ATTR_ENCODING: "utf-8"})
    if kind == "c":
        return StoredType(logged, np.dtype(f"float{size * 4}"), (("part", 2),), told)
    if kind in "Mm":
        unit, count = np.datetime_data(logged)
        names = _CF_EPOCH_UNITS if kind == "M" else _UDUNITS
        if count == 1 and unit in names:
            told["units"] = f"{names[unit]} since 1970-01-01T00:00:00" if kind == "M" else names[unit]
            if kind == "M":
                told["calendar"] = "proleptic_gregorian"
        return StoredType(logged, np.dtype("int64"), (), told)
    if logged.char == "e":
        return StoredType(logged, np.dtype("float32"), (), told)
    if logged.char == "g" and size > 8:
        return StoredType(logged, np.dtype("float64"), (("part", 2),), told)
    return StoredType(logged, logged, (), {})


def logged_type(stored: np.dtype[Any], attributes: dict[str, Any]) -> StoredType:
    """Return the type that was logged, from a stored dtype and the variable's attributes; the stored one where they name none that fits.

    Examples
    --------
    >>> import numpy as np
    >>> logged_type(np.dtype("int8"), {"dtype": "bool"}).logged
    dtype('bool')
    """
    told = attributes.get(ATTR_BOOL)
    if isinstance(told, str) and told == "bool" and stored.kind in "iu" and stored.itemsize == 1:
        return stored_type(np.dtype(bool))
    if stored.kind == "S":
        return stored_type(np.dtype("S"))
    told = attributes.get(ATTR_LOGGED_DTYPE)
    return (_told_type(told, stored) if isinstance(told, str) else None) or StoredType(stored, stored, (), {})


def _told_type(told: str, stored: np.dtype[Any]) -> StoredType | None:
    """Return the type that an attribute names, if it is one that is stored as this one."""
    if not _TOLD.fullmatch(told):
        return None
    try:
        kind = stored_type(np.dtype(told))
    except (TypeError, ValueError, OverflowError):  # a long double of another machine
        return None
    return kind if ATTR_LOGGED_DTYPE in kind.attributes and kind.stored == stored.newbyteorder("=") else None
