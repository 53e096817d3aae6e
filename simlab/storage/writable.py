"""A run file while it is written: readable at any instant, whatever becomes of the process.

Values go into the file in HDF5's SWMR mode, in which every flush leaves a file that opens. Structure (groups, variables, attributes)
cannot be made in that mode; it is made on an overlay in memory and applied in one step (see `simlab.storage.redo`), after which the file
is opened anew. So nothing may hold on to a handle: objects are asked for by their path.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, cast

import h5py

from simlab.storage.forking import leave_to_parent, undisturbed
from simlab.storage.leftovers import work_name
from simlab.storage.overlay import Overlay
from simlab.storage.redo import apply_redo, sync_folder, write_redo
from simlab.storage.superblock import trim
from simlab.storage.turns import Turns

LIBRARY_BOUNDS: Final = ("v110", "v110")
"""The only version of the file format that can be read while it is written and that every netCDF reader opens."""
PAGE_SIZE: Final = 2048
"""Metadata in pages that never cross one of the kernel's: a kill inside one write cannot tear an object header."""
_CACHE_BYTES: Final = 1 << 22
_MARGIN: Final = 1 << 20
_SMALL_MARGIN: Final = 1 << 18
"""What the system keeps more room for than was asked, so that it is asked now and then only."""


being_recorded: weakref.WeakValueDictionary[str, WritableFile] = weakref.WeakValueDictionary()
"""Files that this process writes, by their real path."""
_on_disk: weakref.WeakSet[WritableFile] = weakref.WeakSet()
"""Every file that is written, also one that a constructor in another thread has only begun with."""


class WritableFile:
    """A file whose handle comes and goes.

    Parameters
    ----------
    path : Path
        Where it lies, or will lie with its first structure.
    folder : Path or None
        Where redo files go. None: the file exists in memory only, as an overlay of what lies at `path`.
    overlay : Overlay or None
        With ``folder=None``, the overlay; else the overlay of a file that is to be made, or None for one that is there.
    sync : bool, optional
        Have structure reach the disk itself, not only the system.

    Attributes
    ----------
    file : h5py.File
        The handle of the moment.
    generation : int
        Rises with every new handle.
    """

    file: h5py.File

    def __init__(self, path: Path, folder: Path | None, overlay: Overlay | None, sync: bool = False) -> None:
        self.path = path
        self.generation = 0
        self._folder = folder
        self._sync = sync
        self._turns: Turns | None = None
        self._depth = 0
        self._room = 0
        self._identity: tuple[int, int] | None = None
        self._datasets: dict[str, h5py.Dataset] = {}
        self._overlay = overlay
        self._is_new = overlay is not None and folder is not None
        with undisturbed():
            if folder is not None:
                _on_disk.add(self)
            if overlay is None:
                self._open()
                self.must_be_there()
            else:
                self._open_overlay(new=len(overlay) == 0)

    def dataset(self, path: str) -> h5py.Dataset:
        """Return a dataset of the file."""
        found = self._datasets.get(path)
        if found is None:
            found = self._datasets[path] = self.file[path]
        return found

    def forget(self, path: str) -> None:
        """Forget a dataset that is about to be taken away."""
        self._datasets.pop(path, None)

    def group(self, path: str) -> h5py.Group:
        """Return a group of the file."""
        return cast(h5py.Group, self.file[path])

    def has(self, path: str) -> bool:
        """Say whether there is something at a path."""
        return path in self._datasets or path in self.file

    # -- structure

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """Apply all structure that is made inside as one step, at the end; if anything is refused, none of it."""
        with undisturbed():
            self._depth += 1
            try:
                yield
            except BaseException:
                self._depth -= 1
                if not self._depth:
                    self._discard()
                raise
            self._depth -= 1
            if not self._depth:
                self._apply()

    @contextlib.contextmanager
    def structure(self) -> Iterator[h5py.File]:
        """Make structure inside: the handle there takes groups, variables and attributes.

        Raises
        ------
        OSError
            If the disk refuses; the file is as it was before.
        """
        with self.changing():
            if self._overlay is None:
                self.must_be_there()
                self._close_handle()
                self._overlay = Overlay(self.path)
                self._open_overlay()
            yield self.file

    def _apply(self) -> None:
        overlay = self._overlay
        if overlay is None or self._folder is None:
            return
        self._close_handle()
        try:
            if self._is_new:
                _write_new(overlay, self.path, self._sync)
                self._is_new = False
            else:
                self._folder.mkdir(exist_ok=True)  # somebody may have removed it
                place = write_redo(overlay, self._folder, self._sync)
                try:
                    self.must_be_there()
                    reserve(self.path, len(overlay))
                except OSError:
                    place.unlink()
                    raise
                if self._turns is None:
                    self._turns = Turns(self._folder)
                with self._turns.change():
                    apply_redo(place, self.path, self._sync, self._identity)
        finally:
            overlay.close()
            self._overlay = None
            if not self._is_new:
                self._open()
                self.must_be_there()

    def _discard(self) -> None:
        if self._overlay is None or self._folder is None or self._is_new:
            return
        with contextlib.suppress(OSError, RuntimeError):
            self._close_handle()
        self._overlay.close()
        self._overlay = None
        self._open()

    # -- the handle

    def _open(self) -> None:
        # Locks of HDF5 would let a reader stop the writer; who may write is settled beside the file.
        self.file = h5py.File(self.path, "r+", libver=LIBRARY_BOUNDS, locking=False, rdcc_nbytes=_CACHE_BYTES)
        self.file.swmr_mode = True
        self.generation += 1

    def _open_overlay(self, new: bool = False) -> None:
        made: dict[str, Any] = {"track_order": True, "fs_strategy": "page", "fs_page_size": PAGE_SIZE} if new else {}
        self.file = h5py.File(self._overlay, "w" if new else "r+", libver=LIBRARY_BOUNDS, **made)
        self.generation += 1

    def _close_handle(self) -> None:
        self._datasets.clear()
        if self.file:
            self.file.close()
            if self._overlay is None and self._room:
                self.must_be_there()
                trim(self.path)
                self._room = 0

    def make_room(self, size: int) -> None:
        """Have the system keep room for so many bytes more, so that HDF5 is not refused in the middle of a change.

        Raises
        ------
        OSError
            If there is none.
        """
        if self._overlay is not None or not hasattr(os, "posix_fallocate"):
            return
        if self._room < size:
            self.must_be_there()
            end, missing = os.stat(self.path).st_size, size - self._room
            try:
                more = missing + _MARGIN
                reserve(self.path, end + more)
            except OSError:  # the disk is nearly full: no more than has to be
                more = missing + _SMALL_MARGIN
                reserve(self.path, end + more)
            self._room += more
        self._room -= size

    def flush(self) -> None:
        """Hand what was written to the system."""
        self.must_be_there()
        self.file.flush()
        # HDF5 may have cut the file at its own end, with the room that was kept behind it.
        self._room = max(0, os.stat(self.path).st_size - self.file.id.get_filesize()) if self._room else 0

    def must_be_there(self) -> None:
        """Raise if the file at the path is not the one that was opened: what goes by the path would go into another one.

        Raises
        ------
        FileNotFoundError
            If it was deleted or replaced.
        """
        if self._folder is None or self._is_new:
            return
        found = os.stat(self.path)
        self._identity = self._identity or (found.st_dev, found.st_ino)
        if self._identity != (found.st_dev, found.st_ino):
            raise FileNotFoundError(errno.ENOENT, "it was replaced by another file", str(self.path))

    def sync(self) -> None:
        """Have everything reach the disk itself."""
        with open(self.path, "rb") as file:
            os.fsync(file.fileno())

    def let_go(self) -> None:
        """Cut a forked child off from the file, and from structure for it that the parent has begun to make in memory."""
        self._datasets.clear()
        overlay, self._overlay = self._overlay, None
        if overlay is not None:
            with contextlib.suppress(AttributeError, OSError, RuntimeError, ValueError):  # perhaps it was not opened yet
                self.file.close()
            overlay.close()
        leave_to_parent(self.path)

    def reopened_for_reading(self) -> h5py.File:
        """Return a file in memory as one that is read only; it keeps what it needs."""
        self._close_handle()
        assert self._overlay is not None
        return open_over(self._overlay)

    def close(self) -> None:
        """Close the file. More than once is no error."""
        with undisturbed():
            self._close_handle()
            if self._overlay is not None and self._folder is not None:
                self._overlay.close()
                self._overlay = None
        _on_disk.discard(self)


def _leave_all_to_parent() -> None:
    """Let go of every file after a fork, each on its own: nobody here writes them any more."""
    being_recorded.clear()
    for file in list(_on_disk):
        try:
            file.let_go()
        except Exception as e:
            print(f"simlab: a forked process could not let go of {file.path}: {e}", file=sys.stderr)
    _on_disk.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_all_to_parent)


def open_over(overlay: Overlay) -> h5py.File:
    """Return a file in memory as one that is read only; it keeps what it needs."""
    return h5py.File(overlay, "r")


def _write_new(overlay: Overlay, path: Path, sync: bool) -> None:
    """Make the file, which is there as a whole or not at all."""
    work = work_name(path, "new")
    try:
        with open(work, "wb") as file:
            for offset, data in overlay.changes():
                file.seek(offset)
                file.write(data)
            file.truncate(len(overlay))
            if sync:
                file.flush()
                os.fsync(file.fileno())
        os.replace(work, path)
        if sync:
            sync_folder(path.parent)
    except OSError:
        work.unlink(missing_ok=True)
        raise


def reserve(path: Path, size: int) -> None:
    """Make room for a file's new length before any of its pages is changed."""
    had = os.stat(path).st_size
    if size <= had or not hasattr(os, "posix_fallocate"):
        return
    with open(path, "r+b") as file:
        try:
            os.posix_fallocate(file.fileno(), had, size - had)
        except OSError as e:
            file.truncate(had)
            raise OSError(e.errno, f"{e.strerror} ({size - had:,} bytes more)", str(path)) from e
