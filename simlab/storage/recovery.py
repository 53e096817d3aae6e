"""What to do with a run whose writer died: make it a finished file that everybody opens."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import h5py
import numpy as np

from simlab.conventions import (
    ATTR_FORMAT,
    ATTR_HISTORY,
    COMMITTED,
    COMPLETE,
    GROUP_ENVIRONMENT,
    TIME,
    TIME_SUFFIX,
)
from simlab.errors import FormatError, RunExistsError, RunNotFoundError, SimlabError
from simlab.storage.attributes import read_attributes, write_attribute
from simlab.storage.diagnose import explain
from simlab.storage.finding import simulations_below
from simlab.storage.opening import close_handles
from simlab.storage.runfile import refuse_if_open_elsewhere
from simlab.storage.superblock import ends_early, is_marked, mend
from simlab.storage.writable import LIBRARY_BOUNDS


@dataclass(slots=True)
class Repair:
    """What `repair` found and did.

    Attributes
    ----------
    path : Path
        The file that is whole now.
    was_closed : bool
        Whether the file had been closed as it should; nothing was changed then.
    rows : dict of str to int
        Rows of each simulation.
    unfinished : list of str
        Simulations that had not been finalized.
    unreadable : dict of str to str
        Variables that cannot be read, and why.

    Examples
    --------
    >>> print(Repair(Path("run.h5"), False, {"simulation_0001": 120}, ["simulation_0001"]))
    run.h5: simulation_0001 has 120 rows; it was not finalized
    """

    path: Path
    was_closed: bool
    rows: dict[str, int] = field(default_factory=dict)
    unfinished: list[str] = field(default_factory=list)
    unreadable: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        parts = [
            f"{name} has {rows:,} rows" + ("; it was not finalized" if name in self.unfinished else "") for name, rows in self.rows.items()
        ]
        parts += [f"{name} cannot be read ({why})" for name, why in self.unreadable.items()]
        return (
            f"{self.path}: "
            + "\n  ".join(parts or ["holds no simulation"])
            + (" (it was closed; nothing was changed)" if self.was_closed else "")
        )


def repair(path: str | os.PathLike[str], output: str | os.PathLike[str] | None = None) -> Repair:
    """Make a run whose writer died a finished file that h5py, netCDF, Octave and R open.

    Rows up to the last commit are kept; what was written after it is cut off. The work is done on a copy, which takes the place of the
    file at the very end: whatever happens meanwhile, there is either the old file or the whole new one. Repairing twice changes nothing.

    Parameters
    ----------
    path : path-like
        The run file.
    output : path-like, optional
        Where to put the repaired file; left out, it takes the place of the old one.

    Returns
    -------
    Repair
        What was there, and what could not be read.

    Raises
    ------
    RunNotFoundError
        If there is no such file.
    RunInUseError
        If a program still has it open.
    RunExistsError
        If `output` is there already.
    FormatError
        If it is no run file, or damaged beyond that.

    Examples
    --------
    >>> import os.path, tempfile, simlab
    >>> path = os.path.join(tempfile.mkdtemp(), "run.h5")
    >>> with simlab.HDF5Logger(path) as log:
    ...     log.log_env_step(0, {"n": 1})
    >>> simlab.repair(path).was_closed
    True
    """
    source = Path(path).expanduser()
    target = source if output is None else Path(output).expanduser()
    if not source.is_file():
        raise RunNotFoundError(explain(source) or f"{source} is no file.")
    if target != source and target.exists():
        raise RunExistsError(f"{target} exists already. Choose another name for the repaired file.")
    close_handles(source)
    refuse_if_open_elsewhere(source)
    if ends_early(source):
        raise FormatError(explain(source) or f"{source} is truncated: its end is missing. Copy or download it again.")
    closed = not is_marked(source)
    if closed:
        with _opened(source, "r") as file:
            told = _survey(file, Repair(target, False))
        if target == source and not told.unfinished:
            told.was_closed = True
            return told
    work = target.with_name(f".{target.name}.repair-{os.getpid()}")
    try:
        shutil.copyfile(source, work)
        mend(work)
        with _opened(work, "r+") as file:
            told = _survey(file, Repair(target, False))
            for name in told.rows:
                _finish(file[name])
            before = str(read_attributes(file).get(ATTR_HISTORY, ""))
            write_attribute(file, ATTR_HISTORY, f"{before}; repaired".lstrip("; "))
        with open(work, "rb") as written:
            os.fsync(written.fileno())
        shutil.copymode(source, work)
        os.replace(work, target)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(work)
    return told


@contextlib.contextmanager
def _opened(path: Path, mode: str) -> Iterator[h5py.File]:
    try:
        with h5py.File(path, mode, libver=LIBRARY_BOUNDS) as file:
            if ATTR_FORMAT not in file.attrs:
                raise FormatError(f"{path} was not written by simlab; only run files can be repaired.")
            yield file
    except SimlabError:
        raise
    except (OSError, RuntimeError) as e:
        raise FormatError(explain(path) or f"{path} is damaged beyond repair: HDF5 cannot read it ({e}).") from e


def _survey(file: h5py.File, told: Repair) -> Repair:
    """Note the simulations of a file, and what of them cannot be read."""
    for name in simulations_below(file):
        group = file[name]
        told.rows[name] = int(group[COMMITTED][()])
        if COMPLETE not in group or not group[COMPLETE][()]:
            told.unfinished.append(name)
        unreadable: dict[str, str] = {}

        def visit(inner: str, obj: h5py.HLObject, found: dict[str, str] = unreadable) -> None:
            if isinstance(obj, h5py.Dataset) and obj.size:
                try:
                    obj[tuple(slice(-1, None) for _ in obj.shape)]
                except (OSError, RuntimeError, ValueError) as e:
                    found[inner] = str(e)

        group.visititems(visit)
        told.unreadable |= {f"{name}/{inner}": why for inner, why in unreadable.items()}
    return told


def _finish(group: h5py.Group) -> None:
    """Cut a simulation at its last commit, and mark it as finished."""
    rows = int(group[COMMITTED][()])
    last = int(group[TIME][rows - 1]) if rows else -1
    keep = {group[TIME].name: rows}
    datasets: list[h5py.Dataset] = []

    def note(name: str, obj: h5py.HLObject) -> None:
        if not isinstance(obj, h5py.Dataset):
            return
        datasets.append(obj)
        if name.startswith(GROUP_ENVIRONMENT + "/") and name.endswith(TIME_SUFFIX) and obj.is_scale:
            keep[obj.name] = int(np.searchsorted(obj[...], last, side="right"))  # a time axis of its own

    group.visititems(note)
    for dataset in datasets:
        axes = [dataset.name] if dataset.is_scale else [dataset.file[r[0]].name for r in dataset.attrs.get("DIMENSION_LIST", ()) if len(r)]
        for axis, scale in enumerate(axes):
            if dataset.shape[axis] > keep.get(scale, dataset.shape[axis]):
                dataset.resize(keep[scale], axis=axis)
    group[COMPLETE][()] = 1
