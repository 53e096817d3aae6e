"""Which row of the run a timestep is."""

from __future__ import annotations

import operator
from bisect import bisect_right
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from simlab.errors import TimestepError

Array = np.ndarray[Any, np.dtype[Any]]

LARGEST_STEP: Final = 2**31 - 1


@dataclass(slots=True)
class _Stretch:
    """Consecutive rows whose steps are evenly spaced: a regular episode takes one, however long it is."""

    row: int
    step: int
    stride: int
    count: int

    @property
    def last(self) -> int:
        return self.step + self.stride * (self.count - 1)


def whole_step(timestep: object) -> int:
    """Return a timestep as an int.

    Raises
    ------
    TimestepError
        If it is no whole number from 0 to 2**31 - 1.

    Examples
    --------
    >>> import numpy as np
    >>> whole_step(np.int64(3))
    3
    """
    try:
        step = operator.index(timestep)  # type: ignore[arg-type]
    except TypeError:
        whole = isinstance(timestep, (float, np.floating)) and float(timestep).is_integer()
        if not whole:
            raise TimestepError(
                f"timestep {timestep!r} is no whole number. Count steps 0, 1, 2, ...; HDF5Logger(step_duration=dt) says how long one lasts."
            ) from None
        step = int(timestep)  # type: ignore[call-overload]
    if not 0 <= step <= LARGEST_STEP:
        raise TimestepError(f"timestep {step} is outside 0 ... {LARGEST_STEP}. Count the steps of each episode from 0 (begin_episode).")
    return step


class RowClock:
    """The rows of a run: one for each step of each episode at which anything was logged.

    Attributes
    ----------
    rows : int
        Rows so far.
    episode : int
        Number of the open episode, or of the last one.
    is_open : bool
        Whether an episode is open.
    first_row : int
        First row of that episode.
    """

    def __init__(self) -> None:
        self.rows = 0
        self.episode = -1
        self.is_open = False
        self.first_row = 0
        self._base = 0
        self._last_time = -1
        self._stretches: list[_Stretch] = []

    def begin(self) -> None:
        """Open the next episode."""
        self.episode += 1
        self.is_open = True
        self.first_row = self.rows
        self._base = self._last_time + 1
        self._stretches = []

    def end(self) -> None:
        """Close the open episode."""
        self.is_open = False

    @property
    def last_step(self) -> int:
        """The newest step of the open episode, or -1."""
        return self._stretches[-1].last if self._stretches else -1

    def time_of(self, step: int) -> int:
        """Return the run clock of a step of the open episode; it never restarts."""
        return self._base + step

    def find(self, step: int) -> int | None:
        """Return the row of a step of the open episode, or None."""
        i = bisect_right(self._stretches, step, key=lambda s: s.step) - 1
        if i < 0:
            return None
        stretch = self._stretches[i]
        n, rest = divmod(step - stretch.step, stretch.stride)
        return stretch.row + n if rest == 0 and n < stretch.count else None

    def append(self, step: int) -> int:
        """Make the row of a step that is newer than any of the episode, and return it."""
        row = self.rows
        tail = self._stretches[-1] if self._stretches else None
        if tail is not None and tail.count == 1:
            tail.stride, tail.count = step - tail.step, 2
        elif tail is not None and step == tail.last + tail.stride:
            tail.count += 1
        else:
            self._stretches.append(_Stretch(row, step, 1, 1))
        self.rows += 1
        self._last_time = self.time_of(step)
        return row

    def withdraw(self) -> None:
        """Take the newest row back: what was to be its first value was refused."""
        tail = self._stretches[-1]
        tail.count -= 1
        if tail.count == 0:
            self._stretches.pop()
        elif tail.count == 1:
            tail.stride = 1
        self.rows -= 1
        # Without a step the clock falls back to where the episode began.
        self._last_time = self.time_of(self.last_step)

    def must_find(self, step: int) -> int:
        """Return the row of a step that is not newer than all; see `find`.

        Raises
        ------
        TimestepError
            If there is no such row: it would fall between rows that are there.
        """
        row = self.find(step)
        if row is None:
            raise TimestepError(
                f"timestep {step} of episode {self.episode} would fall between rows that are there (the newest is step {self.last_step}). "
                "Log steps in order; if a new episode starts, call begin_episode() first."
            )
        return row
