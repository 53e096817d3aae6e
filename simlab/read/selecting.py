"""Parts of a run by agent, by modality and by presence."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from simlab.conventions import AGENT, AGENT_MODALITIES, ATTR_MODALITY, ENVIRONMENT, EPISODE, TIME
from simlab.errors import NotInRunError, StateError, did_you_mean
from simlab.read.arrays import BitArray, lazy
from simlab.read.episodes import as_in_table
from simlab.read.origin import Agents, Origin, read_agents, unknown_agent
from simlab.storage.damage import reason
from simlab.storage.grids import GridContents, RunContents

MODALITIES = (*AGENT_MODALITIES, ENVIRONMENT)


def agent_groups(ds: xr.Dataset, contents: RunContents | None, origin: Origin | None) -> list[Agents]:
    """Return the agents that a Dataset shows, one entry for each population."""
    if contents is None or origin is None:
        # The run file is not known any more: the coordinate is what there is.
        ids: list[Hashable] = np.atleast_1d(ds[AGENT].values).tolist() if AGENT in ds.coords else []
        return [Agents(AGENT, ids, [str(i) for i in ids])] if ids else []
    return [read_agents(p, origin.dim(p.name)) for p in contents.populations.values() if origin.shows(p.name)]


def select_agents(ds: xr.Dataset, wanted: object, groups: list[Agents]) -> xr.Dataset:
    """Return what one agent, or each of several, logged; the environment's variables stay.

    Parameters
    ----------
    ds : Dataset
        A run, or a part of it.
    wanted : id or list of ids
        A list keeps the agent axis, a single id (text, number or tuple) drops it.
    groups : list of Agents
        Who there is.

    Raises
    ------
    AgentError
        If there is no such agent.
    """
    single = not isinstance(wanted, (list, np.ndarray, xr.DataArray, set, frozenset, range))
    ids = [wanted] if single else _listed(wanted)
    places: dict[str, list[int]] = {}
    for agent_id in ids:
        group, place = next(((g, p) for g in groups if (p := g.find(agent_id)) is not None), (None, None))
        if group is None or place is None:
            raise unknown_agent(agent_id, groups)
        here = np.flatnonzero(np.atleast_1d(ds[group.dim].values) == group.coordinate()[place]) if group.dim in ds.coords else np.zeros(0)
        if not here.size:
            raise NotInRunError(f"Agent {agent_id!r} is in the run, but not in this part of it. Open the run for all of its agents.")
        places.setdefault(group.dim, []).append(int(here[0]))
    if not ids:
        return ds.isel({g.dim: slice(0, 0) for g in groups if g.dim in ds.dims})
    ds = ds.drop_dims([g.dim for g in groups if g.dim not in places and g.dim in ds.dims])
    return ds.isel({dim: at[0] if single else at for dim, at in places.items() if dim in ds.dims})


def _listed(wanted: Any) -> list[Any]:
    if isinstance(wanted, (xr.DataArray, np.ndarray)):
        return list(np.atleast_1d(np.asarray(wanted)).tolist())
    return list(wanted)


def modality_of(variable: xr.DataArray | xr.Variable) -> str | None:
    """Return what a variable is to an agent; None where its attributes do not say it."""
    told = variable.attrs.get(ATTR_MODALITY)
    return told if isinstance(told, str) else None


def modalities(ds: xr.Dataset) -> list[str]:
    """Return the modalities that a Dataset has variables of, in the usual order."""
    there = {modality_of(v) for v in ds.data_vars.values()}
    return [m for m in MODALITIES if m in there]


def variables_of(ds: xr.Dataset, wanted: str | Iterable[str] | None) -> list[str]:
    """Return the names of the variables of one modality, or of several; None is all of them.

    Raises
    ------
    NotInRunError
        If there is no such modality, or the Dataset has no variables of it.
    """
    if wanted is None:
        return [str(k) for k in ds.data_vars]
    names = [wanted] if isinstance(wanted, str) else list(wanted)
    there = modalities(ds)
    for name in names:
        if name not in there:
            raise NotInRunError(f"There is no modality {name!r} here; {_listed_modalities(ds, there)}.{_hint(ds, name, there)}")
    return [str(k) for k, v in ds.data_vars.items() if modality_of(v) in names]


def _listed_modalities(ds: xr.Dataset, there: list[str], most: int = 6) -> str:
    """Say "there is observations (vision, proprioception), actions (actions)"."""
    parts = []
    for modality in there:
        names = [str(k) for k, v in ds.data_vars.items() if modality_of(v) == modality]
        parts.append(f"{modality} ({', '.join(names[:most])}{', ...' if len(names) > most else ''})")
    return f"there is {', '.join(parts)}" if parts else "there are no variables"


def _hint(ds: xr.Dataset, name: object, there: list[str]) -> str:
    if name in ds.data_vars:
        return f" {name!r} is a variable: ds[{name!r}], or ds[[{name!r}]].sim.load(...)."
    return did_you_mean(str(name), [*there, *map(str, ds.data_vars)])


def presence(ds: xr.Dataset, name: str, contents: RunContents | None, origin: Origin | None) -> xr.DataArray:
    """Return where a variable was logged, lazily, for the agents and rows that the Dataset holds.

    Parameters
    ----------
    ds : Dataset
        A run, or a part of it.
    name : str
        A variable, or a field of episodes.

    Raises
    ------
    NotInRunError
        If there is no such variable.
    StateError
        If the Dataset does not know its run file any more.
    """
    if contents is None or origin is None:
        raise StateError("The Dataset does not know its run file any more, so what was logged cannot be told. Open the run with open_run.")
    full = _full_presence(name, contents, origin)
    if full is None:
        known = [str(k) for k in ds.data_vars] + [m.name for m in contents.episodes.members]
        raise NotInRunError(f"There is no variable {name!r} in the run.{did_you_mean(str(name), known)} ds.data_vars lists them.")
    wanted = {d: ds[d] for d in full.dims if d in ds.coords and d != EPISODE and not _same(full[d], ds[d])}
    try:
        return full.sel(wanted) if wanted else full
    except (KeyError, ValueError, pd.errors.InvalidIndexError) as error:
        axes = " and ".join(map(str, wanted))
        raise StateError(
            f"Where {name!r} was logged cannot be told: {axes} of this Dataset are not those of the run, or not unique ({reason(error)})."
        ) from error


def _same(full: xr.DataArray, part: xr.DataArray) -> bool:
    return full.shape == part.shape and bool((full.values == part.values).all())


def _full_presence(name: str, contents: RunContents, origin: Origin) -> xr.DataArray | None:
    for population in contents.populations.values():
        plain = population.name in ("", origin.population)
        dim = origin.dim(population.name)
        for member in population.members if origin.shows(population.name) else ():
            if name == (member.name if plain else f"{population.name}.{member.name}"):
                agents = read_agents(population, dim).coordinate()
                return _bit(population, member.disk, (dim, TIME), {dim: agents, TIME: contents.times})
    for member in contents.environment.members:
        if member.name == name:
            clock = contents.times
            own = contents.coordinates.get(member.stored.dims[0]) if member.stored.dims else None
            if member.disk not in contents.environment.bits and own is not None:
                return xr.DataArray(np.isin(clock, own.read()), {TIME: clock}, (TIME,))
            return _bit(contents.environment, member.disk, (TIME,), {TIME: clock})
    for member in contents.episodes.members:
        if member.name == name and EPISODE in contents.coordinates:
            entries = _bit(contents.episodes, member.disk, (EPISODE,), {EPISODE: contents.coordinates[EPISODE].read()})
            return as_in_table(entries, name, contents)
    if EPISODE in contents.coordinates and any(fields.get(name) is not None for fields in contents.begun.values()):
        numbers = contents.coordinates[EPISODE].read()  # no episode that ended has it
        return as_in_table(xr.DataArray(np.zeros(numbers.size, bool), {EPISODE: numbers}, (EPISODE,)), name, contents)
    return None


def _bit(grid: GridContents, disk: str, dims: tuple[str, ...], coords: dict[str, Any]) -> xr.DataArray:
    bits, mask = grid.bits.get(disk, (None, 0))
    shape = tuple(len(coords[d]) for d in dims)
    if bits is None and grid.unknown:
        raise StateError(f"Where {disk!r} was logged is not known: the bits that tell it are damaged. Opening the run told more.")
    # Without a bit of its own (start and length of episodes) a variable is there in every entry.
    variable = xr.Variable(dims, np.ones(shape, bool)) if bits is None else lazy(dims, BitArray(bits, mask))
    if variable.shape != shape:
        raise StateError(
            f"Where {disk!r} was logged is not known: its bits have the shape {variable.shape}, not {shape}. The run is damaged."
        )
    return xr.DataArray(variable, coords={d: (d, c) for d, c in coords.items()})
