"""The parts of an episode's figure, each drawn into axes it is given."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from simlab.view.choice import Choice
from simlab.view.frames import Episode, Frame
from simlab.view.paint import CHANNEL_COLORS, PAPER, Rgb, Scale, color_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK: Final = "#22262b"
FAINT: Final = "#8a9099"
RULE: Final = "#d9dce0"
FOCUS: Final = "#d55e00"
SMALL: Final = 7.0
MOST_POINTS: Final = 2000
"""A line of more points is drawn from means over several steps."""
MOST_ACTIONS: Final = 24
"""Actions of more values have no row for each."""


def hexes() -> list[str]:
    """Return the palette as matplotlib takes it."""
    return [hex_of(color) for color in CHANNEL_COLORS]


def hex_of(color: Rgb) -> str:
    """Return a colour as matplotlib takes it."""
    return "#{:02x}{:02x}{:02x}".format(*color)


def quiet(ax: Axes, words: str = "", unit: str = "") -> None:
    """Take the frame away and put the title where reading begins."""
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        ax.spines[side].set_color(RULE)
    ax.tick_params(labelsize=SMALL, colors=FAINT, length=2, width=0.6, pad=2)
    if words:
        title(ax, words + (f"  [{unit}]" if unit and unit != "1" else ""))


def title(ax: Axes, words: str, pad: float = 4) -> None:
    """Write a panel's title where reading begins."""
    ax.set_title(words, loc="left", fontsize=8, color=INK, pad=pad)


def say(ax: Axes, words: str) -> None:
    """Write words where a picture would be."""
    ax.set_xticks([])
    ax.set_yticks([])
    for side in ax.spines.values():
        side.set_color(RULE)
        side.set_linestyle((0, (2, 2)))
    ax.text(0.5, 0.5, words, transform=ax.transAxes, ha="center", va="center", fontsize=SMALL, color=FAINT)


def picture(ax: Axes, frame: Frame | None, words: str) -> None:
    """Draw one frame, or say that there is none."""
    note = frame.note if frame is not None and frame.present and frame.note in ("all NaN", "inf") else ""
    ax.set_title(words + (f" · {note}" if note else ""), loc="left", fontsize=SMALL, color=FOCUS if note else FAINT, pad=2)
    if frame is None or not frame.present:
        ax.set_box_aspect(1 if frame is None else frame.image.shape[0] / frame.image.shape[1])
        say(ax, "not logged")
        return
    ax.imshow(frame.image, interpolation="nearest", aspect="equal")
    ax.set_xticks([])
    ax.set_yticks([])
    for side in ax.spines.values():
        side.set_color(RULE)
        side.set_linewidth(0.6)


def legend(ax: Axes, scale: Scale) -> None:
    """Draw what the colours of a film strip stand for into axes beside it."""
    ax.axis("off")
    if scale.needs_bar:
        low, high = float(scale.low[0]), float(scale.high[0])
        inset = ax.inset_axes((0.05, 0.1, 0.14, 0.8))
        inset.imshow(np.linspace(1, 0, 256)[:, None], cmap=ListedColormap(color_table()), aspect="auto")
        inset.set_xticks([])
        inset.set_yticks([0, 255], [f"{high:.3g}", f"{low:.3g}"])
        inset.yaxis.tick_right()
        inset.tick_params(labelsize=SMALL, colors=INK, length=0, pad=3)
        for side in inset.spines.values():
            side.set_visible(False)
    shown = scale.legend[:8]
    for i, (label, color) in enumerate(shown):
        y = 0.92 - 0.13 * i
        ax.plot([0.08], [y], "s", ms=5.5, color=hex_of(color), transform=ax.transAxes, clip_on=False)
        ax.text(0.17, y, clipped(label, 14), transform=ax.transAxes, fontsize=SMALL, color=INK, va="center")


def thinned(x: NDArray[Any], y: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], int]:
    """Return a line of at most 2000 points, each the mean over a window of steps, and the length of the window."""
    window = -(-len(x) // MOST_POINTS)
    if window <= 1:
        return x, y, 1
    full = len(x) // window * window
    return x[:full:window], mean_ignoring_nan(y[:full].reshape(-1, window)), window


def mean_ignoring_nan(values: NDArray[Any]) -> NDArray[np.float64]:
    """Return the mean over the last axis of what is a number; NaN where nothing is."""
    there = ~np.isnan(values)
    count = there.sum(axis=-1)
    with np.errstate(invalid="ignore"):
        return np.where(count, np.where(there, values, 0.0).sum(axis=-1) / np.maximum(count, 1), np.nan)


def smooth(values: NDArray[Any], window: int) -> NDArray[np.float64]:
    """Return the running mean over `window` steps, of what is a number; NaN stays where nothing was logged."""
    if window <= 1 or len(values) < window:
        return values.astype(np.float64)
    there = np.isfinite(values)
    kernel = np.ones(window)
    total = np.convolve(np.where(there, values, 0.0), kernel, "same")
    count = np.convolve(there.astype(float), kernel, "same")
    return np.where(there, total / np.maximum(count, 1), np.nan)


def lifelines(ax: Axes, choice: Choice, steps: NDArray[Any]) -> None:
    """Draw when every agent lived; a gap is a gap in what it logged."""
    quiet(ax, "agents, from first to last step logged")
    height = 0.62
    for row, agent in enumerate(choice.drawn):
        spans = runs(choice.life[agent])
        bars = [(steps[a] - 0.5, steps[b - 1] - steps[a] + 1) for a, b in spans]
        ax.broken_barh(bars, (row - height / 2, height), color=FOCUS if agent == choice.focal else "#aab2bd", linewidth=0)
        if spans and spans[-1][1] < len(steps):  # it stopped before the episode did
            ax.plot([steps[spans[-1][1] - 1] + 0.5], [row], "|", ms=5, color=INK, mew=1)
    names = [clipped(str(choice.labels[agent]), 13) for agent in choice.drawn]
    every = max(1, -(-len(names) // 16))
    focal = choice.drawn.index(choice.focal) if choice.focal is not None else 0
    shown = [i for i in range(len(names)) if i % every == 0 and (i == focal or abs(i - focal) >= every)]
    shown = sorted({*shown, focal}) if names else []
    ax.set_yticks(shown, [names[i] for i in shown])
    for i, text in zip(shown, ax.get_yticklabels(), strict=True):
        text.set_color(FOCUS if i == focal else FAINT)
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.spines["left"].set_visible(False)
    ax.tick_params(axis="y", length=0)


def runs(there: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return where a row of booleans is true, as (start, stop).

    Examples
    --------
    >>> import numpy as np
    >>> runs(np.array([True, True, False, True]))
    [(0, 2), (3, 4)]
    """
    edges = np.flatnonzero(np.diff(np.concatenate([[False], there, [False]]).astype(np.int8)))
    return [(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def line(ax: Axes, x: NDArray[Any], y: NDArray[Any], **style: Any) -> int:
    """Draw a line that breaks where nothing was logged; single values stay visible. Return the window of its means."""
    x, y, window = thinned(x, y)
    ax.plot(x, y, **style)
    there = np.isfinite(y)
    alone = [a for a, b in runs(there) if b - a == 1]
    if alone:
        ax.plot(x[alone], y[alone], ".", ms=3, color=style.get("color"), alpha=style.get("alpha"))
    return window


def reward_lines(
    ax: Axes, choice: Choice, steps: NDArray[Any], lines: NDArray[Any], everybody: NDArray[Any], words: str, unit: str
) -> None:
    """Draw one thin line for each agent, the focal one in colour, and the mean over everybody in ink."""
    window = max(1, len(steps) // 25)
    for agent, values in zip(choice.drawn, lines, strict=False):
        focal = agent == choice.focal
        style: dict[str, Any] = {"color": FOCUS, "lw": 1.1, "zorder": 3} if focal else {"color": "#c3c9d1", "lw": 0.6, "zorder": 1}
        line(ax, steps, smooth(values, window), **style)
    if len(everybody) > 1:
        line(ax, steps, smooth(mean_ignoring_nan(everybody.T), window), color=INK, lw=1.4, zorder=4)
        words += ", and their mean (dark)"
    quiet(ax, words + (f", running mean of {window} steps" if window > 1 else ""), unit)
    ax.axhline(0, color=RULE, lw=0.6, zorder=0)
    locate(ax)


def locate(ax: Axes, whole: bool = False) -> None:
    """Put few numbers on a low panel, and what they are multiples of in small print at the end of the title's line."""
    ax.yaxis.set_major_locator(MaxNLocator(3, integer=whole))
    ax.yaxis.set_offset_position("right")
    ax.yaxis.get_offset_text().set(fontsize=6, color=FAINT)


def action_steps(ax: Axes, steps: NDArray[Any], values: NDArray[Any], there: NDArray[np.bool_], names: list[str] | None) -> None:
    """Draw what one agent did at every step, by name."""
    shown = np.where(there, values.astype(float), np.nan)
    found = np.unique(shown[there])
    rows = list(range(len(names))) if names else [int(value) for value in found]
    if not names and 0 <= rows[0] <= rows[-1] < MOST_ACTIONS:
        rows = list(range(rows[-1] + 1))
    if len(rows) <= MOST_ACTIONS:
        wide = float(np.clip(400 / max(1, len(steps)), 0.4, 4))
        for row, value in enumerate(rows):
            at = np.flatnonzero(shown == value)
            ax.vlines(steps[at], row - 0.34, row + 0.34, color=FOCUS, lw=wide)
        ax.set_yticks(range(len(rows)), [clipped(name, 12) for name in names or map(str, rows)])
        ax.set_ylim(len(rows) - 0.4, -0.6)
        ax.tick_params(axis="y", length=0)
        ax.spines["left"].set_visible(False)
    else:
        every = max(1, -(-len(steps) // (20 * MOST_POINTS)))  # a mean of actions would be no action
        ax.plot(steps[::every], shown[::every], ".", ms=5 if len(steps) <= MOST_POINTS else 2, color=FOCUS, mew=0)
        locate(ax, whole=True)


def shares(ax: Axes, values: NDArray[Any], count: int) -> None:
    """Write beside every action how often all agents together took it."""
    ax.text(1.012, 1.0, "all agents", transform=ax.transAxes, fontsize=6, color=FAINT, va="bottom")
    for value in range(count):
        ax.text(1.012, value, f"{np.mean(values == value):.0%}", transform=ax.get_yaxis_transform(), fontsize=6, color=INK, va="center")


def spark(ax: Axes, steps: NDArray[Any], values: NDArray[Any], name: str, color: str) -> None:
    """Draw one channel in a low row of its own: its name on the left, its limits on the right."""
    finite = values[np.isfinite(values)]
    ax.set_yticks([])
    for side in ("top", "right", "left"):
        ax.spines[side].set_visible(False)
    ax.spines["bottom"].set_color(RULE)
    ax.text(-0.012, 0.5, clipped(name, 18), transform=ax.transAxes, ha="right", va="center", fontsize=SMALL, color=INK)
    if not finite.size:
        ax.text(
            0.5,
            0.5,
            "not logged" if not values.size or np.isnan(values).all() else "not finite",
            transform=ax.transAxes,
            ha="center",
            va="center",
            fontsize=SMALL,
            color=FAINT,
        )
        return
    low, high = float(finite.min()), float(finite.max())
    line(ax, steps, np.where(np.isfinite(values), values, np.nan), color=color, lw=0.9)
    pad = 0.12 * (high - low) or max(abs(high), 1.0) * 0.5
    ax.set_ylim(low - pad, high + pad)
    for y, text, va in ((1.0, f"{high:.4g}", "top"), (0.0, f"{low:.4g}", "bottom")):
        if high > low or y:
            ax.text(1.008, y, text, transform=ax.transAxes, fontsize=6, color=FAINT, va=va)
    if np.isinf(values).any():
        ax.text(1.008, 0.5, "inf", transform=ax.transAxes, fontsize=6, color=FOCUS, va="center")


def trails(ax: Axes, episode: Episode, choice: Choice, background: Frame | None) -> None:
    """Draw the way of every agent over the latest picture of the world."""
    assert choice.place is not None
    name, ix, iy = choice.place
    quiet(ax, "where they went")
    height, width = (background.image.shape[:2]) if background is not None else (0, 0)
    there = episode.present(name)
    shown: list[tuple[int, NDArray[Any], NDArray[Any]]] = []
    for agent in choice.drawn:
        values = episode.values(name, choice.labels[agent]).astype(float)
        values[~there[agent]] = np.nan
        values, _ = values[:: max(1, -(-len(values) // MOST_POINTS))], None
        shown.append((agent, values[:, ix], values[:, iy]))
    fits = background is not None and all(
        np.nanmin(axis, initial=0.0) >= -0.5 and np.nanmax(axis, initial=0.0) <= size - 0.5
        for _, x, y in shown for axis, size in ((x, width), (y, height))
    )  # fmt: skip
    if fits and background is not None:
        faded = np.round(0.45 * background.image + 0.55 * np.array(PAPER)).astype(np.uint8)
        ax.imshow(faded, interpolation="nearest")
    ax.set_aspect("equal", adjustable="box" if fits else "datalim")
    for agent, x, y in sorted(shown, key=lambda entry: entry[0] == choice.focal):
        x, y = unwrapped(x, y, width if fits else 0, height if fits else 0)
        focal = agent == choice.focal
        ax.plot(x, y, color=FOCUS if focal else INK, lw=1.3 if focal else 0.5, alpha=1 if focal else 0.45, solid_capstyle="round")
        last = np.flatnonzero(np.isfinite(x) & np.isfinite(y))
        if focal and last.size:
            ax.plot([x[last[0]]], [y[last[0]]], "o", ms=4, mfc="white", mec=FOCUS, mew=1.2, zorder=5)
            ax.plot([x[last[-1]]], [y[last[-1]]], "o", ms=4, color=FOCUS, zorder=5)
    if fits:
        ax.set_xticks([])
        ax.set_yticks([])
        ax.set_xlim(-0.5, width - 0.5)
        ax.set_ylim(height - 0.5, -0.5)


def unwrapped(x: NDArray[Any], y: NDArray[Any], width: int, height: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Break a line where it jumps over the edge of a world without edges."""
    jump = np.zeros(max(len(x) - 1, 0), bool)
    for axis, size in ((x, width), (y, height)):
        with np.errstate(invalid="ignore"):
            jump |= (np.abs(np.diff(axis)) > size / 2) if size else False
    at = np.flatnonzero(jump) + 1
    return np.insert(x, at, np.nan), np.insert(y, at, np.nan)


def clipped(text: str, most: int) -> str:
    """Return a text that fits, its beginning and its end kept. Nothing in it is taken for mathematics."""
    text = "".join(c if c.isprintable() else "?" for c in text)
    text = text if len(text) <= most else f"{text[: most // 2]}…{text[-(most - most // 2 - 1) :]}"
    return text.replace("$", r"\$")


def label_of(agent: Hashable) -> str:
    """Return an agent's label for a title."""
    return clipped(f"agent {agent}" if isinstance(agent, int) else str(agent), 20)
