"""Pictures by the chunk, for a browser: chunks of the file as they lie there, or, where it could not read those, decoded ones."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from isal import isal_zlib
from numpy.typing import NDArray

from simlab.errors import InputError
from simlab.read.behind import behind
from simlab.storage.raw import passes_through, read_raw
from simlab.storage.reading import StoredVariable
from simlab.view.frames import Episode

_DECODED_BYTES: Final = 1 << 19
_LONGEST: Final = 64
_LITTLE_PRESENCE: Final = 1 << 19
"""Up to so many truth values, presence is read once for the whole episode."""
_WINDOW: Final = 1 << 14
_MOST_PRESENCE: Final = 1 << 26
"""Truth values that are kept."""

Array = NDArray[Any]
Answer = tuple[dict[str, Any], list[bytes]]


@dataclass(slots=True)
class Layout:
    """How the pictures of one variable come, a chunk at a time.

    Attributes
    ----------
    length : int
        Rows of a chunk.
    offset : int
        Rows of the first chunk that come before the episode.
    agents : int
        Agents in a chunk; 1 also for the environment.
    agent_offset : int
        Agents of the first chunk that come before the first one shown.
    dtype : str
        Of the elements, as JavaScript's typed arrays call it.
    stored : StoredVariable or None
        What is passed on as it lies in the file; None where chunks are decoded.
    starts : tuple of int
        Where the episode begins in it.
    axes : int
        How many axes come before those of one value.
    every : int
        Of so many rows, one comes.
    """

    length: int
    offset: int = 0
    agents: int = 1
    agent_offset: int = 0
    dtype: str = "uint8"
    stored: StoredVariable | None = field(default=None, repr=False)
    starts: tuple[int, ...] = ()
    axes: int = 1
    every: int = 1

    def told(self) -> dict[str, Any]:
        """Return what the browser needs to ask for chunks."""
        return {
            "length": self.length, "offset": self.offset, "agents": self.agents, "agent_offset": self.agent_offset,
            "dtype": self.dtype, "direct": self.stored is not None,
        }  # fmt: skip


def browser_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type in which a browser gets numbers: itself where there is a typed array for it, else a wider one.

    Examples
    --------
    >>> import numpy as np
    >>> [browser_dtype(np.dtype(name)).name for name in ("float16", ">i4", "bool")]
    ['float32', 'int32', 'uint8']
    """
    if dtype.kind == "b":
        return np.dtype("uint8")
    if dtype.kind == "f" and dtype.itemsize not in (4, 8):
        return np.dtype("float32" if dtype.itemsize < 4 else "float64")
    return dtype.newbyteorder("<")


def layout_of(episode: Episode, name: str, shown: int = 1, every: int = 1) -> Layout:
    """Decide how the pictures of a variable come.

    Parameters
    ----------
    episode : Episode
        The episode.
    name : str
        The variable.
    shown : int, optional
        How many agents are watched: a chunk of many agents is passed on only if a good part of them is.
    every : int, optional
        Of so many pictures, take one.
    """
    variable = episode.data[name]
    axes = 1 if episode.agent_dim(name) is None else 2
    target = browser_dtype(variable.dtype)
    found = behind(variable.variable)
    whole = found is not None and found.starts[axes:] == (0,) * (variable.ndim - axes)
    if (
        every == 1
        and found is not None
        and whole
        and variable.shape[axes:] == found.stored.shape[axes:]
        and passes_through(found.stored, axes)
    ):
        chunks = found.stored.chunks or ()
        agents = chunks[0] if axes == 2 else 1
        if agents <= 4 * max(1, shown):
            length = chunks[axes - 1]
            first = found.starts[0] % agents if axes == 2 else 0
            return Layout(length, found.starts[axes - 1] % length, agents, first, target.name, found.stored, found.starts, axes)
    row = max(1, math.prod(episode.own_shape(name)) * target.itemsize)
    length = max(1, min(_LONGEST, 1 << (max(1, _DECODED_BYTES // row).bit_length() - 1)))
    return Layout(length, dtype=target.name, every=every)


class Presence:
    """Where the variables of an episode were logged, read once where that is little, else by windows of rows, of which some are kept."""

    def __init__(self, episode: Episode) -> None:
        self.episode = episode
        self._lazy: dict[str, Any] = {}
        self._windows: OrderedDict[tuple[str, int], NDArray[np.bool_]] = OrderedDict()
        self._lock = threading.Lock()  # events of a long episode are looked for in a thread of their own

    def __call__(self, name: str, agents: Array | slice | None, start: int, stop: int) -> NDArray[np.bool_]:
        """Return presence for rows from `start` to `stop`: (agents, rows), or (rows) where `agents` is None.

        Parameters
        ----------
        name : str
            The variable.
        agents : ndarray of int, slice or None
            Places on the agent axis; None for the environment.
        start, stop : int
            Rows of the episode, or of the variable's own clock.
        """
        episode = self.episode
        dim = episode.agent_dim(name)
        count = len(episode.time) * (episode.data.sizes[dim] if dim else 1)
        if count <= _LITTLE_PRESENCE or not episode.on_main_clock(name):
            known = episode.present(name)
            return known[start:stop] if agents is None else known[agents, start:stop]
        first, last = start // _WINDOW, max(start, stop - 1) // _WINDOW
        parts = [self._window(name, number) for number in range(first, last + 1)]
        whole = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=-1)
        part = whole[..., start - first * _WINDOW : stop - first * _WINDOW]
        return part if agents is None else part[agents]

    def _window(self, name: str, number: int) -> NDArray[np.bool_]:
        key = (name, number)
        with self._lock:
            found = self._windows.get(key)
        if found is None:  # it is read outside the lock, so that pictures need not wait for events
            lazy = self._lazy.get(name)
            if lazy is None:
                lazy = self._lazy[name] = self.episode.data.sim.present(name)
            found = np.asarray(lazy.isel(time=slice(number * _WINDOW, (number + 1) * _WINDOW)).values, bool)
        with self._lock:
            self._windows[key] = found
            self._windows.move_to_end(key)
            while len(self._windows) > 1 and sum(w.size for w in self._windows.values()) > _MOST_PRESENCE:
                self._windows.popitem(last=False)
        return found


def read_block(episode: Episode, presence: Presence, name: str, layout: Layout, block: int, chunk: int, inflate: bool = True) -> Answer:
    """Read one chunk of pictures.

    Parameters
    ----------
    episode : Episode
        The episode.
    presence : Presence
        Where it was logged.
    name : str
        The variable.
    layout : Layout
        What `layout_of` decided.
    block, chunk : int
        Which agents, and which rows.
    inflate : bool, optional
        Whether the browser can inflate.

    Returns
    -------
    dict
        ``rows`` (how many count), ``first`` (the row of the chunk's first entry), ``there`` (for each agent the spans of rows
        that were logged; left out where all are), ``deflated``, ``shuffled``, ``empty``.
    list of bytes
        The chunk.

    Raises
    ------
    InputError
        If there is no such chunk.
    """
    dim = episode.agent_dim(name)
    total = -(-len(episode.rows(name)) // layout.every)
    first = chunk * layout.length - layout.offset
    start, stop = max(0, first), min(total, first + layout.length)
    people = episode.data.sizes[dim] if dim is not None else 1
    low = block * layout.agents - layout.agent_offset
    agents = range(max(0, low), min(people, low + layout.agents))
    if start >= stop or not len(agents):
        raise InputError(f"{name!r} of episode {episode.k} has no chunk ({block}, {chunk}).")
    every = layout.every
    people_there = presence(name, None if dim is None else slice(agents.start, agents.stop), start * every, stop * every)
    there = people_there[..., ::every]
    header: dict[str, Any] = {"first": first, "rows": stop - first}  # rows count from the chunk's own first one
    if not there.all():
        rows = there[np.newaxis] if dim is None else there
        header["there"] = [[]] * (agents.start - low) + [_spans(row, start - first) for row in rows]
    if layout.stored is not None and inflate:
        return _as_it_lies(header, layout, block, chunk)
    return _decoded(episode, header, name, layout, range(low, low + layout.agents), first, inflate)


def _as_it_lies(header: dict[str, Any], layout: Layout, block: int, chunk: int) -> Answer:
    assert layout.stored is not None
    time = layout.starts[layout.axes - 1] - layout.offset + chunk * layout.length
    lead = (layout.starts[0] - layout.agent_offset + block * layout.agents, time) if layout.axes == 2 else (time,)
    raw = read_raw(layout.stored, lead + (0,) * (len(layout.starts) - layout.axes))
    if raw is None:
        return {**header, "empty": True}, []
    return {**header, "deflated": raw.deflated, "shuffled": raw.shuffled}, [raw.octets]


def _decoded(episode: Episode, header: dict[str, Any], name: str, layout: Layout, agents: range, first: int, inflate: bool) -> Answer:
    variable = episode.data[name]
    dim, clock = episode.agent_dim(name), episode.clock_of(name)
    target = browser_dtype(variable.dtype)
    start, stop = max(0, first), first + header["rows"]
    wanted: dict[Any, Any] = {clock: slice(start * layout.every, stop * layout.every, layout.every)}
    people = slice(max(0, agents.start), agents.stop)
    if dim is not None:
        wanted[dim] = people
    values = np.asarray(variable.isel(wanted).values)
    values = values if dim is not None else values[np.newaxis]
    out = np.zeros((len(agents), layout.length, *values.shape[2:]), target)
    low = people.start - agents.start if dim is not None else 0
    with np.errstate(over="ignore", invalid="ignore"):
        out[low : low + len(values), start - first : start - first + values.shape[1]] = values
    octets = out.tobytes()
    if inflate:
        return {**header, "deflated": True, "shuffled": False}, [isal_zlib.compress(octets, 1)]
    return {**header, "deflated": False, "shuffled": False}, [octets]


def _spans(there: NDArray[np.bool_], offset: int) -> list[int]:
    """Return where a row of truth values is true, as start, stop, start, stop, ..."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], there, [False]]).astype(np.int8)))
    return [int(edge) + offset for edge in edges]
