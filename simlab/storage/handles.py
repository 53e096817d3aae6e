"""HDF5 handles for reading: of a file that was closed, that its writer left when it died, or that is being written.

How the last two are opened is known on a higher floor (their rows may be in a journal), which says so here.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import time
import warnings
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import h5py

from simlab.conventions import ATTR_FORMAT, ATTR_RESUMED, COMMITTED, FORMAT_VERSION
from simlab.errors import DamageWarning, FormatError, RunInUseError, SimlabError, StorageError, users_frame
from simlab.storage.damage import ODD, reason
from simlab.storage.diagnose import explain
from simlab.storage.forking import close_overlays
from simlab.storage.lock import owner_of, sidecar
from simlab.storage.overlay import Overlay
from simlab.storage.strangers import inventory
from simlab.storage.superblock import ends_early
from simlab.storage.turns import is_steady, turn
from simlab.storage.writable import being_recorded, open_over

T = TypeVar("T")
PATIENCE_SECONDS: Final = 15.0
"""How long the structure of a live file may change under a reader before it gives up; the writer pauses once a second for it."""
_INCONSISTENT = (OSError, RuntimeError, KeyError, ValueError, IndexError, TypeError, AttributeError)
"""What reading ends in when pages do not fit together."""
_FORMAT_MAJOR = int(FORMAT_VERSION.split(".")[0])


@dataclass(slots=True, eq=False, weakref_slot=True)
class OpenFile:
    """An HDF5 handle with what was learned through it.

    Attributes
    ----------
    file : h5py.File
        The handle.
    live : bool
        Whether the file goes on growing; the handle shows it as it was when it was opened.
    tail : object
        Of a live file: rows that are staged and not in the file yet.
    turn : bytes
        Of a live file: its structure's turn, see `simlab.storage.turns`.
    seam : tuple of str
        Of a live file: the simulation that is recorded, and where it was resumed.
    writer : tuple
        Of a live file: see `writer_of`.
    """

    file: h5py.File
    live: bool
    tail: Any = None
    turn: bytes = b""
    seam: tuple[str, str] = ("", "")
    writer: tuple[Any, ...] = ()
    holders: int = 0
    datasets: dict[str, h5py.Dataset] = field(default_factory=dict)
    memory: dict[str, Any] = field(default_factory=dict)
    scales: dict[int, str] = field(default_factory=dict)


_open_files: weakref.WeakSet[OpenFile] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Close every handle while there is still an interpreter: one over a Python file calls it."""
    for handle in list(_open_files):
        handle.datasets.clear()
        handle.file.close()
    close_overlays()  # of threads that were cut off while they opened one, by the end or by a fork


class Shows(Protocol):
    """Who opens a run that was not finished."""

    def dead(self, path: Path, folder: Path) -> h5py.File:
        """Return the run of a writer that died, as it would be."""

    def live(self, path: Path, folder: Path) -> tuple[h5py.File, Any]:
        """Return the run of a writer that lives as it is now, and the rows that are staged."""

    def file(self, path: Path) -> h5py.File:
        """Return the file of a writer that lives as it is now."""


_shows: list[Shows] = []


def show_unfinished_with(shows: Shows) -> None:
    """Set who opens runs that were not finished; it stands on a higher floor."""
    _shows[:] = [shows]


def reopened(path: str) -> tuple[h5py.File, bytes]:
    """Return another handle of the file of a writer that lives, and the turn of its structure."""
    return steadily(path, lambda: _shows[0].file(Path(path)))


def steadily(path: str, find: Callable[[], T]) -> tuple[T, bytes]:
    """Return what `find` returns while the structure of a run is not changed, and the turn it has.

    Raises
    ------
    RunInUseError
        If it is changed all the time.
    """
    folder, last, told = sidecar(path), None, b""
    gives_up_at = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < gives_up_at:
        told = turn(folder)
        if is_steady(told):
            try:
                found = find()
                if turn(folder) == told:
                    return found, told
            except _INCONSISTENT as e:
                last = e
                if turn(folder) == told and isinstance(e, SimlabError):
                    raise
        time.sleep(0.002)
    if not is_steady(told):
        raise RunInUseError(
            f"{path!r} is being recorded, and its writer has been changing its structure for {PATIENCE_SECONDS:.0f} s: the disk is slow or "
            "refuses a part of it, which the next call of the writer says. See to the disk, and try again."
        )
    raise RunInUseError(f"{path!r} is being recorded, and could not be read beside its writer. Try again.") from last


def resumed_at(file: h5py.File, simulation: str) -> str:
    """Return where a simulation was resumed, as the file tells it."""
    with contextlib.suppress(*ODD):
        told = file[simulation].attrs.get(ATTR_RESUMED, "") if simulation else ""
        return told.decode("utf-8", "replace") if isinstance(told, bytes) else str(told)
    return ""


def writer_of(path: str) -> tuple[Any, ...]:
    """Return what changes when another writer takes a run, and when anything is written after the end of the one that had it."""
    owner = owner_of(sidecar(path))
    if owner is not None:
        return owner.host, owner.pid, owner.born
    found = os.stat(path)
    return found.st_size, found.st_mtime_ns


def is_live(path: str) -> bool:
    """Whether somebody, perhaps this process, writes the file."""
    if os.path.realpath(path) in being_recorded:
        return True
    folder = sidecar(path)
    owner = owner_of(folder) if folder.is_dir() else None
    return owner is not None and owner.lives


def open_for_reading(path: str) -> OpenFile:
    """Open a run file and check that it is one that this version reads."""
    folder, tail, live, told = sidecar(path), None, is_live(path), b""
    writer = writer_of(path) if live else ()
    if live and _shows:
        (file, tail), told = steadily(path, lambda: _shows[0].live(Path(path), folder))
    elif folder.is_dir() and owner_of(folder) is not None:
        file = _open_unfinished(path, folder)
    else:
        file = _open_closed(path, folder)
    try:
        _check_format(file, path)
    except BaseException:
        file.close()
        raise
    owner = owner_of(folder) if live else None
    recorded = owner.simulation if owner is not None else ""
    handle = OpenFile(file, live, tail, told, (recorded, resumed_at(file, recorded)), writer)
    _open_files.add(handle)
    return handle


def _open_closed(path: str, folder: Path) -> h5py.File:
    """Open a file that nobody says he writes."""
    try:
        file = h5py.File(path, "r")
    except (OSError, RuntimeError) as error:
        if isinstance(error, BlockingIOError) or "unable to lock file" in str(error):
            raise RunInUseError(
                f"{path!r} is being written by another program, and HDF5 lets nobody else in. Wait until it is closed, then open it again."
            ) from error
        if "open for write" in str(error):
            return _open_unfinished(path, folder)
        part = _open_cut_short(path)
        if part is not None:
            return part
        raise FormatError(explain(path) or f"{path!r} does not open as HDF5: {error}") from error
    if file.mode != "r":
        file.close()
        raise RunInUseError(f"{path!r} is being written by this process. Close it first.")
    if h5py.h5f.get_obj_count(file.id, h5py.h5f.OBJ_FILE) > 1:
        # HDF5 gives what somebody else in this process opened, perhaps before the file was written again, or before a fork.
        file.close()
        return open_over(Overlay(path))
    _let_writers_in(file)
    return file


def _let_writers_in(file: h5py.File) -> None:
    """Give up the lock that HDF5 took, once it has shown that nobody writes.

    Without locking from the start, HDF5 would refuse whoever in this process opens the file in the ordinary way.
    """
    try:
        import fcntl
    except ImportError:  # Windows: HDF5 takes no lock there
        return
    with contextlib.suppress(OSError):  # a file system without locks
        fcntl.flock(file.id.get_vfd_handle(), fcntl.LOCK_UN)


def _open_cut_short(path: str) -> h5py.File | None:
    """Open a file that lacks its end, as a copy that was broken off, with what there is of it; None if there is nothing."""
    try:
        if not ends_early(path):
            return None
        overlay = Overlay(path, mend=True)
        try:
            file = open_over(overlay)
            if not file.attrs.get(ATTR_FORMAT) or not _holds_rows(file):
                raise OSError("there is nothing in it")
        except ODD:
            overlay.close()
            return None
    except (SimlabError, OSError):
        return None
    warnings.warn(f"{explain(path)} What can be read of it is shown.", DamageWarning, stacklevel=users_frame())
    return file


def _holds_rows(group: h5py.Group) -> bool:
    """Whether there is a simulation in or below a group whose number of rows can be read."""
    if COMMITTED in group:
        return bool(group[COMMITTED][()] >= 0)
    for name in group:
        with contextlib.suppress(*ODD):
            if isinstance(group[name], h5py.Group) and _holds_rows(group[name]):
                return True
    return False


def _open_unfinished(path: str, folder: Path) -> h5py.File:
    if not _shows:
        raise StorageError(
            f"{path!r} was not closed: its writer ended without finalize(). Mend it with simlab.repair({path!r}), or from a shell: "
            f"simlab repair {path}"
        )
    return _shows[0].dead(Path(path), folder)


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
