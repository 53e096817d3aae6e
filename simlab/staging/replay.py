"""What a dead writer had staged, put into its file: rows, variables, agents, episodes and arrays that were in its journal only.

Everything in a journal says where it belongs (rows, places, numbers of episodes), so replaying what is in the file already changes nothing.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from simlab.conventions import COMPLETE, GROUP_REPORT
from simlab.errors import SimlabError
from simlab.schema import Schema
from simlab.schema.keeping import schema_from_json, schema_to_json
from simlab.staging.committing import Committer
from simlab.staging.encoders import Encoders
from simlab.staging.found import Copied, Found, copy_journal, read_journal
from simlab.staging.jobs import Job
from simlab.staging.screening import screen
from simlab.storage.codec import Compression
from simlab.storage.finishing import told_damaged
from simlab.storage.journal import Journal
from simlab.storage.lock import Owner, owner_of
from simlab.storage.overlay import Overlay
from simlab.storage.redo import NAME, redo_onto
from simlab.storage.simulation import SimulationStore
from simlab.storage.writable import WritableFile


def journal_of(folder: Path, owner: Owner | None) -> Path:
    """Return where the journal of a sidecar folder lies; a writer may have kept it elsewhere."""
    elsewhere = folder / owner.journal if owner is not None else folder
    return elsewhere if elsewhere.is_dir() else folder


def whole(
    path: Path, folder: Path, end_episode: bool = True, copied: Copied | None = None, simulation: str = ""
) -> tuple[WritableFile, Overlay, Found]:
    """Return a run as it would be if its writer had not died, as a file in memory over the one on disk, which stays as it is.

    Parameters
    ----------
    path : Path
        The run file.
    folder : Path
        Its sidecar folder, which need not be there.
    end_episode : bool, optional
        Whether the episode that was open ends with the last row.
    copied : Copied, optional
        Its journal, if that was copied before; else it is read from the folder.
    simulation : str, optional
        Whose journal that is, where it does not say so itself.

    Raises
    ------
    FormatError
        If HDF5 cannot read the file.
    """
    overlay = Overlay(path, mend=True)
    try:
        with told_damaged(path):
            if copied is None:
                redo_onto(overlay, folder / NAME)
            file = WritableFile(path, None, overlay)
    except BaseException:
        overlay.close()
        raise
    try:
        with told_damaged(path):
            return file, overlay, _replayed(file, folder, end_episode, copied, simulation)
    except BaseException:
        with contextlib.suppress(OSError, RuntimeError):
            file.close()
        raise


def _replayed(file: WritableFile, folder: Path, end_episode: bool, copied: Copied | None, simulation: str) -> Found:
    """Put the journal of a file in memory, if there is one, into it, and return what it held."""
    if copied is None:
        owner = owner_of(folder)
        journal = journal_of(folder, owner)
        if not journal.is_dir():
            return Found(Schema())
        copied = copy_journal(journal)
        simulation = owner.simulation if owner is not None else ""
        if owner is not None and is_out_of_reach(owner, folder) and file.has(f"/{simulation}") and not is_complete(file.file, simulation):
            found = Found(Schema(), simulation)
            found.gaps.append(f"the rows of the journal {owner.journal}, which is not here")
            return found
    simulation = simulation_of(copied, simulation)
    found = read_journal(copied, schema_of(file.file, simulation))
    if simulation and file.has(f"/{simulation}"):
        found.simulation = simulation
        store = SimulationStore(file, f"/{simulation}", Compression("gzip"))
        screen(found, store.agents_of, store.rows)
        replay(found, store, end_episode)
    elif found.windows:
        found.gaps.append(f"the journal of simulation {simulation!r}, which the file does not hold")
    return found


def is_out_of_reach(owner: Owner, folder: Path) -> bool:
    """Whether a writer kept its journal in a folder that is not here: on another machine, or gone."""
    return not (folder / owner.journal).is_dir()


def is_complete(file: Any, simulation: str) -> bool:
    """Whether a simulation of an HDF5 file was finalized."""
    return bool(file[simulation][COMPLETE][()])


def simulation_of(copied: Copied, told: str) -> str:
    """Return whose rows a journal keeps: as it says itself or, where it has no rows, as was told."""
    return next((text for m in copied.maps if (text := str(m.head.get("simulation", "")))), told)


def schema_of(file: Any, simulation: str) -> Schema:
    """Return the schema that a simulation of an HDF5 file keeps, or an empty one."""
    if not simulation or simulation not in file:
        return Schema(extensible=True)
    text = SimulationStore.schema_text(file[simulation])
    try:
        return schema_from_json(text) if text else Schema(extensible=True)
    except SimlabError:
        return Schema(extensible=True)


def replay(found: Found, store: SimulationStore, end_episode: bool = True, returns: bool = True) -> None:
    """Put what a journal holds into its simulation. What is there already stays as it is, so doing it twice changes nothing.

    Parameters
    ----------
    found : Found
        The journal.
    store : SimulationStore
        The simulation.
    end_episode : bool, optional
        Whether the episode that was open ends with the last row.
    returns : bool, optional
        Whether the returns of episodes are summed: all of their rows have to be there.
    """
    schema = found.schema
    encoders = Encoders()
    counted = {name: int(store.dataset(f"{GROUP_REPORT}/{name}")[()]) for name in ("values", "bytes_raw")}

    def report() -> dict[str, float]:
        tally = committer.tally
        return {"rows": rows, "values": counted["values"] + tally.values, "bytes_raw": counted["bytes_raw"] + tally.bytes_raw}

    committer = Committer(store, encoders, Journal(None), report, returns)
    span = max((w.capacity for w in found.windows), default=1)
    rows = store.rows

    def job() -> Job:
        return Job(
            rows=rows, span=span, variables={p: schema.variables(p) for p in schema.population_names if schema.variables(p)},
            environment=tuple(v for v in schema.environment if not v.is_series),
            series=tuple(v for v in schema.environment if v.is_series),
        )  # fmt: skip

    try:
        first = job()
        first.agents = _in_order(found, store)
        first.blocks = found.blocks()
        first.schema = schema_to_json(schema)
        committer.write(first)
        for window in found.windows:
            if not window.late:
                rows = max(rows, window.first + window.count)
            each = job()
            each.window, each.release = window, True
            committer.write(each)
        last = job()
        last.ended = _episodes(found, store, rows, end_episode)
        for episode, _ in last.ended:
            committer.distrust(episode)
        committer.write(last)
    finally:
        encoders.stop()


def _in_order(found: Found, store: SimulationStore) -> list[tuple[str, int, str, str]]:
    """Return the agents that appeared, by population and place, with those in between that nobody told of."""
    told = {(population, place): (label, key) for population, place, label, key in found.agents}
    for window in found.windows:
        for population, lanes in window.lanes.items():
            known = store.agents_of(population)
            for place in lanes.agents:
                if place >= known and (population, place) not in told:
                    told[population, place] = (f"agent in place {place}", "")
                    found.gaps.append(f"the name of the agent in place {place}")
    return [(population, place, *told[population, place]) for population, place in sorted(told)]


def _episodes(found: Found, store: SimulationStore, rows: int, end_episode: bool) -> list[tuple[int, dict[str, Any]]]:
    """Return the episodes that ended, and the one that was open."""
    ended: dict[int, dict[str, Any]] = {n: dict(fields) for n, fields in found.ended.items()}
    number = store.episode_of_row(rows - 1) if rows else -1
    open_ = max([number, *found.begun], default=-1)
    if end_episode and open_ >= 0 and open_ not in ended and open_ >= len(store.episodes):
        start = store.first_row_of(open_, rows)
        ended[open_] = {"start": start, "length": rows - start} | found.begun.get(open_, {})
    for lost in set(range(len(store.episodes), max(ended, default=0))) - set(ended):  # nobody told of their end any more
        start = store.first_row_of(lost, rows)
        ended[lost] = {"start": start, "length": store.first_row_of(lost + 1, rows) - start} | found.begun.get(lost, {})
        found.gaps.append(f"what was told at the end of episode {lost}")
    for fields in ended.values():  # rows may be lost
        start, length = int(fields["start"]), int(fields["length"])
        fields["start"], fields["length"] = min(start, rows), min(length, max(0, rows - start))
    return sorted(ended.items())
