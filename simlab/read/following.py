"""A run that is being recorded, step by step or episode by episode, as it comes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Literal

import xarray as xr

from simlab.conventions import EPISODE, TIME
from simlab.errors import FormatError, InputError, RunNotFoundError
from simlab.read.runs import open_run
from simlab.storage.handles import is_live
from simlab.storage.opening import absolute_path


def follow(
    path: str | os.PathLike[str],
    by: Literal["steps", "episodes"] = "steps",
    simulation: str | None = None,
    population: str | None = None,
    every: float = 0.5,
    timeout: float | None = None,
) -> Iterator[xr.Dataset]:
    """Iterate over what is new in a run while it is being recorded.

    It begins with what is there already, may be started before the run, and ends when the run ends. If the writer dies, what it had logged
    is handed out, an `UnfinishedRunWarning` says so, and it ends too. A step is handed out once the next one has begun; what an agent logs
    later than that to a step that is past is not handed out again.

    Parameters
    ----------
    path : path-like
        The run file; it may not be there yet.
    by : {"steps", "episodes"}, optional
        Hand out the rows that came since the last time, or each episode that ended.
    simulation, population : str, optional
        As for `open_run`.
    every : float, optional
        Seconds between two looks at the file.
    timeout : float, optional
        Give up if the run has not begun after so many seconds; None waits for ever.

    Yields
    ------
    Dataset
        The new rows, or one episode; as lazy as that of `open_run`, and closed when the next one is asked for.

    Raises
    ------
    RunNotFoundError
        If the run has not begun in time.

    Examples
    --------
    >>> import pathlib, tempfile, simlab
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "run.h5"
    >>> with simlab.HDF5Logger(path) as log:
    ...     for step in range(3):
    ...         log.log_env_step(step, {"food": 10 - step})
    >>> [new.food.values.tolist() for new in simlab.follow(path)]
    [[10, 9, 8]]
    """
    if by not in ("steps", "episodes"):
        raise InputError(f"by={by!r} is neither 'steps' nor 'episodes'.")
    place = absolute_path(path)
    seen = 0
    began = time.monotonic()
    while True:
        live = is_live(place)  # asked first: what was logged before the writer went is in what is opened next
        try:
            ds = open_run(place, simulation, population=population)
        except (RunNotFoundError, FormatError):
            if timeout is not None and time.monotonic() - began > timeout:
                raise
            if not live and os.path.exists(place) and time.monotonic() - began > 10 * every:
                raise
            time.sleep(every)
            continue
        with ds:
            rows = ds.sizes[TIME] - (1 if live else 0)  # agents may still be logging the newest one
            if by == "steps" and rows > seen:
                yield ds.isel({TIME: slice(seen, rows)})
                seen = rows
            elif by == "episodes":
                table = ds.sim.episodes
                for number in table[EPISODE].values[table.complete.values].tolist():
                    if number >= seen:
                        yield ds.sim.episode(number)
                        seen = number + 1
        if not live:
            return
        time.sleep(every)
