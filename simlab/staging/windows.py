"""The window of rows that are being filled, or are on their way to the disk.

A `Window` holds the rows ``first ... first + capacity`` of the run. It keeps room only for agents that logged in it, so memory
follows the agents that live at a time, not those that ever lived. Values are written first, the row's logged bits last: a
reader of the arrays (a journal) never takes half a row for a whole one. Cells whose bit is not set hold rubbish.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from simlab.staging.lanes import Extent, Lanes
from simlab.staging.records import Lane
from simlab.storage.journal import Journal

SEQUENCE, COUNT, FIRST, LATE = range(4)
"""Where the numbers of a window lie in the head of its file."""
HEAD_BYTES: Final = 64
CLOCK: Final = "clock"
"""What a window's own file is called, after its number; the others are its lanes."""


def window_arrays(data: Any, capacity: int) -> tuple[Any, Any, Any, Any]:
    """Return the head and the clocks of a window as arrays over its bytes."""
    head = np.frombuffer(data, np.int64, HEAD_BYTES // 8)
    time = np.frombuffer(data, np.int64, capacity, HEAD_BYTES)
    step = np.frombuffer(data, np.int32, capacity, HEAD_BYTES + 8 * capacity)
    episode = np.frombuffer(data, np.int32, capacity, HEAD_BYTES + 12 * capacity)
    return head, time, step, episode


class Window:
    """The rows ``first ... first + capacity`` of a run.

    Attributes
    ----------
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
    flushed : bool
        Whether some of these rows may be on disk already.
    bits_before : dict
        Of late values: the logged bits that the file held before their first try, by variable and chunk.

    Parameters
    ----------
    capacity : int
        The most rows it may have.
    number : int
        Its place in the journal.
    journal : Journal
        Where its memory comes from.
    """

    def __init__(self, capacity: int, number: int, journal: Journal) -> None:
        self.capacity = capacity
        self.number = number
        self._journal = journal
        self._extent = Extent()
        self.first = 0
        self.late = self.flushed = False
        self.bits_before: dict[tuple[str, tuple[int, ...]], Any] = {}
        name = f"{number}-{CLOCK}"
        memory = journal.allocate(name, {"window": number, "capacity": capacity}, HEAD_BYTES + 16 * capacity)
        _, self.time, self.step, self.episode = window_arrays(memory, capacity)
        self._head = memory[:HEAD_BYTES].cast("q")
        journal.publish(name)
        self.lanes: dict[str, Lanes] = {}
        self.environment = Lanes(capacity, self._extent, journal, f"{number}-environment", {"window": number, "population": None})
        self.by_id: dict[Any, Lane] = {}
        self.environment_lane: Lane | None = None
        self.block: Any = None

    @classmethod
    def found(cls, head: Mapping[str, Any], data: Any, lanes: Mapping[str | None, Lanes]) -> Window:
        """Return what a journal's files hold, to be read.

        Parameters
        ----------
        head, data : mapping and ndarray of uint8
            Of the window's own file.
        lanes : mapping
            By population; None is the environment.
        """
        window = cls.__new__(cls)
        window.capacity, window.number = head["capacity"], head["window"]
        numbers, window.time, window.step, window.episode = window_arrays(data, window.capacity)
        window.first, window.late, window.flushed = int(numbers[FIRST]), bool(numbers[LATE]), True
        window.bits_before = {}
        window._extent = Extent()
        window._extent.count = int(numbers[COUNT])
        window._head = memoryview(bytearray(HEAD_BYTES)).cast("q")  # its own: nothing is written into the journal
        window.lanes = {name: each for name, each in lanes.items() if name is not None}
        none = {"capacity": 1, "rows": window.capacity, "held": 1, "words": 1, "size": 0, "cells": []}
        window.environment = lanes[None] if None in lanes else Lanes.found(none, np.zeros(128 + 8 * window.capacity, np.uint8))
        return window

    def cut(self, count: int) -> None:
        """Leave the first rows only."""
        self._extent.count = count

    def reset(self, first: int, sequence: int, late: bool = False) -> None:
        """Start over at another row; windows are in the order of their sequence, from 1."""
        self.retire()
        self.first, self.late, self.flushed = first, late, late
        self.bits_before.clear()
        self._extent.count = 0
        for lanes in self._all_lanes():
            lanes.reset()
        self.forget_lanes()
        head = self._head
        head[COUNT], head[FIRST], head[LATE] = 0, first, late
        head[SEQUENCE] = sequence

    def start_at(self, first: int) -> None:
        """Have an empty window begin at another row."""
        self.first = first
        self._head[FIRST] = first

    def retire(self) -> None:
        """Note that its rows are in the file."""
        self._head[SEQUENCE] = 0

    def discard(self) -> None:
        """Give its files up."""
        self._journal.discard(f"{self.number}-")

    def forget_lanes(self) -> None:
        """Throw away what points into arrays that moved, or lacks a variable that is new."""
        self.by_id.clear()
        self.environment_lane = self.block = None

    def population(self, name: str) -> Lanes:
        """Return the lanes of a population."""
        lanes = self.lanes.get(name)
        if lanes is None:
            head = {"window": self.number, "population": name}
            lanes = self.lanes[name] = Lanes(self.capacity, self._extent, self._journal, f"{self.number}-{len(self.lanes)}", head)
            lanes.hold_rows()
        return lanes

    def add_row(self, time: int, step: int, episode: int) -> int:
        """Make the next row and return its offset."""
        extent = self._extent
        offset = extent.count
        if offset >= extent.held:
            self._make_room(offset + 1)
        self.time[offset], self.step[offset], self.episode[offset] = time, step, episode
        extent.count = self._head[COUNT] = offset + 1
        return offset

    @property
    def count(self) -> int:
        """Rows that are there."""
        return self._extent.count

    def set_count(self, count: int) -> None:
        """Say how many rows there are, and make room for them."""
        self._make_room(count)
        self._extent.count = self._head[COUNT] = count

    def _make_room(self, count: int) -> None:
        extent, had = self._extent, self._extent.count
        if count <= extent.held:
            return
        extent.count = count
        try:
            for lanes in self._all_lanes():
                lanes.hold_rows()
        except BaseException:
            extent.count = had
            raise
        finally:
            extent.held = min(lanes.held for lanes in self._all_lanes())
            self.forget_lanes()

    def _all_lanes(self) -> tuple[Lanes, ...]:
        return (*self.lanes.values(), self.environment)

    def row_bytes(self) -> int:
        """Bytes that one row of the agents seen so far takes."""
        size = len(self.environment.agents) * self.environment.row_bytes
        for lanes in self.lanes.values():  # asked for with every row
            size += len(lanes.agents) * lanes.row_bytes
        return size
