"""The parts of a simulation, as they are known before any data is read."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from simlab.conventions import AGENT, TIME, TIME_SUFFIX
from simlab.errors import FormatError, SimlabError, StorageError
from simlab.storage.damage import ODD, reason
from simlab.storage.describing import describe
from simlab.storage.dtypes import Array
from simlab.storage.opening import RunSource
from simlab.storage.reading import StoredVariable, memory

_BYTES_PER_ROW = 8


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
    axes : tuple of (str, int, int)
        The first axes that it shares with its neighbours: name, length in the file, entries that count.
    """

    name: str
    disk: str
    path: str
    source: RunSource
    axes: tuple[tuple[str, int, int], ...]

    @property
    def stored(self) -> StoredVariable:
        """How to read it; found out once.

        Raises
        ------
        FormatError
            If it is too damaged for that.
        """
        # Not by functools.cached_property, which up to Python 3.11 holds a lock over a fork, for ever in the child.
        found: StoredVariable | None = self.__dict__.get("_stored")
        if found is None:
            found = self.__dict__["_stored"] = self.source.persistently(self._describe)
        return found

    def _describe(self) -> StoredVariable:
        try:
            dataset = self.source.dataset(self.path)
        except ODD as error:
            if isinstance(error, SimlabError):
                raise
            raise FormatError(f"{self.path!r} in {self.source.path!r} is damaged: {reason(error)}.") from error
        stored = describe(self.source, dataset, [(name, held) for name, held, _ in self.axes])
        for name, _, counting in self.axes:
            stored = stored.fitted(name, counting)
        names = tuple(name for name, _, _ in self.axes)
        if stored.dims[: len(names)] != names and not (names == (TIME,) and stored.dims and stored.dims[0].endswith(TIME_SUFFIX)):
            told = f"{self.path!r} has the axes {stored.dims} and not {names} first, as it should: it is shown as it lies in the file"
            stored = replace(stored, gaps=(*stored.gaps, told))
        return stored


@dataclass(slots=True)
class GridContents:
    """Variables that share axes and logged bits.

    Attributes
    ----------
    members : list of Member
        Its variables, in the order of the file.
    bits : dict of str to (StoredVariable, int)
        For the disk name of a variable: the variable of bits and the mask of its bit.
    unknown : bool
        Whether bits were there and cannot be read, so that of variables without a bit nothing is known.
    """

    members: list[Member] = field(default_factory=list)
    bits: dict[str, tuple[StoredVariable, int]] = field(default_factory=dict)
    unknown: bool = False


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


@dataclass
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
        ``time``, ``step`` and ``episode``, as far as they are there, cut to the rows.
    populations : dict of str to PopulationContents
        By name; "" first.
    environment, episodes : GridContents
        The environment's variables, the table of episodes.
    labels : dict of str to StoredVariable
        Labels along a dimension, by the dimension.
    coordinates : dict of str to StoredVariable
        Coordinates of other dimensions (``*_time``), by the dimension.
    staged_episodes : int
        Of a run that is being recorded: how many of the last episodes in the table ended in staged rows, so that their returns are not
        known yet.
    rewards : dict of str to str
        By population, the disk name of the variable whose sum is the return, where there are such episodes.
    begun : dict of int to dict
        Of a run that is being recorded: what was told when an episode that has not ended was begun, by its number.
    gaps : list of str
        What is damaged or missing, one sentence for each.
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
    staged_episodes: int = 0
    rewards: dict[str, str] = field(default_factory=dict)
    begun: dict[int, dict[str, Any]] = field(default_factory=dict)
    gaps: list[str] = field(default_factory=list)

    @property
    def times(self) -> Array:
        """The run clock at every row; the number of the row where the clock cannot be read, which is a gap. Read once."""
        found: Array | None = self.__dict__.get("_times")
        if found is None:
            found = self.__dict__["_times"] = self._read_times()
        return found

    def _read_times(self) -> Array:
        stored = self.clocks.get(TIME)
        if stored is not None:
            try:
                return stored.read()
            except StorageError as error:
                if self.rows * _BYTES_PER_ROW > memory():
                    raise
                self.gaps.append(f"{error} Rows are numbered instead")
        return np.arange(self.rows)
