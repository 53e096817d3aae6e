"""Transitions: observation, action, reward and next observation, aligned.

The convention is Gymnasium's: row t of an agent holds the observation that it saw, the action that it then took, and the reward,
``terminated`` and ``truncated`` that came of it. The next observation is the one of the agent's next row in the same episode at
which it logged one; where steps are sparse, that is several steps later. The last row of an agent in an episode
has no successor. Where ``terminated`` or ``truncated`` is True at that row (or, where agents log neither, of the whole episode),
the transition is kept with its reward, with NaN (or 0) as next observation and ``has_next`` False; of an episode that was cut
without a word it is left out. A row counts if every observation that is asked for was logged there; a warning says how many others
were left out.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import xarray as xr

from simlab.conventions import ACTIONS, EPISODE, OBSERVATIONS, REWARDS, STEP, TERMINATIONS, TIME
from simlab.errors import InputError, NotInRunError, did_you_mean
from simlab.read.episodes import episode_of_rows
from simlab.read.selecting import modality_of
from simlab.storage.dtypes import Array

TRANSITION: Final = "transition"
_BLOCK_BYTES: Final = 64 << 20
_ENDS: Final = {
    "terminated": ("terminated", "termination", "terminations", "done", "dones"),
    "truncated": ("truncated", "truncation", "truncations"),
}
"""What Gymnasium and PettingZoo call them; of several that are there, the first one counts."""


@dataclass(slots=True)
class _Rows:
    """Places of the transitions of some agents: agent, row, and the row that follows (-1 where none does)."""

    agent: Array
    row: Array
    following: Array
    terminated: Array
    truncated: Array


def transitions(
    ds: xr.Dataset,
    dim: str,
    present: Callable[[str], xr.DataArray],
    table: xr.Dataset,
    observation: str | Iterable[str] | None = None,
) -> xr.Dataset:
    """Return the transitions of the agents of one population, loaded.

    Parameters
    ----------
    ds : Dataset
        With the axes `dim` and ``time``.
    dim : str
        The agents' axis.
    present : callable
        Tells where a variable was logged.
    table : Dataset
        The episodes; where agents log neither ``terminated`` nor ``truncated``, its fields of these names stand for them.
    observation : str or list of str, optional
        Which observations; left out, all of them.
    """
    if TIME not in ds.dims:
        raise InputError("The Dataset holds a single row; transitions need a span of time. Call this before selecting one.")
    names = {m: _names(ds, m, dim) for m in (OBSERVATIONS, ACTIONS, REWARDS, TERMINATIONS)}
    observed = names[OBSERVATIONS] if observation is None else [observation] if isinstance(observation, str) else list(observation)
    for name in observed:
        if name not in names[OBSERVATIONS]:
            known = names[OBSERVATIONS]
            raise NotInRunError(f"There is no observation {name!r}; there are {known}.{did_you_mean(str(name), known)}")
    if not observed:
        raise NotInRunError("The run has no observations, so it has no transitions.")
    columns = _columns("observation", observed) | _columns("action", names[ACTIONS]) | _columns("reward", names[REWARDS])
    episode = episode_of_rows(ds)
    blocks: dict[str, list[Array]] = {}
    found: list[_Rows] = []
    lacking = dict.fromkeys(observed, 0)
    for block in _blocks(ds, dim, list(columns.values())):
        part = ds.isel({dim: block})
        there = {name: present(name).isel({dim: block}).values for m in (OBSERVATIONS, ACTIONS, TERMINATIONS) for name in names[m]}
        rows = _rows(part, dim, observed, names, there, episode, table)
        did = np.logical_or.reduce([there[name] for name in names[ACTIONS] or observed])
        for name in observed:
            lacking[name] += int((did & ~there[name]).sum())
        for label, name in columns.items():
            values = part[name].transpose(dim, TIME, ...).values
            blocks.setdefault(label, []).append(values[rows.agent, rows.row])
            if name in observed:
                blocks.setdefault(f"next_{label}", []).append(_following(values, rows))
        rows.agent = rows.agent + block.start
        found.append(rows)
    if any(lacking.values()):
        rare = " and ".join(f"{name!r} ({count} rows)" for name, count in lacking.items() if count)
        kept = [name for name, count in lacking.items() if not count]
        advice = f" Name the observations that belong together: transitions(observation={kept})." if kept else ""
        warnings.warn(
            f"Agents acted at rows where an observation was not logged: {rare}. These rows are left out, and the row before is followed "
            f"by the one after.{advice}",
            stacklevel=3,
        )
    return _dataset(ds, dim, columns, blocks, found, episode)


def _names(ds: xr.Dataset, modality: str, dim: str) -> list[str]:
    return [str(k) for k, v in ds.data_vars.items() if modality_of(v) == modality and dim in v.dims and TIME in v.dims]


def _columns(word: str, names: list[str]) -> dict[str, str]:
    return {word: names[0]} if len(names) == 1 else {f"{word}.{name}": name for name in names}


def _blocks(ds: xr.Dataset, dim: str, names: list[str]) -> Iterator[slice]:
    """Yield spans of agents that are small enough to be read at once, and no smaller than a chunk."""
    n = ds.sizes[dim]
    per_agent = max([1, *(ds[name].nbytes // max(1, n) for name in names)])
    chunk = max([1, *(ds[name].encoding.get("preferred_chunks", {}).get(dim, 1) for name in names)])
    count = max(1, int(_BLOCK_BYTES // per_agent) // chunk * chunk, chunk if chunk * per_agent <= 4 * _BLOCK_BYTES else 1)
    for start in range(0, max(n, 1), count):
        yield slice(start, min(n, start + count))


def _rows(
    part: xr.Dataset,
    dim: str,
    observed: list[str],
    names: dict[str, list[str]],
    present: dict[str, Array],
    episode: Array,
    table: xr.Dataset,
) -> _Rows:
    seen = np.logical_and.reduce([present[name] for name in observed])
    acted = np.logical_and.reduce([present[name] for name in names[ACTIONS]]) if names[ACTIONS] else seen
    agent, row = np.nonzero(seen)
    follows = np.zeros(agent.size, bool)
    follows[:-1] = (agent[:-1] == agent[1:]) & (episode[row[:-1]] == episode[row[1:]])
    following = np.where(follows, np.append(row[1:], -1), -1)
    told = {}
    for word, synonyms in _ENDS.items():
        name = next((n for s in synonyms for n in names[TERMINATIONS] if n.rsplit(".", 1)[-1] == s), None)
        told[word] = None if name is None else (part[name].transpose(dim, TIME).values.astype(bool) & present[name])[agent, row]
    own = any(t is not None for t in told.values())
    ended = {w: _of_episodes(table, w, episode[row]) & (following < 0) if not own else np.zeros(agent.size, bool) for w in _ENDS}
    ended |= {w: t for w, t in told.items() if t is not None}
    keep = np.flatnonzero(acted[agent, row] & (follows | ended["terminated"] | ended["truncated"]))
    agent, row, following = agent[keep], row[keep], following[keep]
    ends = {w: values[keep] for w, values in ended.items()}
    if not own:
        # What is told of the whole episode belongs to the last transition of each agent in it.
        key = np.stack([agent, episode[row]])
        last = np.append((key[:, 1:] != key[:, :-1]).any(axis=0), True)[: agent.size]
        ends = {w: ends[w] | (last & _of_episodes(table, w, episode[row])) for w in ends}
    return _Rows(agent, row, following, ends["terminated"], ends["truncated"])


def _of_episodes(table: xr.Dataset, word: str, episodes: Array) -> Array:
    if word not in table or table[word].dtype.kind not in "bui":
        return np.zeros(episodes.size, bool)
    true = table[EPISODE].values[table[word].values.astype(bool)]
    return np.isin(episodes, true)


def _following(values: Array, rows: _Rows) -> Array:
    out = values[rows.agent, rows.following]
    if (rows.following < 0).any():
        out = out.copy()
        out[rows.following < 0] = np.nan if out.dtype.kind in "fc" else np.zeros((), out.dtype)
    return out


def _dataset(
    ds: xr.Dataset, dim: str, columns: dict[str, str], blocks: dict[str, list[Array]], found: list[_Rows], episode: Array
) -> xr.Dataset:
    def joined(field: str) -> Array:
        return np.concatenate([getattr(rows, field) for rows in found])

    agent, row = joined("agent"), joined("row")
    data: dict[str, Any] = {}
    for label, name in columns.items():
        own = tuple(d for d in ds[name].dims if d not in (dim, TIME))
        for each in (label, f"next_{label}"):
            if each in blocks:
                data[each] = ((TRANSITION, *own), np.concatenate(blocks[each]), dict(ds[name].attrs))
    data["terminated"] = (TRANSITION, joined("terminated"))
    data["truncated"] = (TRANSITION, joined("truncated"))
    data["has_next"] = (TRANSITION, joined("following") >= 0)
    coords: dict[str, Any] = {
        dim: (TRANSITION, ds[dim].values[agent]), TIME: (TRANSITION, ds[TIME].values[row]), EPISODE: (TRANSITION, episode[row]),
    }  # fmt: skip
    if STEP in ds.coords:
        coords[STEP] = (TRANSITION, ds[STEP].values[row])
    for name in columns.values():
        coords |= {str(d): ds[d] for d in ds[name].dims if d not in (dim, TIME) and d in ds.coords}
    return xr.Dataset(data, coords)
