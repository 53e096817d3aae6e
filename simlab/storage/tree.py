"""What is in any HDF5 or netCDF-4 file: groups, datasets, attributes and links, as plain data.

No data is read, no link is followed out of the file, and the answer is bounded however odd the file is.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import h5py
import numpy as np

from simlab.errors import FormatError, RunInUseError, RunNotFoundError
from simlab.storage.damage import ODD
from simlab.storage.describing import dimension_list, is_plain_dimension, is_scale
from simlab.storage.diagnose import explain
from simlab.storage.entries import address
from simlab.storage.finding import natural_key
from simlab.storage.handles import reopened
from simlab.storage.writable import being_recorded

FILTERS: Final = {
    1: "gzip", 2: "shuffle", 3: "fletcher32", 4: "szip", 5: "nbit", 6: "scaleoffset", 307: "bzip2", 32000: "lzf", 32001: "blosc",
    32004: "lz4", 32008: "bitshuffle", 32013: "zfp", 32015: "zstd", 32017: "sz", 32019: "jpeg", 32024: "sz3", 32026: "blosc2",
    32028: "ffmpeg",
}  # fmt: skip
"""Registered filters of HDF5 by number; the first six come with every HDF5, gzip and shuffle with every reader."""

MOST_OBJECTS: Final = 5000
MOST_ATTRIBUTES: Final = 100
MOST_TEXT: Final = 500
MOST_NUMBERS: Final = 16
_DEEPEST: Final = 64
_BIG_ATTRIBUTE: Final = 1 << 24
_STRUCTURAL: Final = frozenset(
    {"CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST", "_Netcdf4Dimid", "_Netcdf4Coordinates", "_NCProperties"}
)


@dataclass(frozen=True, slots=True)
class Filter:
    """One filter of a dataset."""

    name: str
    number: int
    available: bool
    options: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class DatasetInfo:
    """One dataset."""

    name: str
    path: str
    shape: tuple[int, ...] | None
    max_shape: tuple[int | None, ...] | None
    dtype: str
    dims: tuple[str, ...] | None
    chunks: tuple[int, ...] | None
    filters: tuple[Filter, ...]
    raw_bytes: int | None
    stored_bytes: int
    is_dimension: bool
    elsewhere: str
    """Where the data lies if not in this file: "virtual" or "external files"."""
    attributes: dict[str, Any]


@dataclass(frozen=True, slots=True)
class LinkInfo:
    """A link that is shown, not followed; or an object that could not be read."""

    name: str
    path: str
    kind: str
    """"soft", "external", "same" (another name for what is shown elsewhere), "type" (a named type), "unreadable"."""
    target: str


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """One group and what is in it."""

    name: str
    path: str
    attributes: dict[str, Any]
    groups: list[GroupInfo] = field(default_factory=list)
    datasets: list[DatasetInfo] = field(default_factory=list)
    links: list[LinkInfo] = field(default_factory=list)
    left_out: int = 0

    def every_dataset(self) -> Iterator[DatasetInfo]:
        """Yield all datasets at or below the group."""
        yield from self.datasets
        for group in self.groups:
            yield from group.every_dataset()


@dataclass(frozen=True, slots=True)
class Tree:
    """A file."""

    path: str
    file_bytes: int
    root: GroupInfo
    complete: bool
    """False where something was left out because the file holds more than can be shown."""


def describe(path: str | os.PathLike[str], *, most: int = MOST_OBJECTS) -> Tree:
    """Describe what is in an HDF5 or netCDF-4 file.

    Parameters
    ----------
    path : str or path-like
        The file; ``~`` is expanded.
    most : int, optional
        Groups, datasets and links to describe; what is beyond is counted in ``left_out`` of its group.

    Returns
    -------
    Tree
        Plain data; ``dataclasses.asdict`` makes dictionaries of it.

    Raises
    ------
    RunNotFoundError, RunInUseError, FormatError
        If the file is missing, locked or no HDF5.

    Examples
    --------
    >>> import h5py, tempfile
    >>> path = tempfile.mkdtemp() + "/a.h5"
    >>> with h5py.File(path, "w") as file:
    ...     _ = file.create_dataset("images/x", (100, 8), "f4", compression="gzip")
    >>> [dataset] = describe(path).root.every_dataset()
    >>> dataset.path, dataset.shape, dataset.dtype, dataset.raw_bytes, [f.name for f in dataset.filters]
    ('/images/x', (100, 8), 'float32', 3200, ['gzip'])
    """
    place = os.path.expanduser(os.fspath(path))
    with _open(place) as file:
        walk = _Walk(most)
        try:
            root = walk.group(file["/"], "/", "/", 0)
        except ODD as error:
            raise FormatError(f"{place!r} is HDF5, but is damaged: {error}. Restore it from a copy.") from error
        return Tree(path=place, file_bytes=os.path.getsize(place), root=root, complete=walk.complete)


def _open(place: str) -> h5py.File:
    """Open a file for reading, one that is being written in SWMR mode too, or by a logger of this process."""
    if "\0" not in place and os.path.realpath(place) in being_recorded:
        return reopened(place)[0]
    try:
        return h5py.File(place, "r")
    except (OSError, RuntimeError, ValueError) as error:
        reason: Exception = error
    if "open for write" in str(reason):
        # Only then: with SWMR, HDF5 would open a truncated file as well, and wait for the rest to arrive.
        try:
            return h5py.File(place, "r", swmr=True)
        except (OSError, RuntimeError) as error:
            reason = error
    if not os.path.exists(place):
        raise RunNotFoundError(explain(place))
    if isinstance(reason, BlockingIOError) or "unable to lock file" in str(reason):
        raise RunInUseError(f"{place!r} is open in another program that writes to it. Wait for it, or close the file there.")
    raise FormatError(explain(place) or f"{place!r} looks like HDF5, but HDF5 cannot open it: {reason}.") from reason


class _Walk:
    """Goes through a file once, each object once."""

    def __init__(self, most: int) -> None:
        self.left = most
        self.complete = True
        self.seen: dict[int, str] = {}

    def group(self, group: h5py.Group, name: str, path: str, depth: int) -> GroupInfo:
        self.seen[address(group)] = path
        groups: list[GroupInfo] = []
        datasets: list[DatasetInfo] = []
        links: list[LinkInfo] = []
        names = _names(group)
        for i, child in enumerate(names):
            if self.left <= 0 or depth >= _DEEPEST:
                self.complete = False
                return GroupInfo(name, path, _attributes(group), groups, datasets, links, left_out=len(names) - i)
            self.left -= 1
            entry = self._entry(group, child, path.rstrip("/") + "/" + _text(child), depth)
            if isinstance(entry, GroupInfo):
                groups.append(entry)
            elif isinstance(entry, DatasetInfo):
                datasets.append(entry)
            else:
                links.append(entry)
        return GroupInfo(name, path, _attributes(group), groups, datasets, links)

    def _entry(self, group: h5py.Group, given: str | bytes, path: str, depth: int) -> GroupInfo | DatasetInfo | LinkInfo:
        name = _text(given)
        try:
            link = group.get(given, getlink=True)
            if isinstance(link, h5py.ExternalLink):
                return LinkInfo(name, path, "external", f"{_text(link.filename)}:{_text(link.path)}")
            if isinstance(link, h5py.SoftLink):
                return LinkInfo(name, path, "soft", _text(link.path))
            child = group[given]
            key = address(child)
            if key in self.seen:
                return LinkInfo(name, path, "same", self.seen[key])
            if isinstance(child, h5py.Group):
                return self.group(child, name, path, depth + 1)
            self.seen[key] = path
            if isinstance(child, h5py.Dataset):
                return describe_dataset(child, path)
            return LinkInfo(name, path, "type", _dtype_name(child))
        except ODD as error:
            return LinkInfo(name, path, "unreadable", _text(str(error)))


def _names(group: h5py.Group) -> list[str | bytes]:
    """Return the names in a group: as created where the file knows, else in natural order (demo_2 before demo_10)."""
    names = list(group)
    tracked = group.id.get_create_plist().get_link_creation_order() & h5py.h5p.CRT_ORDER_TRACKED
    return names if tracked else sorted(names, key=lambda name: natural_key(_text(name)))


def describe_dataset(dataset: h5py.Dataset, path: str, *, axes: bool = True) -> DatasetInfo:
    """Describe one dataset; `path` is the name under which it was reached. Without `axes`, the scales of its axes are not looked up."""
    name = path.rsplit("/", 1)[-1]
    shape = None if dataset.shape is None else tuple(int(n) for n in dataset.shape)
    dtype, itemsize = _dtype_name(dataset), dataset.id.get_type().get_size()
    varying = "variable" in dtype
    count = 0 if shape is None else int(np.prod([1, *shape], dtype=object))
    is_dimension, dims = _dims(dataset, name) if axes else (False, None)
    plist = dataset.id.get_create_plist()
    return DatasetInfo(
        name=name,
        path=path,
        shape=shape,
        max_shape=None if shape is None else tuple(dataset.maxshape),
        dtype=dtype,
        dims=dims,
        chunks=None if dataset.chunks is None else tuple(int(n) for n in dataset.chunks),
        filters=tuple(_filter(*plist.get_filter(i)) for i in range(plist.get_nfilters())),
        raw_bytes=None if varying else count * itemsize,
        stored_bytes=int(dataset.id.get_storage_size()),
        is_dimension=is_dimension,
        elsewhere="virtual" if dataset.is_virtual else "external files" if dataset.external else "",
        attributes=_attributes(dataset),
    )


def _filter(number: int, flags: int, options: tuple[int, ...], name: bytes) -> Filter:
    known = FILTERS.get(number)
    told = _text(name) if name else ""
    return Filter(
        name=known or (f"filter {number} ({told})" if told else f"filter {number}"),
        number=int(number),
        available=bool(h5py.h5z.filter_avail(number)),
        options=tuple(int(x) for x in options[:8]),
    )


def _dims(dataset: h5py.Dataset, name: str) -> tuple[bool, tuple[str, ...] | None]:
    """Say whether a dataset is only a dimension's length, and return the names of its dimensions where it has some."""
    count = len(dataset.shape or ())
    if count == 1 and is_scale(dataset):
        return is_plain_dimension(dataset), (name,)
    references = dimension_list(dataset, count)
    named: list[str] = []
    for axis in range(count):
        try:
            if references is not None and len(references[axis]):
                scale = h5py.h5r.get_name(references[axis][0], dataset.id) or b""
                named.append(_text(scale.rsplit(b"/", 1)[-1]))
            else:
                named.append(_text(dataset.dims[axis].label) if "DIMENSION_LABELS" in dataset.attrs else "")
        except ODD:
            named.append("")
    return False, tuple(named) if any(named) else None


def _dtype_name(obj: h5py.Dataset | h5py.Datatype) -> str:
    try:
        dtype = obj.dtype
    except ODD:
        return "a type that numpy does not have"
    text = h5py.check_string_dtype(dtype)
    if text is not None:
        return "text (variable length)" if text.length is None else f"text ({text.length} bytes)"
    inner = h5py.check_vlen_dtype(dtype)
    if inner is not None:
        return f"{inner} (variable length)"
    labels = h5py.check_enum_dtype(dtype)
    if labels is not None:
        return _text(f"{dtype.base} ({', '.join(map(str, labels))})", 80)
    if h5py.check_ref_dtype(dtype) is not None:
        return "reference"
    return _text(str(dtype), 120)


def _attributes(obj: h5py.Group | h5py.Dataset) -> dict[str, Any]:
    out: dict[str, Any] = {}
    try:
        names = [name for name in obj.attrs if name not in _STRUCTURAL]
    except ODD:
        return {"(attributes)": "(cannot be read)"}
    for name in names[:MOST_ATTRIBUTES]:
        try:
            out[_text(name)] = _attribute(obj, name)
        except ODD:
            out[_text(name)] = "(cannot be read)"
    if len(names) > MOST_ATTRIBUTES:
        out["..."] = f"({len(names) - MOST_ATTRIBUTES} more attributes)"
    return out


def _attribute(obj: h5py.Group | h5py.Dataset, name: str | bytes) -> Any:
    attribute = obj.attrs.get_id(name)
    if attribute.shape is None:
        return None
    size = int(attribute.get_storage_size())
    return f"({size} bytes)" if size > _BIG_ATTRIBUTE else plain_attribute(obj.attrs[name])


def plain_attribute(value: Any) -> Any:
    """Return an attribute as text, a number, a bool or a short list of them."""
    if isinstance(value, (str, bytes)):
        return _text(value)
    if isinstance(value, np.ndarray) and (value.ndim != 1 or value.dtype.names):
        return plain_attribute(value[()]) if value.ndim == 0 and not value.dtype.names else f"({value.dtype} {value.shape})"
    if isinstance(value, np.ndarray):
        shown = [plain_attribute(x) for x in value[:MOST_NUMBERS].tolist()]
        return [*shown, f"... ({len(value)} in all)"] if len(value) > MOST_NUMBERS else shown
    if isinstance(value, np.generic):
        value = value.item()
    return value if isinstance(value, (bool, int, float)) else _text(str(value))


def _text(value: str | bytes, most: int = MOST_TEXT) -> str:
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    return text if len(text) <= most else f"{text[:most]}... ({len(text)} characters)"
