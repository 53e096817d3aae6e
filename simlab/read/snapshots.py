"""Snapshots: the latest value of what is logged now and then."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import xarray as xr

from simlab.conventions import AGENT, TIME
from simlab.errors import InputError, NotInRunError, did_you_mean
from simlab.read.episodes import own_clocks, rows_until


def latest(
    ds: xr.Dataset, name: str, time: float | None, agent_dims: Sequence[str], present: Callable[[str], xr.DataArray] | None
) -> xr.DataArray:
    """Return the latest value of an environment variable at or before a time.

    Parameters
    ----------
    ds : Dataset
        A run, or a part of it.
    name : str
        The variable.
    time : float or None
        On the run clock; None is the end.
    agent_dims : sequence of str
        Axes of agents: what lies on one of them is no snapshot.
    present : callable or None
        Tells where a variable was logged; None where that is not known.
    """
    if name not in ds.data_vars:
        raise NotInRunError(f"There is no variable {name!r} in the run.{did_you_mean(str(name), map(str, ds.data_vars))}")
    values = ds[name]
    clock = next((d for d in (TIME, *own_clocks(ds)) if d in values.dims), None)
    if clock is None or any(d in values.dims for d in (AGENT, *agent_dims)):
        raise InputError(f"{name!r} has the axes {values.dims}; a snapshot is of a variable of the environment. Use ds[{name!r}].sel(...).")
    values = values.isel({clock: slice(0, rows_until(ds, clock, time))})
    if clock == TIME and present is not None:
        values = values.isel({TIME: present(name).values[: values.sizes[TIME]]})
    if not values.sizes[clock]:
        raise NotInRunError(f"{name!r} was not logged at or before time {time}. ds[{name!r}][{clock!r}] has the times at which it was.")
    return values.isel({clock: -1})
