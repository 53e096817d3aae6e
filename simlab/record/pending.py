"""Rows of the environment's arrays that are not handed over yet."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from simlab.schema import Variable
from simlab.staging.jobs import Block, Series
from simlab.storage.journal import Journal

Array = np.ndarray[Any, np.dtype[Any]]

ENOUGH_BYTES: Final = 8 << 20
"""From this size on they are handed over without waiting for a full window."""


class PendingSeries:
    """The variables of the environment that have a time axis of their own.

    Parameters
    ----------
    journal : Journal
        Where their rows are kept meanwhile.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._series: dict[str, Series] = {}
        self._bytes = 0

    @property
    def are_many(self) -> bool:
        """Whether they should be handed over."""
        return self._bytes >= ENOUGH_BYTES

    def resume(self, variable: Variable, rows: int, last_time: int) -> None:
        """Go on with a variable that has rows in the file."""
        series = self._series.setdefault(variable.name, Series(variable))
        series.start, series.last_time = rows, last_time

    def last_time(self, variable: Variable) -> int:
        """Return the run clock of the newest row of a variable, or -1."""
        series = self._series.get(variable.name)
        return -1 if series is None else series.last_time

    def log(self, variable: Variable, time: int, values: Array) -> bool:
        """Add a row, and say whether it took the place of one of the same time.

        Raises
        ------
        StorageError
            If the journal cannot keep it.
        """
        series = self._series.setdefault(variable.name, Series(variable))
        private = np.array(values, order="C")
        again = time == series.last_time
        row = series.start + len(series.time) - (1 if again else 0)
        if self._journal.is_kept:
            told = {"series": variable.name, "row": row, "time": time, "dtype": private.dtype.str, "shape": private.shape}
            self._journal.append(told, private.reshape(-1).view(np.uint8) if private.size else b"")
        if again and series.time:
            series.values[-1] = private
            return True
        if again:  # the row is on its way to the disk, or there: it is handed over once more
            series.start -= 1
            series.again = True
        series.time.append(time)
        series.values.append(private)
        series.last_time = time
        self._bytes += private.nbytes
        return again

    def take(self) -> list[Block]:
        """Return what is pending; it is handed over."""
        self._bytes = 0
        return [block for series in self._series.values() if (block := series.take()) is not None]
