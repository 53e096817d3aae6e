"""Arrays of any shape and range made into pictures: channels composed, values scaled by limits that are told, nothing clipped unseen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Rgb = tuple[int, int, int]

CHANNEL_COLORS: Final[tuple[Rgb, ...]] = (
    (77, 85, 97), (0, 158, 115), (213, 94, 0), (0, 114, 178), (230, 159, 0), (204, 121, 167), (86, 180, 233), (140, 86, 20),
)  # fmt: skip
"""Slate, and the palette of Okabe and Ito, which colour-blind people can tell apart."""
PAPER: Final[Rgb] = (250, 250, 247)
ABSENT: Final[Rgb] = (226, 220, 230)
"""Where a picture has no number (NaN)."""
BELOW: Final = 0.4
"""How dark the shade of a channel's colour is in which its negative values are painted."""
DARK: Final = "no value above 1 of 255"
COLORMAPS: Final = {
    "viridis": (0x440154, 0x472D7B, 0x3B528B, 0x2C728E, 0x21918C, 0x28AE80, 0x5EC962, 0xADDC30, 0xFDE725),
    "cividis": (0x00224E, 0x1A386F, 0x434E6C, 0x61656F, 0x7D7C78, 0x9B9476, 0xBCAF6F, 0xDECB5E, 0xFEE838),
    "magma": (0x000004, 0x1D1147, 0x51127C, 0x832681, 0xB73779, 0xE75263, 0xFC8961, 0xFEC488, 0xFCFDBF),
    "gray": (0x000000, 0xFFFFFF),
    "coolwarm": (0x3B4CC0, 0x6788EE, 0x9ABBFF, 0xC9D7F0, 0xDDDDDD, 0xF7B89C, 0xE7745B, 0xB40426),
}
"""Colours from low to high, evenly spaced; between them they are interpolated. People who are colour-blind can read all of them."""

Style = Literal["rgb", "gray", "scale", "channels", "categories"]


def color_table(name: str = "viridis") -> NDArray[np.float64]:
    """Return the colours of a colour map, from low to high, as 256 rows of red, green and blue between 0 and 1."""
    anchors = np.array([[c >> 16, c >> 8 & 255, c & 255] for c in COLORMAPS[name]], float) / 255
    at = np.linspace(0, len(anchors) - 1, 256)
    return np.stack([np.interp(at, np.arange(len(anchors)), anchors[:, i]) for i in range(3)], axis=1)


@dataclass(frozen=True, slots=True)
class Scale:
    """How the pictures of one variable are painted, the same for a whole episode.

    Attributes
    ----------
    style : {"rgb", "gray", "scale", "channels", "categories"}
        "channels": every channel has a colour and lies over the ones before it, the thicker the farther its value is from 0; below 0 in
        a dark shade of its colour. "scale": a colour bar belongs to it.
    low, high : ndarray of shape (channels,) or (1,)
        The values that become the lowest and the highest colour.
    labels : tuple of str
        Names of channels or categories, for a legend.
    note : str
        What a viewer should know: "mean of 12 channels".
    """

    style: Style
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    labels: tuple[str, ...] = ()
    note: str = ""

    @property
    def legend(self) -> list[tuple[str, Rgb]]:
        """Labels with their colours, where colours stand for something."""
        if self.style not in ("channels", "categories"):
            return []
        return [(label, CHANNEL_COLORS[i % len(CHANNEL_COLORS)]) for i, label in enumerate(self.labels)]

    @property
    def needs_bar(self) -> bool:
        """Whether a colour bar is needed to read values."""
        return self.style == "scale" and bool(np.isfinite(self.low).all())


def as_image(values: Array, labelled: bool = False) -> tuple[Array, str]:
    """Bring one value to (height, width, channels), and say what was done to it.

    Parameters
    ----------
    values : ndarray
        One value of an image variable: (h, w), (h, w, c), (1, h, w, c), (c, h, w).
    labelled : bool, optional
        The last axis has labels: it holds the channels, whatever its length.

    Examples
    --------
    >>> import numpy as np
    >>> as_image(np.zeros((64, 48)))[0].shape, as_image(np.zeros((3, 64, 48)))
    ... # doctest: +ELLIPSIS
    ((64, 48, 1), (array(...), 'channels first'))
    """
    note = ""
    while values.ndim > 3 and 1 in values.shape[:-3]:
        values = np.squeeze(values, axis=values.shape.index(1))
    if values.ndim > 3:
        note = f"the first of {int(np.prod(values.shape[:-3]))} pictures"
        values = values[(0,) * (values.ndim - 3)]
    if values.ndim < 2:
        values = values.reshape(1, -1)
    if values.ndim == 2:
        return values[..., np.newaxis], note
    first, last = values.shape[0], values.shape[2]
    if not labelled and first in (1, 3, 4) and last not in (1, 3, 4) and first < min(values.shape[1:]):
        return np.moveaxis(values, 0, -1), "channels first"
    return values, note


def scale_of(
    values: Array, labels: Sequence[str] | None = None, categories: Sequence[str] | None = None, attributes: Mapping[str, Any] | None = None
) -> Scale:
    """Decide how the pictures of a variable are painted, from all values of an episode.

    Parameters
    ----------
    values : ndarray of shape (n, ...)
        What will be painted, or a fair sample of it.
    labels : sequence of str, optional
        Names of the channels.
    categories : sequence of str, optional
        Names of the whole numbers 0, 1, 2, ...
    attributes : mapping, optional
        ``valid_min`` and ``valid_max`` are taken as limits where the values lie between them.

    Notes
    -----
    Without such bounds, red, green and blue as uint8 go from 0 to 255 whatever the values are, so that an episode that begins in the
    dark is dark. Everything else goes from 0 to 1 if no value lies outside; if one does, uint8 from 0 to 255, and other numbers from
    the least to the greatest value.

    Examples
    --------
    >>> import numpy as np
    >>> scale_of(np.array([[[-0.5, 1.5]]])).high, scale_of(np.zeros((1, 4, 4, 3), np.uint8)).high
    (array([1.5]), array([255.]))
    """
    shape = values.shape[1:]
    frame, note = as_image(np.empty(shape, bool), labels is not None)
    channels = frame.shape[-1]
    if categories and channels == 1 and values.dtype.kind in "iu":
        return Scale("categories", np.zeros(1), np.array([len(categories) - 1.0]), tuple(categories), note)
    named_rgb = labels is not None and [label.lower()[:1] for label in labels] in (list("rgb"), list("rgba"))
    if labels is not None and not named_rgb and 1 < channels <= len(CHANNEL_COLORS) and channels == len(labels):
        return _by_channel(values, tuple(labels), note)
    if channels == 2 or (labels is None and 4 < channels <= len(CHANNEL_COLORS)):
        return _by_channel(values, tuple(f"channel {i}" for i in range(channels)), note)
    if channels > 4 or (channels == 4 and values.dtype != np.uint8):
        with np.errstate(invalid="ignore"):
            values = values.astype(np.float64).reshape(len(values), -1, channels).mean(axis=-1)
        note = ", ".join(filter(None, [note, f"mean of {channels} channels"]))
        style: Style = "scale"
    else:
        style = "rgb" if channels in (3, 4) else "scale"
    low, high = _limits(values, attributes or {}, style == "rgb")
    if style == "rgb" and high == 255 and values.dtype == np.uint8 and values.size and values.max() == 1:
        note = ", ".join(filter(None, [note, DARK]))
    if not np.isfinite(low):
        note = ", ".join(filter(None, [note, "no finite values"]))
    elif style == "rgb" and (low, high) not in ((0.0, 255.0), (0.0, 1.0)):
        note = ", ".join(filter(None, [note, f"values {low:.3g} … {high:.3g}"]))
    if style == "scale" and (values.dtype.kind == "b" or (values.dtype == np.uint8 and not note)):
        style = "gray"
    return Scale(style, np.array([low]), np.array([high]), (), note)


def _by_channel(values: Array, labels: tuple[str, ...], note: str) -> Scale:
    """Channels that mean different things have limits of their own; nothing (0) stays paper, and less than nothing is a dark shade."""
    flat = values.reshape(-1, len(labels)).astype(np.float64)
    if note == "channels first":
        flat = np.moveaxis(values, 1, -1).reshape(-1, len(labels)).astype(np.float64)
    flat = np.where(np.isfinite(flat), flat, 0.0)
    low = np.minimum(flat.min(axis=0, initial=0.0), 0.0)
    return Scale("channels", low, flat.max(axis=0, initial=0.0), labels, note)


def _limits(values: Array, attributes: Mapping[str, Any], rgb: bool = False) -> tuple[float, float]:
    numbers = values[np.isfinite(values)] if values.dtype.kind == "f" else values
    if numbers.size == 0:
        return np.nan, np.nan
    low, high = float(numbers.min()), float(numbers.max())
    told = attributes.get("valid_min"), attributes.get("valid_max")
    if all(isinstance(x, (int, float, np.number)) and np.isfinite(x) for x in told) and float(told[0]) <= low <= high <= float(told[1]):  # type: ignore[arg-type]
        return float(told[0]), float(told[1])  # type: ignore[arg-type]
    if low >= 0 and high <= 1 and not (rgb and values.dtype == np.uint8):
        return 0.0, 1.0
    return (0.0, 255.0) if values.dtype == np.uint8 else (low, high)


def paint(values: Array, scale: Scale) -> NDArray[np.uint8]:
    """Paint one value of a variable.

    Parameters
    ----------
    values : ndarray
        One value, as logged.
    scale : Scale
        What `scale_of` decided.

    Returns
    -------
    ndarray of uint8, shape (height, width, 3)
        NaN is painted in the colour `ABSENT`; infinity like the limit on its side.

    Examples
    --------
    >>> import numpy as np
    >>> gray = scale_of(np.array([[[0, 128, 255]]], np.uint8))
    >>> paint(np.array([[0, 128, 255]], np.uint8), gray)[0, :, 0].tolist()
    [0, 128, 255]
    """
    image, _ = as_image(values, scale.style == "channels" and scale.note != "channels first")
    image = image.astype(np.float64)
    if scale.style == "categories":
        return _paint_categories(image[..., 0], len(scale.labels))
    if "mean of" in scale.note:
        with np.errstate(invalid="ignore"):
            image = image.mean(axis=-1, keepdims=True)
    span = scale.high - scale.low
    with np.errstate(invalid="ignore"):
        part = np.where(span > 0, (image - scale.low) / np.where(span > 0, span, 1), 0.5)
    missing = np.isnan(image).any(axis=-1)
    part = np.clip(np.nan_to_num(part, nan=0.0, posinf=1.0, neginf=0.0), 0, 1)
    if scale.style == "channels":
        out = _paint_channels(image, scale)
    elif scale.style == "rgb":
        out = 255 * part[..., :3]
    elif scale.style == "gray":
        out = np.repeat(255 * part[..., :1], 3, axis=-1)
    else:
        out = 255 * color_table()[np.round(255 * part[..., 0]).astype(int)]
    out[missing] = ABSENT
    return np.round(out).astype(np.uint8)


def _paint_channels(image: Array, scale: Scale) -> NDArray[np.float64]:
    zero = np.clip(0.0, scale.low, scale.high)
    reach = np.maximum(scale.high - zero, zero - scale.low)
    with np.errstate(invalid="ignore"):
        away = np.clip(image, scale.low, scale.high) - zero
        cover = np.where(reach > 0, np.abs(away) / np.where(reach > 0, reach, 1), 0.0)
    out = np.broadcast_to(np.array(PAPER, float), (*image.shape[:2], 3)).copy()
    for i in range(image.shape[-1]):
        part = np.nan_to_num(cover[..., i : i + 1], nan=0.0)
        color = np.where(away[..., i : i + 1] < 0, BELOW * np.array(CHANNEL_COLORS[i], float), np.array(CHANNEL_COLORS[i], float))
        out = out * (1 - part) + color * part
    return out


def _paint_categories(values: Array, count: int) -> NDArray[np.uint8]:
    """Paint whole numbers; one that has no name gets the colour of what is absent."""
    table: NDArray[np.uint8] = np.array([CHANNEL_COLORS[i % len(CHANNEL_COLORS)] for i in range(count)] + [ABSENT], np.uint8)
    known = np.isfinite(values) & (values >= 0) & (values < count)
    painted: NDArray[np.uint8] = table[np.where(known, values, count).astype(int)]
    return painted
