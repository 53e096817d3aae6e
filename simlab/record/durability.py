"""What may be lost, and when: the caller's choice."""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from simlab.errors import InputError, RunNotFoundError
from simlab.storage.journal import Journal
from simlab.storage.lock import SUFFIX, WriterLock, clear_folder
from simlab.storage.opening import absolute_path

_CHOICES: Final = ("process", "fsync", "none")


@dataclass(frozen=True, slots=True)
class Durability:
    """How what was logged is kept until it is in the file.

    Attributes
    ----------
    keep : bool
        Whether there is a journal.
    seconds, steps : float and int
        How often it has to reach the disk itself; 0 is never.
    folder : Path or None
        Where the journal goes, if not beside the run.
    """

    keep: bool
    seconds: float = 0.0
    steps: int = 0
    folder: Path | None = None

    @classmethod
    def checked(cls, choice: object, seconds: float, steps: int | None, folder: str | os.PathLike[str] | None) -> Durability:
        """Return the rule that the arguments of `HDF5Logger` stand for.

        Raises
        ------
        InputError
            If there is no such choice, or a number is none.
        RunNotFoundError
            If the folder is missing.

        Examples
        --------
        >>> Durability.checked("fsync", 0.5, None, None)
        Durability(keep=True, seconds=0.5, steps=0, folder=None)
        """
        if choice not in _CHOICES:
            raise InputError(
                f"durability={choice!r} is none of 'process' (survives a kill), 'fsync' (a loss of power too), 'none' (no journal)."
            )
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds < float("inf"):
            raise InputError(f"fsync_seconds={seconds!r} is no number of seconds above 0.")
        if steps is not None and (isinstance(steps, bool) or not isinstance(steps, int) or steps < 1):
            raise InputError(f"fsync_steps={steps!r} is no whole number above 0.")
        if steps is not None and choice != "fsync":
            raise InputError(f"fsync_steps={steps} belongs to durability='fsync'; durability={choice!r} never waits for the disk.")
        if folder is not None and choice == "none":
            raise InputError(f"journal_dir={str(folder)!r} with durability='none': there is no journal then. Leave one of them out.")
        place = None if folder is None else Path(absolute_path(folder))
        if place is not None and not place.is_dir():
            raise RunNotFoundError(f"journal_dir={str(place)!r} is no folder. Make it first: mkdir -p {place}")
        if choice != "fsync":
            return cls(choice == "process", folder=place)
        return cls(True, float(seconds), steps or 0, place)

    @property
    def sync(self) -> bool:
        """Whether commits have to reach the disk itself."""
        return self.seconds > 0

    def open_journal(self, lock: WriterLock, simulation: str) -> Journal:
        """Return the journal of a run, and tell others where it lies."""
        folder = None
        if lock.simulation not in ("", simulation):
            clear_folder(lock.folder)  # what was kept there of another one is not this one's
        if self.keep:
            folder = lock.folder
            if self.folder is not None:
                folder = self.folder / f"{lock.path.name}.{uuid.uuid4().hex[:8]}{SUFFIX}"
                folder.mkdir()
        lock.tell(simulation, folder)
        return Journal(folder, simulation, removed_at_end=self.folder is not None)
