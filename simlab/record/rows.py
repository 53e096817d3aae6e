"""Which row of the run a timestep is."""

from __future__ import annotations

import operator
from array import array
from bisect import bisect_right
from collections.abc import Iterable
from typing import Final

import numpy as np

from simlab.errors import TimestepError

LARGEST_STEP: Final = 2**31 - 1


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
    if timestep is True or timestep is False:
        raise TimestepError(f"timestep {timestep!r} is a truth value. Count steps 0, 1, 2, ....")
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
    last_step : int
        Its newest step, or -1.
    """

    def __init__(self) -> None:
        self.rows = 0
        self.episode = -1
        self.is_open = False
        self.first_row = 0
        self._base = 0
        self._last_time = -1
        self._forget()

    def _forget(self) -> None:
        """Forget the rows of an episode.

        They are kept as stretches of evenly spaced steps: a regular episode takes one, however long it is, and one without any
        regularity takes 6 bytes a row.
        """
        self.last_step = -1
        self._steps, self._strides, self._starts = array("i"), array("i"), array("i")
        self._count = 0

    def resume(self, rows: int, last_time: int, episode: int, base: int, steps: Iterable[int], is_open: bool) -> None:
        """Go on where another clock was.

        Parameters
        ----------
        rows, last_time : int
            Rows of the run, and the run clock of the newest one.
        episode : int
            The newest episode.
        base, steps : int and iterable of int
            The run clock of its step 0, and its steps.
        is_open : bool
            Whether it has not ended.
        """
        steps = list(steps) if is_open else []
        self.episode, self.is_open, self._base = episode, is_open, base
        self.rows = self.first_row = rows - len(steps)
        for step in steps:
            self.append(step)
        self._last_time = last_time

    def begin(self) -> None:
        """Open the next episode."""
        self.episode += 1
        self.is_open = True
        self.first_row = self.rows
        self._base = self._last_time + 1
        self._forget()

    def end(self) -> None:
        """Close the open episode."""
        self.is_open = False

    def withdraw_episode(self) -> None:
        """Take back an episode that was opened for a row that was taken back."""
        self.episode -= 1
        self.is_open = False

    def time_of(self, step: int) -> int:
        """Return the run clock of a step of the open episode; it never restarts."""
        return self._base + step

    def find(self, step: int) -> int | None:
        """Return the row of a step of the open episode, or None."""
        if step > self.last_step:
            return None
        i = bisect_right(self._steps, step) - 1
        if i < 0:
            return None
        n, rest = divmod(step - self._steps[i], self._strides[i])
        n += self._starts[i]
        end = self._starts[i + 1] if i + 1 < len(self._starts) else self.rows - self.first_row
        return self.first_row + n if rest == 0 and n < end else None

    def append(self, step: int) -> int:
        """Make the row of a step that is newer than any of the episode, and return it."""
        row = self.rows
        if self._count == 1:
            self._strides[-1] = step - self.last_step
            self._count = 2
        elif self._count and step - self.last_step == self._strides[-1]:
            self._count += 1
        else:
            self._steps.append(step)
            self._strides.append(1)
            self._starts.append(row - self.first_row)
            self._count = 1
        self.last_step = step
        self.rows = row + 1
        self._last_time = self._base + step
        return row

    def withdraw(self) -> None:
        """Take the newest row back: what was to be its first value was refused."""
        self.rows -= 1
        self._count -= 1
        if self._count == 0:
            self._steps.pop()
            self._strides.pop()
            start = self._starts.pop()
            self._count = start - self._starts[-1] if self._starts else 0
        elif self._count == 1:
            self._strides[-1] = 1
        self.last_step = self._steps[-1] + self._strides[-1] * (self._count - 1) if self._count else -1
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
