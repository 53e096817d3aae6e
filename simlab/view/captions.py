"""What is written around the pictures of a film: names that fit, and what the colours stand for."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import numpy as np

from simlab.view.catalogue import words
from simlab.view.paint import Scale, color_table

INK: Final = (34, 38, 43)
FAINT: Final = (91, 98, 107)
KEY_HIGH: Final = 18
"""Pixels of a line that tells what colours stand for."""
_BAR: Final = (96, 8)


@lru_cache
def font(size: int) -> Any:
    """Return the font that Pillow brings."""
    from PIL import ImageFont

    return ImageFont.load_default(size)


def fitted(text: Any, size: int, wide: float) -> str:
    """Return a text of a file so that it is no wider than so many pixels.

    Examples
    --------
    >>> fitted("ada", 12, 100), len(fitted("a" * 99, 12, 100)) < 30
    ('ada', True)
    """
    whole = words(text, 200)
    if font(size).getlength(whole) <= wide:
        return whole
    low, high = 0, len(whole)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if font(size).getlength(whole[:middle] + "…") <= wide else (low, middle - 1)
    return whole[:low] + "…"


def has_key(scale: Scale) -> bool:
    """Whether there is something to say about the colours of a picture."""
    return bool(scale.needs_bar or scale.legend or scale.note)


def draw_key(draw: Any, x: float, y: float, wide: float, name: str, scale: Scale, sampled: int = 1) -> None:
    """Write into a line what the colours of a variable stand for.

    Parameters
    ----------
    draw : ImageDraw
        Where.
    x, y : float
        The line's left and upper end.
    wide : float
        How wide it may be.
    name : str
        The variable.
    scale : Scale
        How it is painted.
    sampled : int
        Of so many frames, one was looked at to find the limits.
    """
    end = x + wide

    def write(text: str, gap: float = 10, color: Any = FAINT) -> None:
        nonlocal x
        shown = fitted(text, 11, end - x) if end - x > 12 else ""
        draw.text((x, y), shown, fill=color, font=font(11))
        x += font(11).getlength(shown) + gap

    write(fitted(name, 11, 160), color=INK)
    if scale.needs_bar and end - x > 2 * _BAR[0]:
        write(f"{float(scale.low[0]):.4g}", 4)
        for i, color in enumerate(np.round(255 * color_table()[np.linspace(0, 255, _BAR[0]).astype(int)]).astype(int).tolist()):
            draw.line((x + i, y + 3, x + i, y + 2 + _BAR[1]), fill=tuple(color))
        x += _BAR[0] + 5
        write(f"{float(scale.high[0]):.4g}")
    for label, color in scale.legend:
        if end - x < 30:
            break
        draw.rectangle((x, y + 3, x + 8, y + 11), fill=tuple(color), outline=FAINT)
        x += 13
        write(label)
    if scale.note:
        write(scale.note)
    if sampled > 1:
        write(f"limits from one frame of {sampled}")
