"""The last touch of a file whose writer died: cut at its last commit, marked as complete, looked through."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import h5py
import numpy as np

from simlab.conventions import (
    ATTR_FORMAT,
    ATTR_HISTORY,
    COMMITTED,
    COMPLETE,
    EPISODE,
    GROUP_ENVIRONMENT,
    GROUP_EPISODES,
    TIME,
    TIME_SUFFIX,
)
from simlab.errors import FormatError, SimlabError
from simlab.storage.attributes import read_attributes, write_attribute
from simlab.storage.damage import reason
from simlab.storage.diagnose import explain
from simlab.storage.finding import simulations_below
from simlab.storage.netcdf import count_groups
from simlab.storage.writable import LIBRARY_BOUNDS


class Survey(Protocol):
    """What `survey` fills."""

    rows: dict[str, int]
    unfinished: list[str]
    unreadable: dict[str, str]


_DAMAGE = (OSError, RuntimeError, KeyError, ValueError, IndexError, TypeError, AttributeError, OverflowError, MemoryError, SystemError)
"""What HDF5 and h5py raise on pages that do not fit together."""


@contextlib.contextmanager
def told_damaged(path: Path) -> Iterator[None]:
    """Turn what HDF5 raises on a damaged file inside into an error that says so.

    Raises
    ------
    FormatError
        In place of it.
    """
    try:
        yield
    except SimlabError:
        raise
    except _DAMAGE as e:
        raise FormatError(explain(path, left=True) or f"{path} is damaged: HDF5 cannot read a part of it ({reason(e)}).") from e


@contextlib.contextmanager
def open_checked(path: Path, below: Any = None) -> Iterator[h5py.File]:
    """Open a run file for reading, or another file object that stands for it.

    Raises
    ------
    FormatError
        If HDF5 cannot read it, or it is no run file.
    """
    try:
        with h5py.File(path if below is None else below, "r", libver=LIBRARY_BOUNDS) as file:
            if ATTR_FORMAT not in file.attrs:
                raise FormatError(f"{path} was not written by simlab; only run files can be repaired.")
            yield file
    except SimlabError:
        raise
    except (OSError, RuntimeError, KeyError, ValueError) as e:
        raise FormatError(explain(path, left=True) or f"{path} is damaged beyond repair: HDF5 cannot read it ({reason(e)}).") from e


def survey(file: h5py.File, told: Survey) -> None:
    """Note the simulations of a file, and what of them cannot be read."""
    if ATTR_FORMAT not in file.attrs:
        raise FormatError(f"{file.filename} was not written by simlab; only run files can be repaired.")
    for name in simulations_below(file):
        group = file[name]
        told.rows[name] = int(group[COMMITTED][()])
        if COMPLETE not in group or not group[COMPLETE][()]:
            told.unfinished.append(name)
        unreadable: dict[str, str] = {}

        for inner, dataset in _datasets_below(group, unreadable):
            try:
                if dataset.size:
                    dataset[tuple(slice(-1, None) for _ in dataset.shape)]
            except _DAMAGE as e:
                unreadable[inner] = str(e)
        told.unreadable |= {f"{name}/{inner}": why for inner, why in unreadable.items()}


def _datasets_below(group: h5py.Group, unreadable: dict[str, str], path: str = "") -> Iterator[tuple[str, h5py.Dataset]]:
    """Yield the datasets below a group with their paths; HDF5's own walk crashes where links are damaged."""
    for name in group:
        try:
            found = group[name]
        except _DAMAGE as e:
            unreadable[path + name] = str(e)
            continue
        if isinstance(found, h5py.Group):
            yield from _datasets_below(found, unreadable, f"{path}{name}/")
        elif isinstance(found, h5py.Dataset):
            yield path + name, found


def finish_simulation(group: h5py.Group) -> None:
    """Cut a simulation at its last commit, and mark it as complete."""
    cut_simulation(group, int(group[COMMITTED][()]))
    count_groups(group)
    group[COMPLETE][()] = 1


def cut_simulation(group: h5py.Group, rows: int, episodes: int | None = None) -> None:
    """Cut a simulation after so many rows, and its table of episodes after so many of them."""
    last = int(group[TIME][rows - 1]) if rows else -1
    keep = {group[TIME].name: rows}
    if episodes is not None:
        keep[f"{group.name}/{GROUP_EPISODES}/{EPISODE}"] = episodes
    datasets: list[h5py.Dataset] = []

    for name, dataset in _datasets_below(group, {}):
        datasets.append(dataset)
        if name.startswith(GROUP_ENVIRONMENT + "/") and name.endswith(TIME_SUFFIX) and dataset.is_scale:
            keep[dataset.name] = int(np.searchsorted(dataset[...], last, side="right"))  # a time axis of its own

    for dataset in datasets:
        axes = [dataset.name] if dataset.is_scale else [dataset.file[r[0]].name for r in dataset.attrs.get("DIMENSION_LIST", ()) if len(r)]
        for axis, scale in enumerate(axes):
            if dataset.shape[axis] > keep.get(scale, dataset.shape[axis]):
                dataset.resize(keep[scale], axis=axis)


def note_repair(file: h5py.File) -> None:
    """Write into the file's history that it was repaired."""
    before = str(read_attributes(file).get(ATTR_HISTORY, ""))
    if not before.endswith("; repaired"):
        write_attribute(file, ATTR_HISTORY, f"{before}; repaired".lstrip("; "))
