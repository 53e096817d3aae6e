"""Attributes that every reader takes: fixed-length UTF-8 text, numbers, and rows of numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import h5py
import numpy as np

from simlab.conventions import ATTR_SCHEMA


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


_STRUCTURAL = frozenset(
    {"CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST", "_Netcdf4Dimid", "_Netcdf4Coordinates", "_NCProperties", ATTR_SCHEMA}
)


def read_attributes(obj: h5py.HLObject) -> dict[str, Any]:
    """Return the attributes of an object as text, numpy scalars and 1-D arrays, without those that only say how netCDF-4 is laid out.

    What cannot be read (an unknown type, a broken reference) is left out: one odd attribute must not cost the variable.
    """
    out: dict[str, Any] = {}
    for name in obj.attrs:
        if name in _STRUCTURAL:
            continue
        try:
            value = obj.attrs[name]
        except (OSError, TypeError, ValueError, RuntimeError, UnicodeDecodeError):
            continue
        if isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        elif isinstance(value, np.ndarray) and value.dtype.kind == "S":
            value = [v.decode("utf-8", "replace") for v in value.ravel().tolist()]
        elif isinstance(value, np.ndarray) and value.dtype.kind == "O":
            value = [v.decode("utf-8", "replace") if isinstance(v, bytes) else v for v in value.ravel().tolist()]
        elif isinstance(value, h5py.Empty):
            value = ""
        out[str(name)] = str(value) if isinstance(value, str) else value
    return out
