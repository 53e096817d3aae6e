"""What is given up when the disk is too slow: values of variables that the caller chose, counted; never memory, never anything else."""

from __future__ import annotations

from collections.abc import Iterable

from simlab.errors import InputError
from simlab.record.book import SchemaBook
from simlab.staging.windows import Window


class Dropping:
    """Variables whose values may be dropped while the writer is behind.

    Parameters
    ----------
    names : iterable of str
        The variables; of agents of every population, or of the environment's numbers.
    book : SchemaBook
        Which index each has.

    Raises
    ------
    InputError
        If it is no list of names.
    """

    def __init__(self, names: Iterable[str], book: SchemaBook) -> None:
        if isinstance(names, str) or not all(isinstance(name, str) for name in names):
            raise InputError(f"drop_when_slow={names!r} is no list of variables. Give their names: drop_when_slow=['vision'].")
        self._names = frozenset(names)
        self._book = book

    def lighten(self, window: Window) -> int:
        """Take the variables out of a full window that nothing of was written yet, and return how many values they were."""
        if not self._names or window.flushed:
            return 0
        dropped = 0
        for population, lanes in window.lanes.items():
            dropped += sum(lanes.clear(i) for i, v in enumerate(self._book.variables(population)) if v.name in self._names)
        return dropped + sum(window.environment.clear(i) for i, v in enumerate(self._book.numbers) if v.name in self._names)
