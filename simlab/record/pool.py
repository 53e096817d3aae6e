"""The few windows of a run: made, lent, given back by the writer's thread, used again."""

from __future__ import annotations

from collections import deque
from typing import Final

from simlab.errors import StorageError
from simlab.record.writer import Writer
from simlab.staging.windows import Window
from simlab.storage.chunking import power_of_two_below
from simlab.storage.journal import Journal

MOST_ROWS: Final = 256
FEWEST_ROWS: Final = 8
WINDOW_BYTES: Final = 1 << 24
"""What one window should hold; wide rows make it shorter."""
LARGEST_WINDOW_BYTES: Final = 64 << 20
"""What it may hold to have `FEWEST_ROWS`; rows that are wider still have it to themselves."""
WINDOWS: Final = 3
"""One being filled, one on its way to the disk, one that waits, or was reopened for values that came late."""


def fitting_rows(row_bytes: int) -> int:
    """Return how many rows a window should hold whose rows take so many bytes.

    Examples
    --------
    >>> fitting_rows(50_000), fitting_rows(10), fitting_rows(10_000_000)
    (256, 256, 4)
    """
    rows = power_of_two_below(WINDOW_BYTES / max(1, row_bytes))
    if rows < FEWEST_ROWS:
        rows = min(FEWEST_ROWS, power_of_two_below(LARGEST_WINDOW_BYTES / max(1, row_bytes)))
    return min(rows, MOST_ROWS)


class WindowPool:
    """Windows of one length.

    Parameters
    ----------
    journal : Journal
        Where their memory comes from.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._free: deque[Window] = deque()
        self._there = self._made = self._sequence = 0
        self._span: int | None = None

    def new(self, capacity: int, first: int = 0) -> Window:
        """Make a window at a row."""
        window = Window(capacity, self._made, self._journal)
        self._made += 1
        self._there += 1
        return self._at(window, first, late=False)

    def lend(self, span: int, first: int, late: bool, writer: Writer) -> Window:
        """Return a window of a length at a row, waiting until the writer is done with one if there are enough.

        Raises
        ------
        StorageError
            If the writer will not be done with one because the disk refuses.
        """
        self._span = span
        if not self._free and self._there >= WINDOWS:
            writer.wait_for(lambda: bool(self._free) or self._there < WINDOWS)
        if not self._free:
            return self._at(self.new(span), first, late)
        window = self._free.popleft()
        try:
            return self._at(window, first, late)
        except StorageError:
            self._free.append(window)
            raise

    def return_unused(self, window: Window) -> None:
        """Take a window back that nothing was put into."""
        window.retire()
        self._free.append(window)

    def _at(self, window: Window, first: int, late: bool) -> Window:
        self._sequence += 1
        window.reset(first, self._sequence, late)
        return window

    def give_back(self, window: Window) -> None:
        """Take a window that was written; called by the writer's thread."""
        if window.capacity == self._span:
            self._free.append(window)
        else:
            window.discard()
            self._there -= 1
