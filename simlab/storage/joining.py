"""A run that is being recorded, as one: the rows that are in its file, and those that are staged, which lie in a file in memory.

The file in memory has the same layout, with rows in the same places; only the staged ones are in it. Every variable is read from the
file up to a row, and from there on from memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

import h5py
import numpy as np

from simlab.conventions import AGENT, EPISODE, TIME
from simlab.storage.contents import read_stored
from simlab.storage.dtypes import Array
from simlab.storage.grids import GridContents, Member, PopulationContents, RunContents
from simlab.storage.handles import OpenFile
from simlab.storage.opening import RunSource
from simlab.storage.reading import StoredVariable
from simlab.storage.selection import Selector

_ATTEMPTS: Final = 10
"""Of a run that is being written, what is damaged is looked at so often again."""


class MemorySource(RunSource):
    """A run file in memory.

    Parameters
    ----------
    path : str
        The file it belongs to, for messages.
    data : bytes
        What it holds.
    """

    def __init__(self, path: str, data: bytes) -> None:
        super().__init__(path)
        self._data = data
        self._memory: OpenFile | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return MemorySource, (self.path, self._data)

    def _check(self, live: bool) -> None:
        """Memory does not change."""

    def _handle(self) -> OpenFile:
        if self._memory is None:
            self._memory = OpenFile(h5py.File.in_memory(self._data), live=False)
        return self._memory


@dataclass(frozen=True, slots=True)
class Tail:
    """Rows of a run that are not in its file yet.

    Attributes
    ----------
    source : RunSource or None
        The file in memory; None if there are no such rows. What the file holds after `rows` was not there yet when they were counted.
    simulation : str
        The simulation.
    split, rows : int
        The first row that is read from there, and how many rows there are by now.
    rewards : dict of str to str
        By population, the disk name of the variable whose sum is the return.
    series : dict of str to int
        By time axis of the environment's arrays, the first entry that is read from there.
    begun : dict of int to dict
        What was told when an episode was begun, by its number.
    """

    source: RunSource | None
    simulation: str
    split: int
    rows: int
    rewards: dict[str, str] = field(default_factory=dict)
    series: dict[str, int] = field(default_factory=dict)
    begun: dict[int, dict[str, Any]] = field(default_factory=dict)


def read_contents(source: RunSource, simulation: str, *, outline: bool = False) -> RunContents:
    """Return what a simulation holds: in its file and, where it is being recorded, in its journal.

    Parameters
    ----------
    source : RunSource
        The file.
    simulation : str
        Its name.
    outline : bool, optional
        Leave out what only a reader of values needs (ids, labels, logged bits), and what is wrong with it.

    Raises
    ------
    FormatError
        If the simulation lacks what every simulation has.
    """
    tail = source.tail if source.tail is not None and source.tail.simulation == simulation else None
    most = tail.rows if tail is not None and tail.source is None else None
    attempts = iter(range(_ATTEMPTS))

    def read() -> RunContents:
        found = read_stored(source, simulation, outline=outline, most=most, left=not source.live)
        if found.gaps and source.live and next(attempts, None) is not None:
            raise OSError(f"a page of {source.path!r} was being written")
        return found

    stored = source.persistently(read)
    if tail is not None:
        stored.begun = tail.begun
    if tail is None or tail.source is None:
        return stored
    joined = join(stored, read_stored(tail.source, simulation, outline=outline), tail.split, tail.rows, tail.series)
    joined.rewards, joined.begun = tail.rewards, tail.begun
    return joined


@dataclass(frozen=True, slots=True)
class JoinedVariable(StoredVariable):
    """A variable in two parts along one axis.

    Attributes
    ----------
    older, newer : StoredVariable or None
        What lies in the file and what in memory; None where the variable is not there.
    axis, split : int
        The axis, and the first entry that is read from memory.
    masks : tuple of int or None
        Of logged bits: the bit in either; read as 1 and 0.
    """

    older: StoredVariable | None = None
    newer: StoredVariable | None = None
    axis: int = 0
    split: int = 0
    masks: tuple[int, int] | None = None

    def read(self, *selection: Selector) -> Array:
        """Read a part of the variable; see `StoredVariable.read`."""
        wanted = [*selection, *(slice(None) for _ in range(len(self.shape) - len(selection)))]
        places = [_places(s, n) for s, n in zip(wanted, self.shape, strict=True)]
        along = places[self.axis]
        result = self._blank(tuple(p.size for p in places))
        for part, mask, here in ((self.older, 0, along < self.split), (self.newer, 1, along >= self.split)):
            if part is None or not here.any():
                continue
            inside = [p if i != self.axis else p[here] for i, p in enumerate(places)]
            known = [np.flatnonzero(p < n) for p, n in zip(inside, part.shape, strict=True)]
            if not all(k.size for k in known):
                continue
            values = part.read(*(_compact(p[k]) for p, k in zip(inside, known, strict=True)))
            if self.masks is not None:
                values = ((values & values.dtype.type(self.masks[mask])) != 0).astype(np.uint8)
            target = [np.arange(p.size)[k] for p, k in zip(inside, known, strict=True)]
            target[self.axis] = np.flatnonzero(here)[known[self.axis]]
            if values.dtype.kind == "U" and values.dtype.itemsize > result.dtype.itemsize:
                result = result.astype(values.dtype)
            result[np.ix_(*target)] = values
        return np.asarray(result[tuple(0 if isinstance(s, (int, np.integer)) else slice(None) for s in wanted)])

    def _blank(self, shape: tuple[int, ...]) -> Array:
        if self.masks is not None:
            return np.zeros(shape, np.uint8)
        out = np.zeros(shape, self.dtype)
        if self.dtype.kind in "fc":
            out.fill(np.nan)
        return out


def _places(selector: Selector, size: int) -> Array:
    if isinstance(selector, slice):
        return np.arange(size)[selector]
    places = np.atleast_1d(np.asarray(selector, np.int64))
    if places.size and (places.min() < -size or places.max() >= size):
        raise IndexError(f"index {selector} is out of bounds for an axis of {size}")
    return np.where(places < 0, places + size, places)


def _compact(places: Array) -> Selector:
    """Return places as a slice where they lie side by side."""
    if places.size and int(places[-1]) - int(places[0]) == places.size - 1 and bool((np.diff(places) == 1).all()):
        return slice(int(places[0]), int(places[-1]) + 1)
    return places


@dataclass(frozen=True)
class JoinedMember(Member):
    """A variable of a grid in two parts."""

    variable: JoinedVariable | None = None

    @property
    def stored(self) -> StoredVariable:
        """How to read it."""
        assert self.variable is not None
        return self.variable


def join(base: RunContents, tail: RunContents, split: int, rows: int, firsts: dict[str, int]) -> RunContents:
    """Return what a run holds whose first rows are in one file and whose later ones are in another.

    Gaps are not told: the file is in the middle of a change.

    Parameters
    ----------
    base, tail : RunContents
        Of the file, and of the file in memory.
    split, rows : int
        The first row that is read from memory, and how many rows there are.
    firsts : dict of str to int
        The same by time axis of the environment's arrays; one that is not named has nothing in memory.
    """
    out = RunContents(
        base.source, base.simulation, base.attrs, base.file_attrs, rows, base.complete,
        {name: _joined(base.clocks[name], tail.clocks[name], split, (rows,)) for name in base.clocks},
    )  # fmt: skip
    for name in dict.fromkeys([*base.populations, *tail.populations]):
        out.populations[name] = _join_population(base.populations.get(name), tail.populations.get(name), split, rows)
    series = {dim: (base.coordinates.get(dim), tail.coordinates[dim]) for dim in tail.coordinates if dim != EPISODE}
    splits, lengths = {}, {TIME: rows}
    for dim, pair in series.items():
        n = pair[0].shape[0] if pair[0] is not None else 0
        splits[dim], lengths[dim] = min(n, firsts.get(dim, n)), max(n, pair[1].shape[0])
    _join_grid(out.environment, base.environment, tail.environment, split, lengths, splits)
    n = base.coordinates[EPISODE].shape[0] if EPISODE in base.coordinates else 0
    whole = max(n, tail.coordinates[EPISODE].shape[0] if EPISODE in tail.coordinates else 0)
    _join_grid(out.episodes, base.episodes, tail.episodes, n, {EPISODE: whole}, {EPISODE: n})
    out.labels = tail.labels | base.labels
    out.coordinates = dict(base.coordinates)
    for dim, pair in series.items():
        out.coordinates[dim] = _joined(*pair, splits[dim], (lengths[dim],))
    if EPISODE in tail.coordinates:
        out.coordinates[EPISODE] = _joined(base.coordinates.get(EPISODE), tail.coordinates[EPISODE], n, (whole,))
        out.staged_episodes = whole - n
    return out


def _join_population(base: PopulationContents | None, tail: PopulationContents | None, split: int, rows: int) -> PopulationContents:
    some = base or tail
    assert some is not None
    out = PopulationContents(name=some.name, dim=some.dim)
    n, m = base.n_agents if base else 0, tail.n_agents if tail else 0
    out.n_agents = max(n, m)
    for word in ("label", "key"):
        pair = getattr(base, word, None), getattr(tail, word, None)
        if any(pair):
            setattr(out, word, _joined(*pair, n, (out.n_agents,)))
    sizes = {TIME: rows, out.dim: out.n_agents}
    _join_grid(out, base or PopulationContents(), tail or PopulationContents(), split, sizes, {})
    return out


def _join_grid(
    out: GridContents, base: GridContents, tail: GridContents, split: int, sizes: dict[str, int], splits: dict[str, int]
) -> None:
    older, newer = {m.disk: m for m in base.members}, {m.disk: m for m in tail.members}
    for disk in dict.fromkeys([*older, *newer]):
        pair = [grid[disk].stored if disk in grid else None for grid in (older, newer)]
        some = older.get(disk) or newer[disk]
        stored = pair[0] or pair[1]
        assert stored is not None
        own = next((d for d in stored.dims if d in splits), None)
        shape = tuple(sizes.get(d, s) for d, s in zip(stored.dims, stored.shape, strict=True))
        variable = _joined(pair[0], pair[1], splits[own] if own is not None else split, shape)
        out.members.append(JoinedMember(some.name, disk, some.path, some.source, (), variable))
    for word in dict.fromkeys([*base.bits, *tail.bits]):
        old, new = base.bits.get(word), tail.bits.get(word)
        some_bits = old or new
        assert some_bits is not None
        shape = tuple(sizes.get(d, s) for d, s in zip(some_bits[0].dims, some_bits[0].shape, strict=True))
        bits = _joined(old and old[0], new and new[0], split, shape)
        masks = (old[1] if old else 0, new[1] if new else 0)
        out.bits[word] = (replace(bits, masks=masks, dtype=np.dtype(np.uint8)), 1)


def _joined(older: StoredVariable | None, newer: StoredVariable | None, split: int, shape: tuple[int, ...]) -> JoinedVariable:
    some = older or newer
    assert some is not None
    axis = next((i for i, d in enumerate(some.dims) if d == TIME or d.endswith("_time")), 0)
    dtype = some.dtype
    if dtype.kind == "U" and older is not None and newer is not None:
        dtype = max(older.dtype, newer.dtype, key=lambda d: d.itemsize)
    if some.dims and some.dims[0] != TIME and axis == 0 and some.dims[0] in (AGENT, EPISODE):
        split = min(split, older.shape[0] if older is not None else 0)
    own = {f.name: getattr(some, f.name) for f in fields(StoredVariable)}
    return JoinedVariable(
        **own | {"shape": shape, "dtype": dtype, "extent": shape, "gaps": ()}, older=older, newer=newer, axis=axis, split=split
    )
