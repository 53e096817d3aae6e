"""Rows that are not on disk yet: one array for each variable, one lane for each agent that logged.

A `Window` holds the rows ``first ... first + capacity`` of the run. It keeps room only for agents that logged in it, so memory
follows the agents that live at a time, not those that ever lived. Values are written first, the row's logged bits last: a
reader of the arrays (a journal) never takes half a row for a whole one. Cells whose bit is not set hold rubbish.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from simlab.schema import Variable
from simlab.storage.dtypes import TEXT_BLOCK

Array = np.ndarray[Any, np.dtype[Any]]
ndarray = np.ndarray

WORD: Final = 64
ENVIRONMENT_LANE: Final = 0
_WEAK: Final = {np.dtype("float64"): float, np.dtype("int64"): int, np.dtype("bool"): bool}
"""Python's own numbers go straight into these; into any other type they are checked first."""


class Cell:
    """Where one variable of one agent goes, and what fits there without a second look."""

    __slots__ = ("bit", "dtype", "scalar", "shape", "values", "weak")

    def __init__(self, variable: Variable, index: int, values: Any) -> None:
        self.values = values
        self.dtype = variable.dtype
        self.shape = variable.shape
        self.bit = 1 << index
        is_number = not variable.shape and not variable.is_text
        self.scalar = variable.dtype.type if is_number else None
        self.weak = _WEAK.get(variable.dtype) if is_number else None


def store(table: Mapping[str, Any], data: Mapping[str, Any], row: int) -> int:
    """Write one agent's values into its lane, as long as every one fits as it is.

    Parameters
    ----------
    table : mapping
        Cells by name, nested as the data may be.
    data : mapping
        Values by name.
    row : int
        Row of the window.

    Returns
    -------
    int
        The logged bits, or -1 if something needs a second look. Cells that were written by then hold rubbish, as before.
    """
    bits = 0
    try:
        for name, value in data.items():
            cell = table[name]
            cls = value.__class__
            if cls is ndarray:
                if value.dtype is not cell.dtype or value.shape != cell.shape:
                    return -1
            elif cls is dict:
                more = store(cell, value, row)
                if more < 0:
                    return -1
                bits |= more
                continue
            elif cls is not cell.scalar and cls is not cell.weak:
                return -1
            cell.values[row] = value
            bits |= cell.bit
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError):
        return -1  # an unknown name, a name that is a group here and a value there, a number too large
    return bits


class _ManyWords:
    """The logged bits of an agent with more than 64 variables, seen as one number for each row."""

    __slots__ = ("_words",)

    def __init__(self, words: list[memoryview]) -> None:
        self._words = words

    def __getitem__(self, row: int) -> int:
        return sum(int(word[row]) << (WORD * i) for i, word in enumerate(self._words))

    def __setitem__(self, row: int, bits: int) -> None:
        for i, word in enumerate(self._words):
            word[row] = (bits >> (WORD * i)) & (2**WORD - 1)


class Lane:
    """One agent in one window.

    Attributes
    ----------
    table : dict
        Cells by name, see `store`.
    words : indexable
        Logged bits by row.
    """

    __slots__ = ("slot", "table", "words")

    def __init__(self, slot: int, table: dict[str, Any], words: Any) -> None:
        self.slot = slot
        self.table = table
        self.words = words


class Lanes:
    """The agents of one population (or the environment) in one window.

    Attributes
    ----------
    agents : list of int
        Place in the population of the agent in each slot.
    cells : dict of int to ndarray of shape (capacity, rows, ...)
        Values by the variable's index.
    words : list of ndarray of shape (capacity, rows)
        Logged bits, 64 variables a word.
    """

    __slots__ = ("_slots", "agents", "capacity", "cells", "rows", "words")

    def __init__(self, rows: int, capacity: int = 1) -> None:
        self.rows = rows
        self.capacity = capacity
        self.agents: list[int] = []
        self._slots: dict[int, int] = {}
        self.cells: dict[int, Array] = {}
        self.words: list[Array] = [np.zeros((capacity, rows), np.uint64)]

    def reset(self) -> None:
        """Forget every row, keeping the memory."""
        for word in self.words:
            word[: len(self.agents)] = 0
        self.agents.clear()
        self._slots.clear()

    def slot(self, agent: int) -> int:
        """Return the slot of an agent, which is made where it has none."""
        slot = self._slots.get(agent)
        if slot is None:
            slot = len(self.agents)
            self.reserve(slot + 1)
            self._slots[agent] = slot
            self.agents.append(agent)
        return slot

    def slots(self, agents: Sequence[int]) -> slice | Array:
        """Return the slots of several agents, as a slice where they lie side by side."""
        self.reserve(len(self.agents) + sum(a not in self._slots for a in agents))
        found = [self.slot(a) for a in agents]
        if found == list(range(found[0], found[0] + len(found))):
            return slice(found[0], found[0] + len(found))
        return np.array(found)

    def reserve(self, n: int) -> bool:
        """Make room for `n` agents and say whether arrays moved."""
        if n <= self.capacity:
            return False
        used, self.capacity = len(self.agents), max(n, 2 * self.capacity)
        for i, old in self.cells.items():
            self.cells[i] = np.empty((self.capacity, *old.shape[1:]), old.dtype)
            self.cells[i][:used] = old[:used]
        for i, old in enumerate(self.words):
            self.words[i] = np.zeros((self.capacity, self.rows), np.uint64)
            self.words[i][:used] = old[:used]
        return True

    def cell(self, index: int, variable: Variable, width: int = 0) -> Array:
        """Return the array of a variable; text is given at least `width` bytes."""
        values = self.cells.get(index)
        if values is None:
            dtype = np.dtype(f"S{max(TEXT_BLOCK, width)}") if variable.is_text else variable.dtype
            values = self.cells[index] = np.empty((self.capacity, self.rows, *variable.shape), dtype)
        elif variable.is_text and width > values.dtype.itemsize:
            wide = -(-width // TEXT_BLOCK) * TEXT_BLOCK
            values = self.cells[index] = values.astype(f"S{wide}")
        while index >= WORD * len(self.words):
            self.words.append(np.zeros((self.capacity, self.rows), np.uint64))
        return values

    def lane(self, agent: int, variables: Sequence[Variable]) -> Lane:
        """Return an agent's lane, ready for `store`."""
        slot = self.slot(agent)
        table: dict[str, Any] = {}
        for i, variable in enumerate(variables):
            cell = Cell(variable, i, self.cell(i, variable)[slot])
            enter(table, variable, cell)
        words = [memoryview(word[slot]) for word in self.words]
        return Lane(slot, table, words[0] if len(words) == 1 else _ManyWords(words))

    def bits_of(self, slot: int, row: int) -> int:
        """Return the logged bits of a slot and row."""
        return sum(int(word[slot, row]) << (WORD * i) for i, word in enumerate(self.words))

    def set_bits(self, slot: int, row: int, bits: int) -> None:
        """Replace the logged bits of a slot and row."""
        for i, word in enumerate(self.words):
            word[slot, row] = (bits >> (WORD * i)) & (2**WORD - 1)

    def logged_after(self, slot: int, row: int) -> bool:
        """Whether anything was logged in a slot at a later row."""
        return any(bool(word[slot, row + 1 :].any()) for word in self.words)

    def bits_everywhere(self, count: int) -> int:
        """Return the bits that are set in every slot at each of the first `count` rows."""
        n = len(self.agents)
        common = (int(np.bitwise_and.reduce(word[:n, :count], axis=None)) for word in self.words)
        return sum(bits << (WORD * i) for i, bits in enumerate(common))

    def mask(self, index: int, rows: slice) -> Array:
        """Return where a variable was logged, as a boolean array of shape (slots, rows)."""
        word = self.words[index // WORD][: len(self.agents), rows]
        return np.asarray((word >> np.uint64(index % WORD)) & np.uint64(1) != 0)


def enter(table: dict[str, Any], variable: Variable, cell: Cell) -> None:
    """Make a variable known under each name it may be logged with: flat, dotted, nested, below its modality."""
    table[variable.name] = cell
    *path, leaf = variable.name.split(".")
    for root in (table, table.setdefault(variable.modality, {})):
        if not isinstance(root, dict):
            continue  # the variable is called like its modality: {"rewards": 1.0}
        for part in path:
            inner = root.setdefault(part, {})
            if not isinstance(inner, dict):
                break
            root = inner
        else:
            root.setdefault(leaf, cell)


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
    flushed : bool
        Whether some of these rows may be on disk already.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.first = self.count = 0
        self.late = self.flushed = False
        self.time = np.zeros(capacity, np.int64)
        self.step = np.zeros(capacity, np.int32)
        self.episode = np.zeros(capacity, np.int32)
        self.lanes: dict[str, Lanes] = {}
        self.environment = Lanes(capacity)
        self.by_id: dict[Any, Lane] = {}
        self.environment_lane: Lane | None = None
        self.block: Any = None

    def reset(self, first: int, late: bool = False) -> None:
        """Start over at another row."""
        self.first, self.count, self.late, self.flushed = first, 0, late, late
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
            lanes = self.lanes[name] = Lanes(self.capacity, 4)
        return lanes

    def row_bytes(self) -> int:
        """Bytes that one row of the agents seen so far takes."""
        return sum(
            len(lanes.agents) * sum(values[0, 0].nbytes for values in lanes.cells.values())
            for lanes in (*self.lanes.values(), self.environment)
        )
