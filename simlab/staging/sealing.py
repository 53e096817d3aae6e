"""From staged rows to chunks: which chunks a window fills, what is in them, and what of it was there before."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from simlab.staging.lanes import WORD, Lanes
from simlab.staging.windows import Window
from simlab.storage.dtypes import TEXT_BLOCK
from simlab.storage.structure import Column, Grid, LoggedField

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(slots=True)
class Tally:
    """What sealing counted."""

    values: int = 0
    bytes_raw: int = 0
    overwritten: int = 0
    late: int = 0

    def add(self, other: Tally) -> None:
        """Add another tally to this one."""
        for name in ("values", "bytes_raw", "overwritten", "late"):
            setattr(self, name, getattr(self, name) + getattr(other, name))


Encoded = tuple[Column, tuple[int, ...], Any]
"""Where a chunk goes, and its bytes; or its values, where HDF5's own pipeline encodes them."""


@dataclass(slots=True)
class Chunk:
    """One chunk to be written.

    Attributes
    ----------
    column : Column
        What it is a chunk of.
    offset : tuple of int
        Agent and row (or row) of its first cell.
    values : ndarray
        Logged values, of shape (agents here, rows here, ...) or (rows here, ...).
    mask : ndarray or None
        Where something was logged; None is everywhere.
    places : slice or ndarray
        Places of the agents here inside the chunk.
    before : ndarray or None
        What the file holds there (stored type); None if the chunk is new or the staged rows are all there is.
    replaces : bool
        Whether the chunk may be in the file already.
    row : int
        The first row here inside the chunk.
    """

    column: Column
    offset: tuple[int, ...]
    values: Array
    mask: Array | None
    places: slice | Array = field(default_factory=lambda: slice(0, 0))
    before: Array | None = None
    replaces: bool = False
    row: int = 0

    def trim_text(self) -> None:
        """Cut the text's array to what its longest text needs, in whole chunks, and make room for it in the file.

        What replaces rows that are there covers all of the file's width: a shorter text must not keep the tail of a longer one.
        """
        values = self.values if self.mask is None else self.values[self.mask]
        width = int(np.char.str_len(values).max(initial=1))
        self.column.widen(width)
        if self.replaces:
            width = max(width, self.column.dataset.shape[-1])
        self.values = self.values.astype(f"S{-(-width // TEXT_BLOCK) * TEXT_BLOCK}")

    def block(self) -> Array:
        """Return the chunk's stored values: those that were logged, those from before, and fill elsewhere."""
        column, lead = self.column, len(self.offset)
        stored = column.type.to_disk(self.values)
        rows = slice(self.row, self.row + stored.shape[lead - 1])
        whole = (column.agents, column.rows) if lead == 2 else (column.rows,)
        if self.before is None and self.mask is None and stored.shape[:lead] == whole:
            return stored
        if column.variable.is_text and self.before is not None:
            stored, self.before = _same_width(stored, self.before), _same_width(self.before, stored)
        block = np.zeros((*whole, *stored.shape[lead:]), stored.dtype)
        if stored.dtype.kind == "f":
            block.fill(column.type.fill)
        if self.before is not None:
            block[tuple(slice(0, n) for n in self.before.shape)] = self.before
        target = block[self.places, rows] if lead == 2 else block[rows]
        if self.mask is None:
            target[...] = stored
        else:
            target[self.mask] = stored[self.mask]
        if lead == 2 and not isinstance(self.places, slice):
            block[self.places, rows] = target  # indexing by places gave a copy
        return block

    def encode(self) -> list[Encoded]:
        """Return the encoded chunks: one, or of text as many as its width takes."""
        block, column = self.block(), self.column
        own = block.ndim - len(self.offset)
        if not column.compression.direct:
            return [(column, (*self.offset, *(0,) * own), block)]
        if not column.variable.is_text:
            period = math.prod(block.shape[len(self.offset) :])
            return [(column, (*self.offset, *(0,) * own), column.compression.encode(block, period))]
        return [
            (column, (*self.offset, *(0,) * (own - 1), start), column.compression.encode(piece)) for start, piece in _pieces_of_text(block)
        ]


def _pieces_of_text(block: Array) -> Iterator[tuple[int, Array]]:
    """Yield a chunk of text in pieces along its characters; a few long texts do not make the others be looked at again and again."""
    width = block.shape[-1]
    lengths = np.char.str_len(np.ascontiguousarray(block).view(f"S{width}").reshape(block.shape[:-1]))
    for start in range(0, width, TEXT_BLOCK):
        there = np.nonzero(lengths > start)
        if there[0].size > lengths.size // 8:
            yield start, block[..., start : start + TEXT_BLOCK]
        else:
            piece = np.zeros((*block.shape[:-1], TEXT_BLOCK), block.dtype)
            piece[there] = block[..., start : start + TEXT_BLOCK][there]
            yield start, piece


def encode_batch(batch: list[Chunk]) -> list[Encoded]:
    """Return the encoded chunks of several; this is what an encoder's thread runs."""
    return [encoded for chunk in batch for encoded in chunk.encode()]


def _same_width(text: Array, other: Array) -> Array:
    """Pad text so that it is as wide as another, both in whole chunks."""
    width = -(-max(text.shape[-1], other.shape[-1]) // TEXT_BLOCK) * TEXT_BLOCK
    padded = np.zeros((*text.shape[:-1], width), text.dtype)
    padded[..., : text.shape[-1]] = text
    return padded


def chunks_of_lanes(grid: Grid, lanes: Lanes, window: Window, tally: Tally) -> Iterator[Chunk]:
    """Yield the chunks that a population's, or the environment's, staged rows touch.

    Parameters
    ----------
    grid : Grid
        Where they go; long enough for the rows.
    lanes : Lanes
        The staged rows.
    window : Window
        The rows they are part of.
    tally : Tally
        Counts what goes by.
    """
    n, count = len(lanes.agents), window.count
    if not n or not count:
        return
    order = np.argsort(np.array(lanes.agents), kind="stable") if grid.has_agents else np.zeros(1, np.int64)
    agents = np.array(lanes.agents)[order]
    in_order = _is_sorted(order)
    everywhere = lanes.bits_everywhere(count)  # where all agents log all there is at every step, no mask has to be made
    for index in list(lanes.cells):
        values = lanes.cells[index][:n, :count]
        mask = None if (everywhere >> index) & 1 else lanes.mask(index, slice(0, count))
        if not in_order:
            values, mask = values[order], None if mask is None else mask[order]
        logged_cells = n * count if mask is None else int(np.count_nonzero(mask))
        tally.values += logged_cells
        tally.bytes_raw += logged_cells * values[0, 0].nbytes
        yield from _chunks(grid, lanes, grid.columns[index], agents, values, mask, window, tally)
    for logged in grid.fields:  # last: what is not written does not count as logged
        bits = _field_bits(lanes, logged, order, count)
        mask = None if (everywhere >> logged.first) & ((1 << logged.bits) - 1) else bits != 0
        yield from _chunks(grid, lanes, logged.column, agents, bits, mask, window, tally)


def _is_sorted(order: Array) -> bool:
    return bool((order[1:] > order[:-1]).all())


def _field_bits(lanes: Lanes, logged: LoggedField, order: Array, count: int) -> Array:
    """Return the bits of one field of the file, cut out of the staged words."""
    dtype = logged.column.type.stored
    out = np.zeros((len(order), count), np.uint64)
    for i, word in enumerate(lanes.words):
        shift = logged.first - WORD * i  # bit 0 of the field is bit `shift` of the word
        if -WORD < shift < WORD:
            part = word[order, :count]
            out |= part >> np.uint64(shift) if shift >= 0 else part << np.uint64(-shift)
    if logged.bits < WORD:
        out &= np.uint64((1 << logged.bits) - 1)
    return out.astype(dtype)


def _chunks(
    grid: Grid, lanes: Lanes, column: Column, agents: Array, values: Array, mask: Array | None, window: Window, tally: Tally
) -> Iterator[Chunk]:
    """Cut the values of sorted agents into chunks; mask None stands for everywhere."""
    count = values.shape[1]
    per_chunk = column.agents or 1
    blocks = agents // per_chunk
    edges = np.flatnonzero(np.diff(blocks)) + 1
    for start, stop in zip([0, *edges.tolist()], [*edges.tolist(), len(agents)], strict=True):
        inside = agents[start:stop] - blocks[start] * per_chunk
        side_by_side = inside[-1] - inside[0] == stop - start - 1
        places: slice | Array = slice(int(inside[0]), int(inside[-1]) + 1) if side_by_side else inside
        for chunk_start in range(window.first // column.rows * column.rows, window.first + count, column.rows):
            # A window that left early, and the one that goes on where it ended, share a chunk.
            row = max(0, window.first - chunk_start)
            rows = slice(chunk_start + row - window.first, chunk_start + column.rows - window.first)
            where = None
            if mask is not None:
                here = mask[start:stop, rows]
                if not here.any():
                    continue
                where = None if here.all() else here
            part = values[start:stop, rows]
            if grid.has_agents:
                offset: tuple[int, ...] = (int(blocks[start]) * per_chunk, chunk_start)
            else:
                offset, part, where = (chunk_start,), part[0], None if where is None else where[0]
            chunk = Chunk(column, offset, part, where, places, replaces=window.flushed or row > 0, row=row)
            if window.late or row:
                chunk.before = _before(column, offset)
            logged = next((f for f in grid.fields if f.column is column), None) if window.late else None
            if logged is not None:
                # What a try that failed halfway wrote was not there before.
                chunk.before = window.bits_before.setdefault((column.path, offset), chunk.before)
                twice = _merge_bits(chunk, tally)
                for bit, cells in ((i, lanes.cells[logged.first + i]) for i in range(logged.bits) if logged.first + i in lanes.cells):
                    again = int(np.count_nonzero(twice & twice.dtype.type(1 << bit)))
                    tally.values -= again
                    tally.bytes_raw -= again * cells[0, 0].nbytes
            yield chunk


def _before(column: Column, offset: tuple[int, ...]) -> Array:
    lengths = (column.agents, column.rows) if len(offset) == 2 else (column.rows,)
    return np.asarray(column.dataset[tuple(slice(o, o + n) for o, n in zip(offset, lengths, strict=True))])


def _merge_bits(chunk: Chunk, tally: Tally) -> Array:
    """Add the bits that are there to the new ones, and count and return those that are written twice."""
    before = chunk.before
    assert before is not None
    rows = slice(chunk.row, chunk.row + chunk.values.shape[-1])
    column = chunk.column
    whole = np.zeros((column.agents, column.rows) if len(chunk.offset) == 2 else (column.rows,), chunk.values.dtype)
    whole[tuple(slice(0, n) for n in before.shape)] = before  # the file may end inside the chunk
    there = whole[chunk.places, rows] if len(chunk.offset) == 2 else whole[rows]
    tally.late += int(np.bitwise_count(chunk.values).sum())
    twice = there & chunk.values
    tally.overwritten += int(np.bitwise_count(twice).sum())
    chunk.values = there | chunk.values
    return twice
