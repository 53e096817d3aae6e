"""One agent's values of one step: how they lie side by side in memory, and the quick way in for values that fit as they are."""

from __future__ import annotations

import math
from collections.abc import Mapping
from operator import itemgetter
from typing import Any, Final

import numpy as np

from simlab.schema import Variable

ndarray = np.ndarray

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
        is_number = not variable.shape and variable.dtype.kind not in _NO_BUFFER  # a date's own unit is not its type
        self.scalar = variable.dtype.type if is_number else None
        self.weak = _WEAK.get(variable.dtype) if is_number else None


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
            end += dtypes[i].itemsize * math.prod(variables[i].shape)
        self.size = -(-end // 8) * 8
        self.packed = end
        self.kinds = [(v.dtype, v.shape, None if v.shape else v.dtype.type) for v in (variables[i] for i in order)]
        self.bits = sum(1 << i for i in order)
        names = [variables[i].name for i in order]
        whole = len(names) > 1 and not any(v.dtype.kind in _NO_BUFFER for v in variables.values())
        self.count = len(names) if whole else -1
        self.take: Any = itemgetter(*names) if whole else None


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


PIECEMEAL: Final = Layout({}, {})
"""The layout of a lane whose steps do not come in one piece."""


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
        lane.layout = PIECEMEAL  # nor will the next step of this agent be of one piece
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
                if more < 0 or bits & more:
                    return -1
                bits |= more
                continue
            elif cls is not cell.scalar and cls is not cell.weak:
                return -1
            if bits & cell.bit:
                return -1  # given twice, nested and flat
            cell.values[row] = value
            bits |= cell.bit
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError):
        return -1  # an unknown name, a name that is a group here and a value there, a number too large
    return bits
