"""An episode for others: a page, a film, a picture. What is half-written never stays."""

from __future__ import annotations

import os
import sys
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from tqdm import tqdm

from simlab.errors import InputError, NotInRunError, did_you_mean
from simlab.storage.opening import absolute_path
from simlab.view.desk import Desk
from simlab.view.film import MOST_FPS, Film, still, write_animation, write_film
from simlab.view.kinds import Panel
from simlab.view.page import Page, megabytes, of_agents
from simlab.view.people import checked_labels, everybody
from simlab.view.whole import written_whole

if TYPE_CHECKING:
    import xarray as xr

SUFFIXES: Final = (".html", ".mp4", ".gif", ".webp", ".png")
MAX_MB: Final = 50.0


def export(
    ds: xr.Dataset,
    path: str | os.PathLike[str],
    *,
    episode: int | Sequence[int] = 0,
    agents: Any = None,
    panels: Sequence[str | Panel] | None = None,
    events: Mapping[str, xr.DataArray] | None = None,
    start: int = 0,
    stop: int | None = None,
    step: int = 0,
    every: int = 1,
    fps: float = 30.0,
    max_mb: float = MAX_MB,
    progress: bool | None = None,
) -> str:
    """Write an episode as a page, a film or a picture; the suffix says which.

    Parameters
    ----------
    ds : xarray.Dataset
        What `simlab.open_run` returned.
    path : str or path-like
        Where to: ``.html`` (one page with the viewer, without kernel and network), ``.mp4``, ``.gif``, ``.webp`` or ``.png``. A file
        that is there is replaced.
    episode : int or sequence of int, optional
        Which; a page can hold several.
    agents : hashable, sequence of hashable, array or DataArray, optional
        Who; left out, the four that lived longest. "all" takes everybody.
    panels, events : optional
        Of a page: as for the viewer.
    start, stop : int, optional
        Of a film: from which row of the episode up to, but not including, which.
    step : int, optional
        Of a picture: which row. Of a page: where it opens.
    every : int, optional
        Of so many pictures, take one. A page keeps its series whole.
    fps : float, optional
        Of a film: frames per second; of a .gif and .webp at most 50. Of a page: steps per second.
    max_mb : float, optional
        A page that would be larger is refused.
    progress : bool, optional
        Whether to show a bar; left out, where stderr is a terminal.

    Returns
    -------
    str
        The path.

    Raises
    ------
    InputError
        If the suffix is unknown, or the page would be too large.
    NotInRunError, AgentError
        If there is no such episode or agent.
    MissingPackageError
        If an ``.mp4`` is asked for and there is no ffmpeg.

    Examples
    --------
    >>> import os.path, tempfile
    >>> from simlab.demo import record_demo
    >>> folder = tempfile.mkdtemp()
    >>> report = record_demo(os.path.join(folder, "run.h5"), episodes=2, steps=30)
    >>> import simlab
    >>> with simlab.open_run(os.path.join(folder, "run.h5")) as ds:
    ...     page = export(ds, os.path.join(folder, "ep1.html"), episode=1)
    >>> os.path.getsize(page) < 1_000_000
    True
    """
    place = absolute_path(path)
    suffix = os.path.splitext(place)[1].lower()
    if suffix not in SUFFIXES:
        raise InputError(f"{os.path.basename(place)!r} ends in {suffix or 'nothing'}; an export ends in {', '.join(SUFFIXES)}."
                         f"{did_you_mean(suffix, SUFFIXES)}")  # fmt: skip
    if not 0 < fps <= 1000:
        raise InputError(f"fps={fps!r}: give frames per second, more than 0.")
    if suffix in (".gif", ".webp") and fps > MOST_FPS:
        raise InputError(f"fps={fps:g}: browsers show at most {MOST_FPS} frames a second of a {suffix}. Give less, every=2, or an .mp4.")
    if isinstance(every, bool) or not isinstance(every, int) or every < 1:
        raise InputError(f"every={every!r}: give a whole number, 1 or more; of so many pictures one is taken.")
    numbers = _numbers(ds, episode)
    lengths = {int(k): int(n) for k, n in zip(ds.sim.episodes["episode"].values, ds.sim.episodes["length"].values, strict=True)}
    first = next((k for k in numbers if lengths[k]), None)
    if first is None:
        raise InputError(f"Episode {', '.join(map(str, numbers))} has no steps, so there is nothing to export.")
    people = _people(ds, first, agents)
    bar = _Bar(os.path.basename(place), sys.stderr.isatty() if progress is None else progress)
    with written_whole(place) as temporary, bar:
        if suffix == ".html":
            page = Page(ds, numbers, people, panels=panels, every=every, events=events, step=step, speed=fps)
            _write_page(page, temporary, max_mb, bar)
        else:
            if len(numbers) > 1:
                raise InputError(f"{suffix} holds one episode, {len(numbers)} were given; a page (.html) can hold several.")
            opened = Desk(of_agents(ds, people)).opened(numbers[0])
            rows = _rows(len(opened.episode.time), start, stop, every)
            if suffix == ".png":
                _write_bytes(temporary, still(opened, people, _rows(len(opened.episode.time), step, None, 1)[0]))
            else:
                film = Film(opened, people, rows)
                bar.begin(len(film), f"{film.size[1]} × {film.size[0]}, {len(film):,} frames")
                frames = bar.count(iter(film))
                if suffix == ".mp4":
                    write_film(temporary, film, fps, frames)
                else:
                    write_animation(temporary, film, fps, suffix[1:], frames)
    return place


def _write_page(page: Page, path: str, max_mb: float, bar: _Bar) -> None:
    expected, count = page.estimate()
    advice = f"Give max_mb={int(expected / 1e6 * 1.2) + 1}, or less of it: fewer agents=, one picture of every= so many, a film (.mp4)."
    if expected > 1.25 * max_mb * 1e6:
        raise InputError(f"The page would have about {megabytes(expected)}, more than max_mb={max_mb:g}. {advice}")
    bar.begin(count, f"about {megabytes(expected)}")
    spent = 0

    def spend(octets: int) -> None:
        nonlocal spent
        spent += octets
        if spent > max_mb * 1e6:
            raise InputError(f"The page has more than max_mb={max_mb:g}; about {megabytes(expected)} were expected. {advice}")

    _write_bytes(path, page.write(bar.step, spend).encode())


def _write_bytes(path: str, octets: bytes) -> None:
    with open(path, "wb") as file:
        file.write(octets)


def _numbers(ds: xr.Dataset, episode: Any) -> list[int]:
    known = [int(k) for k in np.asarray(ds.sim.episodes["episode"].values)]
    wanted = [episode] if isinstance(episode, (int, np.integer)) else list(episode)
    out = []
    for k in wanted:
        number = known[k] if isinstance(k, (int, np.integer)) and -len(known) <= k < 0 else k
        if number not in known:
            there = f"episodes {min(known)} to {max(known)}" if known else "no episodes"
            raise NotInRunError(f"There is no episode {k!r}; the run has {there}.")
        out.append(int(number))
    if not out:
        raise InputError("No episode was given.")
    return out


def _people(ds: xr.Dataset, k: int, agents: Any) -> list[Hashable]:
    desk = Desk(ds)
    if agents is None:
        return desk.default_agents(k)
    known = everybody(desk.opened(k).episode)
    if isinstance(agents, str) and agents == "all" and agents not in known:
        return known
    return checked_labels(agents, known)


def _rows(total: int, start: int, stop: int | None, every: int) -> list[int]:
    rows = list(range(total))[slice(start, stop)][::every]
    if not rows:
        raise InputError(f"The episode has {total} rows; there are none from {start} up to {'its end' if stop is None else stop}.")
    return rows


class _Bar:
    """A progress bar that says beforehand how large it will be."""

    def __init__(self, name: str, shown: bool) -> None:
        self.name, self.shown = name, shown
        self.bar: Any = None

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.close()

    def begin(self, total: int, what: str) -> None:
        """Show the bar."""
        self.bar = tqdm(total=total, desc=f"{self.name} ({what})", disable=not self.shown, file=sys.stderr, leave=False)

    def step(self, n: int) -> None:
        """Go on."""
        self.bar.update(n)

    def count(self, frames: Iterator[Any]) -> Iterator[Any]:
        """Pass frames on and count them."""
        for frame in frames:
            yield frame
            self.step(1)
