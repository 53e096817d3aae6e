"""The rows of several agents that are not on disk yet.

An agent's values of one step lie side by side in memory, a *record*. Each variable is also seen as an array over agents and rows,
which is how everything but the quickest way in reads and writes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from simlab.schema import Variable
from simlab.staging.records import PIECEMEAL, Cell, Lane, Layout, enter
from simlab.storage.codec import MOST_EXAMPLES
from simlab.storage.dtypes import TEXT_BLOCK
from simlab.storage.journal import Journal

Array = np.ndarray[Any, np.dtype[Any]]

WORD: Final = 64


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


COUNTER_BYTES: Final = 64
_LARGE: Final = 32 << 20
"""From here on room is made for the rows that are there, not for all that may come."""


def lanes_arrays(data: Any, head: Mapping[str, Any]) -> tuple[Array, Array, list[Array], Any]:
    """Return the counter of agents, their places, their words of bits and their records, as arrays over the bytes of a file of lanes.

    The bits come before the records: who copies the file while it is written has no bit without its values.
    """
    capacity, rows = head["capacity"], head["rows"]
    counter = np.frombuffer(data, np.int64, 1)
    agents = np.frombuffer(data, np.int32, capacity, COUNTER_BYTES)
    at = COUNTER_BYTES + _padded(4 * capacity)
    words = []
    for _ in range(head["words"]):
        words.append(np.frombuffer(data, np.uint64, capacity * rows, at).reshape(capacity, rows))
        at += 8 * capacity * rows
    return counter, agents, words, data[at:]


def cells_of(memory: Any, head: Mapping[str, Any]) -> dict[int, Array]:
    """Return the values of each variable, by index, as an array over agents and rows: a view into the records."""
    capacity, held, size = head["capacity"], head["held"], head["size"]
    return {
        i: np.ndarray(
            (capacity, held, *shape),
            dtype,
            memory if len(memory) else None,
            offset,
            (held * size, size, *_steps(tuple(shape), np.dtype(dtype).itemsize)),
        )
        for i, offset, dtype, shape in head["cells"]
    }


def _padded(n: int) -> int:
    return -(-n // 64) * 64


class Extent:
    """How many rows a window has, and how many all of its lanes have memory for."""

    __slots__ = ("count", "held")

    def __init__(self) -> None:
        self.count = 0
        self.held = 0


class Lanes:
    """The agents of one population (or the environment) in one window.

    Parameters
    ----------
    rows : int
        The most rows that the window may have.
    extent : Extent
        Of the window.
    journal : Journal
        Where memory comes from.
    name, head : str and dict
        What it is called there, and what is told about it.

    Attributes
    ----------
    agents : list of int
        Place in the population of the agent in each slot.
    cells : dict of int to ndarray of shape (capacity, held, ...)
        Values by the variable's index: views into the records.
    words : list of ndarray of shape (capacity, rows)
        Logged bits, 64 variables a word.
    held : int
        Rows there is memory for.
    version : int
        Rises when arrays move; lanes and groups made before are out of date then.
    """

    __slots__ = (
        "_agents", "_counter", "_extent", "_head", "_journal", "_layout", "_memory", "_name", "_slots", "_variables",
        "agents", "capacity", "cells", "held", "rows", "version", "words",
    )  # fmt: skip

    def __init__(self, rows: int, extent: Extent, journal: Journal, name: str, head: Mapping[str, Any]) -> None:
        self.rows = rows
        self._extent = extent
        self._journal, self._name, self._head = journal, name, dict(head)
        self.capacity, self.held = 0, 0
        self.version = 0
        self.agents: list[int] = []
        self._slots: dict[int, int] = {}
        self._variables: dict[int, Variable] = {}
        self._layout = PIECEMEAL
        self.cells: dict[int, Array] = {}
        self.words: list[Array] = []
        self._arrange(PIECEMEAL, self._variables, capacity=1, held=1, n_words=1)

    @classmethod
    def found(cls, head: Mapping[str, Any], data: Any) -> Lanes:
        """Return what a journal's file holds, to be read."""
        lanes = cls.__new__(cls)
        counter, places, words, memory = lanes_arrays(data, head)
        lanes.words = [word.copy() for word in words]  # may be corrected
        lanes.rows, lanes.held, lanes.capacity, lanes.version = head["rows"], head["held"], head["capacity"], 0
        lanes.agents = places[: max(0, int(counter[0]))].tolist()
        lanes.cells = cells_of(memory, head)
        return lanes

    def keep(self, slots: list[int]) -> None:
        """Leave some slots only, of what was found."""
        self.agents = [self.agents[slot] for slot in slots]
        self.words = [word[slots] for word in self.words]
        self.cells = {i: cells[slots] for i, cells in self.cells.items()}

    def reset(self) -> None:
        """Forget every row, keeping the memory."""
        for word in self.words:
            word[: len(self.agents)] = 0
        self.agents.clear()
        self._slots.clear()
        self._counter[0] = 0
        self._narrow()

    def _narrow(self) -> None:
        """Give up room for long texts where it is much: the next rows may have none."""
        layout = self._layout
        texts = [i for i, dtype in layout.dtypes.items() if dtype.kind == "S" and dtype.itemsize > TEXT_BLOCK]
        if texts and self.capacity * self.rows * layout.size > _LARGE:
            narrow = Layout(self._variables, layout.dtypes | dict.fromkeys(texts, np.dtype(f"S{TEXT_BLOCK}")))
            self._arrange(narrow, self._variables, self.capacity, self._fitting(self.capacity, narrow.size), len(self.words))

    def slot(self, agent: int) -> int:
        """Return the slot of an agent, which is made where it has none."""
        slot = self._slots.get(agent)
        if slot is None:
            slot = len(self.agents)
            self._reserve(slot + 1)
            self._slots[agent] = slot
            self.agents.append(agent)
            self._agents[slot] = agent
            self._counter[0] = slot + 1
        return slot

    def slots(self, agents: Sequence[int]) -> slice | Array:
        """Return the slots of several agents, as a slice where they lie side by side."""
        self._reserve(len(self.agents) + sum(a not in self._slots for a in agents))
        found = [self.slot(a) for a in agents]
        if found == list(range(found[0], found[0] + len(found))):
            return slice(found[0], found[0] + len(found))
        return np.array(found)

    def _reserve(self, n: int) -> None:
        """Make room for `n` agents."""
        if n > self.capacity:
            capacity = max(n, 2 * self.capacity)
            self._arrange(self._layout, self._variables, capacity, self._fitting(capacity, self._layout.size), len(self.words))

    def _fitting(self, capacity: int, size: int) -> int:
        """Return for how many rows there should be memory: all that may come or, where that is much, those that are there."""
        if capacity * self.rows * size <= _LARGE:
            return self.rows
        return min(self.rows, 1 << max(0, self._extent.count - 1).bit_length())

    def hold_rows(self) -> None:
        """Make room for the rows that are there."""
        if self._extent.count > self.held:
            held = self._fitting(self.capacity, self._layout.size)
            self._arrange(self._layout, self._variables, self.capacity, held, len(self.words))

    def _arrange(self, layout: Layout, variables: dict[int, Variable], capacity: int, held: int, n_words: int) -> None:
        """Lay the records out anew and take the values along; whatever points into the arrays is out of date.

        Raises
        ------
        OSError
            If the journal cannot grow; everything is as it was.
        """
        head = self._head | {
            "capacity": capacity, "rows": self.rows, "held": held, "words": n_words, "size": layout.size,
            "cells": [[i, offset, layout.dtypes[i].str, variables[i].shape] for i, offset in layout.offsets.items()],
        }  # fmt: skip
        size = COUNTER_BYTES + _padded(4 * capacity) + 8 * n_words * capacity * self.rows + capacity * held * layout.size
        data = self._journal.allocate(self._name, head, size)
        counter, places, words, memory = lanes_arrays(data, head)
        cells = cells_of(memory, head)
        n = len(self.agents)
        places[:n] = self.agents
        for new, word in zip(words, self.words, strict=False):
            new[:n] = word[:n]
        for i, old in self.cells.items():
            rows = min(old.shape[1], held)
            cells[i][:n, :rows] = old[:n, :rows]
        counter[0] = n
        self._journal.publish(self._name)
        self.version += 1
        self._layout, self._variables, self.capacity, self.held = layout, variables, capacity, held
        self._counter, self._agents, self.words, self._memory, self.cells = counter, places, words, memory, cells
        self._extent.held = min(self._extent.held, held)

    def hold(self, variables: Mapping[int, Variable], widths: Mapping[int, int] | None = None) -> None:
        """Make room for variables, and for text of so many bytes."""
        dtypes = dict(self._layout.dtypes)
        for i, variable in variables.items():
            if variable.is_text:
                width = max((widths or {}).get(i, 0), dtypes[i].itemsize if i in dtypes else 1)
                dtypes[i] = np.dtype(f"S{-(-width // TEXT_BLOCK) * TEXT_BLOCK}")
            elif i not in dtypes:
                dtypes[i] = variable.dtype
        n_words = max(len(self.words), max(variables, default=0) // WORD + 1)
        if dtypes != self._layout.dtypes or n_words > len(self.words):
            known = self._variables | dict(variables)
            layout = Layout(known, dtypes)
            self._arrange(layout, known, self.capacity, self._fitting(self.capacity, layout.size), n_words)

    def lane(self, agent: int, variables: Sequence[Variable]) -> Lane:
        """Return an agent's lane, ready for `store`."""
        slot = self.slot(agent)
        self.hold(dict(enumerate(variables)))
        table: dict[str, Any] = {}
        for i, variable in enumerate(variables):
            enter(table, variable, Cell(variable, i, self.cells[i][slot]))
        words = [memoryview(word[slot]) for word in self.words]
        start = slot * self.held * self._layout.size
        return Lane(self._layout, self._memory, start, table, words[0] if len(words) == 1 else _ManyWords(words))

    @property
    def row_bytes(self) -> int:
        """Bytes of one row of one agent."""
        return self._layout.size

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

    def last_rows(self, count: int) -> list[int]:
        """Return the newest of the first `count` rows at which each slot has something, or -1."""
        n = len(self.agents)
        if not n or not count:
            return [-1] * n
        logged = np.logical_or.reduce([word[:n, :count] != 0 for word in self.words])
        return np.where(logged.any(axis=1), count - 1 - np.argmax(logged[:, ::-1], axis=1), -1).tolist()  # type: ignore[no-any-return]

    def bits_everywhere(self, count: int) -> int:
        """Return the bits that are set in every slot at each of the first `count` rows."""
        n = len(self.agents)
        common = (int(np.bitwise_and.reduce(word[:n, :count], axis=None)) for word in self.words)
        return sum(bits << (WORD * i) for i, bits in enumerate(common))

    def clear(self, index: int) -> int:
        """Forget what was logged of a variable, and return how many values that were."""
        if index // WORD >= len(self.words):
            return 0
        word, bit = self.words[index // WORD][: len(self.agents)], np.uint64(1 << (index % WORD))
        there = int(np.count_nonzero(word & bit))
        word &= ~bit
        return there

    def examples(self, index: int, count: int) -> Array | None:
        """Return values of a variable that were logged in the first `count` rows, of as few agents as make many."""
        if index not in self.cells or not self.agents:
            return None
        cells, mask = self.cells[index][: len(self.agents), :count], self.mask(index, slice(0, count))
        found, size = [], 0
        for values, there in zip(cells, mask, strict=True):
            found.append(values[there])
            size += found[-1].size
            if size >= MOST_EXAMPLES:
                break
        return np.concatenate(found)

    def mask(self, index: int, rows: slice) -> Array:
        """Return where a variable was logged, as a boolean array of shape (slots, rows)."""
        word = self.words[index // WORD][: len(self.agents), rows]
        return np.asarray((word >> np.uint64(index % WORD)) & np.uint64(1) != 0)


def _steps(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Return the strides of an array in C order."""
    strides = []
    for n in reversed(shape):
        strides.append(itemsize)
        itemsize *= n
    return tuple(reversed(strides))
