"""What a browser is told about an episode before it asks for anything of it: plain numbers and text, ready for JSON."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from simlab.conventions import ATTR_ENVIRONMENT_TYPE, ATTR_MODALITY, EPISODE
from simlab.view.blocks import Layout, Presence
from simlab.view.choice import place_of
from simlab.view.frames import Episode
from simlab.view.kinds import KINDS, Panel, channel_numbers, choose_panels
from simlab.view.paint import CHANNEL_COLORS, COLORMAPS, Scale, as_image, scale_of
from simlab.view.tiles import channels_of

if TYPE_CHECKING:
    import xarray as xr

_SCALE_BYTES: Final = 48 << 20
"""What is read of a variable to find the limits of its pictures."""
_SHORT: Final = 20_000
_MOST_AGENTS: Final = 4
_MOST_EPISODES: Final = 2_000
_HIDDEN_FACTS: Final = frozenset({"start", "length", "complete", "terminated", "truncated", "return_sum", "return_min", "return_max"})


def finite(value: Any) -> float | None:
    """Return a number that JSON has a word for, or None."""
    return float(value) if math.isfinite(float(value)) else None


def words(value: Any, most: int = 60) -> str:
    """Return text of a file on one line, cut where it is long; nothing in it can act on a page or a terminal."""
    text = "".join(c if c.isprintable() else "�" for c in str(value))
    return text if len(text) <= most else text[: most - 1] + "…"


def describe(ds: xr.Dataset, episode: Episode, layouts: dict[str, Layout], wanted: Sequence[str | Panel] | None) -> dict[str, Any]:
    """Return what there is in an episode, and which panels show it.

    Parameters
    ----------
    ds : xarray.Dataset
        The run.
    episode : Episode
        One of its episodes.
    layouts : dict
        How pictures come, by variable.
    wanted : sequence of str or Panel, optional
        The panels that are shown.
    """
    panels = choose_panels(episode, wanted)
    picked: dict[str, list[int]] = {}
    told = []
    for i, (panel, shown) in enumerate(panels):
        entry = _panel(episode, panel, i, shown)
        if panel.variable is not None and entry["options"].get("channels"):
            picked.setdefault(panel.variable, []).extend(entry["options"]["channels"])
        told.append(entry)
    used = {panel.kind for panel, _ in panels}
    return {
        "k": episode.k,
        "n": len(episode.time),
        "kind": words(ds.attrs.get(ATTR_ENVIRONMENT_TYPE, "")),
        "clock": [int(episode.time[0]), int(episode.time[-1])] if len(episode.time) else [],
        "steps": _arithmetic(episode.steps),
        "populations": [{"dim": dim, "agents": [_label(a) for a in episode.agents(dim)]} for dim in episode.populations],
        "variables": {name: _variable(episode, name, layouts.get(name), picked.get(name)) for name in episode.variables},
        "panels": told,
        "scripts": {name: kind.script for name, kind in KINDS.items() if kind.script and name in used},
        "place": next(([p[0], p[1], p[2]] for name in episode.variables if (p := place_of(episode, name))), None),
        "colormaps": {name: list(anchors) for name, anchors in COLORMAPS.items()},
        "palette": ["#{:02x}{:02x}{:02x}".format(*color) for color in CHANNEL_COLORS],
    }


def _label(agent: Hashable) -> str | int:
    return agent if isinstance(agent, int) else str(agent)


def _panel(episode: Episode, panel: Panel, number: int, shown: bool) -> dict[str, Any]:
    options = dict(panel.options)
    if panel.variable is not None:
        options["channels"] = channel_numbers(episode, panel.variable, options.get("channels"))
    elif panel.kind == "map":
        options |= _map_options(episode, options)
    return {"id": number, "kind": panel.kind, "variable": panel.variable, "options": options, "shown": shown}


def _map_options(episode: Episode, options: dict[str, Any]) -> dict[str, Any]:
    name = options.get("variable")
    place = next((p for v in episode.variables if (p := place_of(episode, v))), None)
    if name is None and place is not None:
        name = place[0]
    if name is None:
        return {"place": None}
    episode.check(name)
    x, y = options.get("x"), options.get("y")
    if x is None or y is None:
        found = place_of(episode, name)
        return {"place": list(found) if found else None}
    numbers = channel_numbers(episode, name, [x, y]) or [0, 1]
    return {"place": [name, *numbers], "x": str(x), "y": str(y)}


def _variable(episode: Episode, name: str, layout: Layout | None, picked: list[int] | None) -> dict[str, Any]:
    data = episode.data[name]
    labels, categories = episode.labels(name), episode.categories(name)
    out: dict[str, Any] = {
        "dim": episode.agent_dim(name),
        "dtype": str(data.dtype),
        "shape": list(episode.own_shape(name)),
        "labels": [words(label) for label in labels] if labels and len(labels) <= 4096 else None,
        "categories": [words(label) for label in categories] if categories else None,
        "unit": words(data.attrs.get("units", ""), 16).replace("1", "", data.attrs.get("units") == "1"),
        "about": words(data.attrs.get("long_name", ""), 120),
        "modality": str(data.attrs.get(ATTR_MODALITY, "")),
        "number": data.dtype.kind in "biuf",
        "picture": episode.is_image(name),
        "rows": None if episode.on_main_clock(name) else _arithmetic(np.searchsorted(episode.time, episode.rows(name))),
        "count": len(episode.rows(name)),
    }
    if layout is not None and layout.every > 1:
        rows = np.searchsorted(episode.time, episode.rows(name))[:: layout.every]
        out |= {"rows": _arithmetic(rows), "count": len(rows)}
    if not out["picture"]:
        out["channels"] = channels_of(episode, name, picked)
    if layout is not None:
        image, note = as_image(np.empty(episode.own_shape(name), bool), labels is not None)
        out |= {"layout": layout.told(), "image": list(image.shape), "first": note == "channels first", "note": note}
    return out


def _arithmetic(values: NDArray[Any]) -> dict[str, Any]:
    """Return numbers that mostly are a start and a stride without writing them all down."""
    if len(values) < 2:
        return {"start": int(values[0]) if len(values) else 0, "stride": 1, "count": len(values)}
    stride = int(values[1] - values[0])
    if np.array_equal(values, int(values[0]) + stride * np.arange(len(values))):
        return {"start": int(values[0]), "stride": stride, "count": len(values)}
    return {"values": [int(v) for v in values]}


def told_scale(scale: Scale, sampled: int = 1) -> dict[str, Any]:
    """Return a scale as JSON; `sampled` tells that only one of so many frames was looked at."""
    return {
        "style": scale.style, "low": [finite(x) for x in scale.low], "high": [finite(x) for x in scale.high],
        "labels": [words(label) for label in scale.labels], "note": scale.note, "mean": "mean of" in scale.note, "sampled": sampled,
    }  # fmt: skip


def find_scale(
    episode: Episode, presence: Presence, name: str, channels: Sequence[int] | None = None, budget: int = _SCALE_BYTES
) -> tuple[Scale, int]:
    """Return how the pictures of a variable are painted, the same for all agents, and that one of how many frames was looked at.

    Pixels of 8 bits that use their range need no more than a few frames; of other numbers all are read, up to a limit.
    """
    data, dim, clock = episode.data[name], episode.agent_dim(name), episode.clock_of(name)
    labels = episode.labels(name)
    if channels:
        data = data.isel({data.dims[-1]: list(channels)})
        labels = [labels[c] for c in channels] if labels else [f"channel {c}" for c in channels]
    total = len(episode.rows(name))
    people = np.arange(data.sizes[dim]) if dim is not None else np.zeros(1, int)
    own = data.shape[(dim is not None) + 1 :]
    one = max(1, math.prod(own) * data.dtype.itemsize)

    def look(agents: NDArray[Any], every: int) -> Scale:
        rows = np.arange(0, total, every)
        there = (
            np.concatenate([presence(name, agents if dim else None, int(r), int(r) + 1).reshape(-1, 1) for r in rows], axis=1)
            if (every > 1)
            else presence(name, agents if dim else None, 0, total).reshape(len(agents), total)
        )
        wanted: dict[Any, Any] = {clock: slice(None, None, every)}
        values = np.asarray(data.isel(wanted | ({dim: agents} if dim else {})).values)
        return scale_of(values.reshape(*there.shape, *own)[there], labels, episode.categories(name), data.attrs)

    if data.dtype == np.uint8 and total:
        scale = look(people[:: max(1, len(people) // 2)][:2], max(1, -(-total // 6)))
        if scale.style in ("rgb", "gray") and scale.high[0] > 1:
            return scale, 1
    every = max(1, -(-(one * total * len(people)) // budget))
    return look(people, min(every, max(1, total))), every


def first_agents(episode: Episode, presence: Presence, most: int = _MOST_AGENTS) -> list[Hashable]:
    """Return who is shown at first: those that lived longest, in the order of the run."""
    names = [name for name in episode.variables if episode.agent_dim(name) is not None]
    dims = list(dict.fromkeys(episode.agent_dim(name) for name in names if episode.is_image(name))) or episode.populations
    if not dims or dims[0] is None:
        return []
    dim, span = dims[0], min(len(episode.time), _SHORT)
    lived = np.zeros(episode.data.sizes[dim], int)
    for name in names:
        if episode.agent_dim(name) == dim:
            lived = np.maximum(lived, presence(name, slice(None), 0, span).sum(axis=1))
    order = np.argsort(-lived, kind="stable")[:most]
    labels = episode.agents(dim)
    return [labels[i] for i in sorted(int(i) for i in order if lived[i])]


def episode_list(ds: xr.Dataset) -> dict[str, Any]:
    """Return the episodes for the selector: numbers, lengths, returns and outcomes; of very many, numbers alone."""
    table = ds.sim.episodes
    numbers = np.asarray(table[EPISODE].values)
    out: dict[str, Any] = {"numbers": _arithmetic(numbers), "count": len(numbers), "names": None}
    if len(numbers) <= _MOST_EPISODES:
        out["names"] = [" · ".join(entry_facts(table, place)) for place in range(len(numbers))]
    return out


def entry_facts(table: xr.Dataset, place: int) -> list[str]:
    """Return what the table of episodes says about one, in words."""
    length = int(table["length"].values[place])
    facts = [f"{length:,} step{'' if length == 1 else 's'}"]
    for name in ("return_mean", "return_sum"):
        if name in table:
            value = float(table[name].values[place])
            if math.isfinite(value):
                facts.append(f"return {value:.4g}")
                break
    if "complete" in table and not bool(table["complete"].values[place]):
        facts.append("not ended")
    for name in ("outcome", *(str(n) for n in table.data_vars if str(n) not in _HIDDEN_FACTS | {"outcome", "return_mean", "seed"})):
        if name in table and table[name].dtype.kind in "OUT":
            text = words(table[name].values[place], 30)
            facts += [text] if text else []
    return facts[:5]
