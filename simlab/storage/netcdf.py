"""netCDF-4 on plain HDF5: dimensions, coordinates and variables, one object at a time.

Dimension scales are attached by hand: every axis gets its scale in ``DIMENSION_LIST``, and the scales get no ``REFERENCE_LIST``
(with it xarray's h5netcdf engine takes time quadratic in the number of variables on an unlimited dimension; no reader needs it).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import h5py
import numpy as np

from simlab.conventions import ATTR_ENCODING, GROUP_COUNT, NOT_A_VARIABLE, STRLEN_SUFFIX
from simlab.storage.attributes import write_attributes

Array = np.ndarray[Any, np.dtype[Any]]

CLOCK_CHUNK = 1024
"""Entries of one chunk of a variable that has one number per row, agent or episode."""


def create_group(parent: h5py.Group, name: str) -> h5py.Group:
    """Return the group below `parent`, made with tracked creation order (netCDF-4 asks for it) where it is not there."""
    for part in filter(None, name.split("/")):
        parent = parent[part] if part in parent else parent.create_group(part, track_order=True)
    return parent


def count_groups(group: h5py.Group, deep: bool = True) -> None:
    """Give a group that holds groups only, and those below it, a variable: how many groups it holds."""
    inner = [obj for obj in group.values() if isinstance(obj, h5py.Group)]
    variables = (obj for obj in group.values() if isinstance(obj, h5py.Dataset))
    if all(bytes(v.attrs.get("NAME", b"")).startswith(NOT_A_VARIABLE[:-4]) for v in variables) and GROUP_COUNT not in group:
        data = np.array(len(inner), np.int32)
        create_variable(group, GROUP_COUNT, [], "int32", data=data, attributes={"long_name": "groups in this group", "units": "1"})
    if deep:
        for below in inner:
            count_groups(below)


def is_group_count(dataset: h5py.Dataset) -> bool:
    """Say whether a dataset is what `count_groups` wrote; an attachment may have that name, but no ``long_name``."""
    return bool(dataset.name.rsplit("/", 1)[-1] == GROUP_COUNT and "long_name" in dataset.attrs)


def create_dimension(group: h5py.Group, name: str, size: int, unlimited: bool = False) -> h5py.Dataset:
    """Make a dimension without a coordinate variable."""
    growing = {"maxshape": (None,), "chunks": (CLOCK_CHUNK,)} if unlimited else {}
    scale = group.create_dataset(name, shape=(size,), dtype=">f4", track_order=True, **growing)
    scale.make_scale(NOT_A_VARIABLE % size)
    return scale


def create_coordinate(group: h5py.Group, name: str, dtype: str, **attributes: Any) -> h5py.Dataset:
    """Make an unlimited dimension that is a variable too, with nothing in it yet."""
    scale = group.create_dataset(
        name, shape=(0,), maxshape=(None,), chunks=(CLOCK_CHUNK,), dtype=dtype, compression="gzip", shuffle=True, track_order=True
    )
    scale.make_scale(name)
    write_attributes(scale, attributes)
    return scale


def create_variable(
    group: h5py.Group,
    name: str,
    dims: Sequence[h5py.Dataset],
    dtype: np.dtype[Any] | str,
    *,
    chunks: tuple[int, ...] | None = None,
    attributes: dict[str, Any] | None = None,
    data: Array | None = None,
    **options: Any,
) -> h5py.Dataset:
    """Make a variable on dimensions that are there.

    Parameters
    ----------
    group : h5py.Group
        Where it lies; its dimensions lie there or in a group above.
    dims : sequence of h5py.Dataset
        The scales of its axes; their lengths are its shape.
    chunks : tuple of int, optional
        Needed where a dimension is unlimited. Without it the data are contiguous (never compact: R cannot read that).
    data : ndarray, optional
        What to write at once.
    **options
        What h5py takes for a dataset: compression, shuffle, fillvalue.
    """
    shape = tuple(d.shape[0] for d in dims)
    if chunks is not None:
        options |= {"chunks": chunks, "maxshape": tuple(d.maxshape[0] for d in dims)}
    variable = group.create_dataset(name, shape=shape, dtype=dtype, track_order=True, **options)
    if dims:
        lists = np.empty(len(dims), dtype=object)
        for i, scale in enumerate(dims):
            lists[i] = np.array([scale.ref], dtype=h5py.ref_dtype)
        variable.attrs.create("DIMENSION_LIST", lists, dtype=h5py.vlen_dtype(h5py.ref_dtype))
    write_attributes(variable, attributes or {})
    if data is not None and data.size:
        variable[...] = data
    return variable


def characters(texts: Sequence[str], width: int | None = None) -> Array:
    """Return text as a 2-D array of characters, UTF-8, padded with NUL.

    Examples
    --------
    >>> characters(["ab", "c"]).tolist()
    [[b'a', b'b'], [b'c', b'']]
    """
    encoded = [t.encode("utf-8") for t in texts]
    width = max([width or 1, *map(len, encoded)])
    return np.array(encoded, dtype=f"S{width}").reshape(-1, 1).view("S1").reshape(len(encoded), width)


def create_labels(group: h5py.Group, dim: h5py.Dataset, name: str, texts: Sequence[str]) -> h5py.Dataset:
    """Make a variable that holds one text for each entry of a dimension of fixed length."""
    data = characters(texts)
    length = name + STRLEN_SUFFIX
    strlen = group[length] if length in group else create_dimension(group, length, data.shape[1])
    return create_variable(group, name, [dim, strlen], "S1", data=data, attributes={ATTR_ENCODING: "utf-8"})


def create_text_column(group: h5py.Group, name: str, dim: h5py.Dataset, **attributes: Any) -> h5py.Dataset:
    """Make a variable that holds one text of any length for each entry of an unlimited dimension."""
    length = name + STRLEN_SUFFIX
    strlen = group[length] if length in group else create_dimension(group, length, 1, unlimited=True)
    return create_variable(
        group, name, [dim, strlen], "S1", chunks=(256, 32), attributes={ATTR_ENCODING: "utf-8", **attributes}, compression="gzip"
    )


def resize_dimension(scale: h5py.Dataset, size: int) -> None:
    """Grow a dimension; it never shrinks."""
    if scale.shape[0] < size:
        scale.resize((size,))


def read_text_rows(column: h5py.Dataset) -> list[str]:
    """Return the texts of a text column."""
    stored = np.ascontiguousarray(column[...])
    if not stored.size:
        return [""] * column.shape[0]
    return [text.decode("utf-8", "replace") for text in stored.view(f"S{stored.shape[1]}").ravel().tolist()]


def write_text_rows(column: h5py.Dataset, first: int, texts: Sequence[str]) -> None:
    """Write texts at rows ``first ...`` of a text column, which grows as they need."""
    if not texts:
        return
    data = characters(texts)
    rows, width = max(column.shape[0], first + len(texts)), max(column.shape[1], data.shape[1])
    if (rows, width) != column.shape:
        column.resize((rows, width))
        strlen = column.parent[column.name.rsplit("/", 1)[-1] + STRLEN_SUFFIX]
        resize_dimension(strlen, width)
    column[first : first + len(texts), : data.shape[1]] = data
