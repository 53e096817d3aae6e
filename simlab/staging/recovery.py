"""What to do with a run whose writer died: show it as it would be, or make it a finished file that everybody opens."""

from __future__ import annotations

import contextlib
import os
import shutil
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from simlab.conventions import EPISODE, STEP
from simlab.errors import (
    DamageWarning,
    FormatError,
    RunExistsError,
    RunInUseError,
    RunNotFoundError,
    SimlabError,
    StorageError,
    UnfinishedRunWarning,
    users_frame,
)
from simlab.metadata import to_json
from simlab.staging.replay import journal_of, whole
from simlab.storage.diagnose import explain
from simlab.storage.finishing import finish_simulation, note_repair, open_checked, survey, told_damaged
from simlab.storage.journal import keep_events
from simlab.storage.leftovers import remove_leftovers, work_name
from simlab.storage.lock import WriterLock, clear_folder, owner_of, sidecar
from simlab.storage.opening import close_handles
from simlab.storage.overlay import Overlay
from simlab.storage.redo import NAME, apply_redo, redo_onto, write_redo
from simlab.storage.runfile import refuse_if_open_elsewhere
from simlab.storage.superblock import ends_early, is_marked
from simlab.storage.writable import being_recorded, open_over, reserve


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
    recovered : dict of str to int
        How many of them were in the journal only.
    unfinished : list of str
        Simulations that had not been finalized.
    unreadable : dict of str to str
        Variables that cannot be read, and why.
    gaps : list of str
        What of the journal could not be read.
    begun : dict of int to dict
        Fields of episodes that had begun, of the simulation whose writer died.
    simulation : str
        That simulation; "" where there was none.

    Examples
    --------
    >>> print(Repair(Path("run.h5"), False, {"simulation_0001": 120}, {"simulation_0001": 20}, ["simulation_0001"]))
    run.h5: simulation_0001 has 120 rows, 20 of them from the journal; it was not finalized
    """

    path: Path
    was_closed: bool
    rows: dict[str, int] = field(default_factory=dict)
    recovered: dict[str, int] = field(default_factory=dict)
    unfinished: list[str] = field(default_factory=list)
    unreadable: dict[str, str] = field(default_factory=dict)
    gaps: list[str] = field(default_factory=list)
    begun: dict[int, dict[str, Any]] = field(default_factory=dict, repr=False)
    simulation: str = field(default="", repr=False)

    def __str__(self) -> str:
        parts = []
        for name, rows in self.rows.items():
            text = f"{name} has {rows:,} rows"
            if self.recovered.get(name):
                text += f", {self.recovered[name]:,} of them from the journal"
            parts.append(text + ("; it was not finalized" if name in self.unfinished else ""))
        parts += [f"{name} cannot be read ({why})" for name, why in self.unreadable.items()]
        parts += [f"lost: {gap}" for gap in self.gaps]
        told = "\n  ".join(parts or ["holds no simulation"])
        return f"{self.path}: {told}" + (" (it was closed; nothing was changed)" if self.was_closed else "")


def repair(path: str | os.PathLike[str], output: str | os.PathLike[str] | None = None) -> Repair:
    """Make a run whose writer died a finished file that h5py, netCDF, Octave and R open.

    Every row that was logged is kept: those in the file and those that were in its journal only. Whatever happens meanwhile, there is
    either the old file or the whole new one. Repairing twice changes nothing.

    Parameters
    ----------
    path : path-like
        The run file.
    output : path-like, optional
        Where to put the repaired file; left out, the file itself is repaired and the journal removed.

    Returns
    -------
    Repair
        What was there, what was recovered, and what could not be read.

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
    StorageError
        If the disk refuses.

    Examples
    --------
    >>> import os.path, tempfile, simlab
    >>> path = os.path.join(tempfile.mkdtemp(), "run.h5")
    >>> with simlab.HDF5Logger(path) as log:
    ...     log.log_env_step(0, {"n": 1})
    >>> simlab.repair(path).was_closed
    True
    """
    source = Path(os.path.abspath(Path(path).expanduser()))
    target = source if output is None else Path(os.path.abspath(Path(output).expanduser()))
    if not source.is_file():
        raise RunNotFoundError(explain(source) or f"{source} is no file.")
    if target != source and target.exists():
        raise RunExistsError(f"{target} exists already. Choose another name for the repaired file.")
    if os.path.realpath(source) in being_recorded:
        raise RunInUseError(f"{source} is being recorded by this process. Finalize its logger first.")
    for place in {source, target}:
        remove_leftovers(place)
    close_handles(source)
    refuse_if_open_elsewhere(source)
    wrong = explain(source, left=True)
    if wrong and "truncated" not in wrong:
        raise FormatError(wrong)
    if ends_early(source) and not sidecar(source).is_dir():
        wrong = explain(source) or f"{source} is truncated: its end is missing. Copy or download it again."
        raise FormatError(f"{wrong} What of it can be read, simlab.open_run shows.")
    if not sidecar(source).is_dir() and not is_marked(source):
        with open_checked(source) as file:
            told = Repair(target, False)
            survey(file, told)
        if target == source and not told.unfinished:
            told.was_closed = True
            return told
    return recover(source, target)


def is_unfinished(path: Path) -> bool:
    """Whether the writer of a run died."""
    folder = sidecar(path)
    owner = owner_of(folder) if folder.is_dir() else None
    if owner is not None:
        return not owner.lives
    try:
        return is_marked(path)
    except FormatError:
        return False


def recover(source: Path, target: Path, finish: bool = True, lock: WriterLock | None = None) -> Repair:
    """Put together what a dead writer left; see `repair`.

    Parameters
    ----------
    source, target : Path
        The run file and where the result goes, which may be the same.
    finish : bool, optional
        Whether its simulations are marked as complete; False where the run is to go on.
    lock : WriterLock, optional
        The right to write, of who goes on with the run at once: nobody comes in between.
    """
    try:
        return _recover(source, target, finish, lock)
    except FormatError as e:
        if e.__cause__ is not None:  # HDF5's own complaint: the file is damaged
            e.args = (f"{e} What of it can be read, simlab.open_run shows; ds.sim.to_netcdf keeps that.",)
        raise
    except SimlabError:
        raise
    except OSError as e:
        why = os.strerror(e.errno) if e.errno else e
        raise StorageError(f"{source} cannot be repaired: {why}. Give repair() another output=, or make room and try again.") from e


def _recover(source: Path, target: Path, finish: bool, lock: WriterLock | None) -> Repair:
    goes_on: dict[str, Any] = {}
    with _right_to_write(source, in_place=source == target, lock=lock, goes_on=goes_on) as folder:
        before = _rows_in_file(source, folder)
        file, overlay, found = whole(source, folder, end_episode=finish)
        if source == target and any("which is not here" in gap for gap in found.gaps):
            file.close()
            raise StorageError(
                f"{source} was left with {found.gaps[0]}. Repair it on the machine that has it, or bring it back; "
                "repair(output=...) makes a copy without them."
            )
        told = Repair(target, False, gaps=found.gaps, begun=found.begun, simulation=found.simulation)
        if not finish:
            goes_on |= {"simulation": found.simulation, "begun": {n: f for n, f in found.begun.items() if n not in found.ended}}
        try:
            with told_damaged(source):
                survey(file.file, told)
                told.recovered = {name: rows - before.get(name, 0) for name, rows in told.rows.items() if rows > before.get(name, 0)}
                for name in told.rows:
                    if finish:
                        finish_simulation(file.file[name])
                note_repair(file.file)
                file.file.close()
            if target == source:
                place = write_redo(overlay, folder)
                reserve(source, len(overlay))
                apply_redo(place, source, sync=True)
            else:
                _write_copy(overlay, source, target)
        finally:
            file.close()
    return told


@contextlib.contextmanager
def _right_to_write(source: Path, in_place: bool, lock: WriterLock | None, goes_on: dict[str, Any]) -> Iterator[Path]:
    """Take the right to write a run whose writer is dead; afterwards its folder is gone, if the work was done.

    Where a simulation goes on, which `goes_on` says by then, the fields of its open episode are kept: they are in no file yet.
    """
    owner = owner_of(sidecar(source))
    if not in_place:  # the run is only read
        if owner is not None and owner.lives:
            WriterLock(source)  # says who it is
        yield sidecar(source)
        return
    is_kept, lock = lock is not None, lock or WriterLock(source)
    owner = owner_of(lock.folder)  # with what the dead one told
    try:
        yield lock.folder
    except BaseException:
        lock.give_up()  # what is there may be needed for another try
        raise
    elsewhere, kept = journal_of(lock.folder, owner), ""
    if goes_on:
        events = [{"begin": n, "fields": to_json(fields, "the episode")} for n, fields in goes_on["begun"].items()]
        kept = keep_events(lock.folder, events)
        lock.tell(goes_on["simulation"], lock.folder)
    if elsewhere != lock.folder:
        shutil.rmtree(elsewhere, ignore_errors=True)
    if is_kept:
        clear_folder(lock.folder, kept)
        if not goes_on:
            lock.tell("", None)
    else:
        lock.release()


def _rows_in_file(source: Path, folder: Path) -> dict[str, int]:
    """Return the rows that the file alone has."""
    overlay = Overlay(source, mend=True)
    redo_onto(overlay, folder / NAME)
    told = Repair(source, False)
    try:
        with open_checked(source, overlay) as file:
            survey(file, told)
        return told.rows
    finally:
        overlay.close()


def _write_copy(overlay: Overlay, source: Path, target: Path) -> None:
    work = work_name(target, "repair")
    try:
        shutil.copyfile(source, work)
        overlay.write_into(work)
        with open(work, "rb") as written:
            os.fsync(written.fileno())
        shutil.copymode(source, work)
        os.replace(work, target)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(work)


def _newest(group: Any, rows: int) -> str:
    return f"it goes up to step {group[STEP][rows - 1]} of episode {group[EPISODE][rows - 1]}"


def open_unfinished(path: Path, folder: Path) -> Any:
    """Open a run whose writer died, with every row that was logged; nothing is written. Tell once how far it goes.

    Returns
    -------
    h5py.File
        Over the file, and over pages in memory.
    """
    try:
        file, _, found = whole(path, folder)
    except FormatError as e:
        return _as_it_lies(path, folder, e)
    try:
        told = Repair(path, False, gaps=found.gaps)
        with told_damaged(path):
            survey(file.file, told)
            last = found.simulation or next(reversed(told.rows), "")
            upto = _newest(file.file[last], told.rows[last]) if told.rows.get(last) else "it has no rows"
        lost = f" Lost: {'; '.join(found.gaps)}." if found.gaps else ""
        warnings.warn(
            f"{path}: simulation {last!r} did not finish; {upto} ({told.rows.get(last, 0):,} rows).{lost} "
            f"'simlab repair {path}' makes it a finished file.",
            UnfinishedRunWarning,
            stacklevel=users_frame(),
        )
        return file.reopened_for_reading()
    except FormatError as e:
        file.close()
        return _as_it_lies(path, folder, e)
    except BaseException:
        file.close()
        raise


def _as_it_lies(path: Path, folder: Path, error: FormatError) -> Any:
    """Open a damaged file whose writer died without what its journal holds: the rest of it can be read."""
    overlay = Overlay(path, mend=True)
    try:
        redo_onto(overlay, folder / NAME)
        file = open_over(overlay)
    except (OSError, RuntimeError, KeyError, ValueError):
        overlay.close()
        raise error from None
    warnings.warn(
        f"{error} What can be read of it is shown, up to its last commit. Lost: rows that only its journal holds.",
        DamageWarning,
        stacklevel=users_frame(),
    )
    return file
