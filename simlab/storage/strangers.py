"""What a file of somebody else holds, in a sentence: arrays, groups, and whether observations are one longer than actions."""

from __future__ import annotations

from typing import Final

import h5py

from simlab.storage.damage import ODD
from simlab.storage.entries import Entries, entries

_MOST: Final = 8
_OBSERVED: Final = ("obs", "observation", "state", "frame", "image", "pixels", "vision", "qpos", "qvel", "position")
"""Beginnings of names that are seen once more after the last step."""


def inventory(file: h5py.File) -> str:
    """Say what a foreign file holds and how to open it."""
    try:
        found = entries(file)
        links = len(file) - len(found.groups) - len(found.datasets) - len(found.gaps)
        parts = [f"{_shown(name)}/ ({len(group)} entries)" for name, group in found.groups.items()]
        parts += [f"{_shown(name)} {'(no data)' if d.shape is None else d.shape}" for name, d in found.datasets.items()]
        parts += [f"{links} link{'s' if links > 1 else ''}"] if links > 0 else []
        told = _off_by_one(found) or next((t for g in list(found.groups.values())[:_MOST] if (t := _off_by_one(entries(g)))), "")
    except ODD as error:
        return f"It is damaged: {error}."
    if not parts:
        return "It is empty: it holds no groups and no arrays."
    held = ", ".join(parts[:_MOST]) + (f" and {len(parts) - _MOST} more" if len(parts) > _MOST else "")
    return f"It holds {held}.{told} Look at it with `simlab info`, and open it with xarray.open_datatree or h5py.File."


def _shown(name: str) -> str:
    """Return a name that acts on no terminal."""
    return name if name.isprintable() else repr(name)


def _off_by_one(found: Entries) -> str:
    """Tell of arrays that are one longer than the others: they hold what was seen after the last step too."""
    shapes = {name: d.shape for name, d in found.datasets.items() if d.shape}
    for axis in (0, 1):
        lengths = {name: shape[axis] for name, shape in shapes.items() if len(shape) > axis}
        for n in sorted(set(lengths.values()), reverse=True):
            longer = [name for name, length in lengths.items() if length == n + 1]
            shorter = [name for name, length in lengths.items() if length == n]
            if n > 1 and longer and shorter and any(name.lower().startswith(_OBSERVED) for name in longer):
                part, rest = ("[:-1]", "[1:]") if axis == 0 else ("[:, :-1]", "[:, 1:]")
                return (
                    f" {_listed(longer)} has {n + 1:,} entries and {_listed(shorter)} {n:,}: what was seen after the last step is there. "
                    f"Row t of the others belongs to {longer[0]}{part}; {longer[0]}{rest} is what followed."
                )
    return ""


def _listed(names: list[str], most: int = 3) -> str:
    return ", ".join(map(repr, names[:most])) + (", ..." if len(names) > most else "")
