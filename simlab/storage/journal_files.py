"""What the files of a journal look like, and how they are read.

A file of staged rows (`Mapped`) has a head of JSON that says what it holds, then the bytes. A segment of the log of events is one frame
after the other: lengths and a checksum, JSON, bytes.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

RENAMES_MAPPED = os.name != "nt"
"""Whether files can be renamed, replaced and removed while they are mapped."""
MAGIC: Final = b"simlabJ1"
ERASED: Final = bytes(len(MAGIC))
"""What a numbered file has in its place before it counts, and when it counts no more."""
HEAD: Final = struct.Struct("<8sII")
FRAME: Final = struct.Struct("<III")
ALIGN: Final = 64
MAP: Final = ".rows"
VERSION: Final = "~"
"""Stands between the name and the number of a file, where files cannot be replaced while they are mapped."""
EVENTS: Final = ".events"
ENDS: Final = "log.ends"
"""Where segments of the log end: a number that is one more than the segment's, and its bytes, for each of the newest few."""


def frame(text: bytes, data: Any = b"") -> bytes:
    """Return an event as it lies in the log."""
    return b"".join([FRAME.pack(len(text), len(data), zlib.crc32(data, zlib.crc32(text))), text, data])


def newest_number(folder: Path) -> int:
    """Return the highest number of a numbered file of staged rows; 0 where there is none."""
    numbers = (p.name.removesuffix(MAP).partition(VERSION)[2] for p in folder.glob(f"*{VERSION}*{MAP}"))
    return max((int(number) for number in numbers if number.isdigit()), default=0)


def _counts(place: Path) -> bool:
    """Whether a mapped file was published, and no other one has taken its place."""
    if VERSION not in place.name:
        return True
    with contextlib.suppress(OSError), open(place, "rb") as file:
        return file.read(len(MAGIC)) != ERASED
    return False


@dataclass(slots=True)
class Mapped:
    """A file of staged rows, as a reader finds it.

    Attributes
    ----------
    name : str
        As it was allocated.
    head : dict
        What it holds.
    data : ndarray of uint8
        Its bytes, copied: they are another process's memory.
    """

    name: str
    head: dict[str, Any]
    data: np.ndarray[Any, np.dtype[np.uint8]]


def has_rows(folder: Path) -> bool:
    """Whether a folder holds staged rows or events."""
    return any(place.name.endswith(EVENTS) or (place.name.endswith(MAP) and _counts(place)) for place in folder.iterdir())


def read_maps(folder: Path, first: str = "", only: str = "", again: int = 2) -> tuple[list[Mapped], list[str]]:
    """Return the files of staged rows in a journal, and the names of those that are not whole.

    Parameters
    ----------
    folder : Path
        The journal.
    first, only : str, optional
        Read the files whose names end so before all others, or read no others.
    again : int, optional
        How often to look again where a file no longer counts and nothing has taken its place.
    """
    found: dict[str, Mapped] = {}
    broken, erased = [], set()
    places = [(*p.name.removesuffix(MAP).partition(VERSION), p) for p in folder.glob(f"*{MAP}")]
    for name, _, version, place in sorted(places, key=lambda each: (not each[0].endswith(first), *each[:3])):
        if not name.endswith(only):
            continue
        try:
            raw = place.read_bytes()
        except FileNotFoundError:  # replaced meanwhile
            continue
        if version and raw[: len(MAGIC)] == ERASED:
            erased.add(name)
            continue
        if len(raw) < HEAD.size:
            broken.append(name)
            continue
        magic, n, crc = HEAD.unpack_from(raw)
        text = raw[HEAD.size : HEAD.size + n]
        if magic != MAGIC or zlib.crc32(text) != crc or len(text) != n:
            broken.append(name)
            continue
        start = -(-(HEAD.size + n) // ALIGN) * ALIGN
        found[name] = Mapped(name, json.loads(text), np.frombuffer(raw, np.uint8)[start:])
    if again and erased - found.keys():  # perhaps replaced after the folder was listed
        return read_maps(folder, first, only, again - 1)
    return list(found.values()), broken


def read_events(folder: Path) -> Iterator[tuple[dict[str, Any], bytes] | None]:
    """Yield the events of a journal in order, each with its bytes; None for each segment that lacks its end, or is not there."""
    ends = _read_ends(folder)
    for place in sorted(folder.glob(f"*{EVENTS}")):
        try:
            raw = place.read_bytes()
        except FileNotFoundError:
            continue
        number = place.name.removesuffix(EVENTS)
        end = ends.pop(int(number), len(raw)) if number.isdigit() else len(raw)  # what lies behind is of a call that did not return
        at = 0
        while at + FRAME.size <= len(raw):
            n, m, crc = FRAME.unpack_from(raw, at)
            text = raw[at + FRAME.size : at + FRAME.size + n]
            data = raw[at + FRAME.size + n : at + FRAME.size + n + m]
            if len(text) != n or len(data) != m or zlib.crc32(data, zlib.crc32(text)) != crc:
                break
            yield json.loads(text), data
            at += FRAME.size + n + m
        if at < end:
            yield None
    for _ in ends:
        yield None


def _read_ends(folder: Path) -> dict[int, int]:
    """Return where the segments of the log end that are in use."""
    try:
        numbers = np.frombuffer((folder / ENDS).read_bytes(), np.int64)
    except (OSError, ValueError):
        return {}
    return {int(n) - 1: int(end) for n, end in zip(numbers[::2], numbers[1::2], strict=False) if n > 0}
