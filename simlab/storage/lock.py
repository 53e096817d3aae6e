"""Who writes a run: settled by a file beside it, which works where locks of the file system do not.

A writer makes the folder ``run.h5.journal`` and in it ``owner.json``, which only one process can make. It names the process and its
machine. A process that is gone from this machine gives way; one of another machine cannot be asked, so the writer touches the file now
and then, and one that was not touched for long gives way too.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from simlab.errors import RunInUseError
from simlab.storage.journal_files import RENAMES_MAPPED

SUFFIX: Final = ".journal"
REMOVED: Final = ".removed-"
_TURNSTILE: Final = "owner.json.turnstile"
OWNER: Final = "owner.json"
_DEAD: Final = f"{OWNER}.dead"
"""A dead writer's, from when another takes over."""
BEAT_SECONDS: Final = 5.0
"""How often a writer shows that it lives."""
SILENT_SECONDS: Final = 120.0
"""A writer on another machine that was silent for so long is taken for dead."""


def sidecar(path: str | os.PathLike[str]) -> Path:
    """Return the folder beside a run file that its writer uses.

    Examples
    --------
    >>> sidecar("runs/a.h5").name
    'a.h5.journal'
    """
    place = Path(os.path.realpath(path))
    return place.with_name(place.name + SUFFIX)


@dataclass(frozen=True, slots=True)
class Owner:
    """Who writes a run.

    Attributes
    ----------
    pid : int
        The process.
    host : str
        Its machine; "" where the file that tells is damaged.
    machine : str
        The machine's run since it was started, and the process's view of others; "" where the system does not tell.
    born : str
        When the process started, in the system's own count.
    simulation : str
        What it records.
    journal : str
        Where its journal lies, seen from the sidecar folder: "." is that folder, which may be moved with the run; "" where there is none.
    silent : float
        Seconds since it last showed that it lives.
    """

    pid: int
    host: str
    machine: str
    born: str
    simulation: str
    journal: str
    silent: float

    @property
    def is_here(self) -> bool:
        """Whether it runs, or ran, where its process can be looked up."""
        return (self.host, self.machine) == (platform.node(), machine())

    @property
    def lives(self) -> bool:
        """Whether it may still write."""
        if self.is_here:
            return is_running(self.pid, self.born)
        if self.host == platform.node() and self.machine.split()[:1] != machine().split()[:1]:
            return False  # this machine was started anew since
        return self.silent < SILENT_SECONDS


def owner_of(folder: Path) -> Owner | None:
    """Return who writes, or wrote until it died, the run of a sidecar folder; None if nobody does."""
    owner = _told_in(folder / OWNER)
    if owner is None and (dead := _told_in(folder / _DEAD)) is not None:
        return replace(dead, pid=0)  # who was to take over was killed at it
    return owner


def _told_in(place: Path) -> Owner | None:
    try:
        silent = max(0.0, time.time() - place.stat().st_mtime)
        told = json.loads(place.read_text(encoding="utf-8"))
        texts = [str(told[k]) for k in ("host", "machine", "born", "simulation", "journal")]
        return Owner(int(told["pid"]), texts[0], texts[1], texts[2], texts[3], texts[4], silent)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):  # damaged: whoever it is, a writer that lives touches it now and then
        return Owner(0, "", "", "", "", "", silent)


class WriterLock:
    """The right to write a run.

    Parameters
    ----------
    path : Path
        The run file.

    Raises
    ------
    RunInUseError
        If another process has it.
    OSError
        If the folder cannot be made.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.folder = sidecar(path)
        self._told: dict[str, Any] = {}
        self.folder.mkdir(exist_ok=True)
        self._take()

    def _take(self) -> None:
        told = {"pid": os.getpid(), "host": platform.node(), "machine": machine(), "born": born(os.getpid())}
        told |= {"simulation": "", "journal": ""}
        place, mine = self.folder / OWNER, self.folder / f"{OWNER}.{os.getpid()}"
        turnstile = _one_at_a_time(self.folder)
        try:
            for _ in range(3):
                other = owner_of(self.folder)
                if other is not None and other.lives:
                    raise RunInUseError(_says_who(self.path, place, other))
                if other is not None:
                    # What a dead writer recorded has to be known at any instant.
                    told |= {"simulation": other.simulation, "journal": other.journal}
                mine.write_text(json.dumps(told), encoding="utf-8")
                if other is not None:
                    # Of several that find a dead writer, only the one in the turnstile comes here.
                    with contextlib.suppress(FileNotFoundError):
                        os.replace(place, self.folder / _DEAD)
                try:
                    _exclusively(mine, place)
                except FileExistsError:
                    continue
                self._told = told
                return
            raise RunInUseError(f"{self.path} was taken by another process at the same time. Use another name.")
        finally:
            mine.unlink(missing_ok=True)
            if turnstile is not None:
                _let_the_next(turnstile)

    @property
    def simulation(self) -> str:
        """What is told to be recorded."""
        return str(self._told["simulation"])

    def tell(self, simulation: str, journal: Path | None) -> None:
        """Tell what is recorded, and where the journal lies."""
        place = "" if journal is None else "." if journal == self.folder else str(journal)
        self._told |= {"simulation": simulation, "journal": place}
        self._write()

    def _write(self) -> None:
        work = self.folder / f"{OWNER}.new"
        work.write_text(json.dumps(self._told), encoding="utf-8")
        os.replace(work, self.folder / OWNER)

    def _is_mine(self) -> bool:
        owner, pid = owner_of(self.folder), self._told["pid"]
        return owner is not None and (owner.pid, owner.born) == (pid, self._told["born"]) and pid in (0, os.getpid())

    def beat(self) -> bool:
        """Show that the writer lives, and say whether the run is still its own."""
        if owner_of(self.folder) is None:  # nobody else has taken the run
            self.folder.mkdir(exist_ok=True)
            self._write()
        if not self._is_mine():
            return False
        with contextlib.suppress(OSError):
            os.utime(self.folder / OWNER)
        return True

    def give_up(self) -> None:
        """Let another process take the right, and keep what is in the folder."""
        self._told |= {"pid": 0}
        self._write()

    def release(self) -> None:
        """Remove the folder with everything in it, if it is still this writer's."""
        if self._is_mine():
            remove_folder(self.folder)

    def remove_rest(self) -> None:
        """Remove what of the folder could not be removed while it was mapped, where nobody has taken it since."""
        if not RENAMES_MAPPED and self.folder.is_dir() and owner_of(self.folder) is None:
            remove_folder(self.folder)


def _says_who(path: Path, place: Path, other: Owner) -> str:
    """Return that another process writes a run, in words."""
    if not other.host:
        return (
            f"{path} may be being recorded: {place} is damaged and does not tell by whom, but it was written {other.silent:.0f} s ago. "
            f"Try again when it has been silent for {SILENT_SECONDS:.0f} s, or remove it if nobody records the run."
        )
    where = "" if other.host == platform.node() else f" on {other.host}"
    who = "a logger of this process" if other.pid == os.getpid() and other.is_here else f"process {other.pid}{where}"
    return (
        f"{path} is being recorded by {who}, which showed that it lives {other.silent:.0f} s ago. "
        "Wait until it is finalized, or use another name."
    )


def clear_folder(folder: Path, keep: str = "") -> None:
    """Remove what a dead writer left in a sidecar folder, but for one file."""
    for place in sorted(folder.iterdir(), key=_when_to_remove):
        if not place.name.startswith(OWNER) and place.name != keep:
            _remove(place)


def _when_to_remove(place: Path) -> tuple[bool, bool, bool, int]:
    """Return what sorts the files of a sidecar folder so that those that are left fit together, whenever the work is cut short.

    Clocks first, without which there are no rows, and what tells where the log ends; then rows; the log from its end on.
    """
    name = place.name
    events = name.endswith(".events")
    return (
        name.startswith(OWNER),
        events,
        "clock" not in name and not name.endswith(".ends"),
        -int(name[:8]) if events and name[:8].isdigit() else 0,
    )


def remove_folder(folder: Path) -> None:
    """Remove a sidecar folder: all at once by taking its name away, so that nobody finds a part of it."""
    trash = folder.with_name(f".{folder.name}{REMOVED}{os.getpid()}-{time.monotonic_ns()}")
    with contextlib.suppress(OSError):
        os.rename(folder, trash)
        folder = trash
    with contextlib.suppress(FileNotFoundError):
        for place in sorted(folder.iterdir(), key=_when_to_remove):
            _remove(place)
        with contextlib.suppress(OSError) if not RENAMES_MAPPED else contextlib.nullcontext():
            folder.rmdir()


def _remove(place: Path) -> None:
    with contextlib.suppress(PermissionError) if not RENAMES_MAPPED else contextlib.nullcontext():
        place.unlink(missing_ok=True)


def _one_at_a_time(folder: Path) -> int | None:
    """Wait until no other process of this machine is taking over the run; return what to close afterwards."""
    try:
        import fcntl
    except ImportError:  # Windows: the file that is exclusively made has to do
        return None
    number = os.open(folder / _TURNSTILE, os.O_RDWR | os.O_CREAT, 0o666)
    with contextlib.suppress(OSError):  # a file system without locks
        fcntl.flock(number, fcntl.LOCK_EX)
    return number


def _let_the_next(number: int) -> None:
    import fcntl

    with contextlib.suppress(OSError):
        fcntl.flock(number, fcntl.LOCK_UN)  # a child that was forked meanwhile keeps the file open
    os.close(number)


def _exclusively(source: Path, place: Path) -> None:
    """Give a file another name if nothing has it; where the system has no hard links, make it anew."""
    try:
        os.link(source, place)
    except FileExistsError:
        raise
    except OSError:
        with open(place, "x", encoding="utf-8") as file:
            file.write(source.read_text(encoding="utf-8"))


def machine() -> str:
    """Return what is another where processes are others: this machine's run since it was started, and the process's view of others."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def born(pid: int) -> str:
    """Return when a process started, in the system's own count; "" where it does not tell, or there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return "" if fields[0] in (b"Z", b"X") else fields[19].decode()
    except (OSError, IndexError):
        return ""


def is_running(pid: int, since: str) -> bool:
    """Say whether a process of this machine runs, and is the one that started then."""
    if pid <= 0:
        return False
    if os.path.isdir("/proc/self"):
        return born(pid) == since and since != ""
    if os.name == "nt":
        import ctypes

        kernel = ctypes.windll.kernel32  # type: ignore[attr-defined, unused-ignore]
        handle = kernel.OpenProcess(0x1000, False, pid)
        if handle:
            kernel.CloseHandle(handle)
        return bool(handle)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
