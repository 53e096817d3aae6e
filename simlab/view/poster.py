"""A picture that stands for a viewer where there is no kernel: a saved notebook, a page made from it, a mail."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from simlab.view.paint import paint
from simlab.view.tiles import channels_of

if TYPE_CHECKING:
    from simlab.view.desk import Opened

Rgb = NDArray[np.uint8]
_HIGH: Final = 150
_GAP: Final = 8
_WIDEST: Final = 900
_LINE: Final = (213, 94, 0)
SENTENCE: Final = (
    "This is a picture of the viewer. Run the cell to move through the episode; "
    "<code>ds.sim.export(&quot;episode.html&quot;)</code> makes a page that does so without a kernel."
)


def moment(opened: Opened, row: int, agents: Sequence[Hashable], high: int = _HIGH, most: int = 6) -> list[Rgb]:
    """Return the pictures of a moment, painted and enlarged by whole factors: the world's first, then those of agents."""
    episode = opened.episode
    out: list[Rgb] = []
    if not len(episode.time):
        return out
    time = int(episode.time[min(row, len(episode.time) - 1)])
    names = sorted((name for name in episode.variables if episode.is_image(name)), key=lambda name: episode.agent_dim(name) is not None)
    for name in names:
        dim = episode.agent_dim(name)
        known = episode.agents(dim) if dim is not None else []
        at = int(np.searchsorted(episode.rows(name), time, "right")) - 1
        for agent in [a for a in agents if a in known] if dim is not None else [None]:
            if len(out) >= most or at < 0:
                continue
            place = episode.position(dim, agent) if dim is not None and agent is not None else None
            there = opened.presence(name, None if place is None else np.array([place]), at, at + 1).any()
            h, w = episode.frame_shape(name)
            image = paint(episode.values(name, agent, [at])[0], opened.scale(name)[0]) if there else np.full((h, w, 3), 238, np.uint8)
            out.append(enlarged(image, high))
    return out


def enlarged(image: Rgb, high: int) -> Rgb:
    """Return a picture about so many pixels high: each pixel a whole number of times, or the mean of blocks, so that no line is lost.

    Examples
    --------
    >>> import numpy as np
    >>> enlarged(np.array([[[0, 90, 0]], [[80, 90, 0]], [[0, 90, 9]]], np.uint8), 2).tolist()
    [[[40, 90, 0]], [[0, 90, 9]]]
    """
    factor = high / image.shape[0]
    if factor >= 1:
        return image.repeat(int(factor), axis=0).repeat(int(factor), axis=1)
    every = int(np.ceil(1 / factor))
    out = image.astype(np.float64)
    for axis in (0, 1):
        edges = np.arange(0, image.shape[axis], every)
        counts = np.diff(edges, append=image.shape[axis])
        out = np.add.reduceat(out, edges, axis=axis) / np.expand_dims(counts, (1 - axis, 2))
    return np.round(out).astype(np.uint8)


def places(sizes: Sequence[tuple[int, int]], gap: int = _GAP, head: int = 0) -> tuple[list[tuple[int, int]], tuple[int, int]]:
    """Return where pictures of some sizes go, side by side, in as many lines as they need, and how large all of it is.

    Examples
    --------
    >>> places([(10, 20), (30, 40)])
    ([(0, 0), (0, 28)], (30, 68))
    """
    out, top, left, line, widest = [], 0, 0, 0, 0
    for high, wide in sizes:
        if left and left + wide > _WIDEST:
            top, left, line = top + line + gap, 0, 0
        out.append((top + head, left))
        left += wide + gap
        line, widest = max(line, high + head), max(widest, left - gap)
    return out, (top + line, widest)


def beside(images: Sequence[Rgb]) -> Rgb:
    """Return pictures side by side on white."""
    where, size = places([image.shape[:2] for image in images])
    out = np.full((*size, 3), 255, np.uint8)
    for (top, left), image in zip(where, images, strict=True):
        out[top : top + image.shape[0], left : left + image.shape[1]] = image
    return out


def _spark(opened: Opened, row: int, agents: Sequence[Hashable], wide: int = 640, high: int = 90) -> Rgb:
    """Return the first series of an episode as a line: what stands for a run without pictures."""
    episode = opened.episode
    out = np.full((high, wide, 3), 255, np.uint8)
    names = [n for n in episode.variables if episode.data[n].dtype.kind in "biuf" and not episode.is_image(n) and channels_of(episode, n)]
    for name in names[:1]:
        dim = episode.agent_dim(name)
        known = [a for a in agents if dim is not None and a in episode.agents(dim)]
        total = len(episode.rows(name))
        if not total or (dim is not None and not known):
            continue
        rows = np.unique(np.linspace(0, total - 1, min(total, wide)).astype(int))
        values = episode.values(name, known[0] if known else None, rows.tolist()).astype(np.float64).reshape(len(rows), -1)[:, 0]
        good = np.isfinite(values)
        if good.any():
            low, span = values[good].min(), np.ptp(values[good]) or 1.0
            y = ((high - 9) - (values[good] - low) / span * (high - 18)).astype(int)
            x = (rows[good] / max(1, total - 1) * (wide - 3)).astype(int)
            for shift in (0, 1):
                out[y + shift, x] = out[y + shift, x + 1] = _LINE
    cursor = int(min(row, len(episode.time) - 1) / max(1, len(episode.time) - 1) * (wide - 2))
    out[:, cursor : cursor + 1] = (11, 102, 195)
    return out


def png(image: Rgb) -> bytes:
    """Return a picture as PNG."""
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(image).save(out, "png", compress_level=3)
    return out.getvalue()


def poster_png(opened: Opened, row: int, agents: Sequence[Hashable]) -> bytes:
    """Return the picture of a moment of an episode as PNG.

    Parameters
    ----------
    opened : Opened
        The episode.
    row : int
        Its row.
    agents : sequence of hashable
        Who is shown.
    """
    images = moment(opened, row, agents)
    return png(beside(images) if images else _spark(opened, row, agents))


def poster_html(mark: str, picture: bytes, text: str) -> str:
    """Return the picture with a sentence that tells how to get the live view; `text` may be anything."""
    image = base64.b64encode(picture).decode()
    shown = f'<img alt="{html.escape(text)}" src="data:image/png;base64,{image}" style="max-width:100%"/>' if picture else ""
    return f'<div class="{html.escape(mark)}">{shown}<p><b>{html.escape(text)}.</b> {SENTENCE}</p></div>'
