"""A run that is being recorded, step by step or episode by episode, as it comes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

import xarray as xr

from simlab.conventions import ATTR_RESUMED, EPISODE, STEP, TIME
from simlab.errors import FormatError, InputError, RunNotFoundError, StateError
from simlab.read.origin import origin_of
from simlab.read.runs import open_run
from simlab.storage.handles import is_live
from simlab.storage.opening import absolute_path

_BY: Final = {"steps": "steps", "step": "steps", "episodes": "episodes", "episode": "episodes"}


def follow(
    path: str | os.PathLike[str],
    by: Literal["steps", "episodes", "step", "episode"] = "steps",
    simulation: str | None = None,
    population: str | None = None,
    every: float = 0.5,
    timeout: float | None = None,
) -> Iterator[xr.Dataset]:
    """Iterate over what is new in a run while it is being recorded.

    It begins with what is there already, may be started before the run, and ends when the run ends. If the writer dies, what it had logged
    is handed out, an `UnfinishedRunWarning` says so, and it ends too. A step is handed out once the next one has begun; what an agent logs
    later than that to a step that is past is not handed out again. It stays with the simulation that it began with: one that is added to
    the file later is not handed out.

    Parameters
    ----------
    path : path-like
        The run file; it may not be there yet.
    by : {"steps", "episodes"}, optional
        Hand out the rows that came since the last time, or each episode that ended; "step" and "episode" mean the same.
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
        If the run has not begun in time, or was removed while it was followed.
    StateError
        If another run took its place, or rows that had been handed out were cut off by ``resume=``: what comes now is no continuation.

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
    unit = _BY.get(by) if isinstance(by, str) else None
    if unit is None:
        raise InputError(f"by={by!r} is neither 'steps' nor 'episodes'.")
    place = absolute_path(path)
    progress = _Progress(place, unit)
    began = time.monotonic()
    try:
        while True:
            live = is_live(place) and not progress.complete  # asked first: what was logged before the writer went is in what is opened next
            ds = None
            try:
                ds = open_run(place, simulation, population=population)
                simulation = progress.check(ds)
                parts = progress.new(ds, live)
            except (RunNotFoundError, FormatError, StateError) as error:
                if ds is not None:
                    ds.close()
                if progress.cut:
                    raise
                progress.check_gone(error, live)
                if progress.file is None and not isinstance(error, StateError):
                    if timeout is not None and time.monotonic() - began > timeout:
                        raise
                    if not live and os.path.exists(place) and time.monotonic() - began > 10 * every:
                        raise
                time.sleep(every)
                continue
            with ds:
                yield from parts
            if not live:
                return
            time.sleep(every)
    finally:
        progress.close()


@dataclass(slots=True)
class _Progress:
    """What was handed out, and of which run.

    Attributes
    ----------
    place, unit : str
        The path, and "steps" or "episodes".
    file : tuple of int or None
        The file that was followed so far.
    held : int or None
        It is kept open, so that no other file gets its number.
    rows, episodes : int
        How many were handed out.
    seams : int
        How often the simulation had been resumed.
    complete : bool
        Whether it was finalized at the last look; the writer may have gone on with another one.
    cut : bool
        Whether rows that were handed out were cut off.
    told : str
        Up to where rows were handed out, in words.
    """

    place: str
    unit: str
    file: tuple[int, int] | None = None
    held: int | None = None
    rows: int = 0
    episodes: int = 0
    seams: int = 0
    complete: bool = False
    cut: bool = False
    told: str = "nothing was handed out"

    def check_gone(self, error: Exception, live: bool) -> None:
        """Raise if the run that was followed is there no more."""
        if self.file is None:
            return
        if not os.path.exists(self.place):
            raise RunNotFoundError(f"{self.place!r} was removed while it was followed; {self.told}.") from error
        found = os.stat(self.place)
        if (found.st_dev, found.st_ino) != self.file:
            raise self._replaced() from error
        if not live and not isinstance(error, StateError):
            raise error

    def check(self, ds: xr.Dataset) -> str:
        """Return which simulation a Dataset shows, if it is the run that was followed so far.

        Raises
        ------
        StateError
            If it is not, or rows that were handed out are others now.
        """
        origin = origin_of(ds)
        assert origin is not None
        file = (origin.source.identity.device, origin.source.identity.inode)
        seams = _seams(ds)
        if self.file is None:
            self.file, self.seams = file, len(seams)
            if os.name != "nt":  # there a file that is open cannot be replaced
                self.held = os.open(self.place, os.O_RDONLY)
        if self.file != file:
            raise self._replaced()
        self.cut = min(ds.sizes[TIME], *seams[self.seams :], self.rows) < self.rows
        if self.cut:
            raise StateError(
                f"{self.place!r} was resumed at an earlier step while it was followed: {self.told}, and rows before that were cut off. "
                "Follow it anew."
            )
        self.seams, self.complete = len(seams), origin.contents().complete
        return origin.simulation

    def _replaced(self) -> StateError:
        return StateError(
            f"{self.place!r} was replaced by another run while it was followed: {self.told}, and the rest of that run cannot be read any "
            "more. Follow it anew to see the other one."
        )

    def new(self, ds: xr.Dataset, live: bool) -> list[xr.Dataset]:
        """Return what was not handed out yet, and take it as handed out."""
        if self.unit == "steps":
            rows = ds.sizes[TIME] - (1 if live else 0)  # agents may still be logging the newest one
            if rows <= self.rows:
                return []
            step, episode = int(ds[STEP][rows - 1]), int(ds[EPISODE][rows - 1])
            part = ds.isel({TIME: slice(self.rows, rows)})
            self.rows, self.told = rows, f"rows up to step {step} of episode {episode} were handed out"
            return [part]
        table = ds.sim.episodes
        table = table.isel({EPISODE: table.complete.values & (table[EPISODE].values >= self.episodes)})
        numbers = table[EPISODE].values.tolist()
        parts = [ds.sim.episode(number) for number in numbers]
        if numbers:
            self.episodes, self.told = numbers[-1] + 1, f"episodes up to {numbers[-1]} were handed out"
            self.rows = int((table.start + table.length)[-1])
        return parts

    def close(self) -> None:
        """Let go of the file."""
        if self.held is not None:
            os.close(self.held)
            self.held = None


def _seams(ds: xr.Dataset) -> list[int]:
    """Return the rows at which a simulation was resumed."""
    told = ds.sim.attributes.get(ATTR_RESUMED)
    return [int(seam["row"]) for seam in told if isinstance(seam, dict) and "row" in seam] if isinstance(told, list) else []
