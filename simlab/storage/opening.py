"""Run files open for reading: one HDF5 handle per file and process, shared by everything that reads it.

A `RunSource` is what a lazy array holds instead of a handle. It pickles as a path, opens the file when it is first read from,
and knows which file it was made for: where that file was replaced or written again, it says so instead of reading other data.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import h5py

from simlab.conventions import ATTR_FORMAT, FORMAT_VERSION
from simlab.errors import FormatError, InputError, RunInUseError, RunNotFoundError, StateError, StorageError
from simlab.storage.damage import ODD, reason
from simlab.storage.diagnose import explain
from simlab.storage.strangers import inventory

_FORMAT_MAJOR = int(FORMAT_VERSION.split(".")[0])


@dataclass(frozen=True, slots=True)
class Identity:
    """Which file lies at a path: another one, or the same one written again, compares unequal."""

    device: int
    inode: int
    size: int
    modified_ns: int
    generation: int = 0
    """How often a writer in this process has asked for the handles of the path (see `close_handles`)."""


@dataclass(slots=True, eq=False)
class _OpenFile:
    file: h5py.File
    live: bool
    holders: int = 0
    datasets: dict[str, h5py.Dataset] = field(default_factory=dict)
    memory: dict[str, Any] = field(default_factory=dict)
    scales: dict[int, str] = field(default_factory=dict)


_lock = threading.RLock()
_open: dict[tuple[str, Identity], _OpenFile] = {}
_generations: dict[str, int] = {}
_process = 0
"""Counts forks on the way to this process: a handle that was opened before a fork belongs to the parent."""
_inherited: list[_OpenFile] = []
"""Handles of the parent. Closing them here would give up the parent's lock on the file, so they are kept."""


def _forget_inherited() -> None:
    global _lock, _process
    _lock = threading.RLock()
    _process += 1
    _inherited.extend(_open.values())
    _open.clear()


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

    Raises
    ------
    RunNotFoundError, FormatError, StorageError
        If there is no such file or it cannot be reached.
    """

    def __init__(self, path: str | os.PathLike[str], identity: Identity | None = None) -> None:
        self.path = absolute_path(path)
        self._place = os.path.realpath(self.path)
        self._closed = False
        self._opened: _OpenFile | None = None
        self._process = _process
        self.identity = identity or _identify(self.path, self._place)

    def __reduce__(self) -> tuple[type[RunSource], tuple[str, Identity | None]]:
        live = self._opened is not None and self._opened.live
        return RunSource, (self.path, None if live else replace(self.identity, generation=-1))

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
        """Return what `find` returned for a name the first time; of a file that is being written, what it returns now."""
        handle = self._handle()
        if handle.live:
            return find()
        if name not in handle.memory:
            handle.memory[name] = find()
        return handle.memory[name]

    def close(self) -> None:
        """Let go of the file. What was not read yet can no longer be read."""
        with _lock:
            self._closed = True
            if self._opened is not None and self._process == _process:
                self._finalizer()
            self._opened = None

    def _handle(self) -> _OpenFile:
        if self._closed:
            raise StateError(f"The Dataset of {self.path!r} was closed, so what was not loaded before cannot be read. Open the run again.")
        handle = self._opened
        if handle is not None and self._process == _process and bool(handle.file):
            self._check(handle.live)
            return handle
        with _lock:
            self._check(live=False)
            key = (self.path, replace(self.identity, generation=_generations.get(self._place, 0)))
            handle = _open.get(key)
            if handle is None:
                handle = _open[key] = _open_for_reading(self.path)
            handle.holders += 1
            self.identity, self._opened, self._process = key[1], handle, _process
            # The last lazy array that goes away closes the file, so that a forgotten Dataset does not keep writers out.
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
            raise StateError(f"{self.path!r} was replaced or written again after this Dataset was opened. Open it again to see it.")


def _release(key: tuple[str, Identity], handle: _OpenFile, process: int) -> None:
    if process != _process:
        return
    with _lock:
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
        _generations[place] = _generations.get(place, 0) + 1
        for key in [k for k in _open if os.path.realpath(k[0]) == place]:
            handle = _open.pop(key)
            handle.datasets.clear()
            handle.file.close()


def _identify(path: str, place: str) -> Identity:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        raise RunNotFoundError(explain(path) or f"{path!r} does not exist.") from None
    except (OSError, ValueError) as error:
        raise StorageError(explain(path) or f"{path!r} cannot be reached ({error}).") from None
    return Identity(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, _generations.get(place, 0))


def _open_for_reading(path: str) -> _OpenFile:
    """Open a run file and check that it is one that this version reads."""
    try:
        file, live = h5py.File(path, "r"), False
    except (OSError, RuntimeError) as error:
        file, live = _open_unfinished(path, error), True
    if file.mode != "r":
        file.close()
        raise RunInUseError(f"{path!r} is being recorded by this process. Call finalize() of its logger (or leave its `with` block) first.")
    try:
        _check_format(file, path)
    except BaseException:
        file.close()
        raise
    return _OpenFile(file, live)


def _open_unfinished(path: str, error: Exception) -> h5py.File:
    """Open a file that its writer has not closed, or explain why it does not open."""
    if isinstance(error, BlockingIOError) or "unable to lock file" in str(error):
        raise RunInUseError(
            f"{path!r} is being written by another program, and HDF5 lets nobody else in. Wait until it is closed, then open it again."
        ) from error
    if "open for write" in str(error):
        try:
            return h5py.File(path, "r", swmr=True)
        except (OSError, RuntimeError):
            raise StorageError(
                f"{path!r} was not closed: its writer ended without finalize(), and HDF5 marks the file as still being written. "
                f"Mend it with simlab.repair({path!r}), or from a shell: simlab repair {path}"
            ) from error
    raise FormatError(explain(path) or f"{path!r} does not open as HDF5: {error}") from error


def _check_format(file: h5py.File, path: str) -> None:
    try:
        version: Any = file.attrs.get(ATTR_FORMAT)
    except ODD as error:
        raise FormatError(f"{path!r} is HDF5, but damaged at its root: {reason(error)}. Restore it from a copy.") from error
    if isinstance(version, bytes):
        version = version.decode("utf-8", "replace")
    if version is None:
        raise FormatError(f"{path!r} is an HDF5 file, but no run of simlab: it has no {ATTR_FORMAT!r} attribute. {inventory(file)}")
    major = str(version).split(".")[0]
    if not (major.isascii() and major.isdigit() and len(major) < 10):
        raise FormatError(f"{path!r} says {ATTR_FORMAT} = {version!r}, which is no version. This simlab reads format {FORMAT_VERSION}.")
    if int(major) > _FORMAT_MAJOR:
        raise FormatError(
            f"{path!r} has format {version}; this simlab reads format {FORMAT_VERSION}. "
            "Update simlab to open it: python -m pip install --upgrade simlab"
        )
