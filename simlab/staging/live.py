"""A run that is being recorded, as it is now: its file, and beside it the rows that are staged, in a file in memory."""

from __future__ import annotations

import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from simlab.conventions import COMMITTED, TIME_SUFFIX
from simlab.errors import RunInUseError, users_frame
from simlab.schema import INHERIT, Schema
from simlab.schema.names import disk_name
from simlab.staging.found import Found, copy_journal, read_journal
from simlab.staging.recovery import open_unfinished
from simlab.staging.replay import journal_of, replay, schema_of, simulation_of
from simlab.staging.returns import reward_of
from simlab.staging.screening import screen
from simlab.storage.codec import Compression
from simlab.storage.joining import MemorySource, Tail
from simlab.storage.lock import owner_of
from simlab.storage.overlay import Overlay
from simlab.storage.simulation import SimulationStore
from simlab.storage.writable import WritableFile, open_over

_TRIES: Final = 100


class Unfinished:
    """Opens runs that were not finished, for those who read."""

    def dead(self, path: Path, folder: Path) -> Any:
        """Return the run of a writer that died, as it would be."""
        return open_unfinished(path, folder)

    def live(self, path: Path, folder: Path) -> tuple[Any, Tail | None]:
        """Return the run of a writer that lives as it is now, and the rows that are staged.

        The rows are copied first: what left the journal since is in the file.
        """
        owner = owner_of(folder)
        journal = journal_of(folder, owner)
        copied = copy_journal(journal) if journal.is_dir() else None
        file = self.file(path)
        if owner is not None and owner.host and not owner.is_here:
            warnings.warn(
                f"{path} is being recorded on {owner.host}: rows that are staged there may arrive here late.", stacklevel=users_frame()
            )
        if copied is None:
            return file, None
        simulation = simulation_of(copied, owner.simulation if owner is not None else "")
        if not simulation or simulation not in file:
            return file, None
        found = read_journal(copied, schema_of(file, simulation))
        screen(found, lambda population: SimulationStore.agents_below(file[simulation], population))
        tail = _tail(path, found, simulation)
        if tail is None:
            # What HDF5 remembers of a file may be older than the number of rows that it reads then: so that number first, and a new handle.
            rows = int(file[simulation][COMMITTED][()])
            file.close()
            file, tail = self.file(path), Tail(None, simulation, rows, rows, begun=found.begun)
        return file, tail

    def file(self, path: Path) -> Any:
        """Return the file of a writer that lives as it is now; for some milliseconds now and then it does not open."""
        for _ in range(_TRIES):
            try:
                return open_over(Overlay(path, mend=True))
            except (OSError, RuntimeError, KeyError, ValueError) as e:
                last = e
                time.sleep(0.02)
        raise RunInUseError(f"{path} is being recorded, and could not be read beside its writer ({last}). Try again.") from last


def _tail(path: Path, found: Found, simulation: str) -> Tail | None:
    """Return the staged rows of a run as a file in memory, or None if there are none."""
    windows, at = [], None
    for window in found.windows:
        if window.late or not window.count:
            continue  # what came late to rows that left is seen when it is in the file
        if at is not None and window.first != at:
            break
        windows.append(window)
        at = window.first + window.count
    if at is None:
        return None
    found.windows = windows
    found.schema = _uncompressed(found.schema)
    rows = at
    found.ended = {n: fields for n, fields in found.ended.items() if fields["start"] + fields["length"] <= rows}
    overlay = Overlay(None)
    file = WritableFile(path, None, overlay)
    try:
        store = SimulationStore(file, f"/{simulation}", Compression("none"), {})
        replay(found, store, end_episode=False, returns=False)
        file.close()
        rewards = {p: disk_name(v.name) for p in found.schema.population_names if (v := reward_of(found.schema.variables(p))) is not None}
        series = {disk_name(b.variable.name).replace(".", "_") + TIME_SUFFIX: b.first for b in found.blocks()}
        return Tail(MemorySource(str(path), overlay.content()), simulation, windows[0].first, rows, rewards, series, found.begun)
    finally:
        file.close()


def _uncompressed(schema: Schema) -> Schema:
    """Return a schema without compression of its own: who reads may lack the filter, and memory is short-lived."""
    out = Schema(extensible=True)
    for name in schema.population_names:
        out = out.extended([replace(v, compression=INHERIT) for v in schema.variables(name)], name)
    return out.extended([replace(v, compression=INHERIT) for v in schema.environment], None)
