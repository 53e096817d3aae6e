"""What a simulation in a run file holds: clocks, agents, variables, bits, episodes. Nothing of the data is read.

A variable is any dataset that is no dimension, no label and no bookkeeping; what a later minor version of the format adds in
other places is passed over. What is damaged or missing is a gap: it is noted, and the rest is there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

import h5py
import numpy as np

from simlab.conventions import (
    AGENT,
    AGENT_MODALITIES,
    ATTR_DATE,
    ATTR_ENVIRONMENT_TYPE,
    ATTR_ORIGINAL_NAME,
    ATTR_SEED,
    ATTR_STEP_DURATION,
    EPISODE,
    GROUP_AGENTS,
    GROUP_ENVIRONMENT,
    GROUP_EPISODES,
    ID_SUFFIX,
    KEY_SUFFIX,
    LABEL_SUFFIX,
    LOGGED,
    STEP,
    TIME,
    TIME_SUFFIX,
)
from simlab.errors import FormatError, SimlabError
from simlab.storage.attributes import read_attributes
from simlab.storage.clocks import count_rows, is_complete, read_clock, sound_rows
from simlab.storage.damage import ODD, reason
from simlab.storage.describing import describe, is_plain_dimension, is_scale, note_scales
from simlab.storage.entries import Entries, address, entries
from simlab.storage.grids import GridContents, Member, PopulationContents, RunContents
from simlab.storage.netcdf import is_group_count
from simlab.storage.opening import RunSource
from simlab.storage.reading import StoredVariable

_LOGGED_FIELD: Final = re.compile(rf"{LOGGED}(_\d+)?")
_DEEPEST: Final = 32
_MOST_AGENTS: Final = 1 << 26
_OWN_ATTRIBUTES: Final[tuple[tuple[str, tuple[type, ...], str], ...]] = (
    (ATTR_SEED, (int, np.integer), "whole number"),
    (ATTR_DATE, (str,), "text"),
    (ATTR_ENVIRONMENT_TYPE, (str,), "text"),
    (ATTR_STEP_DURATION, (int, float, np.integer, np.floating), "number"),
)


def read_stored(source: RunSource, simulation: str, *, outline: bool = False, most: int | None = None, left: bool = False) -> RunContents:
    """Return what a simulation holds in its file.

    Parameters
    ----------
    source : RunSource
        The file.
    simulation : str
        Its name.
    outline : bool, optional
        Leave out what only a reader of values needs (ids, labels, logged bits), and what is wrong with it: a third of the time.
    most : int, optional
        How many rows there are, where that was read before the file was opened.
    left : bool, optional
        Whether its writer is gone, so that a simulation that was not finalized may have lost pages with the machine's power.

    Raises
    ------
    FormatError
        If the simulation lacks what every simulation has, or is too damaged to be read.
    """
    try:
        return _read(source, simulation, outline, most, left)
    except ODD as error:
        if isinstance(error, SimlabError):
            raise
        raise FormatError(f"Simulation {simulation!r} of {source.path!r} is damaged: {reason(error)}. Restore it from a copy.") from error


def _read(source: RunSource, simulation: str, outline: bool, most: int | None, left: bool) -> RunContents:
    group = source.file()[simulation]
    found = entries(group)
    gaps = list(found.gaps)
    note_scales(source, found.datasets)
    clocks = {name: stored for name in (TIME, STEP, EPISODE) if (stored := read_clock(source, found, name, gaps)) is not None}
    if not clocks:
        raise FormatError(
            f"Simulation {simulation!r} of {source.path!r} lacks {TIME}, {STEP} and {EPISODE}: it is damaged, or not written by simlab."
        )
    complete = is_complete(found, gaps)
    rows = count_rows(found, clocks, complete, gaps)
    if left and not complete:
        rows = sound_rows(clocks, rows, gaps)
    if most is not None:
        rows = max(0, min(most, *(stored.extent[0] for stored in clocks.values())))
    for name in [name for name, stored in clocks.items() if stored.shape[0] < rows]:
        gaps.append(f"{clocks.pop(name).path!r} is cut short, so it is left out")
    contents = RunContents(
        source, simulation, read_attributes(group, gaps), read_attributes(source.file(), gaps), rows, complete,
        {name: stored.limited(TIME, rows) for name, stored in clocks.items()}, gaps=gaps,
    )  # fmt: skip
    _check_attributes(contents.attrs, gaps)
    _Reader(source, contents, outline).read(found)
    return contents


def _check_attributes(attrs: dict[str, Any], gaps: list[str]) -> None:
    """Note those of the run's own attributes that are of another kind than it writes; they are shown as they are."""
    for name, kinds, word in _OWN_ATTRIBUTES:
        value = attrs.get(name)
        if isinstance(value, np.ndarray) and value.shape == (1,):  # so does netCDF write a number into a copy
            attrs[name] = value[0]
        if name in attrs and (not isinstance(attrs[name], kinds) or isinstance(attrs[name], (bool, np.bool_)) or attrs[name] == ""):
            gaps.append(f"attribute {name!r} is {attrs[name]!r}, no {word}")


@dataclass(slots=True)
class _Reader:
    """Fills a `RunContents` from the groups of a simulation."""

    source: RunSource
    contents: RunContents
    outline: bool
    seen: set[int] = field(default_factory=set)

    def read(self, found: Entries) -> None:
        contents = self.contents
        self._note_labels(found.datasets)
        for name in (GROUP_AGENTS, GROUP_ENVIRONMENT, GROUP_EPISODES):
            if name in found.datasets:
                contents.gaps.append(f"{name!r} is an array, not a group: what it should hold is lost")
        agents = found.groups.get(GROUP_AGENTS)
        inner = entries(agents) if agents is not None else Entries()
        kinds = {n: e for n, g in inner.groups.items() if n not in AGENT_MODALITIES and n in (e := entries(g)).datasets}
        if AGENT in found.datasets:
            self._population("", found, inner, skip=list(kinds))
        elif set(inner.groups) & set(AGENT_MODALITIES) or not all(is_scale(d) or is_group_count(d) for d in inner.datasets.values()):
            contents.gaps.append(f"there is no {AGENT!r}, so the variables of agents are left out")
        for name, kind in kinds.items():
            self._population(name, kind, kind, skip=[])
        contents.gaps += inner.gaps
        time = (TIME, contents.clocks[TIME].extent[0], contents.rows) if TIME in contents.clocks else (TIME, contents.rows, contents.rows)
        for name, grid in ((GROUP_ENVIRONMENT, contents.environment), (GROUP_EPISODES, contents.episodes)):
            if name in found.groups:
                here = entries(found.groups[name])
                contents.gaps += here.gaps
                self._grid(here, grid, (time,) if name == GROUP_ENVIRONMENT else (), flat=name == GROUP_EPISODES)
        known = {member.disk.replace(".", "_") + TIME_SUFFIX for member in contents.environment.members}
        contents.gaps += [f"{dim!r} is the clock of a variable that is not there" for dim in contents.coordinates if _is_orphan(dim, known)]
        absent = [GROUP_AGENTS] if agents is None and contents.populations else []
        absent += [GROUP_EPISODES] if GROUP_EPISODES not in found.groups and contents.complete and contents.rows else []
        contents.gaps += [f"there is no group {name!r}" for name in absent if name not in found.datasets]

    def _population(self, name: str, home: Entries, variables: Entries, skip: list[str]) -> None:
        dim = name or AGENT
        contents = self.contents
        axis = home.datasets[dim]
        if axis.shape is None or len(axis.shape) != 1:
            contents.gaps.append(f"{str(axis.name)!r} is no axis of agents, so the variables of agents on it are left out")
            return
        if name:
            note_scales(self.source, home.datasets)
        n = int(axis.shape[0])
        if n > _MOST_AGENTS:
            contents.gaps.append(f"{str(axis.name)!r} claims {n:,} agents, so their variables are left out")
            return
        out = PopulationContents(name=name, dim=dim, n_agents=n)
        out.label, out.key = (self._text_of(home, dim + suffix, dim, n) for suffix in (ID_SUFFIX, KEY_SUFFIX))
        contents.populations[name] = out
        held = contents.clocks[TIME].extent[0] if TIME in contents.clocks else contents.rows
        self._grid(variables, out, ((dim, n, n), (TIME, held, contents.rows)), skip=(*skip, dim, dim + ID_SUFFIX, dim + KEY_SUFFIX))

    def _text_of(self, home: Entries, name: str, dim: str, n: int) -> StoredVariable | None:
        """Return where the ids of agents lie, if they are one text for each."""
        if self.outline:
            return None
        if name in home.groups:
            self.contents.gaps.append(f"{name!r} is a group, so the ids of the agents are lost")
        if name not in home.datasets:
            if n and name.endswith(ID_SUFFIX):
                self.contents.gaps.append(f"there is no {name!r}: agents are numbered")
            return None
        stored = self._described(home.datasets[name])
        if stored is not None and (len(stored.shape) != 1 or stored.dtype.kind not in "US"):
            self.contents.gaps.append(f"{stored.path!r} holds {stored.dtype} of shape {stored.shape}, not one text for each agent")
            return None
        return None if stored is None else replace(stored, dims=(dim,)).fitted(dim, n)

    def _described(self, dataset: h5py.Dataset) -> StoredVariable | None:
        """Describe a dataset that is no variable; where that fails, it is a gap."""
        try:
            stored = describe(self.source, dataset)
        except FormatError as error:
            self.contents.gaps.append(str(error))
            return None
        self.contents.gaps += stored.gaps
        return stored

    def _grid(
        self,
        group: Entries,
        grid: GridContents,
        axes: tuple[tuple[str, int, int], ...],
        skip: Iterable[str] = (),
        flat: bool = False,
    ) -> None:
        shared = axes
        if flat:  # a table of episodes has one axis, its own
            rows = group.datasets.get(EPISODE)
            shared = (
                () if rows is None or rows.shape is None or len(rows.shape) != 1 else ((EPISODE, int(rows.shape[0]), int(rows.shape[0])),)
            )
        for path, dataset in self._walk(group, "", frozenset(skip)):
            parts = path.split("/")
            if not flat and len(parts) > 1 and parts[0] in AGENT_MODALITIES and isinstance(grid, PopulationContents):
                del parts[0]
            elif len(parts) == 1 and _LOGGED_FIELD.fullmatch(path):
                self._note_bits(dataset, grid, shared)
                continue
            disk = ".".join(parts)
            name = _given_name(dataset, disk)
            grid.members.append(Member(name, disk, str(dataset.name), self.source, shared))
        if isinstance(grid, PopulationContents) and not grid.unknown and not self.outline:
            unsaid = [member.disk for member in grid.members if member.disk not in grid.bits]
            if unsaid:
                self.contents.gaps.append(f"no bit says where {', '.join(map(repr, unsaid))} was logged")
                grid.unknown = True
        lost = sorted(set(grid.bits) - {member.disk for member in grid.members})
        if lost:
            self.contents.gaps.append(f"{', '.join(map(repr, lost))} was logged, but is not in the file")

    def _walk(self, group: Entries, path: str, skip: frozenset[str], depth: int = 0) -> Iterator[tuple[str, h5py.Dataset]]:
        scales = note_scales(self.source, group.datasets)
        labels = self._note_labels(group.datasets)
        for name, dataset in group.datasets.items():
            if name in skip or name in labels or is_group_count(dataset):
                continue
            if name not in scales:
                yield path + name, dataset
            elif not self._skips(name) and not is_plain_dimension(dataset) and (stored := self._described(dataset)) is not None:
                if len(stored.shape) == 1 and stored.dtype.kind in "iuf":
                    self.contents.coordinates[name] = stored
                else:
                    self.contents.gaps.append(f"{stored.path!r} is no axis of numbers: it is left out")
        for name, inner in group.groups.items():
            place = address(inner)
            if name not in skip and depth < _DEEPEST and place not in self.seen:
                self.seen.add(place)
                below = entries(inner)
                self.contents.gaps += below.gaps
                yield from self._walk(below, f"{path}{name}/", frozenset(), depth + 1)

    def _skips(self, scale: str) -> bool:
        return self.outline and scale != EPISODE

    def _note_labels(self, datasets: dict[str, h5py.Dataset]) -> set[str]:
        """Remember the labels among some datasets, by their dimension, and return their names."""
        names = set()
        for name, dataset in datasets.items():
            if not name.endswith(LABEL_SUFFIX) or not _is_text(dataset):
                continue
            if self.outline:
                names.add(name)
                continue
            stored = self._described(dataset)
            if stored is not None and stored.dims == (name.removesuffix(LABEL_SUFFIX),):
                self.contents.labels[stored.dims[0]] = stored
                names.add(name)
        return names

    def _note_bits(self, dataset: h5py.Dataset, grid: GridContents, axes: tuple[tuple[str, int, int], ...]) -> None:
        """Remember which bit tells of which variable."""
        if self.outline:
            return
        gaps, path = self.contents.gaps, str(dataset.name)
        try:
            stored = describe(self.source, dataset, [(name, held) for name, held, _ in axes])
            for name, _, counting in axes:
                stored = stored.fitted(name, counting)
        except FormatError as error:
            gaps.append(f"{error} What was logged is not known")
            grid.unknown = True
            return
        gaps += stored.gaps
        words, masks = stored.attrs.get("flag_meanings", ""), np.atleast_1d(stored.attrs.get("flag_masks", ()))
        named = words.split() if isinstance(words, str) else []
        fits = masks.ndim == 1 and masks.dtype.kind in "iu" and masks.size == len(named) and stored.dims == tuple(a[0] for a in axes)
        if not fits or stored.dtype.kind not in "iu":
            gaps.append(f"{path!r} does not say which bit of which row is whose: what was logged is not known")
            grid.unknown = True
            return
        most = int(np.iinfo(stored.dtype).max)
        for word, mask in zip(named, masks.tolist(), strict=True):
            if 0 < mask <= most:
                grid.bits[word] = (stored, mask)
            else:
                gaps.append(f"{path!r} has no bit {mask} for {word!r}: where it was logged is not known")
                grid.unknown = True


def _is_orphan(dim: str, known: set[str]) -> bool:
    return dim.endswith(TIME_SUFFIX) and dim not in known


def _is_text(dataset: h5py.Dataset) -> bool:
    try:
        return bool(dataset.dtype.kind == "S" and dataset.ndim == 2)
    except ODD:
        return False


def _given_name(dataset: h5py.Dataset, disk: str) -> str:
    try:
        if ATTR_ORIGINAL_NAME not in dataset.attrs:
            return disk
        name = dataset.attrs[ATTR_ORIGINAL_NAME]
    except ODD:
        return disk
    if isinstance(name, bytes):
        name = name.decode("utf-8", "replace")
    return str(name) if isinstance(name, str) and name else disk
