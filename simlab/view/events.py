"""Moments worth a jump: ends, births, deaths, numbers that are none, rewards out of the ordinary, and whatever the reader asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from simlab.conventions import ATTR_MODALITY, REWARDS, TIME
from simlab.errors import InputError
from simlab.view.blocks import Presence
from simlab.view.frames import Episode

if TYPE_CHECKING:
    import xarray as xr

MOST_EVENTS: Final = 2_000
"""Of one kind; of more, every so many is kept, and the note says so."""
_BLOCK: Final = 1 << 16
_MOST_NUMBERS: Final = 1 << 26
"""A variable of more numbers is not searched for NaN."""
_SPIKE: Final = 6.0
"""A reward so many times the usual deviation away from the median is a spike."""


@dataclass(frozen=True, slots=True)
class Event:
    """A moment in an episode.

    Attributes
    ----------
    kind : str
        "end", "birth", "death", "NaN", "reward", or the name of a condition.
    row : int
        Row of the episode.
    text : str
        What happened.
    """

    kind: str
    row: int
    text: str


def find_events(
    episode: Episode, presence: Presence, conditions: Mapping[str, xr.DataArray] | None = None
) -> tuple[list[Event], list[str]]:
    """Return the events of an episode, in order, and notes on what was not searched.

    Parameters
    ----------
    episode : Episode
        The episode.
    presence : Presence
        Where its variables were logged.
    conditions : mapping of str to DataArray of bool, optional
        Events of the reader's own: they happen where a value along ``time`` is true.

    Raises
    ------
    InputError
        If a condition does not run along ``time``.
    """
    events: list[Event] = []
    notes: list[str] = []
    total = len(episode.time)
    if not total:
        return [], []
    for dim in episode.populations:
        found = _lives(episode, presence, dim)
        events += _thinned("birth", found[0], notes) + _thinned("death", found[1], notes)
    for name in episode.variables:
        if episode.data[name].dtype.kind == "f":
            events += _not_numbers(episode, presence, name, notes)
        if episode.data[name].attrs.get(ATTR_MODALITY) == REWARDS and episode.own_shape(name) in ((), (1,)):
            events += _spikes(episode, presence, name, notes)
    for name, condition in (conditions or {}).items():
        events += _thinned(name, [Event(name, row, name) for row in _condition_rows(episode, name, condition)], notes)
    events.append(Event("end", total - 1, "end of the episode"))
    return sorted(events, key=lambda event: event.row), notes


def _thinned(kind: str, events: list[Event], notes: list[str]) -> list[Event]:
    every = -(-len(events) // MOST_EVENTS)
    if every > 1:
        notes.append(f"{len(events):,} events of kind {kind}; one of {every} is marked")
    return events[:: max(1, every)]


def _lives(episode: Episode, presence: Presence, dim: str) -> tuple[list[Event], list[Event]]:
    """Return births and deaths: the first and the last row in which an agent logged anything, unless the episode begins or ends there."""
    names = [name for name in episode.variables if episode.agent_dim(name) == dim and episode.on_main_clock(name)]
    labels, total = episode.agents(dim), len(episode.time)
    first, last = np.full(len(labels), total), np.full(len(labels), -1)
    for start in range(0, total, _BLOCK):
        stop = min(total, start + _BLOCK)
        alive: NDArray[np.bool_] = np.zeros((len(labels), stop - start), bool)
        for name in names:
            alive |= presence(name, slice(None), start, stop)
        lived = alive.any(axis=1)
        first = np.where(lived & (first == total), start + alive.argmax(axis=1), first)
        last = np.where(lived, stop - 1 - alive[:, ::-1].argmax(axis=1), last)
    born = sorted((int(row), i) for i, row in enumerate(first) if 0 < row < total)
    died = sorted((int(row), i) for i, row in enumerate(last) if 0 <= row < total - 1)
    return [Event("birth", row, f"{labels[i]} appears") for row, i in born], [
        Event("death", row, f"{labels[i]} is gone") for row, i in died
    ]


def _not_numbers(episode: Episode, presence: Presence, name: str, notes: list[str]) -> list[Event]:
    variable, dim, clock = episode.data[name], episode.agent_dim(name), episode.clock_of(name)
    if variable.size > _MOST_NUMBERS:
        notes.append(f"{name} has {variable.size:,} numbers and was not searched for NaN")
        return []
    rows = np.searchsorted(episode.time, episode.rows(name))
    bad: NDArray[np.bool_] = np.zeros(len(rows), bool)
    for start in range(0, len(rows), _BLOCK):
        values = np.asarray(variable.isel({clock: slice(start, start + _BLOCK)}).values)
        values = values if dim is not None else values[np.newaxis]
        there = presence(name, None if dim is None else slice(None), start, start + values.shape[1]).reshape(values.shape[:2])
        wrong = ~np.isfinite(values).reshape(*values.shape[:2], -1).all(axis=2)
        bad[start : start + values.shape[1]] = (wrong & there).any(axis=0)
    starts = np.flatnonzero(bad & ~np.concatenate([[False], bad[:-1]]))
    return _thinned("NaN", [Event("NaN", int(rows[i]), f"{name} is not finite") for i in starts], notes)


def _spikes(episode: Episode, presence: Presence, name: str, notes: list[str]) -> list[Event]:
    variable, dim = episode.data[name], episode.agent_dim(name)
    if variable.size > _MOST_NUMBERS or dim is None or variable.dtype.kind not in "iuf":
        return []
    values = np.asarray(variable.values, np.float64).reshape(variable.shape[:2])
    there = presence(name, slice(None), 0, values.shape[1]) & np.isfinite(values)
    known = values[there]
    if known.size < 8:
        return []
    middle = np.median(known)
    usual = 1.4826 * float(np.median(np.abs(known - middle))) or float(known.std())
    if not usual:
        return []
    far = np.where(there, np.abs(values - middle), 0.0) / usual
    rows = np.flatnonzero(far.max(axis=0) > _SPIKE)
    if len(rows) > max(8, 0.05 * values.shape[1]):  # what happens all the time is not out of the ordinary
        rows = rows[np.argsort(-far.max(axis=0)[rows], kind="stable")[: max(8, values.shape[1] // 20)]]
        rows.sort()
    labels = episode.agents(dim)
    who = far[:, rows].argmax(axis=0)
    found = [Event("reward", int(row), f"{name} of {labels[i]}: {values[i, row]:.4g}") for row, i in zip(rows, who, strict=True)]
    return _thinned("reward", found, notes)


def check_condition(name: str, condition: Any) -> None:
    """Make sure that a condition is one.

    Raises
    ------
    InputError
        If it is no DataArray of truth values along ``time``.
    """
    if TIME not in getattr(condition, "dims", ()) or getattr(condition, "dtype", None) != np.bool_:
        raise InputError(
            f"events[{name!r}] is {type(condition).__name__} {getattr(condition, 'dims', '')}; give truth values along `time`, "
            'such as {"collision": ds.rewards < -1}.'
        )


def _condition_rows(episode: Episode, name: str, condition: xr.DataArray) -> NDArray[np.int64]:
    """Return the rows at which a condition becomes true."""
    check_condition(name, condition)
    others = [d for d in condition.dims if d != TIME]
    times = np.asarray(condition[TIME].values) if TIME in condition.coords else np.arange(condition.sizes[TIME])
    low, high = np.searchsorted(times, [episode.time[0], episode.time[-1] + 1])
    values = np.asarray(condition.isel({TIME: slice(int(low), int(high))}).any(others).values, bool)
    starts = np.flatnonzero(values & ~np.concatenate([[False], values[:-1]]))
    return np.searchsorted(episode.time, times[low:high][starts])
