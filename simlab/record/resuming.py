"""Going on with a simulation that another process, perhaps one that was killed, has begun."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from simlab.conventions import ATTR_DATE, ATTR_SCHEMA
from simlab.errors import InputError, RunInUseError, SchemaError, StorageError
from simlab.metadata import to_json
from simlab.record.fields import EpisodeFields
from simlab.record.report import Report
from simlab.record.stage import Stage
from simlab.schema import Schema
from simlab.staging.recovery import Repair, is_unfinished, recover
from simlab.storage.attributes import read_attributes
from simlab.storage.codec import Compression
from simlab.storage.journal import keep_events
from simlab.storage.lock import WriterLock, owner_of, sidecar
from simlab.storage.opening import close_handles
from simlab.storage.resuming import Left, read_left, reopen
from simlab.storage.runfile import RunFile, refuse_if_open_elsewhere
from simlab.storage.simulation import SimulationStore


def checked_resume(resume: object, mode: str) -> int | bool | None:
    """Return False, or the step to go on after (None: the newest).

    Raises
    ------
    InputError
        If it is no truth value and no step, or the mode is another one.
    """
    if resume is False:
        return False
    if not isinstance(resume, int) or (resume is not True and resume < 0):
        raise InputError(f"resume={resume!r} is neither True (go on after the newest step) nor a step to go on after.")
    if mode != "a":
        raise InputError(f"resume={resume!r} goes on with a file that is there: it needs mode='a', not {mode!r}.")
    return None if resume is True else resume


def settle(path: Path, finish: bool, simulation: str | None) -> tuple[Repair | None, WriterLock | None]:
    """Put together what a dead writer left at a path, before something is added to it.

    Parameters
    ----------
    path : Path
        The run file.
    finish : bool
        Whether what it left is finished; it is in any case if another simulation is the one that goes on.
    simulation : str or None
        The simulation that goes on or is added.

    Returns
    -------
    Repair, WriterLock
        What was done, and the right to write, which is kept: a reader that came in between would keep the writer out. None if
        there was nothing to do.
    """
    if not (path.is_file() and is_unfinished(path)):
        return None, None
    close_handles(path)
    refuse_if_open_elsewhere(path)
    owner = owner_of(sidecar(path))
    finish = finish or (owner is not None and simulation not in (None, owner.simulation))
    try:
        lock = WriterLock(path)
    except RunInUseError:
        raise
    except OSError as e:
        raise StorageError(
            f"{path} was left unfinished, and cannot be repaired to be gone on with: {e.strerror or e} ({path.parent})."
        ) from e
    return recover(path, path, finish, lock), lock


def continue_simulation(
    file: RunFile, name: str | None, left_open: str, step: int | None, told: dict[str, Any], compression: Compression, given: Schema
) -> tuple[str, SimulationStore, Left] | None:
    """Return the simulation to go on with, and what it was left with; None if the file has no such simulation yet.

    Parameters
    ----------
    file : RunFile
        The file.
    name : str or None
        The simulation; None is the one that was left open, or else the one that was begun last.
    left_open : str
        The simulation whose writer died, or "".
    step : int or None
        The step of the newest episode to go on after; None cuts nothing.
    told : dict
        Attributes that the caller gave; they are recorded with the seam.
    given : Schema
        What the caller declares; it has to agree before anything is changed.
    """
    there = file.simulations()
    if name is None and there:
        name = left_open if left_open in there else max(there, key=lambda n: (_date(file, n), there.index(n)))
    if name is None or name not in there:
        return None
    store = SimulationStore(file, f"/{name}", compression)
    settle_schema(given, read_left(store))
    told = {k: v.item() if hasattr(v, "item") else v for k, v in told.items() if k != ATTR_SCHEMA}
    fields = reopen(store, step, {"date": told.pop(ATTR_DATE), "source": file.version, **told})
    left = read_left(store)
    left.fields = fields
    return name, store, left


def _date(file: RunFile, name: str) -> str:
    return str(read_attributes(file.group(f"/{name}")).get(ATTR_DATE, ""))


def begun_episodes(repair: Repair | None, simulation: str, left: Left, step: int | None) -> dict[int, dict[str, Any]]:
    """Return the fields of episodes that had begun and did not end, as far as they go on."""
    begun = repair.begun if repair is not None and repair.simulation == simulation else {}
    if step is not None:  # whatever had begun after that step did not happen
        begun = {number: fields for number, fields in begun.items() if number <= left.episode}
    return ({left.episode: left.fields} if left.is_open and left.fields else {}) | begun


def keep_begun(folder: Path, begun: dict[int, dict[str, Any]]) -> None:
    """Have the journal know of episodes that go on, and of no others, before anything more is recorded."""
    keep_events(folder, [{"begin": number, "fields": to_json(fields, "the episode")} for number, fields in begun.items()])


def settle_schema(given: Schema, left: Left) -> Schema:
    """Return the schema of the simulation; what the caller declares has to be in it, or may be added.

    Raises
    ------
    SchemaError
        If a variable is declared otherwise than it was.
    """
    schema = left.schema
    for population in given.population_names:
        known = {v.name: v for v in schema.variables(population)}
        _agree(given.variables(population), known)
        new = [v for v in given.variables(population) if v.name not in known]
        schema = schema.extended(new, population) if new else schema
    known = {v.name: v for v in schema.environment}
    _agree(given.environment, known)
    new = [v for v in given.environment if v.name not in known]
    return schema.extended(new, None) if new else schema


def _agree(declared: tuple[Any, ...], known: dict[str, Any]) -> None:
    for variable in declared:
        other = known.get(variable.name)
        if other is not None and (other.dtype, other.shape) != (variable.dtype, variable.shape):
            raise SchemaError(
                f"Variable {variable.name!r} is declared as {variable.dtype}{list(variable.shape)}; the simulation that is resumed has it "
                f"as {other.dtype}{list(other.shape)}. Declare it the same, or add another simulation."
            )


def restore(stage: Stage, fields: EpisodeFields, report: Report, left: Left, begun: dict[int, dict[str, Any]]) -> None:
    """Let a stage go on where another one was."""
    stage.clock.resume(left.rows, left.last_time, left.episode, left.base, left.steps.tolist(), left.is_open)
    newest = max(begun, default=-1)
    if newest > left.episode:  # it has no rows yet
        stage.clock.begin()
    if stage.clock.is_open:
        stage.journal.append(stage.episodes.begun(stage.clock.episode, begun.get(stage.clock.episode, {})))
    stage.newest.start_at(left.rows)
    for population, agents in left.agents.items():
        for label, key in agents:
            agent = stage.agents.restore(label, key, population)
            stage.book.remember(agent.id, population)
    for variable in left.schema.environment:
        if variable.name in left.series:
            stage.series.resume(variable, *left.series[variable.name])
    fields.restore(left.kinds, left.attachments)
    for name in ("overwritten", "coerced", "seconds_logging"):
        setattr(report, name, left.report.get(name, 0))
    report.episodes = stage.clock.episode + 1
    tally = stage.committer.tally
    tally.values, tally.bytes_raw, tally.late = (int(left.report.get(n, 0)) for n in ("values", "bytes_raw", "late"))
    if left.is_open:
        stage.committer.distrust(left.episode)
