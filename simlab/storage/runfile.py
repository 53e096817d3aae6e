"""The file that a logger writes: created or opened, and closed."""

from __future__ import annotations

import datetime
import os
import re
import shutil
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

import h5py

from simlab.conventions import (
    ATTR_CONVENTIONS,
    ATTR_FORMAT,
    ATTR_HISTORY,
    ATTR_SOURCE,
    CF_CONVENTIONS,
    COMMITTED,
    FORMAT_VERSION,
)
from simlab.errors import FormatError, InputError, RunExistsError, RunInUseError, RunNotFoundError, StorageError
from simlab.metadata.encoding import is_utf8
from simlab.schema.names import is_plain
from simlab.storage.attributes import read_attributes, write_attributes
from simlab.storage.codec import Compression
from simlab.storage.diagnose import explain
from simlab.storage.finding import natural_key, simulations_below
from simlab.storage.journal_files import has_rows
from simlab.storage.leftovers import remove_leftovers
from simlab.storage.lock import WriterLock, clear_folder, sidecar
from simlab.storage.opening import close_handles
from simlab.storage.overlay import Overlay
from simlab.storage.simulation import SimulationStore
from simlab.storage.writable import WritableFile, being_recorded

Mode = Literal["x", "w", "a"]

_LEAST_SPACE: Final = 1 << 20
_LOCK_TRIES: Final = 20
_SWMR_SUPERBLOCK: Final = 3
"""The version of HDF5's superblock from which a file can be read while it is written."""
_NUMBERED: Final = re.compile(r"simulation_(\d{4,})")


def check_simulation_name(name: object) -> None:
    """Raise `InputError` if a simulation cannot be called so; None stands for the next free name."""
    if name is None:
        return
    if not isinstance(name, str) or not name or not is_utf8(name) or not all(is_plain(p) and "." not in p for p in name.split("/")):
        raise InputError(
            f"simulation={name!r} cannot be a group: use up to 200 letters, digits and '_', no digit first, nested names joined by '/'."
        )


class RunFile(WritableFile):
    """A run file that is open for writing.

    Parameters
    ----------
    path : Path
        Where it lies.
    mode : {"x", "w", "a"}
        "x" makes a new file and refuses one that is there, "w" replaces it, "a" adds to it.
    version : str
        The version of simlab, for the file's ``source``.
    sync : bool, optional
        Have structure reach the disk itself.
    lock : WriterLock, optional
        The right to write it, where it was taken before.

    Attributes
    ----------
    lock : WriterLock
        The right to write it.

    Raises
    ------
    RunNotFoundError
        If the folder is missing.
    RunExistsError
        If mode is "x" and the file is there.
    RunInUseError
        If another program has the file open.
    FormatError
        If mode is "a" and the file is no run file.
    StorageError
        If the system refuses.
    """

    def __init__(self, path: Path, mode: Mode, version: str, sync: bool = False, lock: WriterLock | None = None) -> None:
        try:
            self._take(path, mode, version, sync, lock)
        except BaseException:
            if lock is not None:
                lock.release()
            raise

    def _take(self, path: Path, mode: Mode, version: str, sync: bool, lock: WriterLock | None) -> None:
        if mode not in ("x", "w", "a"):
            raise InputError(f"mode={mode!r} is none of 'x' (new file), 'w' (replace it), 'a' (add a simulation to it).")
        _check_folder(path)
        exists = path.exists()
        if exists and mode == "x":
            raise RunExistsError(f"{path} exists already. Use mode='w' to replace it, mode='a' to add a simulation to it, or another name.")
        if exists:
            close_handles(path)
            refuse_if_open_elsewhere(path)
        add = exists and mode == "a" and path.stat().st_size > 0
        if not exists:
            _put_aside(path)
        if shutil.disk_usage(path.parent).free < _LEAST_SPACE:
            raise StorageError(f"{path} cannot be made: less than 1 MiB is free in {path.parent}. Make room first.")
        try:
            self.lock = lock or WriterLock(path)
        except RunInUseError:
            raise
        except OSError as e:
            raise _refused(path, "made", e) from e
        remove_leftovers(path)
        try:
            if lock is None:
                self.lock.tell("", None)  # what was recorded before has nothing to do with this file
                clear_folder(self.lock.folder)
            if add:
                _check_format(path)
            super().__init__(path, self.lock.folder, None if add else Overlay(None), sync)
        except OSError as e:
            self.lock.release()
            raise e if isinstance(e, StorageError) else _refused(path, "opened", e) from e
        except BaseException:
            self.lock.release()
            raise
        if not add:
            now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            write_attributes(
                self.file,
                {
                    ATTR_CONVENTIONS: CF_CONVENTIONS,
                    "title": f"simlab run {path.name}",
                    ATTR_FORMAT: FORMAT_VERSION,
                    ATTR_SOURCE: f"simlab {version}",
                    ATTR_HISTORY: f"{now} recorded by simlab {version}",
                },
            )
        self.version = f"simlab {version}"
        being_recorded[os.path.realpath(path)] = self

    def simulations(self) -> list[str]:
        """Return the names of the simulations that are there, in natural order."""
        return sorted(simulations_below(self.file), key=natural_key)

    def add_simulation(self, name: str | None, attributes: Mapping[str, Any], compression: Compression) -> tuple[str, SimulationStore]:
        """Make a new simulation; a new file is there from here on.

        Parameters
        ----------
        name : str or None
            Its group; nested names are joined by "/". None takes the next free ``simulation_0001``.

        Raises
        ------
        RunExistsError
            If there is such a group, or one that it would lie inside.
        StorageError
            If the system refuses.
        """
        if name is None:
            numbers = (int(found[1]) for found in map(_NUMBERED.fullmatch, self.file) if found)
            name = f"simulation_{max(numbers, default=0) + 1:04d}"
        parts = name.split("/")
        above = ["/".join(parts[:i]) for i in range(1, len(parts))]
        outer = next((other for other in above if self.has(f"{other}/{COMMITTED}")), None)
        if outer is None and name in self.file and f"{name}/{COMMITTED}" not in self.file:
            outer = name + "/" + next(simulations_below(self.group(name)), "")
        if outer is not None:
            raise RunExistsError(f"simulation {name!r} and {outer!r} of {self.path} would lie inside each other. Choose another name.")
        if name in self.file:
            raise RunExistsError(
                f"{self.path} has a simulation {name!r} already. Choose another name, or leave it out for the next free one."
            )
        try:
            with self.structure():
                return name, SimulationStore(self, f"/{name}", compression, attributes)
        except OSError as e:
            raise _refused(self.path, "made", e) from e

    def beat(self) -> bool:
        """Show that the writer lives, and say whether the run is still its own: nobody took it over, deleted or replaced it."""
        try:
            self.must_be_there()
        except OSError:
            return False
        return self.lock.beat()

    def close(self) -> None:
        """Close the file and give up the right to write it. More than once is no error."""
        super().close()
        if being_recorded.get(os.path.realpath(self.path)) is self:
            del being_recorded[os.path.realpath(self.path)]
            self.lock.release()


def _check_folder(path: Path) -> None:
    folder = path.parent
    if path.is_dir():
        raise RunExistsError(f"{path} is a folder. Give the name of a file in it, such as {path / 'run.h5'}.")
    if not folder.is_dir():
        missing = next(p for p in [*reversed(folder.parents), folder] if not p.is_dir())
        raise RunNotFoundError(f"{path} cannot be made: the folder {missing} does not exist. Make it first: mkdir -p {folder}")


def _check_format(path: Path) -> None:
    """Refuse what no simulation can be added to."""
    wrong = explain(path)
    if wrong:
        raise FormatError(f"{wrong} Nothing can be added to it.")
    try:
        with h5py.File(path, "r", locking=False) as file:
            told = str(read_attributes(file).get(ATTR_FORMAT, ""))
            version = file.id.get_create_plist().get_version()[0]
    except OSError as e:
        raise _refused(path, "opened to add a simulation", e) from e
    if told.split(".")[0] != FORMAT_VERSION.split(".")[0]:
        what = f"has format {told}" if told else "was not written by simlab"
        raise FormatError(f"{path} {what}; a simulation can be added to files of format {FORMAT_VERSION} only. Record to a new file.")
    if version < _SWMR_SUPERBLOCK:
        raise FormatError(
            f"{path} was copied by another program, into a form of HDF5 that cannot be read while it is written (superblock version "
            f"{version}, not {_SWMR_SUPERBLOCK}). It opens as it is; nothing can be added. Record to a new file, or add to the original."
        )


def _put_aside(path: Path) -> None:
    """Keep the rows of a dead writer whose file was moved or deleted: another run of that name begins."""
    folder = sidecar(path)
    if not folder.is_dir() or not has_rows(folder):
        return
    WriterLock(path)  # refuses if its writer lives
    n = 1
    while (other := folder.with_name(f"{folder.name}.{n}")).exists():
        n += 1
    os.replace(folder, other)
    warnings.warn(f"{folder} holds rows of a writer that died, but its file {path.name} is gone. They were kept as {other}.", stacklevel=4)


def refuse_if_open_elsewhere(path: Path) -> None:
    """Raise `RunInUseError` before an existing file is touched, if another program has it open and locked."""
    try:
        import fcntl
    except ImportError:  # Windows locks open files by itself: what follows is refused
        return
    for left in reversed(range(_LOCK_TRIES)):
        try:
            with path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                fcntl.flock(file, fcntl.LOCK_UN)  # a child that is forked here keeps the file open
            return
        except BlockingIOError as e:
            if not left:
                raise RunInUseError(
                    f"{path} is open in another program, or by a logger of this one that was not finalized. "
                    "Close it first, or use another name."
                ) from e
            time.sleep(0.01)  # perhaps a reader of ours that is just opening it
        except OSError:
            return  # a file system without locks, or a file we may not read: the write itself will tell


def _refused(path: Path, what: str, e: OSError) -> RunInUseError | StorageError:
    text = str(e)
    if "unable to lock file" in text or "already open" in text or isinstance(e, BlockingIOError):
        return RunInUseError(f"{path} is open in another program and cannot be {what}. Close it there, or use another name.")
    reason = os.strerror(e.errno) if e.errno else text
    return StorageError(f"{path} cannot be {what}: {reason}. Check that the folder may be written to and has space.")
