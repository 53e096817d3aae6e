"""What is given up when the disk is too slow: values of variables that the caller chose, counted; never memory, never anything else."""

from __future__ import annotations

import warnings
from collections.abc import Iterable

from simlab.errors import InputError, did_you_mean, users_frame
from simlab.record.book import SchemaBook
from simlab.staging.windows import Window


def checked_names(names: object) -> frozenset[str]:
    """Return the names of variables that a caller gave.

    Raises
    ------
    InputError
        If it is no list of names.
    """
    given = list(names) if isinstance(names, Iterable) and not isinstance(names, (str, bytes)) else [None]
    if not all(isinstance(name, str) for name in given):
        raise InputError(f"drop_when_slow={names!r} is no list of variables. Give their names: drop_when_slow=['vision'].")
    return frozenset(map(str, given))


class Dropping:
    """Variables whose values may be dropped while the writer is behind.

    Parameters
    ----------
    names : frozenset of str
        The variables; of agents of every population, or of the environment's numbers.
    book : SchemaBook
        Which index each has.
    """

    def __init__(self, names: frozenset[str], book: SchemaBook) -> None:
        self._names, self._book = names, book

    def warn_of_unknown(self) -> None:
        """Warn of names that no variable of the run has."""
        known = {v.name for name in self._book.schema.population_names for v in self._book.variables(name)}
        known |= {v.name for v in self._book.numbers}
        unknown = sorted(self._names - known)
        if unknown:
            names, word = ", ".join(map(repr, unknown)), did_you_mean(unknown[0], sorted(known))
            warnings.warn(f"drop_when_slow names {names}, which was never logged.{word}", UserWarning, stacklevel=users_frame())

    def lighten(self, window: Window) -> int:
        """Take the variables out of a full window that nothing of was written yet, and return how many values they were."""
        if not self._names or window.flushed:
            return 0
        dropped = 0
        for population, lanes in window.lanes.items():
            dropped += sum(lanes.clear(i) for i, v in enumerate(self._book.variables(population)) if v.name in self._names)
        return dropped + sum(window.environment.clear(i) for i, v in enumerate(self._book.numbers) if v.name in self._names)
