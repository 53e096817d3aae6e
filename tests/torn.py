"""What is left of a run when a machine loses power: writes since the last sync come in part, out of order, torn; journals end anywhere."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import simlab
from simlab.errors import SimlabError
from tests.crash import PLACE, Violation, apart, counter
from tests.killing import Call, run_traced
from tests.recorded import Wrong, compare, expected, record, script

SECTOR = 512
LONG_AGO = 600.0


@dataclass(slots=True)
class Traced:
    """A run that was killed, with the writes that its file got since some moment."""

    base: bytes
    final: bytes
    writes: list[tuple[int, bytes]]
    journal: dict[str, bytes]
    calls: list[Any]
    returned: int


def trace(seed: int, steps: int, begin: float, end: float, window: int = 8) -> Traced | None:
    """Record, killed at a part of the whole, and keep what was written to the file since another part."""
    with tempfile.TemporaryDirectory(dir=PLACE) as name:
        folder = Path(name)
        path, calls, returned = folder / "run.h5", script(seed, steps), counter()
        total = run_traced(lambda: record(folder / "first.h5", calls, counter(), window) or 0).calls
        base: list[bytes] = []
        writes: list[tuple[int, bytes]] = []

        def see(call: Call) -> None:
            if call.number < int(begin * total):
                return
            if not path.exists():
                return
            if not base:
                base.append(path.read_bytes())
            if call.name == "pwrite64" and call.path() == str(path):
                writes.append((call.offset, call.data()))
            elif call.name == "write" and call.path() == str(path):
                writes.append((call.position(), call.data()))

        run_traced(lambda: record(path, calls, returned, window) or 0, int(end * total), see=see)
        if not base:
            return None
        sidecar = folder / "run.h5.journal"
        journal = {p.name: p.read_bytes() for p in sidecar.iterdir()} if sidecar.is_dir() else {}
        return Traced(base[0], path.read_bytes(), writes, journal, calls, returned[0])


def laid_out(folder: Path, traced: Traced, file: bytes, journal: dict[str, bytes]) -> Path:
    """Put a state on the disk."""
    path = folder / "run.h5"
    path.write_bytes(file)
    sidecar = folder / "run.h5.journal"
    if journal:
        sidecar.mkdir()
        for name, data in journal.items():
            (sidecar / name).write_bytes(data)
            os.utime(sidecar / name, (time.time() - LONG_AGO,) * 2)  # whoever wrote it has been silent since
    return path


def some_writes(traced: Traced, dice: np.random.Generator) -> bytes:
    """Return the file with a part of its writes: a prefix, a random part, or pieces of them."""
    data = bytearray(traced.base)
    n = len(traced.writes)
    how = dice.integers(4)
    chosen = list(range(int(dice.integers(n + 1)))) if how == 0 else np.flatnonzero(dice.random(n) < dice.random()).tolist()
    if how == 2 and len(chosen) > 1:
        dice.shuffle(chosen)
    for i in chosen:
        offset, raw = traced.writes[i]
        pieces = [(offset, raw)]
        if how == 3:  # the disk writes sectors
            pieces, at = [], offset
            while at < offset + len(raw):
                end = min(offset + len(raw), (at // SECTOR + 1) * SECTOR)
                if dice.random() < 0.7:
                    pieces.append((at, raw[at - offset : end - offset]))
                at = end
        for at, part in pieces:
            if len(data) < at + len(part):
                data.extend(bytes(at + len(part) - len(data)))
            data[at : at + len(part)] = part
    return bytes(data)


def outcome(path: Path, calls: list[Any], returned: int, power: bool) -> str:
    """Open, and repair, what is there: right data, a gap that is told, or our own error; return which.

    After a loss of power (`power`) the last rows may be missing without a word: nobody can know of them.

    Raises
    ------
    Wrong
        If anything is there that was not logged, or something is missing and nobody says so.
    """
    must, may = expected(calls, returned)
    found = []
    for do in ("look", "repair"):
        gap = ""
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            try:
                if do == "repair":
                    report = simlab.repair(path)
                    gap = "gap" if report.gaps or report.unreadable else ""
                compare(path, must, may, gaps=True)
                gap = "gap" if gap or any("Lost" in str(w.message) or "missing" in str(w.message) for w in told) else ""
                if not gap and not power:
                    compare(path, must, may)
                found.append(gap or "right")
            except SimlabError as e:
                found.append("error")
                if do == "repair" and found[0] == "right":
                    raise Wrong(f"it could be read, and not repaired: {e}") from e
    return "+".join(found)


def try_state(traced: Traced, file: bytes, journal: dict[str, bytes], what: str, tally: dict[str, int], power: bool = False) -> None:
    """Lay a state out, see what comes of it in a process of its own, and count it."""
    folder = Path(tempfile.mkdtemp(prefix="simlab-torn-", dir=PLACE))
    try:
        path = laid_out(folder, traced, file, journal)
        how = apart(lambda: outcome(path, traced.calls, traced.returned, power), what)
        tally[how] = tally.get(how, 0) + 1
    except Violation:
        keep = os.environ.get("SIMLAB_KEEP_CRASHES")
        if keep:
            shutil.rmtree(folder)
            folder.mkdir()
            laid_out(folder, traced, file, journal)
            shutil.copytree(folder, Path(keep) / folder.name)
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)
