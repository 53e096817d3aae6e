"""The groups of a run file as they lie there, with every variable described; for those who want the tree."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import h5py
import numpy as np

from simlab.conventions import ATTR_ORIGINAL_NAME, COMMITTED, TIME
from simlab.errors import FormatError, NotInRunError, RunError, SimlabError, StorageError
from simlab.storage.attachments import ATTR_TYPE, read_attachment
from simlab.storage.attributes import read_attributes
from simlab.storage.clocks import count_rows, read_clock
from simlab.storage.damage import ODD, reason
from simlab.storage.describing import describe, is_plain_dimension, is_scale, note_scales
from simlab.storage.entries import Entries, address, entries
from simlab.storage.netcdf import is_group_count
from simlab.storage.opening import RunSource
from simlab.storage.reading import StoredVariable

_DEEPEST: Final = 64
_LONGEST_TEXT: Final = 1 << 31


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """One group.

    Attributes
    ----------
    path : str
        Where it lies; "/" is the root.
    attrs : dict
        Its attributes.
    variables : dict of str to StoredVariable
        What lies in it, cut to the rows that are complete; dimensions without values are left out.
    gaps : list of str
        What of it cannot be shown, and why.
    """

    path: str
    attrs: dict[str, Any]
    variables: dict[str, StoredVariable]
    gaps: list[str] = field(default_factory=list)


def read_groups(source: RunSource) -> Iterator[StoredGroup]:
    """Yield every group of a file, parents first.

    Raises
    ------
    FormatError
        If the file is too damaged to be looked through.
    """
    try:
        yield from _groups(source, source.file(), "/", None, 0, set())
    except ODD as error:
        if isinstance(error, SimlabError):
            raise
        raise FormatError(f"{source.path!r} is damaged: {reason(error)}. Restore it from a copy.") from error


def _groups(source: RunSource, group: h5py.Group, path: str, rows: int | None, depth: int, seen: set[int]) -> Iterator[StoredGroup]:
    found = entries(group)
    gaps = list(found.gaps)
    note_scales(source, found.datasets)
    if COMMITTED in found.datasets:
        clock = read_clock(source, found, TIME, gaps)
        if clock is not None:
            rows = count_rows(found, {TIME: clock}, False, gaps)
    variables = {}
    for name, dataset in found.datasets.items():
        if is_plain_dimension(dataset):
            continue
        try:
            stored = describe(source, dataset)
        except FormatError as error:
            gaps.append(str(error))
            continue
        gaps += stored.gaps
        variables[name] = stored if rows is None else stored.limited(TIME, rows)
    yield StoredGroup(path, read_attributes(group, gaps), variables, gaps)
    if depth >= _DEEPEST:
        return
    for name, inner in found.groups.items():
        place = address(inner)
        if place not in seen:
            seen.add(place)
            yield from _groups(source, inner, f"{path.rstrip('/')}/{name}", rows, depth + 1, seen)


def read_scalars(source: RunSource, path: str, gaps: list[str]) -> dict[str, Any]:
    """Return the single numbers in a group, by name; empty where there is no such group.

    Parameters
    ----------
    source : RunSource
        The file.
    path : str
        Where the group lies.
    gaps : list of str
        Takes one sentence for each that cannot be read.
    """
    out = {}
    found = _below(source, path)
    gaps += found.gaps
    for name, dataset in found.datasets.items():
        try:
            if dataset.shape == () and dataset.dtype.kind in "biuf":
                out[name] = dataset[()].item()
        except ODD as error:
            gaps.append(f"{path}/{name} cannot be read: {reason(error)}")
    return out


def attachment_names(source: RunSource, path: str, gaps: list[str]) -> dict[str, str]:
    """Return the names of what was attached, and for each the name under which it lies in the group; `gaps` takes what cannot be opened."""
    found = _below(source, path)
    gaps += found.gaps
    return {given: name for given, (name, _) in _attached(found).items()}


def _below(source: RunSource, path: str) -> Entries:
    """Return what lies in the group at a path; nothing where there is none, and a gap where it cannot be opened."""
    found = entries(source.file())
    walked = ""
    for part in path.strip("/").split("/"):
        walked += f"/{part}"
        if part not in found.groups:
            return Entries(gaps=[gap for gap in found.gaps if gap.startswith(f"{walked} ")])
        found = entries(found.groups[part])
    return found


def _attached(found: Entries) -> dict[str, tuple[str, h5py.Group | h5py.Dataset]]:
    """Return the objects of an attachment's group, by the name that each was given."""
    values = {name: d for name, d in found.datasets.items() if not is_scale(d) and not is_group_count(d)}
    out: dict[str, tuple[str, h5py.Group | h5py.Dataset]] = {}
    for name, obj in (found.groups | values).items():
        given = read_attributes(obj).get(ATTR_ORIGINAL_NAME)
        out[given if isinstance(given, str) and given else name] = (name, obj)
    return out


def read_attached(source: RunSource, path: str, gaps: list[str]) -> Any:
    """Return what was attached under a path of the file.

    Parameters
    ----------
    source : RunSource
        The file.
    path : str
        Where it lies.
    gaps : list of str
        Takes one sentence for each entry of a dictionary that cannot be read; the others are returned.

    Raises
    ------
    NotInRunError
        If nothing lies there.
    FormatError, StorageError
        If it is no dictionary, and cannot be read.
    """
    group, _, name = path.rpartition("/")
    below = _below(source, group)
    found = below.groups.get(name) or below.datasets.get(name)
    if found is None:
        raise NotInRunError(f"{source.path!r} holds nothing under {path!r}.")
    return _value_of(source, found, gaps, 0, set())


def _value_of(source: RunSource, obj: h5py.Group | h5py.Dataset, gaps: list[str], depth: int, seen: set[int]) -> Any:
    if isinstance(obj, h5py.Dataset):
        return _leaf(source, obj, gaps)
    found = entries(obj)
    gaps += found.gaps
    out = {}
    for given, (name, inner) in _attached(found).items():
        place = address(inner)
        if depth >= _DEEPEST or place in seen:
            gaps.append(f"{obj.name}/{name} refers back to itself, or is nested too deeply: it is left out")
            continue
        try:
            out[given] = _value_of(source, inner, gaps, depth + 1, seen | {place})
        except (FormatError, StorageError) as error:
            gaps.append(str(error))
    return out


def _leaf(source: RunSource, dataset: h5py.Dataset, gaps: list[str]) -> Any:
    """Return an array, a text or a value."""
    path = str(dataset.name)
    try:
        stored = describe(source, dataset)
        if ATTR_TYPE in stored.attrs or stored.type.logged.kind == "S":
            size, empty = math.prod(dataset.shape), stored.attrs.get("shape")
            if size > _LONGEST_TEXT or (empty is not None and np.prod(empty) != 0):
                raise FormatError(
                    f"{path!r} in {source.path!r} is damaged: it says that it is {size:,} characters, or empty of shape {empty}."
                )
            return read_attachment(dataset)
        gaps += stored.gaps
        values = stored.read()
    except ODD as error:
        if isinstance(error, RunError):
            raise
        raise FormatError(f"{path!r} in {source.path!r} could not be read: {reason(error)}") from error
    if values.ndim:
        return values
    return values[()] if stored.dtype.kind in "Mm" else values.item()
