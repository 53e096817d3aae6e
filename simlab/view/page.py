"""An episode as one page that needs no kernel and no network: the same viewer, with its chunks inside."""

from __future__ import annotations

import base64
import html
import json
import math
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from isal import isal_zlib

from simlab.errors import InputError
from simlab.read.origin import origin_of
from simlab.view.blocks import Layout, browser_dtype
from simlab.view.catalogue import entry_facts, words
from simlab.view.desk import Desk, Opened
from simlab.view.frames import Episode
from simlab.view.kinds import Panel
from simlab.view.poster import poster_png
from simlab.view.script import module, style
from simlab.view.tiles import channels_of

if TYPE_CHECKING:
    import xarray as xr

_ENCODED: Final = 4 / 3
_SERIES_LEVEL: Final = 2
_POLICY: Final = "default-src 'none'; script-src 'unsafe-inline' blob:; style-src 'unsafe-inline'; img-src data:; connect-src 'none'"

Progress = Callable[[int], object]


def of_agents(ds: xr.Dataset, agents: Sequence[Hashable]) -> xr.Dataset:
    """Return a run with some of its agents only."""
    dims = [str(d) for d in ds.dims if str(d) in ds.coords and d in Episode(ds, int(ds.sim.episodes["episode"].values[0])).populations]
    places = {dim: [i for i, label in enumerate(ds[dim].values.tolist()) if label in set(agents)] for dim in dims}
    return ds.isel({dim: _as_slice(where) for dim, where in places.items()})


def _as_slice(places: list[int]) -> Any:
    """Return neighbours as a slice, so that their chunks can be taken as they lie."""
    if places and places == list(range(places[0], places[-1] + 1)):
        return slice(places[0], places[-1] + 1)
    return places


class Page:
    """The content of a page, gathered episode by episode.

    Parameters
    ----------
    ds : xarray.Dataset
        What `simlab.open_run` returned.
    episodes : sequence of int
        Which episodes.
    agents : sequence of hashable
        Who; only what they logged is in the page.
    panels : sequence of str or Panel, optional
        What is shown.
    every : int
        Of so many pictures, take one.
    events : mapping, optional
        Conditions to jump to.
    step : int
        Where the page opens.
    speed : float
        Steps per second.
    """

    def __init__(
        self, ds: xr.Dataset, episodes: Sequence[int], agents: Sequence[Hashable], *, panels: Sequence[str | Panel] | None = None,
        every: int = 1, events: Any = None, step: int = 0, speed: float = 30.0,
    ) -> None:  # fmt: skip
        origin = origin_of(ds)
        self.title = words(origin.source.path.rsplit("/", 1)[-1] if origin is not None else "a run")
        self.agents = [label.item() if isinstance(label, np.generic) else label for label in agents]
        self.desk = Desk(of_agents(ds, agents), panels, events)
        self.desk.every, self.desk.shown = every, len(agents)
        self.episodes, self.step, self.speed = list(episodes), step, speed
        self._table = ds.sim.episodes

    def blocks(self, opened: Opened) -> list[tuple[str, Layout, int, int]]:
        """Return all chunks of pictures of an episode: variable, layout, block of agents, chunk."""
        out = []
        for name, layout in opened.layouts.items():
            dim = opened.episode.agent_dim(name)
            people = opened.episode.data.sizes[dim] if dim is not None else 1
            rows = -(-len(opened.episode.rows(name)) // layout.every)
            if not rows or not people:
                continue
            groups = (people - 1 + layout.agent_offset) // layout.agents + 1
            chunks = (rows - 1 + layout.offset) // layout.length + 1
            out += [(name, layout, b, c) for b in range(groups) for c in range(chunks)]
        return out

    def estimate(self) -> tuple[int, int]:
        """Return about how many bytes the page will have, from a few chunks of each variable, and how many chunks it holds."""
        total, count = 400_000.0, 0
        for k in self.episodes:
            opened = self.desk.opened(k)
            by_name: dict[str, list[tuple[str, Layout, int, int]]] = {}
            for entry in self.blocks(opened):
                by_name.setdefault(entry[0], []).append(entry)
            for entries in by_name.values():
                sample = [entries[i] for i in np.unique(np.linspace(0, len(entries) - 1, 5).astype(int))]
                sizes = [
                    len(b)
                    for _, name, block, chunk in [(0, e[0], e[2], e[3]) for e in sample]
                    for b in self._block(k, name, block, chunk)[1]
                ]
                total += _ENCODED * len(entries) * (sum(sizes) / len(sample))
                count += len(entries)
            for name in self._series_names(opened):
                data = opened.episode.data[name]
                total += _ENCODED * 0.6 * min(data.size, 1e12) * data.dtype.itemsize
        return int(total), count

    def _block(self, k: int, name: str, block: int, chunk: int) -> tuple[dict[str, Any], list[bytes]]:
        question = {"ask": "block", "episode": k, "name": name, "block": block, "chunk": chunk}
        header, buffers = self.desk.answer(question)
        if "error" in header:
            raise InputError(str(header["error"]))
        return header, buffers

    def _series_names(self, opened: Opened) -> list[str]:
        return [name for name in opened.episode.variables if not opened.episode.is_image(name)]

    def held(self, k: int, progress: Progress, spend: Progress) -> dict[str, Any]:
        """Return what the page holds of an episode.

        Parameters
        ----------
        k : int
            The episode.
        progress, spend : callable
            Called with the number of chunks that are done, and with the bytes that were added.
        """
        opened = self.desk.opened(k)
        about, _ = self.desk.answer({"ask": "episode", "episode": k})
        events, _ = self.desk.answer({"ask": "events", "episode": k})
        scales: dict[str, Any] = {}
        series: dict[str, Any] = {}
        blocks: dict[str, dict[str, Any]] = {}
        for name in opened.layouts:
            scales[name], _ = self.desk.answer({"ask": "scale", "episode": k, "name": name})
        for name, _, block, chunk in self.blocks(opened):
            header, buffers = self._block(k, name, block, chunk)
            text = base64.b64encode(buffers[0]).decode() if buffers else ""
            spend(len(text))
            blocks.setdefault(name, {})[f"{block}/{chunk}"] = [header, text]
            progress(1)
        for name in self._series_names(opened):
            series[name] = found = _series(opened, name)
            spend(len(found.get("data", "")) + len(found.get("there", "")) + sum(len(w) for row in found.get("text", []) for w in row))
        for answer in (about, events, *scales.values()):
            if "error" in answer:
                raise InputError(str(answer["error"]))
        return {"about": about, "events": events, "scales": scales, "blocks": blocks, "series": series}

    def write(self, progress: Progress, spend: Progress) -> str:
        """Return the page."""
        held = {str(k): self.held(k, progress, spend) for k in self.episodes}
        places = [int(np.flatnonzero(self._table["episode"].values == k)[0]) for k in self.episodes]
        names = [" · ".join(entry_facts(self._table, place)) for place in places]
        traits = {
            "episode": self.episodes[0], "step": self.step, "agents": self.agents, "playing": False, "speed": self.speed, "loop": False,
            "bookmarks": [], "live": False, "_title": self.title, "_sides": 1, "_bookmarks_note": "kept only while this page is open",
        }  # fmt: skip
        data = {"traits": traits, "episodes": {"numbers": {"values": self.episodes}, "count": len(names), "names": names}, "held": held}
        picture = poster_png(self.desk.opened(self.episodes[0]), self.step, self.agents)
        return _document(self.title, data, base64.b64encode(picture).decode())


def _series(opened: Opened, name: str) -> dict[str, Any]:
    """Return a whole series, deflated."""
    episode = opened.episode
    dim, clock, rows = episode.agent_dim(name), episode.clock_of(name), len(episode.rows(name))
    values = np.asarray(episode.data[name].values)
    assert clock is not None
    values = values if dim is not None else values[np.newaxis]
    there = opened.presence(name, None if dim is None else slice(None), 0, rows).reshape(len(values), rows)
    if values.dtype.kind not in "biuf":
        text = [[words(v, 200) if ok else "" for v, ok in zip(row, oks, strict=True)] for row, oks in zip(values, there, strict=True)]
        return {"shape": [len(values), rows, 1], "text": text}
    channels = channels_of(episode, name)
    values = values.reshape(len(values), rows, math.prod(episode.own_shape(name)))[..., channels]
    target = browser_dtype(values.dtype)
    with np.errstate(over="ignore"):
        octets = np.ascontiguousarray(values, target).tobytes()
    packed = [base64.b64encode(isal_zlib.compress(b, _SERIES_LEVEL)).decode() for b in (octets, there.astype(np.uint8).tobytes())]
    return {"shape": list(values.shape), "dtype": target.name, "data": packed[0], "there": packed[1]}


def _document(title: str, data: dict[str, Any], picture: str) -> str:
    # Inside a script element nothing but "</" and "<!--" ends it, and JSON has another way to write "<".
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{html.escape(title)}</title>
<style>
{style()}
body.sl-page {{ margin: 0; padding: 12px; background: #fff; }}
@media (prefers-color-scheme: dark) {{ body.sl-page {{ background: #16181b; }} }}
body.sl-page > .sl-viewer {{ max-width: 1400px; margin: 0 auto; }}
</style>
</head>
<body class="sl-page">
<div id="simlab-viewer"></div>
<noscript><img alt="a moment of {html.escape(title)}" src="data:image/png;base64,{picture}"><p>JavaScript is switched off.</p></noscript>
<script type="application/json" id="simlab-data">{text}</script>
<script type="module">
{module("page")}
startPage();
</script>
</body>
</html>
"""


def megabytes(count: float) -> str:
    """Return a size for people.

    Examples
    --------
    >>> megabytes(1_234_567), megabytes(80_000_000)
    ('1.2 MB', '80 MB')
    """
    value = count / 1e6
    return f"{value:.1f} MB" if value < 10 else f"{math.ceil(value):,} MB"
