"""Figures of a run, for a notebook or a paper. matplotlib's global state is neither read nor changed."""

from __future__ import annotations

import io
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from simlab.conventions import ATTR_ENVIRONMENT_TYPE, ATTR_STEP_DURATION, EPISODE
from simlab.view import panels
from simlab.view.choice import MOST_LINES, MOST_VALUES, Choice, choose
from simlab.view.frames import Episode, Frame
from simlab.view.panels import FAINT, INK, SMALL, clipped, hexes, label_of

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes

_WIDTH: Final = 10.0
_EDGE, _LEFT, _MIDDLE, _RIGHT = 0.25, 1.0, 5.75, 9.8
"""Inches from the left edge: where text, lines, the second column begin, and where all ends."""
_HEAD, _FOOT = 0.72, 0.55
_NOT_IN_HEADLINE: Final = frozenset({"start", "length", "complete", "terminated", "truncated", "return_sum", "return_min", "return_max"})


class EpisodeFigure(Figure):
    """A `matplotlib.figure.Figure` that shows itself in a notebook, without pyplot and whatever the backend."""

    def _repr_png_(self) -> bytes:
        out = io.BytesIO()
        self.savefig(out, format="png")
        return out.getvalue()


def plot_episode(
    ds: xr.Dataset,
    k: int = 0,
    *,
    agents: Sequence[Hashable] | Hashable | None = None,
    variables: Sequence[str] | str | None = None,
    figsize: tuple[float, float] | None = None,
) -> Figure:
    """Draw one episode at a glance.

    From top to bottom: film strips of the environment's pictures and of one agent's; when every agent lived; rewards; what the
    agent did; its channels; the environment's numbers. Beside them: where the agents went, and how often they did what. What was
    not logged is shown as not logged, and the figure says what it leaves out.

    Parameters
    ----------
    ds : xarray.Dataset
        What `simlab.open_run` returns.
    k : int, optional
        The episode.
    agents : hashable or sequence of hashable, optional
        Agents to draw, the first one in colour and with its pictures. Left out: the first 30, the one that lived longest in colour.
    variables : str or sequence of str, optional
        What to draw. Left out: what fits on a page.
    figsize : tuple of float, optional
        Width and height in inches; left out, as high as its content asks for.

    Returns
    -------
    matplotlib.figure.Figure
        It does not belong to pyplot: it shows itself in a notebook, and ``figure.savefig("episode.pdf")`` saves it.

    Raises
    ------
    NotInRunError, AgentError
        If a variable or an agent is not in the run.
    """
    episode = Episode(ds, k)
    page = _Page(episode, choose(episode, agents, variables))
    page.draw(figsize, _headline(ds, episode))
    return page.figure


Part = tuple[str, Any, float, float]
"""A panel: its kind, what it shows, its height and the gap above it in inches."""


class _Page:
    """Lays the panels out from top to bottom, in inches."""

    def __init__(self, episode: Episode, choice: Choice) -> None:
        self.episode, self.choice = episode, choice
        self.steps = _increasing(episode)
        self.strips = [name for name in choice.strips if episode.agent_dim(name) is None or choice.focal is not None]
        self.background = self._background()
        self.main, self.beside = self._main_parts(), self._side_parts()
        if not len(self.steps):
            self.strips = []
        strips = sum(self._strip_cells(name)[2] + 0.45 for name in self.strips)
        columns = max(sum(high + gap for *_, high, gap in parts) for parts in (self.main, self.beside))
        self.height = _HEAD + strips + columns + _FOOT
        self.figure = EpisodeFigure(figsize=(_WIDTH, self.height), dpi=120, facecolor="white")
        self.down = _HEAD

    def draw(self, figsize: tuple[float, float] | None, headline: tuple[str, str]) -> None:
        title, facts = headline
        self.figure.text(_EDGE / _WIDTH, 1 - 0.3 / self.height, title, fontsize=13, color=INK, weight="bold", va="center")
        self.figure.text(_EDGE / _WIDTH, 1 - 0.54 / self.height, facts, fontsize=8, color=FAINT, va="center")
        for name in self.strips:
            self._strip(name)
        self._column(self.main, _LEFT, _MIDDLE if self.beside else _RIGHT - 0.5)
        self._column(self.beside, _MIDDLE + 1.45, _RIGHT - 0.4)
        if self.choice.notes:
            words = "Not all is drawn: " + "; ".join(self.choice.notes) + "."
            self.figure.text(_EDGE / _WIDTH, 0.13 / self.height, words, fontsize=6.5, color=FAINT, va="center")
        if figsize is not None:
            self.figure.set_size_inches(*figsize)

    def _axes(self, left: float, right: float, top: float, high: float, **more: Any) -> Axes:
        """Return axes at a place given in inches from the top left corner."""
        return self.figure.add_axes((left / _WIDTH, 1 - (top + high) / self.height, (right - left) / _WIDTH, high / self.height), **more)

    # -- film strips

    def _strip_cells(self, name: str) -> tuple[int, float, float]:
        """Return how many frames a film strip has, and the width and height of one."""
        shape = self.episode.frame_shape(name)
        ratio = float(np.clip(shape[0] / shape[1], 0.2, 4))
        count = int(np.clip(round(9 * ratio), 4, 9))
        wide = (_RIGHT - _EDGE - 1.25 + 0.08) / count - 0.08
        return count, wide, min(wide * ratio, 1.9)

    def _strip(self, name: str) -> None:
        episode, choice = self.episode, self.choice
        ours = episode.agent_dim(name) is not None
        agent = choice.labels[choice.focal] if ours and choice.focal is not None else None
        count, wide, high = self._strip_cells(name)
        frames = _frames(episode, name, agent, count)
        title = clipped(name, 40) + (f" of {label_of(agent)}" if ours else "")
        if frames and episode.scale(name, agent).note:
            title += f"   ({episode.scale(name, agent).note})"
        self.figure.text(_EDGE / _WIDTH, 1 - (self.down + 0.13) / self.height, title, fontsize=8, color=INK, va="center")
        top = self.down + 0.4
        for i in range(count if frames else 1):
            left = _EDGE + i * (wide + 0.08)
            if i < len(frames):
                ax = self._axes(left, left + wide, top, high)
                panels.picture(ax, frames[i], f"step {frames[i].step}")
            elif not frames:
                panels.say(self._axes(left, _RIGHT - 1.25, top, high), "not logged in this episode")
        if frames:
            panels.legend(self._axes(_RIGHT - 1.12, _RIGHT, top, high), episode.scale(name, agent))
        self.down = top + high + 0.05

    # -- panels in two columns

    def _main_parts(self) -> list[Part]:
        choice = self.choice
        if not len(self.steps):
            return [("nothing", None, 0.8, 0.1)]
        parts: list[Part] = []
        if choice.dim is not None:
            parts.append(("life", None, float(np.clip(0.11 * len(choice.drawn), 0.3, 2.2)), 0.42))
        parts += [("reward", name, 1.05, 0.42) for name in choice.rewards[:2]]
        if choice.focal is not None:
            parts += [("action", name, 0.8, 0.42) for name in choice.actions[:2]]
        parts += [("environment", name, 0.5, 0.42) for name in choice.environment]
        return parts

    def _side_parts(self) -> list[Part]:
        choice = self.choice
        if choice.focal is None or not len(self.steps):
            return []
        parts: list[Part] = []
        if choice.place is not None:
            shape = self.background.image.shape if self.background is not None else (4, 5)
            parts.append(("trails", None, float(np.clip((_RIGHT - _MIDDLE - 0.6) * shape[0] / shape[1], 1.0, 3.2)), 0.42))
        names = [name for name, _ in choice.series]
        parts += [("channel", entry, 0.24, 0.06 if i and names[i] == names[i - 1] else 0.42) for i, entry in enumerate(choice.series)]
        return parts

    def _column(self, parts: list[Part], left: float, right: float) -> None:
        shared: Axes | None = None
        down = self.down
        for i, (kind, what, high, gap) in enumerate(parts):
            down += gap
            if kind == "trails":
                panels.trails(self._axes(_MIDDLE + 0.6, _RIGHT, down, high), self.episode, self.choice, self.background)
            else:
                ax = self._axes(left, right, down, high, sharex=shared)
                shared = shared or ax
                if kind == "channel" and gap > 0.1:
                    assert self.choice.focal is not None
                    panels.title(ax, f"{clipped(what[0], 22)} of {label_of(self.choice.labels[self.choice.focal])}", 6)
                if len(self.steps):
                    getattr(self, f"_draw_{kind}")(ax, what)
                else:
                    panels.say(ax, "no steps in this episode")
                last = i == len(parts) - 1
                ax.tick_params(axis="x", labelbottom=last, length=2 if last else 0, width=0.6, labelsize=SMALL, colors=FAINT)
                if last and len(self.steps):
                    words = "step" if self.steps is self.episode.steps else "time"
                    ax.set_xlabel(words, fontsize=SMALL, color=FAINT, labelpad=2)
            down += high
        if shared is not None and len(self.steps):
            margin = 0.5 if len(self.steps) > 1 else 1.0
            shared.set_xlim(self.steps[0] - margin, self.steps[-1] + margin)
            shared.xaxis.set_major_locator(MaxNLocator(6, integer=True))

    def _draw_life(self, ax: Axes, _: None) -> None:
        if not self.choice.drawn:
            panels.say(ax, "no agents in this episode")
        else:
            panels.lifelines(ax, self.choice, self.steps)

    def _draw_reward(self, ax: Axes, name: str) -> None:
        choice, episode = self.choice, self.episode
        variable = episode.data[name]
        drawn = choice.drawn[:MOST_LINES]
        rows = list(range(len(choice.labels))) if variable.size <= MOST_VALUES and not choice.asked else drawn
        values = np.asarray(variable.isel({choice.dim: rows}).values, np.float64)
        values = np.where(episode.present(name)[rows], values, np.nan)
        if not np.isfinite(values).any():
            panels.title(ax, clipped(name, 40))
            panels.say(ax, "not logged in this episode" if np.isnan(values).all() else "not finite")
            return
        lines = values[[rows.index(agent) for agent in drawn]]
        lived = np.flatnonzero(~np.isnan(values).all(axis=1))
        who = "all agents" if len(rows) == len(choice.labels) else f"{len(rows)} agents"
        if len(lived) == 1:
            values, who = values[lived], label_of(choice.labels[rows[lived[0]]])
        panels.reward_lines(ax, choice, self.steps, lines, values, f"{clipped(name, 30)} of {who}", _unit(variable))

    def _draw_action(self, ax: Axes, name: str) -> None:
        episode, choice = self.episode, self.choice
        assert choice.focal is not None
        agent = choice.labels[choice.focal]
        there = episode.present(name)[choice.focal]
        panels.quiet(ax, f"{clipped(name, 30)} of {label_of(agent)}")
        if there.any():
            names = episode.categories(name)
            panels.action_steps(ax, self.steps, episode.values(name, agent), there, names)
            if names and len(names) <= 24 and episode.data[name].size <= MOST_VALUES:
                panels.shares(ax, np.asarray(episode.data[name].values)[episode.present(name)], len(names))
        else:
            panels.say(ax, "not logged in this episode")

    def _draw_channel(self, ax: Axes, entry: tuple[str, int | None]) -> None:
        name, channel = entry
        episode, choice = self.episode, self.choice
        assert choice.focal is not None
        values = episode.values(name, choice.labels[choice.focal]).astype(np.float64)
        values = values if channel is None else values[:, channel]
        labels = episode.labels(name)
        label = name if channel is None else labels[channel] if labels else f"{name}[{channel}]"
        panels.spark(ax, self.steps, np.where(episode.present(name)[choice.focal], values, np.nan), label, panels.FOCUS)

    def _draw_environment(self, ax: Axes, name: str) -> None:
        values, there, times = self.episode.values(name).astype(np.float64), self.episode.present(name), self.episode.rows(name)
        at = self.steps[np.searchsorted(self.episode.time, times).clip(0, len(self.steps) - 1)]
        panels.quiet(ax, clipped(name, 40), _unit(self.episode.data[name]))
        values = np.where(there & np.isfinite(values), values, np.nan)
        if np.isnan(values).all():
            panels.say(ax, "not logged in this episode")
        else:
            panels.line(ax, at, values, color=hexes()[3], lw=1.2)
            panels.locate(ax)

    def _background(self) -> Frame | None:
        """Return the latest picture of the environment, to lay the ways over."""
        for name in self.choice.strips:
            rows = self.episode.rows(name)
            if self.episode.agent_dim(name) is None and len(rows):
                frame = self.episode.frame_at(name, int(rows[-1]))
                return frame if frame.present else None
        return None


def _frames(episode: Episode, name: str, agent: Hashable | None, count: int) -> list[Frame]:
    """Return frames evenly spaced over what was logged."""
    rows = episode.rows(name)[episode.there(name, agent)]
    if not len(rows):
        return []
    picked = rows[np.unique(np.linspace(0, len(rows) - 1, min(count, len(rows))).round().astype(int))]
    return [episode.frame_at(name, int(time), agent) for time in picked]


def _increasing(episode: Episode) -> NDArray[np.int64]:
    """Return the steps as a time axis; the run clock where the steps do not run forward."""
    return episode.steps if bool((np.diff(episode.steps) > 0).all()) else episode.time


def _headline(ds: xr.Dataset, episode: Episode) -> tuple[str, str]:
    """Return the title, and the facts of the episode in one line."""
    lived = sum(int(episode.life(dim).any(axis=1).sum()) for dim in episode.populations)
    count = len(episode.time)
    facts = [f"{count:,} step{'' if count == 1 else 's'}", f"{lived:,} agent{'' if lived == 1 else 's'}"]
    table = ds.sim.episodes
    numbers = np.asarray(table[EPISODE].values) if EPISODE in table.variables else np.zeros(0)
    for place in np.flatnonzero(numbers == episode.k)[:1]:
        for name in table.data_vars:
            value = np.asarray(table[name].values)[place]
            if name == "complete" and not value:
                facts.append("not ended")
            if name in _NOT_IN_HEADLINE or value != value or not str(value):
                continue
            text = f"{value:.4g}" if isinstance(value, (float, np.floating)) else clipped(str(value), 30)
            facts.append(f"{clipped(str(name), 20).replace('_', ' ')} {text}")
    duration = ds.attrs.get(ATTR_STEP_DURATION)
    if duration is not None:
        facts.append(f"step duration {duration:.4g}")
    kind = ds.attrs.get(ATTR_ENVIRONMENT_TYPE)
    return f"Episode {episode.k}" + (f" of {clipped(str(kind), 40)}" if kind else ""), "  ·  ".join(facts[:9])


def _unit(variable: xr.DataArray) -> str:
    return clipped(str(variable.attrs.get("units", "")), 16)
