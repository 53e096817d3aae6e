"""Figures over many agents or many episodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from simlab.conventions import ACTIONS, ATTR_MODALITY, EPISODE, REWARDS
from simlab.errors import InputError, NotInRunError
from simlab.view.figures import EpisodeFigure
from simlab.view.frames import Episode
from simlab.view.paint import color_table
from simlab.view.panels import FAINT, FOCUS, INK, RULE, SMALL, clipped, hexes, locate, quiet, runs, say

if TYPE_CHECKING:
    import xarray as xr

_MOST_AGENTS: Final = 48
_MOST_BINS: Final = 240
_MOST_ACTIONS: Final = 12


def plot_agents(ds: xr.Dataset, k: int = 0, *, variable: str | None = None, figsize: tuple[float, float] | None = None) -> Figure:
    """Draw what every agent of an episode got and did: a row for each, those with the highest return first.

    Parameters
    ----------
    ds : xarray.Dataset
        What `simlab.open_run` returns.
    k : int, optional
        The episode.
    variable : str, optional
        The variable of one number for each agent and step that is drawn; left out, the rewards.
    figsize : tuple of float, optional
        Width and height in inches.

    Returns
    -------
    matplotlib.figure.Figure
        It shows itself in a notebook; ``figure.savefig("agents.pdf")`` saves it.

    Raises
    ------
    NotInRunError
        If there is no such episode or variable, or no variable that can be drawn.
    """
    episode = Episode(ds, k)
    name = variable if variable is not None else _first(episode, REWARDS)
    if name is None:
        raise NotInRunError(
            f"The run has no rewards. Name another variable of one number: variable= one of {', '.join(_numbers(episode))}."
        )
    if episode.check(name) not in _numbers(episode):
        raise InputError(f"{name!r} is not one number for each agent and step; give one of {', '.join(_numbers(episode))}.")
    dim = episode.agent_dim(name)
    assert dim is not None
    values = np.asarray(episode.data[name].values, np.float64).reshape(episode.data.sizes[dim], -1)
    values = np.where(episode.present(name), values, np.nan)
    lived = np.flatnonzero(episode.life(dim).any(axis=1))
    total = np.nansum(values, axis=1)
    order = lived[np.argsort(-total[lived], kind="stable")]
    drawn = order[:_MOST_AGENTS]
    height = max(2.2, 1.25 + 0.2 * len(drawn))
    figure = EpisodeFigure(figsize=figsize or (10.0, height), dpi=120, facecolor="white")
    note = f", the {len(drawn)} with the highest sums of {len(order)}" if len(drawn) < len(order) else ""
    top, bottom = 1 - 0.62 / height, 0.5 / height
    figure.text(
        0.025,
        1 - 0.28 / height,
        f"Episode {episode.k}: {clipped(name, 30)} of every agent{note}",
        fontsize=12,
        weight="bold",
        color=INK,
        va="center",
    )
    action = _first(episode, ACTIONS)
    shares = (
        action is not None and episode.agent_dim(action) == dim and (episode.categories(action) or episode.data[action].dtype.kind in "biu")
    )
    left = figure.add_axes((0.105, bottom, 0.5 if shares else 0.62, top - bottom))
    if not len(drawn):
        say(left, "no agents in this episode")
        return figure
    labels = [clipped(str(episode.agents(dim)[i]), 14) for i in drawn]
    _heat(figure, left, values[drawn], labels)
    middle = figure.add_axes((0.66 if shares else 0.8, bottom, 0.12 if shares else 0.17, top - bottom), sharey=left)
    _bars(middle, total[drawn])
    if shares and action is not None:
        _shares(figure.add_axes((0.82, bottom, 0.16, top - bottom), sharey=left), episode, action, drawn)
    return figure


def _first(episode: Episode, modality: str) -> str | None:
    return next((n for n in _numbers(episode) if episode.data[n].attrs.get(ATTR_MODALITY) == modality), None)


def _numbers(episode: Episode) -> list[str]:
    return [
        name
        for name in episode.variables
        if episode.agent_dim(name) is not None and episode.own_shape(name) in ((), (1,)) and episode.data[name].dtype.kind in "biuf"
    ]


def _heat(figure: Figure, ax: Any, values: NDArray[Any], labels: list[str]) -> None:
    """Draw one row of colours for each agent; where it did not live there is paper."""
    total = values.shape[1]
    every = max(1, -(-total // _MOST_BINS))
    padded = np.full((len(values), -(-total // every) * every), np.nan)
    padded[:, :total] = values
    bins = padded.reshape(len(values), -1, every)
    there = np.isfinite(bins)
    with np.errstate(invalid="ignore"):
        means = np.where(there.any(axis=2), np.where(there, bins, 0).sum(axis=2) / np.maximum(there.sum(axis=2), 1), np.nan)
    finite = means[np.isfinite(means)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    image = ax.imshow(
        means, aspect="auto", interpolation="nearest", cmap=ListedColormap(color_table()), vmin=low, vmax=high if high > low else low + 1,
        extent=(-0.5, bins.shape[1] * every - 0.5, len(values) - 0.5, -0.5),
    )  # fmt: skip
    for row, line in enumerate(values):
        spans = runs(np.isfinite(line))
        if spans and spans[-1][1] < total:
            ax.plot([spans[-1][1] - 0.5], [row], "|", ms=5, color=INK, mew=1)
    quiet(ax, "each step" if every == 1 else f"mean over {every} steps")
    ax.set_yticks(range(len(labels)), labels)
    ax.set_xlim(-0.5, total - 0.5)
    ax.tick_params(axis="y", length=0)
    ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    ax.set_xlabel("step", fontsize=SMALL, color=FAINT, labelpad=2)
    box = ax.get_position()
    bar = figure.add_axes((box.x1 + 0.006, box.y0, 0.008, min(box.height, 0.5)))
    figure.colorbar(image, cax=bar)
    bar.tick_params(labelsize=6, colors=FAINT, length=0, pad=2)
    bar.yaxis.set_major_locator(MaxNLocator(3))
    for side in bar.spines.values():
        side.set_visible(False)


def _bars(ax: Any, total: NDArray[Any]) -> None:
    quiet(ax, "sum")
    ax.barh(range(len(total)), total, height=0.66, color=[FOCUS if value < 0 else hexes()[3] for value in total], linewidth=0)
    ax.axvline(0, color=RULE, lw=0.8)
    ax.tick_params(axis="y", length=0, labelleft=False)
    ax.xaxis.set_major_locator(MaxNLocator(3))


def _shares(ax: Any, episode: Episode, name: str, drawn: NDArray[Any]) -> None:
    """Draw how often each agent took each action."""
    values = np.asarray(episode.data[name].values).reshape(episode.data.sizes[episode.agent_dim(name)], -1)
    there = episode.present(name)
    found = np.unique(values[there])
    names = episode.categories(name) or [str(int(v)) for v in found]
    numbers = list(range(len(names))) if episode.categories(name) else [int(v) for v in found]
    quiet(ax, clipped(name, 20))
    if len(numbers) > _MOST_ACTIONS:
        say(ax, f"{len(numbers)} values")
        return
    left = np.zeros(len(drawn))
    for number, label, color in zip(numbers, names, (hexes() * 2)[: len(names)], strict=True):
        part = np.array([np.mean(values[i][there[i]] == number) if there[i].any() else 0.0 for i in drawn])
        ax.barh(range(len(drawn)), part, left=left, height=0.66, color=color, linewidth=0, label=clipped(label, 8))
        left += part
    ax.set_xlim(0, 1)
    ax.set_xticks([0, 1], ["0", "100 %"])
    ax.tick_params(axis="y", length=0, labelleft=False)
    ax.legend(
        fontsize=6, ncols=3, loc="upper left", bbox_to_anchor=(0, -0.02), frameon=False, handlelength=0.8, columnspacing=0.8, labelcolor=INK
    )


def plot_returns(ds: xr.Dataset, *, window: int | None = None, figsize: tuple[float, float] = (10.0, 3.6)) -> Figure:
    """Draw what the agents got in each episode, and how long the episodes were.

    Parameters
    ----------
    ds : xarray.Dataset
        What `simlab.open_run` returns.
    window : int, optional
        Episodes of the running mean; left out, a twentieth of them, 1 for none.
    figsize : tuple of float, optional
        Width and height in inches.

    Returns
    -------
    matplotlib.figure.Figure
        It shows itself in a notebook; ``figure.savefig("returns.pdf")`` saves it.

    Raises
    ------
    NotInRunError
        If the run has no returns: no rewards were logged.
    """
    table = ds.sim.episodes
    if "return_mean" not in table:
        raise NotInRunError("The run has no returns, because no rewards were logged. Log a variable of the modality rewards.")
    if window is not None and (isinstance(window, bool) or not isinstance(window, int) or window < 1):
        raise InputError(f"window={window!r}: give a number of episodes, 1 or more.")
    numbers = np.asarray(table[EPISODE].values)
    mean, low, high = (np.asarray(table[f"return_{word}"].values, np.float64) for word in ("mean", "min", "max"))
    figure = EpisodeFigure(figsize=figsize, dpi=120, facecolor="white")
    ax, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    figure.subplots_adjust(left=0.07, right=0.98, top=0.86, bottom=0.13, hspace=0.22)
    figure.text(0.025, 0.94, f"Returns of {len(numbers):,} episodes", fontsize=12, weight="bold", color=INK, va="center")
    width = window or max(1, len(numbers) // 20)
    few = len(numbers) <= 60
    ax.fill_between(numbers, low, high, color="#dbe3ec", linewidth=0, label="least to greatest of the agents")
    ax.plot(
        numbers,
        mean,
        "o-" if few else "-",
        ms=3.5,
        lw=1.2 if width == 1 else 0.6,
        color=hexes()[3] if width == 1 else "#9fb4cc",
        label="mean of the agents",
    )
    if width > 1:
        kernel = np.ones(width)
        good = np.isfinite(mean)
        count = np.convolve(good.astype(float), kernel, "same")
        smooth = np.convolve(np.where(good, mean, 0), kernel, "same") / np.maximum(count, 1)
        ax.plot(numbers, np.where(count > 0, smooth, np.nan), lw=1.6, color=hexes()[3], label=f"mean of {width} episodes")
    quiet(ax, "return of an agent: the sum of its rewards")
    ax.axhline(0, color=RULE, lw=0.6, zorder=0)
    ax.legend(
        fontsize=SMALL,
        loc="lower left",
        bbox_to_anchor=(0.5, 1.0),
        ncols=3,
        frameon=False,
        labelcolor=INK,
        borderaxespad=0.1,
        handlelength=1.2,
    )
    locate(ax)
    _lengths(below, table, numbers)
    below.set_xlabel("episode", fontsize=SMALL, color=FAINT, labelpad=2)
    below.xaxis.set_major_locator(MaxNLocator(10, integer=True))
    return figure


def _lengths(ax: Any, table: xr.Dataset, numbers: NDArray[Any]) -> None:
    """Draw the lengths, coloured by how the episodes ended where that is told in a few words."""
    lengths = np.asarray(table["length"].values)
    outcomes = np.asarray(table["outcome"].values).astype(str) if "outcome" in table else np.array([""] * len(lengths))
    kinds = [kind for kind in dict.fromkeys(outcomes.tolist()) if kind]
    quiet(ax, "steps")
    if 1 <= len(kinds) <= 6:
        for kind, color in zip(kinds, hexes()[1:], strict=False):
            here = outcomes == kind
            ax.vlines(
                numbers[here], 0, lengths[here], color=color, lw=float(np.clip(300 / max(1, len(numbers)), 0.5, 5)), label=clipped(kind, 20)
            )
        ax.legend(
            fontsize=6,
            loc="lower right",
            bbox_to_anchor=(1, 1.0),
            ncols=6,
            frameon=False,
            labelcolor=INK,
            borderaxespad=0.1,
            handlelength=0.8,
        )
    else:
        ax.vlines(numbers, 0, lengths, color="#9fb4cc", lw=float(np.clip(300 / max(1, len(numbers)), 0.5, 5)))
    ax.set_ylim(0, None)
    locate(ax, whole=True)
