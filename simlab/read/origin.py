"""Where a Dataset comes from, and who its agents are.

A Dataset keeps its origin in `encoding`, beside the name of its file: that survives `isel` and `sel`, is not written by
`to_netcdf`, and pickles as a path.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import xarray as xr

from simlab.conventions import AGENT, TIME
from simlab.errors import AgentError, did_you_mean
from simlab.metadata import from_json
from simlab.storage.contents import PopulationContents, RunContents
from simlab.storage.dtypes import Array
from simlab.storage.joining import read_contents
from simlab.storage.opening import RunSource

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

    def contents(self) -> RunContents:
        """Return what the simulation holds."""
        return read_contents(self.source, self.simulation)

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


def read_agents(population: PopulationContents, dim: str) -> Agents:
    """Read who the agents of a population are."""
    n = population.n_agents
    labels = [str(i) for i in range(n)] if population.label is None else [str(x) for x in population.label.read(slice(0, n)).tolist()]
    keys = [] if population.key is None else population.key.read(slice(0, n)).tolist()
    ids: list[Hashable] = list(labels)
    for place, key in enumerate(keys):
        if key:
            ids[place] = as_id(from_json(str(key)))
    return Agents(dim, ids, labels)


def unknown_agent(agent_id: object, groups: list[Agents]) -> AgentError:
    """Return the error for an agent that is not in the run."""
    known = [i for g in groups for i in g.ids]
    listed = ", ".join(map(repr, known[:10])) + (f" and {len(known) - 10} more" if len(known) > 10 else "")
    hint = did_you_mean(agent_id, [i for i in known if isinstance(i, str)]) if isinstance(agent_id, str) else ""
    return AgentError(f"There is no agent {agent_id!r} in the run; it has {listed or 'no agents'}.{hint} ds.sim.agents lists them all.")
