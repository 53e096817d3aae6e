"""Series by the tile: the values, or the least and greatest of every few steps, so that no line has more points than pixels."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from simlab.errors import InputError
from simlab.view.blocks import Presence, browser_dtype
from simlab.view.frames import Episode

BINS: Final = 1024
"""Points of a tile."""
MOST_ROWS: Final = 1 << 18
"""Rows that one tile is made from, so that no answer takes long."""
MOST_CHANNELS: Final = 64
"""Channels of one variable that are sent, if none are named."""

Array = NDArray[Any]
Answer = tuple[dict[str, Any], list[bytes]]


def tile_rows(level: int) -> int:
    """Return how many rows a tile covers; at a level every point stands for ``2**level`` rows.

    Examples
    --------
    >>> tile_rows(0), tile_rows(4), tile_rows(12)
    (1024, 16384, 262144)
    """
    return max(1 << level, min(BINS << level, MOST_ROWS))


def channels_of(episode: Episode, name: str, chosen: list[int] | None = None) -> list[int]:
    """Return which channels of a variable are sent: the first ones, and those that were chosen."""
    count = math.prod(episode.own_shape(name))
    return sorted({*range(min(count, MOST_CHANNELS)), *(c for c in chosen or [] if 0 <= c < count)})


def read_tile(episode: Episode, presence: Presence, name: str, agents: list[int], level: int, tile: int, channels: list[int]) -> Answer:
    """Read one tile of a series.

    Parameters
    ----------
    episode : Episode
        The episode.
    presence : Presence
        Where it was logged.
    name : str
        A variable of numbers or of text.
    agents : list of int
        Places on the agent axis; empty for the environment.
    level, tile : int
        How many rows one point stands for (``2**level``), and which tile.
    channels : list of int
        Places among the numbers of one value.

    Returns
    -------
    dict
        ``first`` (row), ``rows`` (how many are there by now), ``shape``, ``dtype``; of text ``text`` (agents, rows).
    list of bytes
        Level 0: the values (agents, rows, channels), then whether they were logged (agents, rows). Above: least and greatest
        (agents, points, channels, 2) as float64, NaN where nothing was logged; of values with names (``occurred``) also a mask
        (agents, points, channels) as uint32, whose bit `i` says that the value `i` occurred.

    Raises
    ------
    InputError
        If there is no such tile.
    """
    span = tile_rows(level)
    dim = episode.agent_dim(name)
    total = len(episode.rows(name))
    start, stop = tile * span, min(total, (tile + 1) * span)
    if not 0 <= start < max(stop, 1) or start >= total or not 0 <= level <= 40:
        raise InputError(f"{name!r} of episode {episode.k} has no tile {tile} at level {level}.")
    places = np.array(agents, int)
    if dim is not None and places.size and not 0 <= places.min() <= places.max() < episode.data.sizes[dim]:
        raise InputError(f"{name!r} has {episode.data.sizes[dim]} agents; {agents} were asked for.")
    header: dict[str, Any] = {"first": start, "rows": stop - start, "level": level}
    there = presence(name, None if dim is None else places, start, stop).reshape(-1, stop - start)
    values = _values(episode, name, places if dim is not None else None, start, stop)
    if values.dtype.kind not in "biuf":
        words = [[str(value) if ok else "" for value, ok in zip(row, oks, strict=True)] for row, oks in zip(values, there, strict=True)]
        return {**header, "text": words}, []
    values = values.reshape(len(values), stop - start, -1)[..., channels]
    if level == 0:
        target = browser_dtype(values.dtype)
        header |= {"shape": list(values.shape), "dtype": target.name}
        with np.errstate(over="ignore"):
            return header, [np.ascontiguousarray(values, target).tobytes(), there.astype(np.uint8).tobytes()]
    ends = least_and_greatest(values, there, 1 << level)
    header |= {"shape": list(ends.shape), "dtype": "float64"}
    if values.dtype.kind == "b" or (values.dtype.kind in "iu" and episode.categories(name)):
        return {**header, "occurred": True}, [ends.tobytes(), which_occurred(values, there, 1 << level).tobytes()]
    return header, [ends.tobytes()]


def _values(episode: Episode, name: str, agents: Array | None, start: int, stop: int) -> Array:
    variable, clock, dim = episode.data[name], episode.clock_of(name), episode.agent_dim(name)
    wanted: dict[Any, Any] = {clock: slice(start, stop)}
    if agents is not None and dim is not None:
        # A block of agents is read by the chunk; a few of many, one by one, would read the same chunks again.
        low, high = (int(agents.min()), int(agents.max()) + 1) if agents.size else (0, 0)
        dense = high - low <= 4 * agents.size
        wanted[dim] = slice(low, high) if dense else agents
        values = np.asarray(variable.isel(wanted).values)
        return values[agents - low] if dense else values
    return np.asarray(variable.isel(wanted).values)[np.newaxis]


def least_and_greatest(values: Array, there: NDArray[np.bool_], every: int) -> NDArray[np.float64]:
    """Return the least and the greatest number of every few rows.

    Parameters
    ----------
    values : ndarray of shape (agents, rows, channels)
        Numbers.
    there : ndarray of bool, shape (agents, rows)
        Which of them were logged.
    every : int
        Rows of one point.

    Returns
    -------
    ndarray of float64, shape (agents, points, channels, 2)
        NaN where nothing is a number.

    Examples
    --------
    >>> import numpy as np
    >>> least_and_greatest(np.array([[[3.0], [1.0], [5.0]]]), np.ones((1, 3), bool), 2)[0, :, 0].tolist()
    [[1.0, 3.0], [5.0, 5.0]]
    """
    agents, rows, channels = values.shape
    points = -(-rows // every)
    padded = np.full((agents, points * every, channels), np.nan)
    with np.errstate(invalid="ignore"):
        padded[:, :rows] = np.where(there[..., np.newaxis], values, np.nan)
    bins = padded.reshape(agents, points, every, channels)
    return np.stack([np.fmin.reduce(bins, axis=2), np.fmax.reduce(bins, axis=2)], axis=-1)


def which_occurred(values: Array, there: NDArray[np.bool_], every: int) -> NDArray[np.uint32]:
    """Return which of the values 0 to 31 occurred among every few rows, as bits.

    Parameters
    ----------
    values : ndarray of int or bool, shape (agents, rows, channels)
        Numbers that have names.
    there : ndarray of bool, shape (agents, rows)
        Which of them were logged.
    every : int
        Rows of one point.

    Returns
    -------
    ndarray of uint32, shape (agents, points, channels)
        Bit `i` for the value `i`.

    Examples
    --------
    >>> import numpy as np
    >>> which_occurred(np.array([[[0], [4], [1]]]), np.ones((1, 3), bool), 2)[0, :, 0].tolist()
    [17, 2]
    """
    agents, rows, channels = values.shape
    points = -(-rows // every)
    named = there[..., np.newaxis] & (values >= 0) & (values < 32)
    padded = np.zeros((agents, points * every, channels), np.uint32)
    padded[:, :rows] = np.where(named, np.uint32(1) << np.where(named, values, 0).astype(np.uint32), np.uint32(0))
    bits: NDArray[np.uint32] = np.bitwise_or.reduce(padded.reshape(agents, points, every, channels), axis=2)
    return bits
