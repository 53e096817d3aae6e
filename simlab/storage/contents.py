"""What a simulation in a run file holds: clocks, agents, variables, bits, episodes. Nothing of the data is read.

A variable is any dataset that is no dimension, no label and no bookkeeping; what a later minor version of the format adds in
other places is passed over.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import h5py
import numpy as np

from simlab.conventions import (
    AGENT,
    AGENT_MODALITIES,
    ATTR_ORIGINAL_NAME,
    COMMITTED,
    COMPLETE,
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
)
from simlab.errors import FormatError
from simlab.storage.attributes import read_attributes
from simlab.storage.finding import data_below, groups_below
from simlab.storage.netcdf import is_group_count
from simlab.storage.opening import RunSource
from simlab.storage.reading import StoredVariable, describe, is_plain_dimension, note_scales

_LOGGED_FIELD: Final = re.compile(rf"{LOGGED}(_\d+)?")
_DEEPEST: Final = 32


@dataclass(frozen=True)
class Member:
    """A variable of a grid.

    Attributes
    ----------
    name : str
        As it was given.
    disk : str
        As it lies in the file, groups joined by dots; the word that the logged bits have for it.
    path : str
        Where it lies in the file.
    source : RunSource
        The file.
    rows : int
        How many rows count.
    """

    name: str
    disk: str
    path: str
    source: RunSource
    rows: int

    @cached_property
    def stored(self) -> StoredVariable:
        """How to read it."""
        return describe(self.source, self.source.dataset(self.path)).limited(TIME, self.rows)


@dataclass(slots=True)
class GridContents:
    """Variables that share axes and logged bits.

    Attributes
    ----------
    members : list of Member
        Its variables, in the order of the file.
    bits : dict of str to (StoredVariable, int)
        For the disk name of a variable: the variable of bits and the mask of its bit.
    """

    members: list[Member] = field(default_factory=list)
    bits: dict[str, tuple[StoredVariable, int]] = field(default_factory=dict)


@dataclass(slots=True)
class PopulationContents(GridContents):
    """The variables of the agents of one kind.

    Attributes
    ----------
    name : str
        The population; "" where all agents are of one kind.
    dim : str
        Name of the agent axis.
    n_agents : int
        Its length.
    label, key : StoredVariable or None
        Where the ids lie: as text, and as JSON.
    """

    name: str = ""
    dim: str = AGENT
    n_agents: int = 0
    label: StoredVariable | None = None
    key: StoredVariable | None = None


@dataclass(slots=True)
class RunContents:
    """What a simulation holds.

    Attributes
    ----------
    source : RunSource
        The file.
    simulation : str
        The name of the simulation.
    attrs, file_attrs : dict
        Attributes of the simulation and of the file, as they lie there.
    rows : int
        Rows that are complete.
    complete : bool
        Whether the run was finalized.
    clocks : dict of str to StoredVariable
        ``time``, ``step`` and ``episode``, cut to the rows.
    populations : dict of str to PopulationContents
        By name; "" first.
    environment, episodes : GridContents
        The environment's variables, the table of episodes.
    labels : dict of str to StoredVariable
        Labels along a dimension, by the dimension.
    coordinates : dict of str to StoredVariable
        Coordinates of other dimensions (``*_time``), by the dimension.
    """

    source: RunSource
    simulation: str
    attrs: dict[str, Any]
    file_attrs: dict[str, Any]
    rows: int
    complete: bool
    clocks: dict[str, StoredVariable]
    populations: dict[str, PopulationContents] = field(default_factory=dict)
    environment: GridContents = field(default_factory=GridContents)
    episodes: GridContents = field(default_factory=GridContents)
    labels: dict[str, StoredVariable] = field(default_factory=dict)
    coordinates: dict[str, StoredVariable] = field(default_factory=dict)


def read_stored(source: RunSource, simulation: str, most: int | None = None) -> RunContents:
    """Return what a simulation holds in its file, up to `most` rows.

    Raises
    ------
    FormatError
        If the simulation lacks what every simulation has.
    """
    group = source.file()[simulation]
    found = {d.name.rsplit("/", 1)[-1]: d for d in data_below(group)}
    note_scales(source, found.values())
    missing = [name for name in (COMMITTED, TIME, STEP, EPISODE) if name not in found]
    if missing:
        lacking = ", ".join(missing)
        raise FormatError(f"Simulation {simulation!r} of {source.path!r} lacks {lacking}: it is damaged, or not written by simlab.")
    rows = max(0, min(int(found[COMMITTED][()]) if most is None else most, *(found[n].shape[0] for n in (TIME, STEP, EPISODE))))
    contents = RunContents(
        source, simulation, read_attributes(group), read_attributes(source.file()), rows,
        COMPLETE in found and bool(found[COMPLETE][()]),
        {name: describe(source, found[name]).limited(TIME, rows) for name in (TIME, STEP, EPISODE)},
    )  # fmt: skip
    _Reader(source, contents).read(group, found)
    return contents


@dataclass(slots=True)
class _Reader:
    """Fills a `RunContents` from the groups of a simulation."""

    source: RunSource
    contents: RunContents

    def read(self, group: h5py.Group, found: dict[str, h5py.Dataset]) -> None:
        contents = self.contents
        self._note_labels(found.values())
        agents = group.get(GROUP_AGENTS)
        if isinstance(agents, h5py.Group):
            named = [n for n in groups_below(agents) if n not in AGENT_MODALITIES and agents[n].get(n, getclass=True) is h5py.Dataset]
            if AGENT in found:
                contents.populations[""] = self._population("", group, agents, skip=named)
            for name in named:
                contents.populations[name] = self._population(name, agents[name], agents[name], skip=[])
        elif AGENT in found:
            contents.populations[""] = self._population("", group, None, skip=[])
        for name, grid in ((GROUP_ENVIRONMENT, contents.environment), (GROUP_EPISODES, contents.episodes)):
            inner = group.get(name)
            if isinstance(inner, h5py.Group):
                self._grid(inner, grid, flat=name == GROUP_EPISODES)

    def _population(self, name: str, home: h5py.Group, variables: h5py.Group | None, skip: list[str]) -> PopulationContents:
        dim = name or AGENT
        note_scales(self.source, data_below(home) if name else ())
        ids = {s: describe(self.source, home[dim + s]) for s in (ID_SUFFIX, KEY_SUFFIX) if dim + s in home}
        out = PopulationContents(name=name, dim=dim, n_agents=int(home[dim].shape[0]), label=ids.get(ID_SUFFIX), key=ids.get(KEY_SUFFIX))
        if variables is not None:
            self._grid(variables, out, skip=(*skip, dim, dim + ID_SUFFIX, dim + KEY_SUFFIX))
        return out

    def _grid(self, group: h5py.Group, grid: GridContents, skip: Iterable[str] = (), flat: bool = False) -> None:
        for path, dataset in self._walk(group, "", frozenset(skip)):
            parts = path.split("/")
            if not flat and len(parts) > 1 and parts[0] in AGENT_MODALITIES and isinstance(grid, PopulationContents):
                del parts[0]
            elif len(parts) == 1 and _LOGGED_FIELD.fullmatch(path):
                self._note_bits(dataset, grid)
                continue
            disk = ".".join(parts)
            name = _given_name(dataset, disk)
            grid.members.append(Member(name, disk, str(dataset.name), self.source, self.contents.rows))

    def _walk(self, group: h5py.Group, path: str, skip: frozenset[str], depth: int = 0) -> Iterator[tuple[str, h5py.Dataset]]:
        datasets = data_below(group)
        note_scales(self.source, datasets)
        labels = self._note_labels(datasets)
        for dataset in datasets:
            name = dataset.name.rsplit("/", 1)[-1]
            if name in skip or name in labels or is_group_count(dataset):
                continue
            if h5py.h5ds.is_scale(dataset.id):
                if not is_plain_dimension(dataset):
                    self.contents.coordinates[name] = describe(self.source, dataset)
                continue
            yield path + name, dataset
        for name in groups_below(group):
            if name not in skip and depth < _DEEPEST:
                yield from self._walk(group[name], f"{path}{name}/", frozenset(), depth + 1)

    def _note_labels(self, datasets: Iterable[h5py.Dataset]) -> set[str]:
        """Remember the labels among some datasets, by their dimension, and return their names."""
        names = set()
        for dataset in datasets:
            name = dataset.name.rsplit("/", 1)[-1]
            if name.endswith(LABEL_SUFFIX) and dataset.dtype.kind == "S" and dataset.ndim == 2:
                stored = describe(self.source, dataset)
                if stored.dims == (name.removesuffix(LABEL_SUFFIX),):
                    self.contents.labels[stored.dims[0]] = stored
                    names.add(name)
        return names

    def _note_bits(self, dataset: h5py.Dataset, grid: GridContents) -> None:
        stored = describe(self.source, dataset).limited(TIME, self.contents.rows)
        words = str(stored.attrs.get("flag_meanings", "")).split()
        masks = np.atleast_1d(stored.attrs.get("flag_masks", np.zeros(0, np.uint8)))
        for word, mask in zip(words, masks, strict=False):
            grid.bits[word] = (stored, int(mask))


def _given_name(dataset: h5py.Dataset, disk: str) -> str:
    if ATTR_ORIGINAL_NAME not in dataset.attrs:
        return disk
    name = dataset.attrs[ATTR_ORIGINAL_NAME]
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name)
