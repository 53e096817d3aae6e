"""Answers what a viewer in a browser asks about a run: one question, one answer of plain numbers, text and bytes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from simlab.errors import InputError, SimlabError, StateError
from simlab.view.blocks import Layout, Presence, layout_of, read_block
from simlab.view.catalogue import describe, entry_facts, episode_list, find_scale, first_agents, steps_of, told_scale, words
from simlab.view.events import check_condition, find_events
from simlab.view.frames import Episode
from simlab.view.kinds import Panel, channel_numbers, choose_panels
from simlab.view.paint import Scale
from simlab.view.tiles import read_tile

if TYPE_CHECKING:
    import xarray as xr

Answer = tuple[dict[str, Any], list[bytes]]
_KEPT: Final = 3
"""Episodes whose bookkeeping is kept."""
_LONG: Final = 20_000_000
"""Numbers in an episode that is long."""


class Opened:
    """An episode with what was found out about it."""

    def __init__(self, ds: xr.Dataset, k: int, shown: int = 1, every: int = 1) -> None:
        self.episode = Episode(ds, k)
        self.presence = Presence(self.episode)
        self.layouts: dict[str, Layout] = {
            name: layout_of(self.episode, name, shown, every) for name in self.episode.variables if self.episode.is_image(name)
        }
        self._scales: dict[tuple[str, tuple[int, ...]], tuple[Scale, int]] = {}

    def scale(self, name: str, channels: Sequence[int] | None = None) -> tuple[Scale, int]:
        """Return how a variable (or some channels of it) is painted, and that one of how many frames was looked at."""
        key = (name, tuple(channels or ()))
        if key not in self._scales:
            self._scales[key] = find_scale(self.episode, self.presence, self.episode.check(name), channel_numbers(self.episode, *key))
        return self._scales[key]


class Desk:
    """Answers for one run.

    Parameters
    ----------
    ds : xarray.Dataset
        What `simlab.open_run` returned, or a part of it.
    panels : sequence of str or Panel, optional
        What is shown.
    events : mapping of str to DataArray of bool, optional
        Conditions to jump to.
    """

    def __init__(
        self, ds: xr.Dataset, panels: Sequence[str | Panel] | None = None, events: Mapping[str, xr.DataArray] | None = None
    ) -> None:
        self.ds, self.panels, self.events = ds, panels, dict(events or {})
        for name, condition in self.events.items():
            check_condition(name, condition)
        self.shown, self.every = 1, 1
        self._opened: OrderedDict[int, Opened] = OrderedDict()
        self._lock = threading.RLock()

    def opened(self, k: int) -> Opened:
        """Return an episode; the latest few are kept."""
        with self._lock:  # what takes long is answered from a thread of its own
            found = self._opened.pop(k, None) or Opened(self.ds, k, self.shown, self.every)
            self._opened[k] = found
            while len(self._opened) > _KEPT:
                self._opened.popitem(last=False)
            return found

    def is_long(self, k: Any) -> bool:
        """Whether going through an episode takes long."""
        opened = self._opened.get(k) if isinstance(k, int) else None
        return opened is not None and sum(v.size for v in opened.episode.data.data_vars.values()) > _LONG

    def numbers(self) -> list[int]:
        """Return the numbers of all episodes."""
        return [int(k) for k in np.asarray(self.ds.sim.episodes["episode"].values)]

    def replace(self, ds: xr.Dataset) -> None:
        """Go on with a Dataset of the same run that has more rows."""
        with self._lock:
            self.ds = ds
            self._opened.clear()

    def follow(self, episodes: int) -> None:
        """Take the longer Dataset, if there is one; the one before it lets go of the file once nobody holds it.

        Parameters
        ----------
        episodes : int
            How many are known.

        Raises
        ------
        StateError
            If the Dataset does not follow its run.
        """
        refresh = getattr(self.ds.sim, "refresh", None)
        if refresh is None:
            raise StateError("This Dataset does not follow its run. Open it with simlab.open_run(path, live=True).")
        longer = refresh()
        if longer is self.ds:
            return
        if longer.sizes.get("time") == self.ds.sizes.get("time") and len(longer.sim.episodes["episode"]) == episodes:
            return
        self.replace(longer)

    def close(self) -> None:
        """Let go of the run."""
        self._opened.clear()
        self.events.clear()

    def check(self, k: int) -> None:
        """Raise now what would be wrong with the panels later."""
        choose_panels(self.opened(k).episode, self.panels)

    def default_agents(self, k: int) -> list[Hashable]:
        """Return who is shown at first."""
        opened = self.opened(k)
        return first_agents(opened.episode, opened.presence)

    # -- questions

    def answer(self, question: Mapping[str, Any]) -> Answer:
        """Answer one question; what goes wrong becomes an answer too.

        Parameters
        ----------
        question : mapping
            ``ask`` ("episodes", "episode", "scale", "block", "tile", "events", "steps"), ``episode``, and what belongs to it.

        Returns
        -------
        dict
            Ready for JSON; ``error`` says what went wrong.
        list of bytes
            Arrays.
        """
        try:
            ask: Callable[[Mapping[str, Any]], Answer] | None = getattr(self, f"_ask_{question.get('ask')}", None)
            if ask is None:
                raise InputError(f"A viewer asked for {question.get('ask')!r}, which there is not.")
            return ask(question)
        except SimlabError as error:
            return {"error": words(error, 400)}, []
        except Exception as error:  # of a codec, of HDF5, ...: a page that gets no answer waits for ever
            return {"error": words(f"{type(error).__name__}: {error}", 400)}, []

    def _of(self, question: Mapping[str, Any]) -> Opened:
        return self.opened(int(question["episode"]))

    def _ask_episodes(self, _: Mapping[str, Any]) -> Answer:
        return episode_list(self.ds), []

    def _ask_episode(self, question: Mapping[str, Any]) -> Answer:
        opened = self._of(question)
        out = describe(self.ds, opened.episode, opened.layouts, self.panels)
        table = self.ds.sim.episodes
        places = np.flatnonzero(np.asarray(table["episode"].values) == opened.episode.k)
        out["facts"] = entry_facts(table, int(places[0])) if len(places) else []
        return out, []

    def _ask_steps(self, question: Mapping[str, Any]) -> Answer:
        return {"steps": steps_of(self.ds, [(int(k), int(row)) for k, row in question["moments"]])}, []

    def _ask_scale(self, question: Mapping[str, Any]) -> Answer:
        return told_scale(*self._of(question).scale(str(question["name"]), question.get("channels"))), []

    def _ask_block(self, question: Mapping[str, Any]) -> Answer:
        opened, name = self._of(question), str(question["name"])
        if name not in opened.layouts:
            raise InputError(f"{words(name)!r} is no variable of pictures.")
        place = int(question["block"]), int(question["chunk"])
        return read_block(opened.episode, opened.presence, name, opened.layouts[name], *place, bool(question.get("inflate", True)))

    def _ask_tile(self, question: Mapping[str, Any]) -> Answer:
        opened = self._of(question)
        name = opened.episode.check(str(question["name"]))
        agents, channels = ([int(i) for i in question[word]] for word in ("agents", "channels"))
        return read_tile(opened.episode, opened.presence, name, agents, int(question["level"]), int(question["tile"]), channels)

    def _ask_events(self, question: Mapping[str, Any]) -> Answer:
        opened = self._of(question)
        events, notes = find_events(opened.episode, opened.presence, self.events)
        return {"events": [[words(e.kind, 30), e.row, words(e.text, 100)] for e in events], "notes": [words(n, 200) for n in notes]}, []
