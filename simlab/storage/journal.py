"""The journal: rows that are not in chunks yet, in files that the system keeps when the process is killed.

A journal is a folder beside the run. Memory in which rows are staged is mapped from files there: a value that was stored stays, whoever
kills the process, for the pages belong to the system (only a loss of power loses them). What is no row (who appeared, which variables
there are, episodes that ended, arrays of the environment) is appended to a log of events, each with a checksum.

A mapped file has a head of JSON that says what it holds, then the bytes. It is made under another name and renamed when it is
complete, so that it is there as a whole or not at all. Windows renames and removes no file that is mapped: there, every file has a
number of its own, what makes it count is written last, and is erased when another one has taken its place.
"""

from __future__ import annotations

import contextlib
import errno
import json
import mmap
import os
import shutil
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from simlab.errors import StorageError
from simlab.storage.journal_files import ALIGN, ENDS, ERASED, EVENTS, HEAD, MAGIC, MAP, RENAMES_MAPPED, VERSION, frame, newest_number
from simlab.storage.redo import sync_folder

_ZEROS: Final = memoryview(bytes(1 << 20))
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
        self._maps: dict[str, list[tuple[mmap.mmap, Path]]] = {}
        self._made = 0 if folder is None or RENAMES_MAPPED else newest_number(folder)
        self._segment = 0
        self._log: int | None = None
        self._ends = memoryview(bytearray(16 * _KEPT_ENDS)).cast("q")
        if folder is not None:
            try:
                with open(folder / ENDS, "w+b") as file:
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
        start = -(-(HEAD.size + len(text)) // ALIGN) * ALIGN
        self._made += 1
        work = self.folder / (f"{name}.new" if RENAMES_MAPPED else f"{name}{VERSION}{self._made:08d}{MAP}")
        magic = MAGIC if RENAMES_MAPPED else ERASED
        try:
            with open(work, "w+b") as file:
                file.write((HEAD.pack(magic, len(text), zlib.crc32(text)) + text).ljust(start, b"\0"))
                # Zeros rather than a hole: one that cannot be filled would kill the process that stores into it. (And rather than
                # reserved blocks, of which every page costs a fault several times as dear.)
                for at in range(0, size, len(_ZEROS)):
                    file.write(_ZEROS[: size - at])
                file.flush()
                mapped = mmap.mmap(file.fileno(), start + size)
        except OSError as e:
            work.unlink(missing_ok=True)
            raise self._refused(start + size, e) from e
        if RENAMES_MAPPED:
            self._maps[name] = []  # the memory of the one before lives as long as an array of it
        self._maps.setdefault(name, []).append((mapped, work))
        return memoryview(mapped)[start:]

    def _refused(self, size: int, e: OSError) -> StorageError:
        assert self.folder is not None
        if (self.folder / ENDS).exists():
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
        if self.folder is None:
            return
        if RENAMES_MAPPED:
            os.replace(self.folder / f"{name}.new", self.folder / f"{name}{MAP}")
        else:
            *before, (mapped, _) = self._maps[name]
            mapped[: len(MAGIC)] = MAGIC
            for old in before:
                _erase(*old)
            del self._maps[name][:-1]

    def discard(self, prefix: str) -> None:
        """Remove the files of a window."""
        for name in [n for n in self._maps if n.startswith(prefix)]:
            files = self._maps.pop(name)
            if self.folder is None:
                continue
            if RENAMES_MAPPED:
                (self.folder / f"{name}{MAP}").unlink(missing_ok=True)
            else:
                for each in files:
                    _erase(*each)

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
        told = frame(text, data)
        try:
            if self._log is None:
                os.stat(self.folder / ENDS)  # is not there if somebody removed the journal, even if the folder is there again
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
                self._log = os.open(self.folder / f"{self._segment:08d}{EVENTS}", flags, 0o666)
            end = os.lseek(self._log, 0, os.SEEK_END)
            if os.write(self._log, told) < len(told):
                os.ftruncate(self._log, end)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            slot = self._segment % _KEPT_ENDS * 2
            self._ends[slot + 1] = end + len(told)
            self._ends[slot] = self._segment + 1
        except OSError as e:
            raise self._refused(len(told), e) from e

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
        for place in sorted(self.folder.glob(f"*{EVENTS}")):
            number = int(place.name.removesuffix(EVENTS))
            if number <= segment:
                if self._ends[number % _KEPT_ENDS * 2] == number + 1:
                    self._ends[number % _KEPT_ENDS * 2] = 0
                place.unlink(missing_ok=True)

    def sync(self) -> None:
        """Have everything reach the disk itself."""
        for mapped, _ in [each for files in list(self._maps.values()) for each in files]:
            mapped.flush()
        if self.folder is None:
            return
        for place in self.folder.glob(f"*{EVENTS}"):  # those before the newest one too, until they are forgotten
            with contextlib.suppress(FileNotFoundError), open(place, "rb+") as file:
                os.fsync(file.fileno())
        sync_folder(self.folder)

    def close(self) -> None:
        """Let go of the log; mapped memory lives as long as its arrays."""
        if self._log is not None:
            os.close(self._log)
            self._log = None
        self._maps.clear()
        self._ends = memoryview(bytearray(16 * _KEPT_ENDS)).cast("q")
        if self._removed_at_end and self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)

    def let_go(self) -> None:
        """Leave the journal to the parent of a forked process: what a call that is still under way here tells goes nowhere."""
        self.folder, self._removed_at_end = None, False
        self.close()


def _erase(mapped: mmap.mmap, place: Path) -> None:
    """Have a mapped file count no more, and remove it if the system does that; if not, it goes with its folder."""
    mapped[: len(MAGIC)] = ERASED
    with contextlib.suppress(OSError):
        place.unlink()


def keep_events(folder: Path, events: Iterable[Mapping[str, Any]]) -> str:
    """Make a journal's first segment one that tells some events, whatever it told before, and return its name.

    It is for who goes on with a run: what only the journal before knew is there again before that is removed.
    """
    (folder / ENDS).unlink(missing_ok=True)  # says where the segments ended that are there still
    name, work = f"{0:08d}{EVENTS}", folder / "kept.new"
    work.write_bytes(b"".join(frame(json.dumps(event, separators=(",", ":")).encode()) for event in events))
    os.replace(work, folder / name)
    return name
