"""Files under which a run is put together before it takes its name, and what a process that was killed at it left of them."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shutil
import time
import zlib
from pathlib import Path
from typing import Final

from simlab.storage.lock import REMOVED, SILENT_SECONDS, born, is_running, machine, sidecar

_MADE: Final = re.compile(r"(?:new|repair|snapshot)-(\d{1,10})-(\d{0,20})-([0-9a-f]{8})-([0-9a-f]{16})")


def work_name(path: Path, what: str) -> Path:
    """Return under which name this process puts a run together; it says whose it is.

    Parameters
    ----------
    path : Path
        The run.
    what : {"new", "repair", "snapshot"}
        What is done.
    """
    pid = os.getpid()
    return path.with_name(f".{path.name}.{what}-{pid}-{born(pid)}-{_here()}")


def remove_leftovers(path: Path) -> None:
    """Remove what was made, or was being removed, of a run by processes that are gone: of this machine, where they can be looked up."""
    trash, begun = f".{sidecar(path).name}{REMOVED}", f".{path.name}."
    with contextlib.suppress(OSError):
        for place in sidecar(path).parent.iterdir():
            if place.name.startswith(trash):
                shutil.rmtree(place, ignore_errors=True)
    with contextlib.suppress(OSError):
        for place in path.parent.iterdir():
            if place.name.startswith(begun) and _is_left(place, place.name[len(begun) :]):
                with contextlib.suppress(OSError):
                    place.unlink()


def _is_left(place: Path, what: str) -> bool:
    made = _MADE.fullmatch(what)
    if made is None:
        return False
    pid, since, host, view = made.groups()
    if f"{host}-{view}" == _here():
        return not is_running(int(pid), since)
    if host != _here()[:8] or view[:8] == _here()[9:17]:
        return False  # of another machine, or of this one where processes cannot be looked up
    return time.time() - place.stat().st_mtime > SILENT_SECONDS  # this machine was started anew since


def _here() -> str:
    """Return short signs of this machine, of its run since it was started, and of the process's view of others."""
    boot, _, view = machine().partition(" ")
    return f"{_sign(platform.node())}-{_sign(boot)}{_sign(view)}"


def _sign(text: str) -> str:
    return f"{zlib.crc32(text.encode()):08x}"
