"""The clocks of a simulation, and how many of its rows count."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from simlab.conventions import COMMITTED, COMPLETE, EPISODE, STEP, TIME
from simlab.errors import FormatError, StorageError
from simlab.storage.damage import ODD, reason
from simlab.storage.describing import describe
from simlab.storage.entries import Entries
from simlab.storage.opening import RunSource
from simlab.storage.reading import StoredVariable


def read_clock(source: RunSource, found: Entries, name: str, gaps: list[str]) -> StoredVariable | None:
    """Return one of the three clocks if it is one number for each row."""
    dataset = found.datasets.get(name)
    if dataset is None:
        gaps.append(f"there is no {name!r}" + (", but a group of that name" if name in found.groups else ""))
        return None
    try:
        stored = describe(source, dataset, ((TIME, *dataset.shape),) if dataset.shape and len(dataset.shape) == 1 else ())
    except FormatError as error:
        gaps.append(str(error))
        return None
    gaps += stored.gaps
    if len(stored.shape) != 1 or stored.dtype.kind not in "iuf":
        gaps.append(f"{stored.path!r} holds {stored.dtype} of shape {stored.shape}, not one number for each row: it is left out")
        return None
    return replace(stored, dims=(TIME,))


def count_rows(found: Entries, clocks: dict[str, StoredVariable], complete: bool, gaps: list[str]) -> int:
    """Return how many rows count: those that were committed, as far as there are clocks for them."""
    held = clocks[TIME].shape[0] if TIME in clocks else max(stored.shape[0] for stored in clocks.values())
    told = _scalar(found, COMMITTED)
    if not isinstance(told, (int, np.integer)) or told < 0:
        gaps.append(f"{COMMITTED!r} is {told!r}, no number of rows: all {held:,} rows are shown, and the last ones may be incomplete")
        return held
    rows = min(int(told), held)
    if told != held and complete:  # while a run is being recorded, either may be ahead
        gaps.append(f"{COMMITTED!r} is {int(told):,}, but the clock holds {held:,} rows: the first {rows:,} are shown")
    return rows


def sound_rows(clocks: dict[str, StoredVariable], rows: int, gaps: list[str]) -> int:
    """Return how many of the rows of a run that was not finalized have a clock that can be right.

    A machine that loses power may have kept a later page and lost an earlier one, which then reads as zeros. The run clock rises, goes
    with the steps of an episode, and on from where the one before ended.
    """
    if {TIME, STEP, EPISODE} - set(clocks) or any(stored.dtype.kind not in "iu" for stored in clocks.values()) or not rows:
        return rows
    try:
        time, step, episode = (clocks[name].read(slice(0, rows)).astype(np.int64) for name in (TIME, STEP, EPISODE))
    except StorageError:
        return rows  # whoever reads them says so
    same = episode[1:] == episode[:-1]
    wrong = np.append(step[:1] < 0, step[1:] < 0)
    wrong[1:] |= np.where(same, time[1:] - step[1:] != time[:-1] - step[:-1], time[1:] - step[1:] <= time[:-1])
    wrong[1:] |= (time[1:] <= time[:-1]) | (episode[1:] < episode[:-1])
    if not wrong.any():
        return rows
    sound = int(np.argmax(wrong))
    gaps.append(f"the clock is damaged: rows from {sound:,} on are lost ({rows - sound:,})")
    return sound


def is_complete(found: Entries, gaps: list[str]) -> bool:
    """Return whether the run was finalized."""
    told = _scalar(found, COMPLETE)
    if isinstance(told, (int, np.integer)) and told in (0, 1):
        return bool(told)
    if COMPLETE in found.datasets or COMPLETE in found.groups:
        gaps.append(f"{COMPLETE!r} is {told!r}, neither 0 nor 1: the run counts as not finalized")
    return False


def _scalar(found: Entries, name: str) -> object:
    """Return a single number, or a word for what is there instead."""
    dataset = found.datasets.get(name)
    if dataset is None:
        return _Word("a group" if name in found.groups else "not there")
    try:
        if dataset.shape != ():
            return _Word("without data" if dataset.shape is None else f"an array of shape {dataset.shape}")
        value = dataset[()]
    except ODD as error:
        return _Word(f"unreadable ({reason(error)})")
    return value.item() if isinstance(value, np.generic) and value.dtype.kind in "biuf" else value


class _Word(str):
    """A word for what is there in place of a number; it is shown without quotes."""

    __repr__ = str.__str__
