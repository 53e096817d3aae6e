"""Attributes that every reader takes: fixed-length UTF-8 text, numbers, and rows of numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import h5py
import numpy as np

from simlab.conventions import ATTR_SCHEMA
from simlab.storage.damage import ODD, reason


def write_attribute(obj: h5py.HLObject, name: str, value: Any) -> None:
    """Write one attribute, in place of one of that name.

    Parameters
    ----------
    obj : h5py.Group or h5py.Dataset
        What it belongs to.
    name : str
        Its name.
    value : str, int, float, numpy scalar or 1-D numeric array
        Text becomes a fixed-length UTF-8 string: a variable-length one stops Octave and is not allowed in SWMR.
    """
    if isinstance(value, str):
        text = value.encode("utf-8")
        # HDF5 has no strings of length zero; netCDF-C takes one NUL for an empty text.
        kind = h5py.string_dtype("utf-8", max(1, len(text)))
        obj.attrs.create(name, np.array(text, f"S{max(1, len(text))}"), dtype=kind)
    else:
        obj.attrs.create(name, np.asarray(value))


def write_attributes(obj: h5py.HLObject, attributes: Mapping[str, Any]) -> None:
    """Write several attributes."""
    for name, value in attributes.items():
        write_attribute(obj, name, value)


_PLAIN_CLASSES = (h5py.h5t.INTEGER, h5py.h5t.FLOAT, h5py.h5t.STRING)
_STRUCTURAL = frozenset(
    {"CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST", "_Netcdf4Dimid", "_Netcdf4Coordinates", "_NCProperties", ATTR_SCHEMA}
)


def read_attributes(obj: h5py.HLObject, gaps: list[str] | None = None) -> dict[str, Any]:
    """Return the attributes of an object as text, numpy scalars and 1-D arrays, without those that only say how netCDF-4 is laid out.

    What cannot be read (an unknown type, a broken reference) is left out: one odd attribute must not cost the variable.

    Parameters
    ----------
    obj : h5py.Group or h5py.Dataset
        What they belong to.
    gaps : list of str, optional
        Takes one sentence for each attribute that is left out.
    """
    out: dict[str, Any] = {}
    gaps = [] if gaps is None else gaps
    try:
        names = [name for name in obj.attrs if name not in _STRUCTURAL]
    except ODD as error:
        gaps.append(f"the attributes of {obj.name!r} cannot be read: {reason(error)}")
        return out
    for name in names:
        if not isinstance(name, str):
            gaps.append(f"an attribute of {obj.name!r} has a name that is no UTF-8: {name!r}")
            continue
        try:
            value = _text_or_number(obj, name)
            if value is None:
                value = obj.attrs[name]
            if not isinstance(value, h5py.Reference):  # leads to something else, and says nothing by itself
                out[name] = _plain(value)
        except ODD as error:
            gaps.append(f"attribute {name!r} of {obj.name!r} cannot be read: {reason(error)}")
    return out


def _text_or_number(obj: h5py.HLObject, name: str) -> Any:
    """Return an attribute that is one number or one text of fixed length, at a third of the price of ``obj.attrs``; else None."""
    attribute = h5py.h5a.open(obj.id, name.encode())
    kind = attribute.get_type()
    if attribute.shape != () or kind.get_class() not in _PLAIN_CLASSES or (kind.get_class() == h5py.h5t.STRING and kind.is_variable_str()):
        return None
    value = np.empty((), kind.dtype)
    attribute.read(value, mtype=kind)
    return value[()]


def _plain(value: Any) -> Any:
    """Return an attribute's value as text, a number, a list of texts or an array of numbers."""
    if isinstance(value, h5py.Empty):
        return ""
    if isinstance(value, (str, bytes)):
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    kind = value.dtype.kind if isinstance(value, (np.ndarray, np.generic)) else "?"
    if kind in "SO" and isinstance(value, np.ndarray):
        texts = [v.decode("utf-8", "replace") if isinstance(v, bytes) else v for v in value.ravel().tolist()]
        if all(isinstance(v, str) for v in texts):
            return texts
    elif kind in "biufc":
        return value
    raise TypeError(f"it is a {type(value).__name__}, which is neither text nor a number")
