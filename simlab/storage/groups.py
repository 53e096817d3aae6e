"""The groups of a run file as they lie there, with every variable described; for those who want the tree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import h5py

from simlab.conventions import COMMITTED, TIME
from simlab.errors import NotInRunError
from simlab.storage.attachments import read_attachment
from simlab.storage.attributes import read_attributes
from simlab.storage.finding import data_below, groups_below
from simlab.storage.netcdf import is_group_count
from simlab.storage.opening import RunSource
from simlab.storage.reading import StoredVariable, describe, is_plain_dimension, note_scales

_DEEPEST: Final = 64


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
    """

    path: str
    attrs: dict[str, Any]
    variables: dict[str, StoredVariable]


def read_groups(source: RunSource) -> Iterator[StoredGroup]:
    """Yield every group of a file, parents first."""
    yield from _groups(source, source.file(), "/", None, 0)


def _groups(source: RunSource, group: h5py.Group, path: str, rows: int | None, depth: int) -> Iterator[StoredGroup]:
    datasets = {d.name.rsplit("/", 1)[-1]: d for d in data_below(group)}
    note_scales(source, datasets.values())
    if COMMITTED in datasets and datasets[COMMITTED].shape == ():
        rows = int(datasets[COMMITTED][()])
    variables = {}
    for name, dataset in datasets.items():
        if not is_plain_dimension(dataset):
            stored = describe(source, dataset)
            variables[name] = stored if rows is None else stored.limited(TIME, rows)
    yield StoredGroup(path, read_attributes(group), variables)
    if depth < _DEEPEST:
        for name in groups_below(group):
            yield from _groups(source, group[name], f"{path.rstrip('/')}/{name}", rows, depth + 1)


def read_scalars(source: RunSource, path: str) -> dict[str, Any]:
    """Return the single numbers in a group, by name; empty where there is no such group."""
    group = source.file().get(path)
    if not isinstance(group, h5py.Group):
        return {}
    return {d.name.rsplit("/", 1)[-1]: d[()].item() for d in data_below(group) if d.shape == ()}


def attachment_names(source: RunSource, path: str) -> dict[str, str]:
    """Return the names of what was attached, and for each the name under which it lies in the group."""
    group = source.file().get(path)
    if not isinstance(group, h5py.Group):
        return {}
    names = [*groups_below(group), *(d.name.rsplit("/", 1)[-1] for d in data_below(group) if not d.is_scale and not is_group_count(d))]
    return {str(read_attributes(group[n]).get("original_name", n)): n for n in group if n in names}


def read_attached(source: RunSource, path: str) -> Any:
    """Return what was attached under a path of the file.

    Raises
    ------
    NotInRunError
        If nothing lies there.
    """
    found = source.file().get(path)
    if found is None:
        raise NotInRunError(f"{source.path!r} holds nothing under {path!r}.")
    return read_attachment(found)
