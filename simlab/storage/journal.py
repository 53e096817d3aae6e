"""The journal: rows that are not in chunks yet, in files that the system keeps when the process is killed.

A journal is a folder beside the run. Memory in which rows are staged is mapped from files there: a value that was stored stays, whoever
kills the process, for the pages belong to the system (only a loss of power loses them). What is no row (who appeared, which variables
there are, episodes that ended, arrays of the environment) is appended to a log of events, each with a checksum.

A mapped file (`Mapped`) has a head of JSON that says what it holds, then the bytes. It is made under another name and renamed when it is
complete, so that it is there as a whole or not at all.
"""

from __future__ import annotations

import contextlib
import errno
import json
import mmap
import os
import shutil
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from simlab.errors import StorageError
from simlab.storage.redo import sync_folder

_MAGIC: Final = b"simlabJ1"
_HEAD: Final = struct.Struct("<8sII")
_FRAME: Final = struct.Struct("<III")
_ALIGN: Final = 64
_ZEROS: Final = memoryview(bytes(1 << 20))
_MAP: Final = ".rows"
_EVENTS: Final = ".events"
_ENDS: Final = "log.ends"
_KEPT_ENDS: Final = 64
"""Of so many segments of the log it is noted where they end; there are a few at a time."""


class Journal:
    """The writer's side of a journal, or memory of its own where there is none.

    Parameters
    ----------
    folder : Path or None
        Where its files go; None keeps everything in the memory of the process, which dies with it.
    simulation : str, optional
        Whose rows it keeps.
    removed_at_end : bool, optional
        Whether `close` removes the folder: it is the journal's alone.
    """

    def __init__(self, folder: Path | None, simulation: str = "", removed_at_end: bool = False) -> None:
        self.folder = folder
        self._simulation = simulation
        self._removed_at_end = removed_at_end
        self._maps: dict[str, mmap.mmap] = {}
        self._segment = 0
        self._log: int | None = None
        self._ends = memoryview(bytearray(16 * _KEPT_ENDS)).cast("q")
        if folder is not None:
            try:
                with open(folder / _ENDS, "w+b") as file:
                    file.write(bytes(16 * _KEPT_ENDS))
                    file.flush()
                    self._ends = memoryview(mmap.mmap(file.fileno(), 16 * _KEPT_ENDS)).cast("q")
            except OSError as e:
                raise self._refused(16 * _KEPT_ENDS, e) from e

    @property
    def is_kept(self) -> bool:
        """Whether what is staged survives the process."""
        return self.folder is not None

    def allocate(self, name: str, head: Mapping[str, Any], size: int) -> memoryview:
        """Return zeroed memory that `publish` makes the journal's file of a name.

        Raises
        ------
        OSError
            If the disk has no room for it.
        """
        if self.folder is None:
            return np.zeros(size, np.uint8).data
        text = json.dumps({"simulation": self._simulation, **head}, separators=(",", ":")).encode()
        start = -(-(_HEAD.size + len(text)) // _ALIGN) * _ALIGN
        work = self.folder / f"{name}.new"
        try:
            with open(work, "w+b") as file:
                file.write((_HEAD.pack(_MAGIC, len(text), zlib.crc32(text)) + text).ljust(start, b"\0"))
                # Zeros rather than a hole: one that cannot be filled would kill the process that stores into it. (And rather than
                # reserved blocks, of which every page costs a fault several times as dear.)
                for at in range(0, size, len(_ZEROS)):
                    file.write(_ZEROS[: size - at])
                file.flush()
                mapped = mmap.mmap(file.fileno(), start + size)
        except OSError as e:
            work.unlink(missing_ok=True)
            raise self._refused(start + size, e) from e
        self._maps[name] = mapped
        return memoryview(mapped)[start:]

    def _refused(self, size: int, e: OSError) -> StorageError:
        assert self.folder is not None
        if (self.folder / _ENDS).exists():
            error = StorageError(
                f"The journal {self.folder} cannot grow by {size} bytes: {e.strerror or e}. This call's values are not recorded; what was "
                "logged before is safe. Make room, give another journal_dir=, or record with durability='none'."
            )
        else:
            error = StorageError(
                f"The journal {self.folder} was removed while it was used. This call's values are not recorded. From here on rows are "
                "kept in memory only until they are in the run file; they no longer survive the process."
            )
            self.close()
            self.folder = None
        error.errno = e.errno
        return error

    def publish(self, name: str) -> None:
        """Put what was allocated last under a name in the place of what had that name before."""
        if self.folder is not None:
            os.replace(self.folder / f"{name}.new", self.folder / f"{name}{_MAP}")

    def discard(self, prefix: str) -> None:
        """Remove the files of a window."""
        for name in [n for n in self._maps if n.startswith(prefix)]:
            del self._maps[name]  # the memory lives as long as an array of it
            if self.folder is not None:
                (self.folder / f"{name}{_MAP}").unlink(missing_ok=True)

    # -- events

    def append(self, event: Mapping[str, Any], payload: Any = b"") -> None:
        """Append an event to the log.

        Raises
        ------
        OSError
            If the disk refuses; the event is not there then.
        """
        if self.folder is None:
            return
        text = json.dumps(event, separators=(",", ":")).encode()
        data = memoryview(payload).cast("B") if not isinstance(payload, bytes) else payload
        frame = _frame(text, data)
        try:
            if self._log is None:
                os.stat(self.folder / _ENDS)  # is not there if somebody removed the journal, even if the folder is there again
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
                self._log = os.open(self.folder / f"{self._segment:08d}{_EVENTS}", flags, 0o666)
            end = os.lseek(self._log, 0, os.SEEK_END)
            if os.write(self._log, frame) < len(frame):
                os.ftruncate(self._log, end)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            slot = self._segment % _KEPT_ENDS * 2
            self._ends[slot + 1] = end + len(frame)
            self._ends[slot] = self._segment + 1
        except OSError as e:
            raise self._refused(len(frame), e) from e

    def cut(self) -> int:
        """Begin a new segment of the log and return the number of the one that ended."""
        if self._log is not None:
            os.close(self._log)
            self._log = None
        self._segment += 1
        return self._segment - 1

    def forget(self, segment: int) -> None:
        """Remove a segment, and those before it: what it tells is in the run file."""
        if self.folder is None:
            return
        for place in sorted(self.folder.glob(f"*{_EVENTS}")):
            number = int(place.name.removesuffix(_EVENTS))
            if number <= segment:
                if self._ends[number % _KEPT_ENDS * 2] == number + 1:
                    self._ends[number % _KEPT_ENDS * 2] = 0
                place.unlink(missing_ok=True)

    def sync(self) -> None:
        """Have everything reach the disk itself."""
        for mapped in list(self._maps.values()):
            mapped.flush()
        if self.folder is None:
            return
        for place in self.folder.glob(f"*{_EVENTS}"):  # those before the newest one too, until they are forgotten
            with contextlib.suppress(FileNotFoundError), open(place, "rb+") as file:
                os.fsync(file.fileno())
        sync_folder(self.folder)

    def close(self) -> None:
        """Let go of the log; mapped memory lives as long as its arrays."""
        if self._log is not None:
            os.close(self._log)
            self._log = None
        self._maps.clear()
        if self._removed_at_end and self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)


def _frame(text: bytes, data: Any = b"") -> bytes:
    return b"".join([_FRAME.pack(len(text), len(data), zlib.crc32(data, zlib.crc32(text))), text, data])


def keep_events(folder: Path, events: Iterable[Mapping[str, Any]]) -> str:
    """Make a journal's first segment one that tells some events, whatever it told before, and return its name.

    It is for who goes on with a run: what only the journal before knew is there again before that is removed.
    """
    (folder / _ENDS).unlink(missing_ok=True)  # says where the segments ended that are there still
    name, work = f"{0:08d}{_EVENTS}", folder / "kept.new"
    work.write_bytes(b"".join(_frame(json.dumps(event, separators=(",", ":")).encode()) for event in events))
    os.replace(work, folder / name)
    return name


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
    return any(place.name.endswith((_MAP, _EVENTS)) for place in folder.iterdir())


def read_maps(folder: Path, first: str = "", only: str = "") -> tuple[list[Mapped], list[str]]:
    """Return the files of staged rows in a journal, and the names of those that are not whole.

    Parameters
    ----------
    folder : Path
        The journal.
    first, only : str, optional
        Read the files whose names end so before all others, or read no others.
    """
    found, broken = [], []
    places = [p for p in folder.glob(f"*{_MAP}") if p.name.endswith(only + _MAP)]
    for place in sorted(places, key=lambda p: (not p.name.endswith(first + _MAP), p.name)):
        name = place.name.removesuffix(_MAP)
        try:
            raw = place.read_bytes()
        except FileNotFoundError:  # replaced meanwhile
            continue
        if len(raw) < _HEAD.size:
            broken.append(name)
            continue
        magic, n, crc = _HEAD.unpack_from(raw)
        text = raw[_HEAD.size : _HEAD.size + n]
        if magic != _MAGIC or zlib.crc32(text) != crc or len(text) != n:
            broken.append(name)
            continue
        start = -(-(_HEAD.size + n) // _ALIGN) * _ALIGN
        found.append(Mapped(name, json.loads(text), np.frombuffer(raw, np.uint8)[start:]))
    return found, broken


def read_events(folder: Path) -> Iterator[tuple[dict[str, Any], bytes] | None]:
    """Yield the events of a journal in order, each with its bytes; None for each segment that lacks its end, or is not there."""
    ends = _read_ends(folder)
    for place in sorted(folder.glob(f"*{_EVENTS}")):
        try:
            raw = place.read_bytes()
        except FileNotFoundError:
            continue
        number = place.name.removesuffix(_EVENTS)
        end = ends.pop(int(number), len(raw)) if number.isdigit() else len(raw)  # what lies behind is of a call that did not return
        at = 0
        while at + _FRAME.size <= len(raw):
            n, m, crc = _FRAME.unpack_from(raw, at)
            text = raw[at + _FRAME.size : at + _FRAME.size + n]
            data = raw[at + _FRAME.size + n : at + _FRAME.size + n + m]
            if len(text) != n or len(data) != m or zlib.crc32(data, zlib.crc32(text)) != crc:
                break
            yield json.loads(text), data
            at += _FRAME.size + n + m
        if at < end:
            yield None
    for _ in ends:
        yield None


def _read_ends(folder: Path) -> dict[int, int]:
    """Return where the segments of the log end that are in use."""
    try:
        numbers = np.frombuffer((folder / _ENDS).read_bytes(), np.int64)
    except (OSError, ValueError):
        return {}
    return {int(n) - 1: int(end) for n, end in zip(numbers[::2], numbers[1::2], strict=False) if n > 0}
