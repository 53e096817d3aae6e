"""The episode viewer: an ipywidgets widget whose pictures are painted in the browser."""

from __future__ import annotations

import gc
import threading
import warnings
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import anywidget
import numpy as np
import traitlets

from simlab.errors import InputError, NotInRunError, SimlabError, StateError
from simlab.read.origin import origin_of
from simlab.view.bookmarks import Bookmarks, checked_bookmarks
from simlab.view.catalogue import agent_names, agents_named, words
from simlab.view.compare import first_difference
from simlab.view.desk import Desk
from simlab.view.events import find_events
from simlab.view.kinds import Panel, what_there_is
from simlab.view.people import as_labels, checked_labels, everybody
from simlab.view.poster import poster_html, poster_png
from simlab.view.script import module, style

if TYPE_CHECKING:
    import xarray as xr

_MOST_SPEED = 1000.0


class EpisodeViewer(anywidget.AnyWidget):
    """Look at an episode of a run and move through it.

    Its traits can be set, observed and linked: `episode` (its number), `step` (the row of the episode, from 0), `agents` (who is
    shown), `playing`, `speed` (steps per second), `loop`, `bookmarks` (a list of ``{"episode", "step", "note"}``).

    Parameters
    ----------
    ds : xarray.Dataset
        What `simlab.open_run` returned, or a part of it.
    episode : int, optional
        The episode; -1 is the last one.
    agents : hashable, sequence of hashable, array or DataArray, optional
        Who is shown; left out, the four that lived longest.
    panels : sequence of str or Panel, optional
        Names of variables, kinds of panels ("picture", "lines", "steps", "map", "table"), or `Panel`; left out, what fits on a page.
    events : mapping of str to DataArray of bool, optional
        Moments to jump to: ``{"collision": ds.rewards < -1}``.
    other : xarray.Dataset or int, optional
        Another run, or another episode of this run, beside this one on the same cursor.
    live : bool, optional
        Follow a run that is being written.
    step : int, optional
        Where to begin; -1 is the last row.
    speed : float, optional
        Steps per second.
    **traits
        Other traits of the widget, such as ``layout``.

    Raises
    ------
    NotInRunError, AgentError
        If there is no such episode, variable or agent.
    InputError
        If an argument is not what it should be.

    Examples
    --------
    >>> import os.path, tempfile
    >>> from simlab.demo import record_demo
    >>> path = os.path.join(tempfile.mkdtemp(), "run.h5")
    >>> report = record_demo(path, episodes=2, steps=30)
    >>> import simlab
    >>> viewer = simlab.open_run(path).sim.view(episode=1)
    >>> viewer.step = 10
    >>> viewer.at["step"].item(), viewer.episode
    (10, 1)
    >>> viewer.close()
    """

    _esm = module()
    _css = style()

    episode = traitlets.Int(0, help="number of the episode").tag(sync=True)
    step = traitlets.Int(0, help="row of the episode, from 0").tag(sync=True)
    agents: traitlets.List[Any] = traitlets.List(help="labels of the agents that are shown").tag(
        sync=True, to_json=agent_names, from_json=agents_named
    )
    playing = traitlets.Bool(False, help="whether it plays").tag(sync=True)
    speed = traitlets.Float(30.0, help="steps per second").tag(sync=True)
    loop = traitlets.Bool(False, help="whether it begins again at the end").tag(sync=True)
    bookmarks = traitlets.List(traitlets.Dict(), help="episode, step and note of each").tag(sync=True)
    live = traitlets.Bool(False, read_only=True, help="whether it follows a run that is being written").tag(sync=True)
    _title = traitlets.Unicode("").tag(sync=True)
    _sides = traitlets.Int(1).tag(sync=True)
    _other_episode = traitlets.Int(None, allow_none=True).tag(sync=True)
    _bookmarks_note = traitlets.Unicode("").tag(sync=True)
    _poster = traitlets.Unicode("").tag(sync=True)
    _changed = traitlets.Int(0).tag(sync=True)

    def __init__(
        self,
        ds: xr.Dataset,
        episode: int = 0,
        *,
        agents: Any = None,
        panels: Sequence[str | Panel] | None = None,
        events: Mapping[str, xr.DataArray] | None = None,
        other: xr.Dataset | int | None = None,
        live: bool = False,
        step: int = 0,
        speed: float = 30.0,
        **traits: Any,
    ) -> None:
        panels = [panels] if isinstance(panels, (str, Panel)) else panels
        self._desks = [Desk(ds, panels, events)]
        self._numbers = self._desks[0].numbers()
        if not self._numbers:
            raise NotInRunError("The run has no episodes yet, so there is nothing to see.")
        k = self._numbers[episode] if -len(self._numbers) <= episode < 0 else int(episode)
        self._check_episode(k)
        agents = None if agents is None else as_labels(agents, ())
        self._desks[0].shown = 4 if agents is None else len(agents)
        self._desks[0].check(k)
        shown = self._desks[0].default_agents(k) if agents is None else self._labels(k, agents)
        origin = origin_of(ds)
        self._kept = Bookmarks(origin.source.path, origin.simulation) if origin is not None else Bookmarks(None, "")
        marks, note = self._kept.read()
        count = len(self._desks[0].opened(k).episode.time)
        traits |= {"episode": k, "step": max(0, count + step) if step < 0 else step, "agents": shown, "speed": speed, "bookmarks": marks}
        if other is not None:
            traits |= self._take_other(other, k, panels)
        super().__init__(**traits)
        self.set_trait("live", bool(live))
        self._bookmarks_note = note
        self._title = words(origin.source.path.rsplit("/", 1)[-1] if origin is not None else "")
        self._poster = f"simlab-poster-{self.model_id}"
        self.on_msg(self._answer)
        self._closed = False
        self._told = False

    def _take_other(self, other: xr.Dataset | int, k: int, panels: Sequence[str | Panel] | None) -> dict[str, Any]:
        if isinstance(other, (int, np.integer)):
            number = self._numbers[other] if -len(self._numbers) <= other < 0 else int(other)
            self._check_episode(number)
            self._desks.append(Desk(self._desks[0].ds, panels))
            return {"_sides": 2, "_other_episode": number}
        if not hasattr(other, "sim"):
            raise InputError(f"other={type(other).__name__}: give a Dataset that simlab.open_run returned, or the number of an episode.")
        desk = Desk(other)
        self._desks.append(desk)
        self._check_other(k)
        desk.panels = what_there_is(desk.opened(k).episode, panels)
        return {"_sides": 2}

    # -- what Python can ask

    @property
    def at(self) -> xr.Dataset:
        """The values at the cursor, of all agents: a Dataset without a time axis, lazy."""
        data: xr.Dataset = self._opened().episode.data
        if not data.sizes.get("time"):
            raise NotInRunError(f"Episode {self.episode} has no steps, so there are no values at the cursor.")
        return data.isel(time=self._row())

    @property
    def events(self) -> list[dict[str, Any]]:
        """The events of the episode, in order: their kind, row and what happened."""
        opened = self._opened()
        found, _ = find_events(opened.episode, opened.presence, self._desks[0].events)
        return [{"kind": event.kind, "step": event.row, "text": event.text} for event in found]

    @property
    def difference(self) -> dict[str, Any] | None:
        """Where the two sides first differ: ``{"row", "text"}``; None without another side."""
        return self._difference(self.episode, self._other_number()) if len(self._desks) > 1 else None

    def bookmark(self, note: str = "") -> None:
        """Set a bookmark at the cursor.

        Parameters
        ----------
        note : str, optional
            What there is to see.
        """
        self.bookmarks = [*self.bookmarks, {"episode": self.episode, "step": self.step, "note": str(note)}]

    def refresh(self) -> None:
        """Look whether the run has grown; a viewer with ``live=True`` does so by itself once a second."""
        self._grow(self.episode)
        self._changed += 1

    def close(self) -> None:
        """Take the viewer away and let go of the run; the Dataset that it was given stays open."""
        if not getattr(self, "_closed", True):
            self._closed = True
            while self._desks:
                self._desks.pop().close()
            gc.collect()  # lazy arrays and their accessor hold each other; the last one that goes closes the file
        super().close()

    # -- traits

    def _check_episode(self, k: int) -> None:
        if k not in self._numbers:
            there = f"{min(self._numbers)} to {max(self._numbers)}" if self._numbers else "none"
            raise NotInRunError(f"There is no episode {k}; the run has episodes {there}.")

    def _check_other(self, k: int) -> None:
        numbers = self._desks[1].numbers()
        if k not in numbers:
            there = f"{min(numbers)} to {max(numbers)}" if numbers else "none"
            raise NotInRunError(f"The other run has no episode {k}; it has episodes {there}. Both sides show the same one.")

    def _labels(self, k: int, agents: Any) -> list[Hashable]:
        return checked_labels(agents, everybody(self._desks[0].opened(k).episode))

    @traitlets.validate("episode")
    def _valid_episode(self, proposal: Any) -> int:
        k = int(proposal["value"])
        self._check_episode(k)
        if len(self._desks) > 1 and self._other_episode is None:
            self._check_other(k)
        return k

    @traitlets.observe("episode")
    def _begin_episode(self, _: Any) -> None:
        if not getattr(self, "_told", True):  # a browser tells the step too, if it is another one
            self.step = 0

    def set_state(self, sync_data: Any) -> None:
        """Take what a browser tells."""
        self._told = True
        try:
            super().set_state(sync_data)
        finally:
            self._told = False

    @traitlets.validate("step")
    def _valid_step(self, proposal: Any) -> int:
        sides = [self.episode, self._other_number()][: len(self._desks)]
        last = max((len(desk.opened(k).episode.time) for desk, k in zip(self._desks, sides, strict=True)), default=0) - 1
        return max(0, min(int(proposal["value"]), last) if self._desks else int(proposal["value"]))

    @traitlets.validate("speed")
    def _valid_speed(self, proposal: Any) -> float:
        speed = float(proposal["value"])
        if not 0 < speed <= _MOST_SPEED:
            raise InputError(f"speed={speed:g}: give steps per second, more than 0 and at most {_MOST_SPEED:g}.")
        return speed

    @traitlets.validate("agents")
    def _valid_agents(self, proposal: Any) -> list[Hashable]:
        return self._labels(self.episode, proposal["value"]) if self._desks and proposal["value"] else []

    @traitlets.validate("bookmarks")
    def _valid_bookmarks(self, proposal: Any) -> list[dict[str, Any]]:
        return checked_bookmarks(proposal["value"])

    @traitlets.observe("bookmarks")
    def _keep_bookmarks(self, change: Any) -> None:
        if hasattr(self, "_closed"):  # not while it is being made
            self.bookmarks, self._bookmarks_note = self._kept.write(change["new"])  # with those that other viewers set meanwhile

    # -- answers

    def _opened(self) -> Any:
        if not self._desks:
            raise StateError("The viewer was closed. Make a new one: ds.sim.view().")
        return self._desks[0].opened(self.episode)

    def _row(self) -> int:
        return int(min(self.step, max(0, len(self._opened().episode.time) - 1)))

    def _other_number(self) -> int:
        return self.episode if self._other_episode is None else self._other_episode

    def _answer(self, _: Any, content: Any, __: Any) -> None:
        """Answer a question of the browser; it carries no state, so that notebooks do not grow."""
        if not isinstance(content, dict) or not self._desks:
            return
        desk = self._desks[1 if content.get("side") == 1 and len(self._desks) > 1 else 0]
        if content.get("ask") in ("events", "difference") and desk.is_long(content.get("episode")):
            # It takes a while; pictures that are asked for meanwhile must not wait for it.
            threading.Thread(target=self._send_answer, args=(desk, content), daemon=True).start()
        else:
            self._send_answer(desk, content)

    def _send_answer(self, desk: Desk, content: dict[str, Any]) -> None:
        buffers: list[bytes] = []
        answer: dict[str, Any]
        try:
            if content.get("ask") == "difference":
                answer = self._difference(content.get("episode"), content.get("other"))
            elif content.get("ask") == "grown":
                answer = self._grow(content.get("episode"))
            else:
                answer, buffers = desk.answer(content)
        except SimlabError as error:
            answer = {"error": words(error, 400)}
        except Exception as error:  # the page waits for an answer, whatever went wrong
            answer = {"error": words(f"{type(error).__name__}: {error}", 400)}
        if self._desks:  # it may have been closed meanwhile
            self.send({**answer, "id": content.get("id")}, buffers)

    def _difference(self, k: Any, other: Any) -> dict[str, Any]:
        row, text = first_difference(self._desks[0].opened(int(k)).episode, self._desks[-1].opened(int(other)).episode)
        return {"row": row, "text": text}

    def _grow(self, k: Any) -> dict[str, Any]:
        desk = self._desks[0]
        if self.live:
            desk.follow(len(self._numbers))
        table = desk.ds.sim.episodes
        numbers = [int(k) for k in table["episode"].values]
        self._numbers = numbers
        place = numbers.index(k) if k in numbers else -1
        complete = bool(table["complete"].values[place]) if "complete" in table and numbers else True
        return {"n": int(table["length"].values[place]) if numbers else 0, "episodes": len(numbers), "complete": complete}

    # -- where there is no kernel

    def _ipython_display_(self) -> None:
        from IPython.display import display

        show: Any = display
        show(self._still(), raw=True)
        bundle = self._repr_mimebundle_()
        if bundle is not None:
            data, metadata = bundle if isinstance(bundle, tuple) else (bundle, {})
            show(data, raw=True, metadata=metadata)

    def _still(self) -> dict[str, Any]:
        """Return a picture and a sentence, for a page without a kernel; the live viewer hides them."""
        try:
            picture = poster_png(self._desks[0].opened(self.episode), self._row(), self.agents)
        except Exception as error:  # the live viewer is worth more than its stand-in
            warnings.warn(f"The picture that stands for the viewer could not be made: {error}", RuntimeWarning, stacklevel=2)
            picture = b""
        steps = self._opened().episode.steps
        text = f"Episode {self.episode}, step {steps[self._row()] if len(steps) else 0} of {self._title or 'a run'}"
        return {"text/html": poster_html(self._poster, picture, text), "text/plain": f"{text} (viewer)"}
