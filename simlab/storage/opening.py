"""Run files open for reading: one HDF5 handle per file and process, shared by everything that reads it.

A `RunSource` is what a lazy array holds instead of a handle. It pickles as a path, opens the file when it is first read from,
and knows which file it was made for: where that file was replaced or written again, it says so instead of reading other data.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

import h5py

from simlab.errors import InputError, RunInUseError, RunNotFoundError, StateError, StorageError
from simlab.storage.diagnose import explain
from simlab.storage.handles import PATIENCE_SECONDS, OpenFile, is_live, open_for_reading, reopened, resumed_at, writer_of
from simlab.storage.lock import sidecar
from simlab.storage.overlay import Overlay
from simlab.storage.turns import turn

T = TypeVar("T")
_TRIES: Final = 50


@dataclass(frozen=True, slots=True)
class Identity:
    """Which file lies at a path: another one, or the same one written again, compares unequal."""

    device: int
    inode: int
    size: int
    modified_ns: int
    generation: int = 0
    """How often a writer in this process has asked for the handles of the path (see `close_handles`)."""


_NO_FILE: Final = Identity(-1, -1, -1, -1)

_lock = threading.RLock()
_gone: deque[tuple[tuple[str, Identity], OpenFile]] = deque()
"""Of sources that went away; their handles are closed when it is safe."""
_open: dict[tuple[str, Identity], OpenFile] = {}
_generations: dict[str, int] = {}
_process = 0
"""Counts forks on the way to this process: a handle that was opened before a fork belongs to the parent."""
_inherited: list[tuple[str, OpenFile]] = []
"""Paths and handles of the parent. HDF5 gives this process no other view of their files, so they are closed before it writes one."""


def _forget_inherited() -> None:
    global _lock, _process
    _lock = threading.RLock()
    _process += 1
    _inherited.extend((path, handle) for (path, _), handle in _open.items())
    _open.clear()
    _gone.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_inherited)


def absolute_path(path: str | os.PathLike[str]) -> str:
    """Return a path as every part of simlab spells it: ``~`` expanded, absolute.

    Examples
    --------
    >>> absolute_path("/data/../runs/a.h5")
    '/runs/a.h5'
    """
    place = os.fspath(path) if isinstance(path, (str, os.PathLike)) else path
    if not isinstance(place, str) or not place or "\0" in place:
        raise InputError(f"The path of a run file is text or a Path, not {path!r} ({type(path).__name__}).")
    return os.path.abspath(os.path.expanduser(place))


class RunSource:
    """A run file that can be read, now or later, here or in another process.

    Parameters
    ----------
    path : str or path-like
        The file.
    identity : Identity, optional
        The file that must lie there; left out, the one that lies there now.
    grew : bool, optional
        Whether that file was being written, so that it may have grown since.
    seam : tuple of str, optional
        Of such a file: the simulation that was recorded, and where that had been resumed by then.

    Raises
    ------
    RunNotFoundError, FormatError, StorageError
        If there is no such file or it cannot be reached.
    """

    def __init__(
        self, path: str | os.PathLike[str], identity: Identity | None = None, grew: bool = False, seam: tuple[str, str] = ("", "")
    ) -> None:
        self.path = absolute_path(path)
        self._place = os.path.realpath(self.path)
        self._closed = False
        self._opened: OpenFile | None = None
        self._process = _process
        self._is_known = identity is not None
        self._grew, self._seam = grew, seam
        self.identity = identity or _identify(self.path, self._place)

    def __reduce__(self) -> tuple[type[RunSource], tuple[Any, ...]]:
        return RunSource, (self.path, replace(self.identity, generation=-1), self._grew, self._seam)

    def __repr__(self) -> str:
        return f"<RunSource {self.path!r}{', closed' if self._closed else ''}>"

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def file(self) -> h5py.File:
        """Return the open file.

        Raises
        ------
        StateError
            If the source was closed, or the file was replaced or written again since.
        RunNotFoundError
            If the file is gone.
        RunInUseError
            If another program writes the file.
        """
        return self._handle().file

    def dataset(self, name: str) -> h5py.Dataset:
        """Return one dataset of the file; it is looked up once."""
        handle = self._handle()
        found = handle.datasets.get(name)
        if found is None:
            found = handle.datasets[name] = handle.file[name]
        return found

    @property
    def scales(self) -> dict[int, str]:
        """Names of dimensions by the address of their scale, as far as they were met."""
        return self._handle().scales

    def remembers(self, name: str) -> bool:
        """Whether `remembered` has an answer for a name."""
        return name in self._handle().memory

    def remembered(self, name: str, find: Callable[[], Any]) -> Any:
        """Return what `find` returned for a name the first time."""
        handle = self._handle()
        if name not in handle.memory:
            handle.memory[name] = find()
        return handle.memory[name]

    @property
    def live(self) -> bool:
        """Whether the file is being written; what is read is what was there when it was opened."""
        return self._handle().live

    @property
    def tail(self) -> Any:
        """Of a live file: rows that are staged and not in the file yet."""
        return self._handle().tail

    def persistently(self, read: Callable[[], T]) -> T:
        """Return what `read` returns, from one state of the file.

        Of a file that is being written it is read again, with a new handle, if structure or a page changed meanwhile.

        Raises
        ------
        StateError
            If the file was replaced or written again meanwhile.
        """
        gives_up_at, calm = time.monotonic() + PATIENCE_SECONDS, 0
        while time.monotonic() < gives_up_at:
            handle = self._handle()
            try:
                found = read()
            except (OSError, RuntimeError, KeyError, ValueError, IndexError, TypeError):
                if turn(sidecar(self.path)) == handle.turn:
                    calm += 1  # it was a page, or it is damaged
                    time.sleep(0.02)
                if self._closed or not handle.live or calm == _TRIES or time.monotonic() > gives_up_at:
                    raise
            else:
                if not handle.live:
                    self._check(handle.live)
                    return found
                if turn(sidecar(self.path)) == handle.turn and writer_of(self.path) == handle.writer:
                    return found
            with _lock:
                handle.datasets.clear()
                handle.memory.clear()
                handle.scales.clear()
                handle.file.close()
                handle.writer = writer_of(self.path)
                handle.file, handle.turn = reopened(self.path)
                self._check_seam(handle.file)
        raise RunInUseError(f"{self.path!r} is being recorded, and could not be read beside its writer. Try again.")

    def close(self) -> None:
        """Let go of the file. What was not read yet can no longer be read."""
        with _lock:
            self._closed = True
            if self._opened is not None and self._process == _process:
                self._finalizer()
            self._opened = None

    def _handle(self) -> OpenFile:
        if self._closed:
            raise StateError(f"The Dataset of {self.path!r} was closed, so what was not loaded before cannot be read. Open the run again.")
        handle = self._opened
        if handle is not None and self._process == _process and bool(handle.file):
            self._check(handle.live)
            return handle
        with _lock:
            _close_unheld()
            live = is_live(self.path)
            if self._is_known:
                self._check(self._grew)
            if self._grew or (live and not self._is_known):
                self.identity = _identify(self.path, self._place)
            self._check(live)
            key = (self.path, replace(self.identity, generation=_generations.get(self._place, 0)))
            handle = None if live else _open.get(key)
            if handle is None:
                handle = open_for_reading(self.path)
                if not handle.live:  # each reader of a live file has its own view of it
                    _open[key] = handle
            handle.holders += 1
            self.identity, self._opened, self._process = key[1], handle, _process
            if self._is_known and self._grew:
                self._check_seam(handle.file)
            else:
                self._is_known, self._grew, self._seam = True, handle.live, handle.seam
            # The last lazy array that goes away closes the file: a forgotten Dataset does not keep it open.
            self._finalizer = weakref.finalize(self, _release, key, handle, _process)
            self._finalizer.atexit = False
            return handle

    def _check(self, live: bool) -> None:
        try:
            now = _identify(self.path, self._place)
        except RunNotFoundError:
            raise RunNotFoundError(f"{self.path!r} is gone; the Dataset was opened from it. Put it back, or open another run.") from None
        was = self.identity
        same = (now.device, now.inode) == (was.device, was.inode) and (live or (now.size, now.modified_ns) == (was.size, was.modified_ns))
        if not same or was.generation not in (now.generation, -1):
            raise self._written_again()

    def _check_seam(self, file: h5py.File) -> None:
        """Raise if the simulation was resumed: its rows may be cut off, and others be in their places."""
        name, resumed = self._seam
        if name and resumed_at(file, name) != resumed:
            self.identity = _NO_FILE
            raise self._written_again()

    def _written_again(self) -> StateError:
        return StateError(f"{self.path!r} was replaced or written again after this Dataset was opened. Open it again to see it.")


def _release(key: tuple[str, Identity], handle: OpenFile, process: int) -> None:
    """Note that a source went away, and close what nobody holds any more.

    The collector may come by in the middle of a call of h5py, in any thread. Nothing may be waited for then, nor HDF5 be called.
    """
    if process == _process:
        _gone.append((key, handle))
        if not Overlay.is_busy() and _lock.acquire(blocking=False):
            try:
                _close_unheld()
            finally:
                _lock.release()


def _close_unheld() -> None:
    """Close the handles whose sources all went away; `_lock` is held."""
    while _gone:
        key, handle = _gone.popleft()
        handle.holders -= 1
        if handle.holders <= 0:
            if _open.get(key) is handle:
                del _open[key]
            handle.datasets.clear()
            handle.file.close()


def close_handles(path: str | os.PathLike[str]) -> None:
    """Close whatever this process has open for reading at a path, before it writes there.

    Datasets that were opened from the file say, when they are read, that it was written again.
    """
    place = os.path.realpath(absolute_path(path))
    with _lock:
        _close_unheld()
        _generations[place] = _generations.get(place, 0) + 1
        for key in [k for k in _open if os.path.realpath(k[0]) == place]:
            handle = _open.pop(key)
            handle.datasets.clear()
            handle.file.close()
        for path, handle in _inherited:
            if os.path.realpath(path) == place:
                handle.datasets.clear()
                handle.file.close()
        _inherited[:] = [(path, handle) for path, handle in _inherited if handle.file]


def _identify(path: str, place: str) -> Identity:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        raise RunNotFoundError(explain(path) or f"{path!r} does not exist.") from None
    except (OSError, ValueError) as error:
        raise StorageError(explain(path) or f"{path!r} cannot be reached ({error}).") from None
    return Identity(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, _generations.get(place, 0))
