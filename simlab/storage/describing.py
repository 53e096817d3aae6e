"""What there is to know about a dataset before it is read: axes, type, attributes, filters.

A damaged description costs as little as can be: axes without names get names, a type that is not understood is shown as it lies in
the file, and each such gap is told. What cannot be shown at all is refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import h5py
import numpy as np

from simlab.conventions import (
    AGENT,
    ATTR_BOOL,
    ATTR_ENCODING,
    ATTR_LOGGED_DTYPE,
    ATTR_MODALITY,
    EPISODE,
    STRLEN_SUFFIX,
    TIME,
    TIME_SUFFIX,
)
from simlab.errors import FormatError, SimlabError
from simlab.storage.attributes import read_attributes
from simlab.storage.damage import ODD, reason
from simlab.storage.dtypes import StoredType, logged_type
from simlab.storage.entries import address, address_of
from simlab.storage.opening import RunSource
from simlab.storage.reading import StoredVariable

_NOT_A_VARIABLE: Final = b"This is a netCDF dimension but not a netCDF variable"
_READABLE: Final = "iufSb"
_DIMENSION_LIST: Final = "DIMENSION_LIST"


def describe(source: RunSource, dataset: h5py.Dataset, axes: Sequence[tuple[str, int]] = ()) -> StoredVariable:
    """Return what there is to know about a dataset without reading its data.

    Parameters
    ----------
    source : RunSource
        The file.
    dataset : h5py.Dataset
        The dataset.
    axes : sequence of (str, int), optional
        Names and lengths of the first axes that it should have; they stand in where the file has lost the names.

    Raises
    ------
    FormatError
        If it is too damaged, or of a type that no reader of runs knows; the message names it.
    """
    try:
        return _describe(source, dataset, axes)
    except ODD as error:
        if isinstance(error, SimlabError):
            raise
        raise FormatError(f"{dataset.name!r} in {source.path!r} is damaged: {reason(error)}.") from error


def _describe(source: RunSource, dataset: h5py.Dataset, axes: Sequence[tuple[str, int]]) -> StoredVariable:
    gaps: list[str] = []
    path = str(dataset.name)
    attrs = read_attributes(dataset, gaps)
    stored = np.dtype(dataset.dtype)
    if dataset.shape is None or stored.kind not in _READABLE or stored.names is not None or stored.subdtype is not None:
        held = "no data at all" if dataset.shape is None else f"values of type {_type_name(stored)}"
        raise FormatError(f"{path!r} in {source.path!r} holds {held}, which no variable of a run has: it is damaged, or somebody else's.")
    shape = tuple(int(n) for n in dataset.shape)
    dims = _dimension_names(source.scales, dataset, shape, axes, gaps)
    kind = logged_type(stored, attrs)
    if ATTR_LOGGED_DTYPE in attrs and ATTR_LOGGED_DTYPE not in kind.attributes:
        gaps.append(
            f"{path!r} says {ATTR_LOGGED_DTYPE} = {attrs[ATTR_LOGGED_DTYPE]!r}, which does not fit {stored}: it is shown as {stored}"
        )
    if ATTR_BOOL in attrs and kind.logged.kind != "b":
        gaps.append(f"{path!r} says {ATTR_BOOL} = {attrs[ATTR_BOOL]!r}, which does not fit {stored}: it is shown as {stored}")
    if ATTR_MODALITY in attrs and not isinstance(attrs[ATTR_MODALITY], str):
        gaps.append(f"{path!r} says {ATTR_MODALITY} = {attrs.pop(ATTR_MODALITY)!r}, which is no modality")
    extra = min(len(kind.extra), len(shape))
    if stored.kind == "S" and (stored.itemsize > 1 or not extra or not dims[-1].endswith(STRLEN_SUFFIX)):
        kind, extra = StoredType(stored, stored, (), {}), 0
    elif kind.extra and stored.kind != "S" and shape[-1:] != (kind.extra[0][1],):
        gaps.append(f"{path!r} has the axes {shape}, and the last one should have {kind.extra[0][1]} entries: it is shown as {stored}")
        kind, extra = StoredType(stored, stored, (), {}), 0
    cut = len(shape) - extra
    dtype = np.dtype(f"U{max(1, shape[-1])}") if kind.logged.kind == "S" and extra else kind.logged
    options = dataset.id.get_create_plist()
    filters = tuple(int(options.get_filter(i)[0]) for i in range(options.get_nfilters()))
    return StoredVariable(
        source, path, dims[:cut], shape[:cut], dtype.newbyteorder("="), attrs, kind, stored, shape[cut:],
        dataset.chunks, filters, _fill_of(dataset, stored), plain=_is_plain(dataset, stored), extent=shape[:cut], gaps=tuple(gaps),
    )  # fmt: skip


def note_scales(source: RunSource, datasets: Mapping[str, h5py.Dataset]) -> set[str]:
    """Remember where the scales among some datasets lie, and return their names.

    A reference holds an address; HDF5 would search the whole file for the name that belongs to it.
    """
    known = source.scales
    names = {name for name, dataset in datasets.items() if is_scale(dataset)}
    for name in names:
        known[address(datasets[name])] = name
    return names


def is_scale(dataset: h5py.Dataset) -> bool:
    """Whether a dataset is a dimension, with or without values."""
    return _octets(dataset, b"CLASS").rstrip(b"\0") == b"DIMENSION_SCALE"


def is_plain_dimension(dataset: h5py.Dataset) -> bool:
    """Whether a dataset is a dimension without values, as netCDF-4 writes it."""
    return is_scale(dataset) and _octets(dataset, b"NAME").startswith(_NOT_A_VARIABLE)


def _octets(dataset: h5py.Dataset, name: bytes) -> bytes:
    """Return an attribute that is one text, else nothing.

    HDF5's own calls for scales take the attribute for text unseen, and overrun their memory where it is not.
    """
    try:
        if not h5py.h5a.exists(dataset.id, name):
            return b""
        attribute = h5py.h5a.open(dataset.id, name)
        kind = attribute.get_type()
        if attribute.shape != () or kind.get_class() != h5py.h5t.STRING or kind.is_variable_str():
            return b""
        value = np.empty((), attribute.dtype)
        attribute.read(value, mtype=kind)
        return bytes(value.tobytes())
    except ODD:
        return b""


def _dimension_names(
    scales: dict[int, str], dataset: h5py.Dataset, shape: tuple[int, ...], axes: Sequence[tuple[str, int]], gaps: list[str]
) -> tuple[str, ...]:
    own = str(dataset.name).rsplit("/", 1)[-1]
    if not shape:
        return ()
    names = _names_told(scales, dataset, own, len(shape), gaps)
    if names is not None and len(set(names)) == len(names):
        return names
    if names is None and len(shape) == 1 and is_scale(dataset):
        return (own,)
    lengths = tuple(n for _, n in axes)
    known = tuple(name for name, _ in axes) if lengths and shape[: len(lengths)] == lengths else ()
    guessed = [*known, *(f"{own}_dim_{axis}" for axis in range(len(known), len(shape)))]
    if ATTR_ENCODING in dataset.attrs and len(known) < len(shape):
        guessed[-1] = own + STRLEN_SUFFIX
    gaps.append(f"{str(dataset.name)!r} has lost the names of its axes; they are called {', '.join(guessed)}")
    return tuple(guessed)


def _names_told(scales: dict[int, str], dataset: h5py.Dataset, own: str, count: int, gaps: list[str]) -> tuple[str, ...] | None:
    """Return the names of the axes; None where the file does not tell them."""
    told = dimension_list(dataset, count)
    if told is None:
        return None
    names = []
    for axis, references in enumerate(told):
        try:
            name, length = _scale_of(scales, dataset, references)
        except ODD:
            return None
        names.append(name or f"{own}_dim_{axis}")
        if length > dataset.shape[axis] and not _may_lag(name):
            gaps.append(f"{str(dataset.name)!r} is cut short: it holds {dataset.shape[axis]:,} of {length:,} along {name!r}")
    return tuple(names)


def _may_lag(name: str) -> bool:
    """Whether a dimension grows while a run is recorded; those who read along it look at its length themselves."""
    return name in (TIME, AGENT, EPISODE) or name.endswith(TIME_SUFFIX)


def dimension_list(dataset: h5py.Dataset, count: int) -> Any:
    """Return the references to the scales of each axis; None where the attribute is not what it should be.

    HDF5's own calls for scales read the attribute unseen, and crash on another type.
    """
    try:
        if _DIMENSION_LIST not in dataset.attrs:
            return None
        attribute = dataset.attrs.get_id(_DIMENSION_LIST)
        inner = h5py.check_vlen_dtype(attribute.dtype)
        if attribute.shape != (count,) or inner is None or h5py.check_ref_dtype(inner) is not h5py.Reference:
            return None
        return dataset.attrs[_DIMENSION_LIST]
    except ODD:
        return None


def _scale_of(scales: dict[int, str], dataset: h5py.Dataset, references: Any) -> tuple[str, int]:
    """Return name and length of the scale of an axis; no name where it has none."""
    if not len(references):
        return "", 0
    scale = h5py.h5r.dereference(references[0], dataset.id)
    if scale is None:
        raise ValueError("a reference that leads nowhere")
    name = scales.get(address_of(scale))
    if name is None:
        found = h5py.h5r.get_name(references[0], dataset.id)
        name = found.decode().rsplit("/", 1)[-1] if found else ""
    return name, int(scale.shape[0]) if isinstance(scale, h5py.h5d.DatasetID) and scale.rank == 1 else 0


def _is_plain(dataset: h5py.Dataset, stored: np.dtype[Any]) -> bool:
    """Whether the bytes of the file are numbers as numpy has them: HDF5 knows integers of 12 bits, and floats of its own too."""
    return stored.kind == "S" or bool(dataset.id.get_type() == h5py.h5t.py_create(stored))


def _fill_of(dataset: h5py.Dataset, stored: np.dtype[Any]) -> Any:
    try:
        return dataset.fillvalue
    except ODD:
        return np.zeros((), stored)[()]


def _type_name(stored: np.dtype[Any]) -> str:
    if h5py.check_string_dtype(stored) is not None:
        return "text of varying length"
    if h5py.check_ref_dtype(stored) is not None:
        return "reference"
    return str(stored)[:80]
