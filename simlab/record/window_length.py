"""How many rows a window holds: decided once, when it is known how wide rows are."""

from __future__ import annotations

from simlab.record.pool import LARGEST_WINDOW_BYTES, fitting_rows
from simlab.staging.windows import Window
from simlab.storage.chunking import power_of_two_below


class WindowLength:
    """The length of the windows of a run.

    Attributes
    ----------
    rows : int or None
        What was decided; None while it is open.
    """

    def __init__(self) -> None:
        self.rows: int | None = None

    def decided(self, window: Window) -> int:
        """Return how many rows a window holds, deciding it by the newest one if need be."""
        if self.rows is None:
            needed = 1 << max(0, window.count - 1).bit_length()
            self.rows = max(needed, fitting_rows(window.row_bytes()))
        return self.rows

    def must_leave(self, window: Window) -> bool:
        """Whether a window has to leave before the next row. As soon as its rows tell how long windows should be, that is decided."""
        count = window.count
        if self.rows is None and count and not count & (count - 1) and count >= fitting_rows(window.row_bytes()):
            self.rows = count
        return count >= self._limit(window) or (count > 0 and self._is_large(window))

    def has_room(self, window: Window) -> bool:
        """Whether the next row goes into a window, as far as that can be said without deciding anything."""
        count = window.count
        return not (count and self._is_large(window)) and (
            count < self._limit(window) if self.rows is not None else bool(count & (count - 1))
        )

    def _limit(self, window: Window) -> int:
        return window.capacity if self.rows is None else self.rows - window.first % self.rows

    def _is_large(self, window: Window) -> bool:
        """Whether the window leaves early: more, or larger, agents came than when its length was decided."""
        row_bytes = window.row_bytes()
        if row_bytes * window.capacity <= LARGEST_WINDOW_BYTES:
            return False
        rows = power_of_two_below(LARGEST_WINDOW_BYTES / row_bytes)
        return rows < window.capacity and not (window.first + window.count) % rows
