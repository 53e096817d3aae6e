"""The file that a logger writes: created or opened, committed, closed."""

from __future__ import annotations

import datetime
import os
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
    FORMAT_VERSION,
)
from simlab.errors import FormatError, InputError, RunExistsError, RunInUseError, RunNotFoundError, StorageError
from simlab.metadata.encoding import is_utf8
from simlab.schema.names import is_plain
from simlab.storage.attributes import read_attributes, write_attributes
from simlab.storage.codec import Compression
from simlab.storage.diagnose import explain
from simlab.storage.finding import simulations_below
from simlab.storage.netcdf import create_group
from simlab.storage.opening import close_handles
from simlab.storage.simulation import SimulationStore

Mode = Literal["x", "w", "a"]

LIBRARY_BOUNDS: Final = ("v110", "v110")
"""The only version of the file format that can be read while it is written and that every netCDF reader opens."""
PAGE_SIZE: Final = 2048
"""Metadata in pages that never cross one of the kernel's: a kill inside one write cannot tear an object header."""


def check_simulation_name(name: object) -> None:
    """Raise `InputError` if a simulation cannot be called so; None stands for the next free name."""
    if name is None:
        return
    if not isinstance(name, str) or not name or not is_utf8(name) or not all(is_plain(p) and "." not in p for p in name.split("/")):
        raise InputError(f"simulation={name!r} cannot be a group: use letters, digits and '_', nested names joined by '/'.")


class RunFile:
    """A run file that is open for writing.

    Parameters
    ----------
    path : Path
        Where it lies.
    mode : {"x", "w", "a"}
        "x" makes a new file and refuses one that is there, "w" replaces it, "a" adds to it.
    version : str
        The version of simlab, for the file's ``source``.

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

    def __init__(self, path: Path, mode: Mode, version: str) -> None:
        self.path = path
        if mode not in ("x", "w", "a"):
            raise InputError(f"mode={mode!r} is none of 'x' (new file), 'w' (replace it), 'a' (add a simulation to it).")
        self._check_folder()
        exists = path.exists()
        if exists and mode == "x":
            raise RunExistsError(f"{path} exists already. Use mode='w' to replace it, mode='a' to add a simulation to it, or another name.")
        if exists:
            close_handles(path)
            refuse_if_open_elsewhere(path)
        if exists and mode == "a" and path.stat().st_size:
            self.file = self._open_to_add()
            return
        if exists:
            path.unlink()  # who has the old file open keeps it whole; nobody sees half of each
        self.file = self._create(version)

    def _check_folder(self) -> None:
        folder = self.path.parent
        if self.path.is_dir():
            raise RunExistsError(f"{self.path} is a folder. Give the name of a file in it, such as {self.path / 'run.h5'}.")
        if not folder.is_dir():
            missing = next(p for p in [*reversed(folder.parents), folder] if not p.is_dir())
            raise RunNotFoundError(f"{self.path} cannot be made: the folder {missing} does not exist. Make it first: mkdir -p {folder}")

    def _create(self, version: str) -> h5py.File:
        try:
            file = h5py.File(
                self.path, "x", libver=LIBRARY_BOUNDS, track_order=True, fs_strategy="page", fs_page_size=PAGE_SIZE, rdcc_nbytes=1 << 22
            )
        except OSError as e:
            raise _refused(self.path, "made", e) from e
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        write_attributes(
            file,
            {
                ATTR_CONVENTIONS: CF_CONVENTIONS,
                "title": f"simlab run {self.path.name}",
                ATTR_FORMAT: FORMAT_VERSION,
                ATTR_SOURCE: f"simlab {version}",
                ATTR_HISTORY: f"{now} recorded by simlab {version}",
            },
        )
        return file

    def _open_to_add(self) -> h5py.File:
        wrong = explain(self.path)
        if wrong:
            raise FormatError(f"{wrong} Nothing can be added to it.")
        try:
            file = h5py.File(self.path, "r+", libver=LIBRARY_BOUNDS)
        except OSError as e:
            raise _refused(self.path, "opened to add a simulation", e) from e
        told = str(read_attributes(file).get(ATTR_FORMAT, ""))
        if told.split(".")[0] != FORMAT_VERSION.split(".")[0]:
            file.close()
            what = f"has format {told}" if told else "was not written by simlab"
            raise FormatError(
                f"{self.path} {what}; a simulation can be added to files of format {FORMAT_VERSION} only. Record to a new file."
            )
        return file

    def add_simulation(self, name: str | None, attributes: Mapping[str, Any], compression: Compression) -> tuple[str, SimulationStore]:
        """Make a new simulation.

        Parameters
        ----------
        name : str or None
            Its group; nested names are joined by "/". None takes the next free ``simulation_0001``.

        Raises
        ------
        RunExistsError
            If there is such a group, or one that it would lie inside.
        """
        if name is None:
            n = 1
            while f"simulation_{n:04d}" in self.file:
                n += 1
            name = f"simulation_{n:04d}"
        inside = [other for other in simulations_below(self.file) if name.startswith(other + "/") or other.startswith(name + "/")]
        if inside:
            raise RunExistsError(f"simulation {name!r} and {inside[0]!r} of {self.path} would lie inside each other. Choose another name.")
        if name in self.file:
            raise RunExistsError(
                f"{self.path} has a simulation {name!r} already. Choose another name, or leave it out for the next free one."
            )
        return name, SimulationStore(create_group(self.file, name), attributes, compression)

    def commit(self, simulation: SimulationStore, rows: int) -> None:
        """Vouch for rows: everything that was written reaches the system first, then the number of rows that are complete."""
        self.file.flush()
        simulation.committed[()] = rows
        self.file.flush()

    def let_go(self) -> None:
        """Cut a forked child off from the file: what HDF5 writes when the child ends goes nowhere, not into the parent's file."""
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, self.file.id.get_vfd_handle())
        os.close(nowhere)

    def close(self) -> None:
        """Close the file. More than once is no error."""
        if self.file:
            self.file.close()


def refuse_if_open_elsewhere(path: Path) -> None:
    """Raise `RunInUseError` before an existing file is touched, if another program has it open.

    HDF5 locks the files it opens, but only after it has truncated one that is to be replaced.
    """
    try:
        import fcntl
    except ImportError:  # Windows locks open files by itself: the unlink or open that follows is refused
        return
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as e:
        raise RunInUseError(
            f"{path} is open in another program, or by a logger of this one that was not finalized. Close it first, or use another name."
        ) from e
    except OSError:
        return  # a file system without locks, or a file we may not read: the write itself will tell


def _refused(path: Path, what: str, e: OSError) -> RunInUseError | StorageError:
    text = str(e)
    if "unable to lock file" in text or "already open" in text or isinstance(e, BlockingIOError):
        return RunInUseError(f"{path} is open in another program and cannot be {what}. Close it there, or use another name.")
    reason = os.strerror(e.errno) if e.errno else text
    return StorageError(f"{path} cannot be {what}: {reason}. Check that the folder may be written to and has space.")
