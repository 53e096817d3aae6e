"""The window of rows that are being filled, or are on their way to the disk.

A `Window` holds the rows ``first ... first + capacity`` of the run. It keeps room only for agents that logged in it, so memory
follows the agents that live at a time, not those that ever lived. Values are written first, the row's logged bits last: a
reader of the arrays (a journal) never takes half a row for a whole one. Cells whose bit is not set hold rubbish.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from simlab.record.lanes import Lanes
from simlab.record.records import Lane

_HELD_AT_ONCE: Final = 64 << 20
"""Up to here a window gets all of its memory once the first row told how wide rows are."""


class Window:
    """The rows ``first ... first + capacity`` of a run.

    Attributes
    ----------
    count : int
        Rows that are there.
    time, step, episode : ndarray of shape (capacity,)
        The clocks of each row.
    lanes : dict of str to Lanes
        By population.
    environment : Lanes
        One lane: the environment's numbers.
    by_id : dict
        Lanes of agents by their id, made when they are first needed and thrown away when arrays move.
    block : object
        Where the last group of agents that logged together goes; thrown away likewise.
    late : bool
        Whether the rows are on disk already, so that these values are to be merged with those there.
    bits_before : dict
        Of late values: the logged bits that the file held before their first try, by variable and chunk.
    flushed : bool
        Whether some of these rows may be on disk already.

    Parameters
    ----------
    capacity : int
        The most rows it may have.
    held : int
        Rows there is memory for. The first window of a run does not know yet how wide its rows are; its memory grows as they come.
    """

    def __init__(self, capacity: int, held: int) -> None:
        self.capacity = capacity
        self._held = held
        self.first = self.count = 0
        self.late = self.flushed = False
        self.bits_before: dict[tuple[str, tuple[int, ...]], Any] = {}
        self.time = np.zeros(capacity, np.int64)
        self.step = np.zeros(capacity, np.int32)
        self.episode = np.zeros(capacity, np.int32)
        self.lanes: dict[str, Lanes] = {}
        self.environment = Lanes(capacity, held)
        self.by_id: dict[Any, Lane] = {}
        self.environment_lane: Lane | None = None
        self.block: Any = None

    def reset(self, first: int, late: bool = False) -> None:
        """Start over at another row."""
        self.first, self.count, self.late, self.flushed = first, 0, late, late
        self.bits_before.clear()
        for lanes in (*self.lanes.values(), self.environment):
            lanes.reset()
        self.forget_lanes()

    def forget_lanes(self) -> None:
        """Throw away what points into arrays that moved, or lacks a variable that is new."""
        self.by_id.clear()
        self.environment_lane = self.block = None

    def population(self, name: str) -> Lanes:
        """Return the lanes of a population."""
        lanes = self.lanes.get(name)
        if lanes is None:
            lanes = self.lanes[name] = Lanes(self.capacity, self._held)
        return lanes

    def add_row(self, time: int, step: int, episode: int) -> int:
        """Make the next row and return its offset."""
        offset = self.count
        if offset >= self._held:
            fits = self.row_bytes() * self.capacity <= _HELD_AT_ONCE
            self._held = self.capacity if fits else min(self.capacity, 2 * self._held)
            for lanes in (*self.lanes.values(), self.environment):
                lanes.hold_rows(self._held)
            self.forget_lanes()
        self.time[offset], self.step[offset], self.episode[offset] = time, step, episode
        self.count = offset + 1
        return offset

    def row_bytes(self) -> int:
        """Bytes that one row of the agents seen so far takes."""
        return sum(len(lanes.agents) * lanes.row_bytes for lanes in (*self.lanes.values(), self.environment))
