"""Gaps in a damaged file, told once and where the user is: as one warning at the line that opened or read it."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable
from typing import Final

from simlab.errors import DamageWarning

_MOST: Final = 20
_INSIDE: Final = ("simlab", "xarray")


def tell(path: str, gaps: Iterable[str]) -> None:
    """Warn of what of a file cannot be shown as it was meant; say nothing where there is nothing.

    Parameters
    ----------
    path : str
        The file.
    gaps : iterable of str
        One sentence for each.
    """
    told = list(dict.fromkeys(gaps))
    if not told:
        return
    more = [f"and {len(told) - _MOST} more"] if len(told) > _MOST else []
    parts = "\n  ".join([*told[:_MOST], *more])
    places = f"{len(told)} place{'s' if len(told) > 1 else ''}"
    warnings.warn(f"{path!r} is damaged in {places}; the rest was opened:\n  {parts}", DamageWarning, _depth())


def _depth() -> int:
    """Return how many frames up the first one is that belongs neither to simlab nor to xarray."""
    frame, depth = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _INSIDE:
        frame, depth = frame.f_back, depth + 1
    return depth
