"""A finished copy of a run that is still being recorded."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from pathlib import Path
from typing import Final

from simlab.errors import FormatError, RunExistsError, RunInUseError, RunNotFoundError, StorageError
from simlab.staging.found import copy_journal
from simlab.staging.recovery import Repair, is_unfinished, recover
from simlab.staging.replay import journal_of, whole
from simlab.storage.diagnose import explain
from simlab.storage.finishing import finish_simulation, survey
from simlab.storage.handles import is_live, open_for_reading
from simlab.storage.leftovers import remove_leftovers, work_name
from simlab.storage.lock import owner_of, sidecar
from simlab.storage.turns import is_steady, turn

_TRIES: Final = 20


def snapshot(path: str | os.PathLike[str], output: str | os.PathLike[str]) -> Repair:
    """Copy a run, which may be being recorded, to a finished file that h5py, netCDF, Octave and R open.

    The copy holds every row that had been logged when it was begun. The run and its writer are not disturbed.

    Parameters
    ----------
    path : path-like
        The run file.
    output : path-like
        Where the copy goes.

    Returns
    -------
    Repair
        What the copy holds.

    Raises
    ------
    RunNotFoundError
        If there is no such file.
    RunExistsError
        If `output` is there already.
    RunInUseError
        If the writer changes the file so often that no copy of it is whole.
    StorageError
        If the disk refuses.

    Examples
    --------
    >>> import pathlib, tempfile, simlab
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> with simlab.HDF5Logger(folder / "run.h5") as log:
    ...     log.log_env_step(0, {"n": 1})
    ...     told = simlab.snapshot(folder / "run.h5", folder / "so_far.nc")
    >>> told.rows
    {'simulation_0001': 1}
    """
    source, target = (Path(os.path.abspath(Path(p).expanduser())) for p in (path, output))
    if not source.is_file():
        raise RunNotFoundError(explain(source) or f"{source} is no file.")
    if target.exists():
        raise RunExistsError(f"{target} exists already. Choose another name for the copy.")
    remove_leftovers(target)
    if not is_live(str(source)):
        if is_unfinished(source):
            return recover(source, target)
        open_for_reading(str(source)).file.close()  # says so if it is no run file
    work = work_name(target, "snapshot")
    try:
        for _ in range(_TRIES):
            try:
                told = _copy(source, work, target)
            except (FormatError, RuntimeError, KeyError, ValueError):
                told = None  # a page was changed while it was copied
            if told is not None:
                os.replace(work, target)
                return told
            time.sleep(0.02)
        raise RunInUseError(f"{source} changes so often that no copy of it was whole. Try again.")
    except OSError as e:
        if isinstance(e, (RunInUseError, StorageError)):
            raise
        raise StorageError(f"{target} cannot be written: {e.strerror or e}.") from e
    finally:
        with contextlib.suppress(FileNotFoundError):
            work.unlink()


def _copy(source: Path, work: Path, target: Path) -> Repair | None:
    """Copy and finish a file; None if its structure changed meanwhile."""
    folder = sidecar(source)
    owner = owner_of(folder) if folder.is_dir() else None
    lives = owner is not None and owner.lives
    journal = journal_of(folder, owner)
    # The staged rows first: what leaves the journal from here on is in the file.
    copied = copy_journal(journal) if lives and journal.is_dir() else None
    before = turn(folder)
    if lives and not is_steady(before):
        return None
    shutil.copyfile(source, work)
    if lives and turn(folder) != before:
        return None
    file, overlay, found = whole(work, folder, copied=copied, simulation=owner.simulation if owner is not None else "")
    told = Repair(target, False, gaps=found.gaps)
    try:
        survey(file.file, told)
        if told.unreadable:
            return None
        for name in told.rows:
            finish_simulation(file.file[name])
        file.file.close()
        overlay.write_into(work)
        shutil.copymode(source, work)
    finally:
        file.close()
        overlay.close()
    return told
