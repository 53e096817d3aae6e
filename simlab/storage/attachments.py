"""Nested dictionaries of arrays, text and numbers, and the way back.

A dictionary is a group, an array a variable with dimensions of its own, a text an array of characters; what netCDF has no word
for (lists, None, dates) is JSON text. ``attachment_type`` says which it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import h5py
import numpy as np

from simlab.conventions import ATTR_ENCODING, ATTR_ORIGINAL_NAME, STRLEN_SUFFIX
from simlab.errors import MetadataError
from simlab.metadata import from_json, to_json
from simlab.metadata.encoding import is_utf8
from simlab.schema.names import disk_name
from simlab.schema.variable import storable_dtype
from simlab.storage.attributes import read_attributes, write_attribute
from simlab.storage.dtypes import logged_type, stored_type
from simlab.storage.netcdf import characters, create_dimension, create_group, create_variable, is_group_count

Array = np.ndarray[Any, np.dtype[Any]]

ATTR_TYPE: Final = "attachment_type"
_JSON: Final = "json"
_DEFLATE_FROM: Final = 1 << 16
_DEEPEST: Final = 64


def check_attachment(value: Any, where: str, depth: int = 0) -> Any:
    """Return a private copy of a nested dictionary, every leaf an array, a text or JSON text wrapped in a one-tuple.

    Raises
    ------
    MetadataError
        If a key is not text, a key or text is no UTF-8, or a leaf cannot be stored.
    """
    if isinstance(value, Mapping):
        if depth > _DEEPEST:
            raise MetadataError(f"{where} is nested deeper than {_DEEPEST} levels, or refers back to itself. Flatten it.")
        out: dict[str, Any] = {}
        for key, inner in value.items():
            if not isinstance(key, str) or not key or "\0" in key:
                raise MetadataError(f"{where} has the key {key!r}; keys of an attachment are text of at least one letter. Use str(key).")
            _check_utf8(key, f"The key {key!r} of {where}")
            out[key] = check_attachment(inner, f"{where}.{key}", depth + 1)
        return out
    if isinstance(value, str) and "\0" not in value:
        _check_utf8(value, where)
        return str(value)
    if not isinstance(value, (str, bytes)) and hasattr(value, "__array__"):
        array = np.array(value)
        if array.dtype.kind not in "OVUST" and array.dtype.char != "G":
            return array.astype(storable_dtype(array.dtype, where), copy=False)
    elif isinstance(value, (bool, int, float, complex)) and not (isinstance(value, int) and not -(2**63) <= value < 2**63):
        return np.array(value)
    return (to_json(value, where),)


def _check_utf8(text: str, what: str) -> None:
    if not is_utf8(text):
        raise MetadataError(
            f"{what} holds half of a surrogate pair, which UTF-8 cannot store. Pass text.encode('utf-8', 'replace').decode(), or its bytes."
        )


def write_attachment(parent: h5py.Group, name: str, value: Any) -> None:
    """Write what `check_attachment` returned below a group."""
    disk = _free_name(parent, name)
    if isinstance(value, dict):
        group = create_group(parent, disk)
        _keep_name(group, name, disk)
        for key, inner in value.items():
            write_attachment(group, key, inner)
        return
    if isinstance(value, tuple):
        dataset = _write_text(parent, disk, value[0])
        write_attribute(dataset, ATTR_TYPE, _JSON)
    elif isinstance(value, str):
        dataset = _write_text(parent, disk, value)
    else:
        dataset = _write_array(parent, disk, value)
    _keep_name(dataset, name, disk)


def _free_name(parent: h5py.Group, name: str) -> str:
    disk = disk_name(name).replace(".", "_")
    candidate, n = disk, 2
    while candidate in parent:
        candidate, n = f"{disk}_{n}", n + 1
    return candidate


def _keep_name(obj: h5py.HLObject, name: str, disk: str) -> None:
    if name != disk:
        write_attribute(obj, ATTR_ORIGINAL_NAME, name)


def _write_text(parent: h5py.Group, name: str, text: str) -> h5py.Dataset:
    data = characters([text])[0]
    strlen = create_dimension(parent, _free_name(parent, name + STRLEN_SUFFIX), data.size)
    dataset = create_variable(parent, name, [strlen], "S1", data=data, attributes={ATTR_ENCODING: "utf-8"})
    if not text:
        write_attribute(dataset, ATTR_TYPE, "empty")
    return dataset


def _write_array(parent: h5py.Group, name: str, array: Array) -> h5py.Dataset:
    kind = stored_type(array.dtype)
    attributes: dict[str, Any] = dict(kind.attributes)
    if array.size == 0:
        # netCDF reads a dimension of length 0 as unlimited: the shape is told, and one cell stands in.
        attributes |= {"shape": np.array(array.shape, np.int64) if array.ndim > 1 else np.int64(0), ATTR_TYPE: "empty"}
        array = np.zeros((1,) * array.ndim, array.dtype)
    stored = kind.to_disk(np.ascontiguousarray(array).reshape(array.shape))
    dims = [create_dimension(parent, _free_name(parent, f"{name}_axis{i}"), n) for i, n in enumerate(array.shape)]
    dims += [create_dimension(parent, _free_name(parent, f"{name}_{suffix}"), n) for suffix, n in kind.extra]
    if stored.nbytes < _DEFLATE_FROM or not dims:
        return create_variable(parent, name, dims, stored.dtype, data=stored, attributes=attributes)
    chunks = _chunks(stored)
    return create_variable(
        parent, name, dims, stored.dtype, data=stored, attributes=attributes, chunks=chunks, compression="gzip", compression_opts=1,
        shuffle=stored.dtype.itemsize > 1,
    )  # fmt: skip


def _chunks(array: Array) -> tuple[int, ...]:
    """Halve the longest axis until a chunk is at most 1 MiB."""
    shape = list(array.shape)
    while np.prod(shape, dtype=np.int64) * array.dtype.itemsize > 1 << 20:
        i = int(np.argmax(shape))
        shape[i] = (shape[i] + 1) // 2
    return tuple(shape)


def read_attachment(obj: h5py.Group | h5py.Dataset) -> Any:
    """Return a nested dictionary, array, text or value as it was attached (lists as lists, 0-d arrays as scalars)."""
    if isinstance(obj, h5py.Group):
        out = {}
        for name in obj:
            # A link that leads out of the file, or nowhere, is not followed.
            if obj.get(name, getlink=True).__class__ is not h5py.HardLink:
                continue
            inner = obj[name]
            if isinstance(inner, h5py.Dataset) and (inner.is_scale or is_group_count(inner)):
                continue
            attributes = read_attributes(inner)
            out[str(attributes.get(ATTR_ORIGINAL_NAME, name))] = read_attachment(inner)
        return out
    attributes = read_attributes(obj)
    kind, type_ = logged_type(obj.dtype, attributes), attributes.get(ATTR_TYPE)
    if obj.dtype.kind == "S":
        text = "" if type_ == "empty" else obj[...].tobytes().decode("utf-8", "replace")
        return from_json(text) if type_ == _JSON else text
    if type_ == "empty":
        return np.empty(tuple(np.atleast_1d(attributes["shape"]).tolist()), kind.logged)
    values = kind.from_disk(np.asarray(obj[...]))
    if values.ndim:
        return values
    return values[()] if kind.logged.kind in "Mm" else values.item()
