"""Moments of an episode as plain arrays; no graphics."""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from simlab.conventions import AGENT, AGENT_MODALITIES, ATTR_KIND, ATTR_MODALITY, EPISODE, STEP, TIME, TIME_SUFFIX
from simlab.errors import AgentError, NotInRunError, TimestepError, did_you_mean
from simlab.view.paint import Scale, as_image, paint, scale_of

if TYPE_CHECKING:
    import xarray as xr

Array = NDArray[Any]

MOST_LIMIT_BYTES: Final = 128 << 20
"""Up to so many bytes of a variable are read to find the limits of an episode's pictures; of longer ones, evenly spaced frames are."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One picture at one moment.

    Attributes
    ----------
    name : str
        The variable.
    agent : hashable or None
        Whose it is; None for the environment.
    time, step : int
        The run clock, and the timestep inside the episode.
    values : ndarray of shape (height, width, channels)
        As logged.
    image : ndarray of uint8, shape (height, width, 3)
        As painted.
    present : bool
        Whether anything was logged; if not, `values` is what an empty file holds and not to be shown.
    note : str
        "all NaN", "inf" or nothing.
    """

    name: str
    agent: Hashable | None
    time: int
    step: int
    values: Array
    image: NDArray[np.uint8]
    present: bool
    note: str


class Episode:
    """One episode of a run, whose values come as plain arrays when they are asked for.

    Parameters
    ----------
    ds : xarray.Dataset
        What `simlab.open_run` returns.
    k : int
        Which episode.

    Attributes
    ----------
    data : xarray.Dataset
        The episode's part of the run.
    time, steps : ndarray of int
        The run clock and the timestep of every row.
    """

    def __init__(self, ds: xr.Dataset, k: int = 0) -> None:
        self.data: xr.Dataset = _with_agent_axis(ds.sim.episode(k))
        numbers = np.asarray(self.data[EPISODE].values) if EPISODE in self.data.coords else np.zeros(0, int)
        self.k = int(numbers[0]) if numbers.ndim == 1 and numbers.size else k
        self.time: NDArray[np.int64] = (
            np.asarray(self.data[TIME].values, np.int64) if TIME in self.data.variables else np.zeros(0, np.int64)
        )
        steps = np.asarray(self.data[STEP].values) if STEP in self.data.variables else self.time
        self.steps: NDArray[np.int64] = np.asarray(steps if steps.ndim == 1 else self.time - self.time[:1], np.int64)
        self._scales: dict[tuple[str, Hashable | None], Scale] = {}
        self._present: dict[str, NDArray[np.bool_]] = {}
        self._axes: dict[str, tuple[str | None, str | None]] = {}

    # -- what there is

    @property
    def variables(self) -> list[str]:
        """Names of the variables, the agents' and the environment's."""
        return [str(name) for name in self.data.data_vars if self.data[name].dims and TIME in (self.clock_of(str(name)) or "")]

    @property
    def populations(self) -> list[str]:
        """The agent dimensions: "agent", or one for each population."""
        found = [self.agent_dim(name) for name in self.variables]
        return list(dict.fromkeys(dim for dim in found if dim is not None))

    def agent_dim(self, name: str) -> str | None:
        """Return the agent dimension of a variable, or None for the environment's."""
        return self._axes_of(name)[0]

    def agents(self, dim: str) -> list[Hashable]:
        """Labels of all agents of a population."""
        if dim in self.data.coords:
            return list(self.data[dim].values.tolist())
        return list(range(self.data.sizes[dim]))

    def clock_of(self, name: str) -> str | None:
        """Return the dimension on which a variable runs: time, or one of its own."""
        return self._axes_of(name)[1]

    def _axes_of(self, name: str) -> tuple[str | None, str | None]:
        """Return the agent dimension and the clock of a variable; asked for with every chunk, so that they are looked up once."""
        found = self._axes.get(name)
        if found is None:
            variable = self.data[name]
            dims = [str(dim) for dim in variable.dims]
            clock = next((dim for dim in dims if dim in (TIME, name.replace(".", "_") + TIME_SUFFIX)), None)
            of_agents = variable.attrs.get(ATTR_MODALITY) in AGENT_MODALITIES or (len(dims) > 1 and dims[1] == TIME)
            found = self._axes[name] = (dims[0] if of_agents else None, clock)
        return found

    def on_main_clock(self, name: str) -> bool:
        """Say whether a variable has a row for every row of the episode."""
        return self.clock_of(name) == TIME

    def own_shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of one value."""
        variable = self.data[name]
        return tuple(n for dim, n in variable.sizes.items() if dim not in (self.agent_dim(name), self.clock_of(name)))

    def frame_shape(self, name: str) -> tuple[int, int]:
        """Return the height and width of a variable's pictures."""
        shape = as_image(np.empty(self.own_shape(name), bool), self.labels(name) is not None)[0].shape
        return int(shape[0]), int(shape[1])

    def is_image(self, name: str) -> bool:
        """Say whether the values of a variable are pictures."""
        shape = tuple(n for n in self.own_shape(name) if n > 1)
        if self.data[name].dtype.kind not in "biuf" or len(self.own_shape(name)) < 2:
            return False
        return self.data[name].attrs.get(ATTR_KIND) == "image" or len(shape) in (2, 3)

    def labels(self, name: str) -> list[str] | None:
        """Return the names of the channels, the entries of the last axis, where they have some."""
        last = self.data[name].dims[-1]
        if not self.own_shape(name) or last not in self.data.coords or self.data[last].dtype.kind not in "OUT":
            return None
        return [str(label) for label in self.data[last].values.tolist()]

    def categories(self, name: str) -> list[str] | None:
        """Return the names of the values 0, 1, 2, ..., where they have some."""
        told = self.data[name].attrs.get("categories")
        if isinstance(told, str):
            try:
                told = json.loads(told)
            except ValueError:
                told = None
        if told is None:
            told = self.data[name].attrs.get("flag_meanings")
            told = told.split() if isinstance(told, str) else told
        return [str(label) for label in told] if isinstance(told, (list, tuple, np.ndarray)) and len(told) else None

    def check(self, name: str) -> str:
        """Return a variable's name if it is in the run.

        Raises
        ------
        NotInRunError
            If it is not.
        """
        known = self.variables
        if name not in known:
            raise NotInRunError(f"{name!r} is not in the run; it has {', '.join(known) or 'no variables'}.{did_you_mean(str(name), known)}")
        return name

    def position(self, dim: str, agent: Hashable) -> int:
        """Return where an agent stands on its dimension.

        Raises
        ------
        AgentError
            If the run has no such agent.
        """
        known = self.agents(dim)
        if agent not in known:
            raise AgentError(f"The run has no agent {agent!r}.{did_you_mean(str(agent), map(str, known))}")
        return known.index(agent)

    # -- values

    def present(self, name: str) -> NDArray[np.bool_]:
        """Say where a variable was logged: (agent, time), or (time) for the environment."""
        if name not in self._present:
            if self.clock_of(name) != TIME:
                self._present[name] = np.ones(len(self.rows(name)), bool)
            else:
                self._present[name] = np.asarray(self.data.sim.present(name).values, bool)
        return self._present[name]

    def life(self, dim: str) -> NDArray[np.bool_]:
        """Say when each agent of a population lived, that is, logged anything: (agent, time)."""
        alive = np.zeros((self.data.sizes[dim], len(self.time)), bool)
        for name in self.variables:
            if self.agent_dim(name) == dim:
                alive |= self.present(name)
        return alive

    def rows(self, name: str) -> NDArray[np.int64]:
        """Return the run clock of every value of a variable within the episode."""
        clock = self.clock_of(name)
        if clock == TIME or clock is None:
            return self.time
        times = np.asarray(self.data[clock].values, np.int64)
        return times[self._within(times)]

    def _within(self, times: NDArray[np.int64]) -> NDArray[np.bool_]:
        return (times >= self.time[0]) & (times <= self.time[-1]) if len(self.time) else np.zeros(len(times), bool)

    def step_of(self, time: int) -> int:
        """Return the timestep inside the episode at a run clock."""
        return int(self.steps[np.clip(np.searchsorted(self.time, time, "right") - 1, 0, None)]) if len(self.time) else int(time)

    def values(self, name: str, agent: Hashable | None = None, rows: Sequence[int] | None = None) -> Array:
        """Return the values of a variable for one agent (or the environment): (row, ...), all rows or those given."""
        variable = self.data[name]
        dim, clock = self.agent_dim(name), self.clock_of(name)
        if dim is not None:
            variable = variable.isel({dim: self.position(dim, agent)})
        if clock not in (TIME, None):
            variable = variable.isel({clock: self._within(np.asarray(self.data[clock].values, np.int64))})
        if rows is not None and clock is not None:
            variable = variable.isel({clock: list(rows)})
        return np.asarray(variable.values)

    def scale(self, name: str, agent: Hashable | None = None) -> Scale:
        """Return how the pictures of a variable are painted throughout the episode."""
        key = (name, agent)
        if key not in self._scales:
            there = self.there(name, agent)
            rows = np.flatnonzero(there)
            fit = max(8, MOST_LIMIT_BYTES // max(1, int(np.prod(self.own_shape(name))) * self.data[name].dtype.itemsize))
            if len(rows) > fit:
                rows = rows[np.linspace(0, len(rows) - 1, fit).astype(int)]
            values = self.values(name, agent, rows.tolist())
            self._scales[key] = scale_of(values, self.labels(name), self.categories(name), self.data[name].attrs)
        return self._scales[key]

    def there(self, name: str, agent: Hashable | None) -> NDArray[np.bool_]:
        """Say at which of its rows a variable was logged, for one agent or for the environment."""
        dim = self.agent_dim(name)
        return self.present(name) if dim is None else self.present(name)[self.position(dim, agent)]

    def frame_at(self, name: str, time: int, agent: Hashable | None = None) -> Frame:
        """Return the picture of a variable at a moment; of a variable that is logged now and then, the latest one.

        Parameters
        ----------
        name : str
            An image variable.
        time : int
            The run clock.
        agent : hashable, optional
            Whose picture; for the environment's variables it is left out.

        Raises
        ------
        NotInRunError, AgentError, TimestepError
            If there is no such variable, agent, or moment in the episode.
        """
        self.check(name)
        rows = self.rows(name)
        row = int(np.searchsorted(rows, time, "right")) - 1
        if row < 0 or (len(self.time) and time > self.time[-1]):
            span = f"it runs from {self.time[0]} to {self.time[-1]}" if len(self.time) else "it has no steps"
            raise TimestepError(f"{name!r} has nothing at time {time} in episode {self.k}; {span}.")
        raw = self.values(name, agent, [row])[0]
        values, note = as_image(raw, self.labels(name) is not None)
        there = bool(self.there(name, agent)[row])
        if there and values.dtype.kind == "f" and not np.isfinite(values).all():
            note = "all NaN" if np.isnan(values).all() else "inf" if np.isinf(values).any() else note
        image = paint(raw, self.scale(name, agent))
        return Frame(name, agent, int(rows[row]), self.step_of(int(rows[row])), values, image, there, note)


def _with_agent_axis(data: xr.Dataset) -> xr.Dataset:
    """Give the variables of a single agent (``ds.sel(agent=...)``) their agent axis back."""
    axes: dict[str, Any] = {}
    for name in map(str, data.data_vars):
        variable = data[name]
        if variable.attrs.get(ATTR_MODALITY) in AGENT_MODALITIES and variable.dims[:1] == (TIME,):
            single = [str(c) for c, at in variable.coords.items() if at.ndim == 0 and c not in (TIME, STEP, EPISODE)]
            population = name.rsplit(".", 1)[0]
            dim = next((c for c in (population, AGENT) if c in single), single[0] if single else None)
            if dim is not None:
                axes[name] = variable.expand_dims(dim)
    return data.drop_vars({str(axis.dims[0]) for axis in axes.values()}).assign(axes) if axes else data


def frame_at(ds: xr.Dataset, name: str, time: int, agent: Hashable | None = None) -> Frame:
    """Return the picture of a variable at a moment of a run.

    Parameters
    ----------
    ds : xarray.Dataset
        What `simlab.open_run` returns.
    name : str
        An image variable: of agents, or of the environment.
    time : int
        The run clock.
    agent : hashable, optional
        Whose picture.

    Raises
    ------
    NotInRunError, AgentError, TimestepError
        If there is no such variable, agent or moment.
    """
    clock = np.asarray(ds[TIME].values)
    row = int(np.searchsorted(clock, time, "right")) - 1
    if row < 0 or time > clock[-1]:
        raise TimestepError(f"The run has no time {time}; it has " + (f"{clock[0]} to {clock[-1]}." if len(clock) else "no steps."))
    return Episode(ds, int(np.asarray(ds[EPISODE].values)[row])).frame_at(name, time, agent)
