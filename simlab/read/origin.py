"""Where a Dataset comes from, and who its agents are.

A Dataset keeps its origin in `encoding`, beside the name of its file: that survives `isel` and `sel`, is not written by
`to_netcdf`, and pickles as a path.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import xarray as xr

from simlab.conventions import AGENT, TIME
from simlab.errors import AgentError, MetadataError, StorageError, did_you_mean
from simlab.metadata import from_json
from simlab.storage.dtypes import Array
from simlab.storage.grids import PopulationContents, RunContents
from simlab.storage.joining import read_contents
from simlab.storage.opening import RunSource
from simlab.storage.reading import StoredVariable

KEY: Final = "simlab_origin"


@dataclass(frozen=True, slots=True)
class Origin:
    """The run that a Dataset shows.

    Attributes
    ----------
    source : RunSource
        Its file.
    simulation : str
        Its name in the file.
    population : str or None
        The population whose names are plain; None shows all of them.
    """

    source: RunSource
    simulation: str
    population: str | None = None
    _known: list[RunContents] = field(default_factory=list, repr=False, compare=False)

    def __reduce__(self) -> tuple[type[Origin], tuple[RunSource, str, str | None]]:
        return Origin, (self.source, self.simulation, self.population)

    def contents(self) -> RunContents:
        """Return what the simulation holds; every part of the run shares it."""
        self.source.file()  # says so if the file was closed or replaced
        if not self._known:
            self._known.append(read_contents(self.source, self.simulation))
        return self._known[0]

    def dim(self, population: str) -> str:
        """Return the name that the agent axis of a population has in the Dataset."""
        return AGENT if population in ("", self.population) else population

    def shows(self, population: str) -> bool:
        """Whether the Dataset shows a population."""
        return self.population is None or population == self.population


def origin_of(ds: xr.Dataset) -> Origin | None:
    """Return where a Dataset comes from; None where it is not, or no longer, known."""
    found = ds.encoding.get(KEY)
    if found is None and TIME in ds.variables:
        # What makes a new Dataset (an average, a merge) drops its encoding, not that of the variables it keeps.
        found = ds.variables[TIME].encoding.get(KEY)
    return found if isinstance(found, Origin) else None


@dataclass(frozen=True, slots=True)
class Agents:
    """The agents of one population.

    Attributes
    ----------
    dim : str
        Their axis in the Dataset.
    ids : list
        As they were given: text, whole numbers, tuples.
    labels : list of str
        One unique text for each.
    """

    dim: str
    ids: list[Hashable]
    labels: list[str]

    def coordinate(self) -> Array:
        """Return the labels of the axis: the ids where all are text or all are whole numbers, else unique text."""
        if self.ids and all(type(i) is int and -(2**63) <= i < 2**63 for i in self.ids):
            return np.array(self.ids, np.int64)
        return np.array(self.labels or [], dtype=np.str_)

    def find(self, agent_id: object) -> int | None:
        """Return the place of an agent, by its id or its label."""
        wanted = as_id(agent_id)
        for place, known in enumerate(self.ids):
            if type(known) is type(wanted) and known == wanted:
                return place
        return self.labels.index(wanted) if isinstance(wanted, str) and wanted in self.labels else None


def as_id(value: object) -> Any:
    """Return an agent's id in the types that a file gives back: lists as tuples, numpy scalars as Python's.

    Examples
    --------
    >>> import numpy as np
    >>> as_id(["a", np.int32(1)]), as_id(np.str_("b"))
    (('a', 1), 'b')
    """
    if isinstance(value, (list, tuple)):
        return tuple(as_id(v) for v in value)
    return value.item() if isinstance(value, np.generic) else value


def read_agents(population: PopulationContents, dim: str, gaps: list[str] | None = None) -> Agents:
    """Read who the agents of a population are.

    Parameters
    ----------
    population : PopulationContents
        Whose.
    dim : str
        Their axis in the Dataset.
    gaps : list of str, optional
        Takes one sentence for each id that cannot be read; the agent's place stands in for it.
    """
    gaps = [] if gaps is None else gaps
    n = population.n_agents
    labels = _texts(population.label, n, gaps)
    for place, label in enumerate(labels):
        labels[place] = label or str(place)
    ids: list[Hashable] = list(labels)
    for place, key in enumerate(_texts(population.key, n, gaps)):
        if not key:
            continue
        try:
            found = as_id(from_json(key))
            hash(found)
        except (MetadataError, TypeError) as error:
            gaps.append(f"the id of agent {place} is damaged ({error}); it is called {labels[place]!r}")
        else:
            ids[place] = found
    return Agents(dim, ids, labels)


def _texts(stored: StoredVariable | None, n: int, gaps: list[str]) -> list[str]:
    if stored is not None:
        try:
            return [x.decode("utf-8", "replace") if isinstance(x, bytes) else str(x) for x in stored.read(slice(0, n)).tolist()]
        except StorageError as error:
            gaps.append(f"{error} Agents are numbered instead")
    return [""] * n


def unknown_agent(agent_id: object, groups: list[Agents]) -> AgentError:
    """Return the error for an agent that is not in the run."""
    known = [i for g in groups for i in g.ids]
    listed = ", ".join(map(repr, known[:10])) + (f" and {len(known) - 10} more" if len(known) > 10 else "")
    hint = did_you_mean(agent_id, [i for i in known if isinstance(i, str)]) if isinstance(agent_id, str) else ""
    return AgentError(f"There is no agent {agent_id!r} in the run; it has {listed or 'no agents'}.{hint} ds.sim.agents lists them all.")
