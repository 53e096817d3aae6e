"""The rows of several agents that are not on disk yet.

An agent's values of one step lie side by side in memory, a *record*. Each variable is also seen as an array over agents and rows,
which is how everything but the quickest way in reads and writes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from simlab.record.records import PIECEMEAL, Cell, Lane, Layout, enter
from simlab.schema import Variable
from simlab.storage.dtypes import TEXT_BLOCK

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


class Lanes:
    """The agents of one population (or the environment) in one window.

    Attributes
    ----------
    agents : list of int
        Place in the population of the agent in each slot.
    cells : dict of int to ndarray of shape (capacity, rows, ...)
        Values by the variable's index: views into the records.
    words : list of ndarray of shape (capacity, rows)
        Logged bits, 64 variables a word.
    version : int
        Rises when arrays move; lanes and groups made before are out of date then.
    """

    __slots__ = ("_held", "_layout", "_memory", "_slots", "_variables", "agents", "capacity", "cells", "rows", "version", "words")

    def __init__(self, rows: int, held: int) -> None:
        self.rows = rows
        self._held = held
        self.capacity = capacity = 1
        self.version = 0
        self.agents: list[int] = []
        self._slots: dict[int, int] = {}
        self._variables: dict[int, Variable] = {}
        self._layout = PIECEMEAL
        self._memory = np.empty(0, np.uint8)
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
            self._reserve(slot + 1)
            self._slots[agent] = slot
            self.agents.append(agent)
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
        if n <= self.capacity:
            return
        used, self.capacity = len(self.agents), max(n, 2 * self.capacity)
        for i, old in enumerate(self.words):
            self.words[i] = np.zeros((self.capacity, self.rows), np.uint64)
            self.words[i][:used] = old[:used]
        self._arrange(self._layout)

    def hold_rows(self, held: int) -> None:
        """Make room for so many rows."""
        if held > self._held:
            self._held = held
            self._arrange(self._layout)

    def _arrange(self, layout: Layout) -> None:
        """Lay the records out anew and take the values along; whatever points into the arrays is out of date."""
        self.version += 1
        before, self._layout = self.cells, layout
        self._memory = np.empty(self.capacity * self._held * layout.size, np.uint8)
        self.cells = {
            i: np.ndarray(
                (self.capacity, self._held, *self._variables[i].shape),
                layout.dtypes[i],
                self._memory.data if self._memory.size else None,
                offset,
                (self._held * layout.size, layout.size, *_steps(self._variables[i].shape, layout.dtypes[i].itemsize)),
            )
            for i, offset in layout.offsets.items()
        }
        for i, old in before.items():
            self.cells[i][: len(self.agents), : old.shape[1]] = old[: len(self.agents)]

    def hold(self, variables: Mapping[int, Variable], widths: Mapping[int, int] | None = None) -> None:
        """Make room for variables, and for text of so many bytes."""
        dtypes = dict(self._layout.dtypes)
        for i, variable in variables.items():
            if variable.is_text:
                width = max((widths or {}).get(i, 0), dtypes[i].itemsize if i in dtypes else 1)
                dtypes[i] = np.dtype(f"S{-(-width // TEXT_BLOCK) * TEXT_BLOCK}")
            elif i not in dtypes:
                dtypes[i] = variable.dtype
        if dtypes != self._layout.dtypes:
            self._variables |= variables
            self._arrange(Layout(self._variables, dtypes))
        while WORD * len(self.words) <= max(variables, default=0):
            self.words.append(np.zeros((self.capacity, self.rows), np.uint64))
            self.version += 1

    def lane(self, agent: int, variables: Sequence[Variable]) -> Lane:
        """Return an agent's lane, ready for `store`."""
        slot = self.slot(agent)
        self.hold(dict(enumerate(variables)))
        table: dict[str, Any] = {}
        for i, variable in enumerate(variables):
            enter(table, variable, Cell(variable, i, self.cells[i][slot]))
        words = [memoryview(word[slot]) for word in self.words]
        start = slot * self._held * self._layout.size
        return Lane(self._layout, self._memory.data, start, table, words[0] if len(words) == 1 else _ManyWords(words))

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

    def bits_everywhere(self, count: int) -> int:
        """Return the bits that are set in every slot at each of the first `count` rows."""
        n = len(self.agents)
        common = (int(np.bitwise_and.reduce(word[:n, :count], axis=None)) for word in self.words)
        return sum(bits << (WORD * i) for i, bits in enumerate(common))

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
