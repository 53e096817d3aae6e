"""What is in a file, in one neutral form, and the comparison of two of them.

A variable is known by its path ("/simulation_0001/agents/rewards"), an attribute by the path of what it describes and its name.
Numbers are arrays. Text is bytes: characters keep one array entry each ('S1'), or one entry for a whole text (any longer 'S').
"""

from __future__ import annotations

from dataclasses import dataclass, field

import h5py
import numpy as np

# How HDF5 and netCDF-4 note dimensions and filters; readers turn these into their own notions.
BOOKKEEPING = {"CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST", "_Netcdf4Dimid", "_Netcdf4Coordinates", "_NCProperties"}


@dataclass
class Reading:
    """All variables and attributes that one reader found in one file."""

    variables: dict[str, np.ndarray] = field(default_factory=dict)
    attributes: dict[tuple[str, str], np.ndarray] = field(default_factory=dict)
    dims: dict[str, tuple[str, ...]] = field(default_factory=dict)


def as_array(value: object) -> np.ndarray:
    """Return an attribute's value as a 1-D array of numbers, or as a 1-D array of bytes."""
    if isinstance(value, str):
        value = value.encode()
    if isinstance(value, bytes):
        # A reader may or may not keep NULs at the end.
        return np.array([value.rstrip(b"\0")], dtype=object)
    array = np.atleast_1d(np.asarray(value)).reshape(-1)
    if array.dtype.kind in "SUO":
        return np.array([(v.encode() if isinstance(v, str) else bytes(v)).rstrip(b"\0") for v in array.tolist()], dtype=object)
    return array


def manifest(path: object) -> Reading:
    """Walk a file with h5py and return everything in it: this is what the other readers are held against."""
    out = Reading()

    def keep_attributes(obj: h5py.HLObject, where: str) -> None:
        for name, value in obj.attrs.items():
            if name not in BOOKKEEPING:
                out.attributes[where, name] = as_array(value)

    def visit(name: str, obj: h5py.HLObject) -> None:
        where = "/" + name
        if isinstance(obj, h5py.Dataset):
            if is_bare_dimension(obj):
                return
            out.variables[where] = np.asarray(obj[()])
            out.dims[where] = dimensions(obj)
        keep_attributes(obj, where)

    with h5py.File(path, "r") as file:
        keep_attributes(file, "")
        file.visititems(visit)
    return out


def is_bare_dimension(dataset: h5py.Dataset) -> bool:
    """Say whether a dataset only stands for a dimension without coordinates, which is no variable."""
    return bytes(dataset.attrs.get("NAME", b"")).startswith(b"This is a netCDF dimension but not a netCDF variable")


def dimensions(dataset: h5py.Dataset) -> tuple[str, ...]:
    """Return the names of a dataset's dimensions, from the scales that its axes point to."""
    if dataset.attrs.get("CLASS") == b"DIMENSION_SCALE":
        return (dataset.name.rsplit("/", 1)[-1],)
    if dataset.ndim == 0:
        return ()
    return tuple(dataset.file[refs[0]].name.rsplit("/", 1)[-1] for refs in dataset.attrs["DIMENSION_LIST"])


def numbers_or_texts(values: np.ndarray, whole_texts: bool) -> np.ndarray:
    """Return values flat; characters joined along the last axis where the other side has whole texts."""
    if values.dtype.kind != "S":
        return values.reshape(-1)
    if whole_texts:
        rows = np.ascontiguousarray(values).reshape(-1, values.shape[-1])
        return np.array([row.tobytes().rstrip(b"\0") for row in rows], dtype=object)
    return np.frombuffer(np.ascontiguousarray(values).tobytes(), np.uint8)


def differences(expected: Reading, found: Reading, *, types: bool = True) -> list[str]:
    """Return one sentence for each thing that is missing, too much, or not the same.

    Parameters
    ----------
    expected, found : Reading
        What h5py and what another reader found.
    types : bool
        Whether the reader gives types back as they are stored (R has doubles only).
    """
    out = [f"{path} is missing" for path in expected.variables.keys() - found.variables.keys()]
    out += [f"{path} is not in the file" for path in found.variables.keys() - expected.variables.keys()]
    out += [f"attribute {key} is missing" for key in expected.attributes.keys() - found.attributes.keys()]
    out += [f"attribute {key} is not in the file" for key in found.attributes.keys() - expected.attributes.keys()]
    for path in expected.variables.keys() & found.variables.keys():
        want, got = expected.variables[path], found.variables[path]
        if path in found.dims and found.dims[path] != expected.dims[path]:
            out.append(f"{path} has dimensions {found.dims[path]}, not {expected.dims[path]}")
        if path in found.dims and want.shape != got.shape:
            out.append(f"{path} has shape {got.shape}, not {want.shape}")
        out += _unequal(path, numbers_or_texts(want, got.dtype.kind == "O"), numbers_or_texts(got, False), types)
    for key in expected.attributes.keys() & found.attributes.keys():
        out += _unequal(f"attribute {key}", expected.attributes[key], found.attributes[key], types)
    return sorted(out)


def _unequal(what: str, want: np.ndarray, got: np.ndarray, types: bool) -> list[str]:
    if types and want.dtype != got.dtype:
        return [f"{what} has type {got.dtype}, not {want.dtype}"]
    if want.size != got.size:
        return [f"{what} has {got.size} values, not {want.size}"]
    if want.dtype != got.dtype and want.dtype.kind != "O":
        want = want.astype(got.dtype)
    if not np.array_equal(want, got, equal_nan=want.dtype.kind == "f"):
        return [f"{what} differs: {got[:5]!r}..., not {want[:5]!r}..."]
    return []
