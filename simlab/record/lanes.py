"""The rows of several agents that are not on disk yet, and the quick way in for values that fit as they are.

An agent's values of one step lie side by side in memory, a *record*: the usual step, all variables at once, is checked and then
copied in one piece. Each variable is also seen as an array over agents and rows, which is how everything else reads and writes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, Final

import numpy as np

from simlab.schema import Variable
from simlab.storage.dtypes import TEXT_BLOCK

Array = np.ndarray[Any, np.dtype[Any]]
ndarray = np.ndarray

WORD: Final = 64
_WEAK: Final = {np.dtype("float64"): float, np.dtype("int64"): int, np.dtype("bool"): bool}
"""Python's own numbers go straight into these; into any other type they are checked first."""
_NO_BUFFER: Final = "mMS"
"""Kinds of dtype whose values cannot be copied as bytes: dates and text."""


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


class Layout:
    """How one record is laid out.

    Attributes
    ----------
    size : int
        Bytes of one record.
    offsets : dict of int to int
        First byte of each variable, by index. Wider types come first, so that every value is aligned.
    count : int
        Variables that a step must have to be copied in one piece; -1 where that cannot be.
    take : callable
        Returns a step's values in the order of the record.
    kinds : list of tuple
        Of each of them: dtype, shape, and the scalar type of a plain number.
    packed, bits : int
        Their bytes together, and their logged bits.
    """

    __slots__ = ("bits", "count", "dtypes", "kinds", "offsets", "packed", "size", "take")

    def __init__(self, variables: Mapping[int, Variable], dtypes: Mapping[int, np.dtype[Any]]) -> None:
        self.dtypes = dict(dtypes)
        order = sorted(variables, key=lambda i: (variables[i].dtype.kind in _NO_BUFFER, -dtypes[i].alignment, i))
        self.offsets: dict[int, int] = {}
        end = 0
        for i in order:
            self.offsets[i] = end
            end += dtypes[i].itemsize * int(np.prod(variables[i].shape, dtype=np.int64))
        self.size = -(-end // 8) * 8
        self.packed = end
        self.kinds = [(v.dtype, v.shape, None if v.shape else v.dtype.type) for v in (variables[i] for i in order)]
        self.bits = sum(1 << i for i in order)
        names = [variables[i].name for i in order]
        whole = len(names) > 1 and not any(v.dtype.kind in _NO_BUFFER for v in variables.values())
        self.count = len(names) if whole else -1
        self.take: Any = itemgetter(*names) if whole else None


def store(lane: Lane, data: Mapping[str, Any], row: int) -> int:
    """Write one agent's values into its lane, as long as every one fits as it is.

    Parameters
    ----------
    lane : Lane
        Where to.
    data : mapping
        Values by name.
    row : int
        Row of the window.

    Returns
    -------
    int
        The logged bits, or -1 if something needs a second look. Cells that were written by then hold rubbish, as before.
    """
    layout = lane.layout
    if len(data) == layout.count:
        try:
            values = layout.take(data)
            for value, (dtype, shape, scalar) in zip(values, layout.kinds, strict=False):
                if value.__class__ is ndarray:
                    if value.dtype is not dtype or value.shape != shape:
                        break
                elif value.__class__ is not scalar:
                    break
            else:
                packed = b"".join(values)
                start = lane.start + row * layout.size
                lane.memory[start : start + layout.packed] = packed
                return layout.bits
        except (KeyError, TypeError, ValueError, BufferError):
            pass  # other names, or an array whose bytes do not lie side by side
        lane.layout = _PIECEMEAL  # nor will the next step of this agent be of one piece
    return store_each(lane.table, data, row)


def store_each(table: Mapping[str, Any], data: Mapping[str, Any], row: int) -> int:
    """Write values one by one; see `store`.

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
                more = store_each(cell, value, row)
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
    layout : Layout
        Of its records.
    memory : memoryview
        The bytes of all records of its population.
    start : int
        Its own first byte there.
    table : dict
        Cells by name, see `store_each`.
    words : indexable
        Logged bits by row.
    """

    __slots__ = ("layout", "memory", "start", "table", "words")

    def __init__(self, layout: Layout, memory: memoryview, start: int, table: dict[str, Any], words: Any) -> None:
        self.layout = layout
        self.memory = memory
        self.start = start
        self.table = table
        self.words = words


_PIECEMEAL: Final = Layout({}, {})


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

    __slots__ = ("_layout", "_memory", "_slots", "_variables", "agents", "capacity", "cells", "rows", "version", "words")

    def __init__(self, rows: int, capacity: int = 1) -> None:
        self.rows = rows
        self.capacity = capacity
        self.version = 0
        self.agents: list[int] = []
        self._slots: dict[int, int] = {}
        self._variables: dict[int, Variable] = {}
        self._layout = _PIECEMEAL
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

    def _arrange(self, layout: Layout) -> None:
        """Lay the records out anew and take the values along; whatever points into the arrays is out of date."""
        self.version += 1
        before, self._layout = self.cells, layout
        self._memory = np.empty(self.capacity * self.rows * layout.size, np.uint8)
        self.cells = {
            i: np.ndarray(
                (self.capacity, self.rows, *self._variables[i].shape),
                layout.dtypes[i],
                self._memory.data if self._memory.size else None,
                offset,
                (self.rows * layout.size, layout.size, *_steps(self._variables[i].shape, layout.dtypes[i].itemsize)),
            )
            for i, offset in layout.offsets.items()
        }
        for i, old in before.items():
            self.cells[i][: len(self.agents)] = old[: len(self.agents)]

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
        start = slot * self.rows * self._layout.size
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


def _steps(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Return the strides of an array in C order."""
    strides = []
    for n in reversed(shape):
        strides.append(itemsize)
        itemsize *= n
    return tuple(reversed(strides))
