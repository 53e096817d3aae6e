"""The series of an episode as one picture, for a film to move a cursor over."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from simlab.view.catalogue import words
from simlab.view.desk import Opened
from simlab.view.kinds import choose_panels

LINES: Final = ("#d55e00", "#0072b2", "#009e73", "#b45c93", "#b87d00", "#3d9bd1", "#6b4e9b", "#8c5614")
"""Colours of agents, in their order."""
_MOST_LINES: Final = 6
_MOST_NAMES: Final = 8
_LEFT, _RIGHT, _FOOT, _GAP, _NAME_HIGH = 168, 16, 30, 8, 11


def draw_strip(opened: Opened, agents: Sequence[Hashable], wide: int) -> tuple[NDArray[np.uint8], tuple[int, int]]:
    """Draw the series of an episode.

    Parameters
    ----------
    opened : Opened
        The episode.
    agents : sequence of hashable
        Who has lines.
    wide : int
        Pixels.

    Returns
    -------
    ndarray of uint8, shape (height, width, 3)
        The picture; without height where there are no series.
    tuple of int
        The first and the last pixel of its time axis.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    episode = opened.episode
    picked = [(p.variable, p.kind) for p, shown in choose_panels(episode) if shown and p.kind in ("lines", "steps") and p.variable]
    picked = picked[:_MOST_LINES]
    if not picked:
        return np.full((0, wide, 3), 255, np.uint8), (0, 1)
    named = [(episode.categories(name) or [])[: _MOST_NAMES + 1] for name, _ in picked]
    rows = [max(38, _NAME_HIGH * len(names)) if len(names) <= _MOST_NAMES else 38 for names in named]
    high = sum(rows) + _GAP * len(rows) + _FOOT
    figure = Figure(figsize=(wide / 100, high / 100), dpi=100, facecolor="white")
    left, right = _LEFT / wide, 1 - _RIGHT / wide
    down = 0
    for i, ((name, kind), names, row) in enumerate(zip(picked, named, rows, strict=True)):
        ax = figure.add_axes((left, 1 - (down + _GAP + row) / high, right - left, row / high))
        _lines(ax, opened, agents, name, kind == "steps")
        ax.set_xlim(0, max(1, len(episode.time) - 1))
        if names and len(names) <= _MOST_NAMES:
            ax.set_yticks(range(len(names)), [_safe(label, 12) for label in names])
            ax.set_ylim(-0.5, len(names) - 0.5)
        else:
            ax.locator_params(axis="y", nbins=3)
        ax.tick_params(axis="x", labelsize=6.5, length=2, colors="#757c86", labelbottom=i == len(picked) - 1)
        ax.tick_params(axis="y", labelsize=6.5, length=2, colors="#757c86")
        for side in ("top", "right"):
            ax.spines[side].set_visible(False)
        for side in ("left", "bottom"):
            ax.spines[side].set_color("#d9dce0")
        labels = episode.labels(name) if episode.own_shape(name) else None
        told = f"{words(name, 10)}: {words(labels[0], 8)}" if labels else words(name, 18)
        figure.text(8 / wide, 1 - (down + _GAP + row / 2) / high, _safe(told, 20), fontsize=7, color="#22262b", va="center")
        down += row + _GAP
    canvas: Any = FigureCanvasAgg(figure)
    canvas.draw()
    picture = np.asarray(canvas.buffer_rgba())[..., :3].copy()
    return picture, (round(left * wide), round(right * wide) - 1)


def _safe(text: str, most: int) -> str:
    """Return a text of a file in which nothing is taken for mathematics."""
    return words(text, most).replace("$", r"\$")


def _lines(ax: Any, opened: Opened, agents: Sequence[Hashable], name: str, steps: bool) -> None:
    episode, presence = opened.episode, opened.presence
    dim = episode.agent_dim(name)
    known = episode.agents(dim) if dim is not None else []
    at = np.searchsorted(episode.time, episode.rows(name))
    every = max(1, len(at) // 4000)
    rows = np.arange(0, len(at), every)
    for i, agent in enumerate(agents if dim is not None else [None]):
        if dim is not None and agent not in known:
            continue
        values = episode.values(name, agent, rows.tolist()).astype(np.float64).reshape(len(rows), -1)
        place = None if dim is None or agent is None else np.array([episode.position(dim, agent)])
        there = presence(name, place, 0, len(at)).reshape(-1, len(at))[0, rows]
        shown = np.where(there[:, None] & np.isfinite(values), values, np.nan)[:, 0]
        style: dict[str, Any] = {"color": LINES[i % len(LINES)] if dim is not None else "#22262b", "lw": 0.9}
        if steps:
            ax.step(at[rows], shown, where="post", **style)
        else:
            ax.plot(at[rows], shown, **style)
