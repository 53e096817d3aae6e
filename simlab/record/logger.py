"""`HDF5Logger`: the hand the simulation holds."""

from __future__ import annotations

import atexit
import contextlib
import datetime
import os
import sys
import threading
import warnings
import weakref
from collections.abc import Iterable, Mapping
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import Any, Final, Literal, Self

import numpy as np

from simlab import __version__
from simlab.conventions import (
    ATTR_CONFIG,
    ATTR_DATE,
    ATTR_ENVIRONMENT_TYPE,
    ATTR_JSON_ATTRIBUTES,
    ATTR_SEED,
    ATTR_STEP_DURATION,
)
from simlab.errors import InputError, MetadataError, SimlabError, StateError, ValueMismatchError
from simlab.metadata import split_attributes, to_json
from simlab.record.book import SchemaBook
from simlab.record.calls import log_agent, log_environment
from simlab.record.fields import EpisodeFields
from simlab.record.groups import EnvironmentTrajectory, Trajectory, is_by_agent, log_group, steps_of
from simlab.record.report import Report
from simlab.record.stage import Stage
from simlab.record.staging import store
from simlab.schema import Schema
from simlab.schema.files import as_schema
from simlab.storage.attachments import check_attachment
from simlab.storage.codec import resolve_compression
from simlab.storage.runfile import RunFile

_SAMPLE: Final = 64
"""Every so many calls one is timed: a clock read costs a tenth of a call."""
_open_loggers: weakref.WeakSet[HDF5Logger] = weakref.WeakSet()


class HDF5Logger:
    """Record a simulation to a run file.

    Parameters
    ----------
    path : path-like
        The file, by custom ``*.h5``. "~" is expanded. Its folder must be there.
    schema : Schema, dict or path-like, optional
        What the run holds; a file of it is JSON or YAML. Left out, it is inferred from what is logged first and enforced from then on.
    compression : {"gzip", "lzf", "zstd", "blosc2"} or int or None, optional
        "gzip" (deflate with byte shuffle) is read by everything; a number from 0 to 9 is its level. "lzf" is read by h5py alone,
        "zstd" and "blosc2" need hdf5plugin, here and at every reader. None stores the bytes as they are.
    mode : {"x", "w", "a"}, optional
        "x" refuses a file that is there, "w" replaces it, "a" adds another simulation to it.
    simulation : str, optional
        The name of its group; "teacher_0000/iter_0003" nests. Left out: ``simulation_0001`` or the next that is free.
    seed : int, optional
        The seed of the run.
    config : object, optional
        The configuration: nested dictionaries, lists, dataclasses, enums, paths, arrays, None; any size. Stored as JSON.
    environment_type : str, optional
        What was simulated: "grid_world", "pursuit_v5".
    step_duration : float, optional
        Simulated time between two timesteps. Readers then show ``simulated_time = step * step_duration``.
    metadata : mapping, optional
        Further attributes of the simulation.

    Attributes
    ----------
    path : Path
        Where the file lies.
    simulation : str
        The name of the simulation's group.
    report : Report
        What was recorded so far; complete after `finalize`.

    Raises
    ------
    RunExistsError, RunNotFoundError, RunInUseError, StorageError
        If the file cannot be made; nothing that was there is touched.
    SchemaError, MetadataError
        If the schema, the compression, the config or the metadata cannot be stored.

    Notes
    -----
    Rows are staged in memory and compressed and written by a thread of its own. An error there is raised by the next call, once. A call
    that raises has recorded nothing; everything before it stays. A logger may be used from several threads.

    Examples
    --------
    >>> import simlab, tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "run.h5"
    >>> with simlab.HDF5Logger(path, seed=1) as log:
    ...     for t in range(3):
    ...         log.log_agent_step("agent_0", t, {"position": [0.5, t], "actions": 1, "rewards": 0.25})
    >>> print(log.report)
    3 rows, 1 agent, 1 episode; 9 values, 96 B raw in ...
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        schema: Schema | Mapping[str, Any] | str | os.PathLike[str] | None = None,
        compression: str | int | None = "gzip",
        *,
        mode: Literal["x", "w", "a"] = "x",
        simulation: str | None = None,
        seed: int | None = None,
        config: Any = None,
        environment_type: str | None = None,
        step_duration: float | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        self._stage: Stage | None = None
        self.path = Path(path).expanduser()
        self.report = Report()
        self._began = perf_counter()
        book = self._book = SchemaBook(as_schema(schema))
        default = resolve_compression(compression, "HDF5Logger")
        for variable in (*(v for p in book.schema.population_names for v in book.variables(p)), *book.schema.environment):
            if variable.compression != "inherit":
                resolve_compression(variable.compression, f"Variable {variable.name!r}")
        attributes = _attributes(seed, config, environment_type, step_duration, metadata)
        self._file = RunFile(self.path, mode, __version__)
        try:
            self.simulation, self._store = self._file.add_simulation(simulation, attributes, default)
        except BaseException:
            self._file.close()
            raise
        self._fields = EpisodeFields()
        self._lock = threading.RLock()
        self._acquire, self._release = self._lock.acquire, self._lock.release
        self._calls = 0
        self._by_agent_seconds = 0.0
        self._stage = Stage(self._file, self._store, book, self.report)
        _open_loggers.add(self)

    @property
    def schema(self) -> Schema:
        """The schema as it is by now."""
        return self._book.schema

    def _ready(self) -> Stage:
        """Return the stage, or raise what stands against logging."""
        stage = self._stage
        if stage is None:
            raise StateError(f"{self.path} was finalized; nothing can be logged to it any more. Make a new HDF5Logger, with mode='a' to add to the file.")
        if stage.writer.failure is not None:
            stage.writer.raise_failure()
        return stage

    # -- steps

    def log_agent_step(self, agent_id: Any, timestep: int, data: Mapping[str, Any]) -> None:
        """Log what one agent saw, did and got at one step.

        Parameters
        ----------
        agent_id : str, int or tuple
            Who. An agent appears with its first call and is absent from its last one on.
        timestep : int
            The step in the open episode, from 0. Steps may be left out; several calls may fill one step.
        data : dict
            Values by name, flat (``{"vision": v, "rewards": 1.0}``) or nested (``{"observations": {"vision": v}}``). None is not logged.
            The values are copied.

        Raises
        ------
        ValueMismatchError, SchemaError, AgentError, TimestepError
            If something does not fit; nothing of this call is recorded then.
        StateError
            After `finalize`.
        StorageError
            If earlier rows could not be written.
        """
        self._acquire()
        try:
            stage = self._stage
            if stage is None or stage.writer.failure is not None:
                stage = self._ready()
            self._calls = calls = self._calls + 1
            if not calls % _SAMPLE:
                self._log_timed(stage, agent_id, timestep, data)
                return
            # The short way, for a known agent at the newest row whose values all fit as they are; _log_agent is the long one.
            if timestep == stage.step and not stage.behind:
                lane = stage.window.by_id.get(agent_id)
                if lane is not None:
                    offset = stage.offset
                    words = lane.words
                    if not words[offset]:
                        bits = store(lane.table, data, offset)
                        if bits >= 0:
                            words[offset] = bits
                            return
            self._log_agent(stage, agent_id, timestep, data)
        finally:
            self._release()

    def _log_timed(self, stage: Stage, agent_id: Any, timestep: int, data: Mapping[str, Any]) -> None:
        began, waited = perf_counter(), stage.writer.seconds_waited
        self._log_agent(stage, agent_id, timestep, data)
        self._by_agent_seconds += _SAMPLE * (perf_counter() - began - (stage.writer.seconds_waited - waited))

    @staticmethod
    def _log_agent(stage: Stage, agent_id: Any, timestep: int, data: Mapping[str, Any]) -> None:
        if timestep != stage.step:
            stage.locate(timestep)
        else:
            stage.fresh = False
        try:
            lane = stage.window.by_id.get(agent_id) or stage.lane(agent_id)
            if lane is not None and not stage.behind and not lane.words[stage.offset]:
                bits = store(lane.table, data, stage.offset)
                if bits >= 0:
                    lane.words[stage.offset] = bits
                    return
            log_agent(stage, agent_id, data)
        except BaseException as e:
            stage.withdraw()
            if isinstance(e, TypeError):
                stage.agents.get(agent_id)  # an id that cannot be one: says so
            raise

    def log_env_step(self, timestep: int, data: Mapping[str, Any]) -> None:
        """Log the environment at one step.

        Parameters
        ----------
        timestep : int
            The step in the open episode.
        data : dict
            Values by name. Numbers, truth values and text lie on the run's own time axis; arrays get one of their own, so that a
            snapshot every 20 steps costs a twentieth.

        Raises
        ------
        ValueMismatchError, SchemaError, TimestepError, StateError, StorageError
            As for `log_agent_step`.
        """
        with self._timed() as stage:
            self._log_environment(stage, timestep, data)

    @staticmethod
    def _log_environment(stage: Stage, timestep: int, data: Mapping[str, Any]) -> None:
        if timestep != stage.step:
            stage.locate(timestep)
        else:
            stage.fresh = False
        try:
            lane = stage.environment_lane()
            if not stage.behind and not lane.words[stage.offset]:
                bits = store(lane.table, data, stage.offset)
                if bits >= 0:
                    lane.words[stage.offset] = bits
                    return
            log_environment(stage, data)
        except BaseException:
            stage.withdraw()
            raise

    def log_step(
        self,
        timestep: int,
        agents: Mapping[Any, Any] | None = None,
        agent_ids: Iterable[Any] | None = None,
        environment: Mapping[str, Any] | None = None,
    ) -> None:
        """Log one step of all agents at once.

        Parameters
        ----------
        timestep : int
            The step in the open episode.
        agents : dict, optional
            Either arrays by name with the agent axis first, as in ``{"observations": {"vision": v}}`` with ``v`` of shape
            ``(n_agents, 11, 11, 3)``; or a dictionary of values for each agent, by id.
        agent_ids : iterable, optional
            Whose entries they are. May be left out once they are known; at the very first, agents are then called "agent_0", "agent_1", ...
        environment : dict, optional
            As for `log_env_step`.

        Raises
        ------
        ValueMismatchError, SchemaError, AgentError, TimestepError, StateError, StorageError
            As for `log_agent_step`.
        """
        with self._timed() as stage:
            if agents is not None and not isinstance(agents, Mapping):
                raise ValueMismatchError(f"agents={agents!r} is no dictionary. Pass arrays by name, or a dictionary for each agent.")
            if timestep != stage.step:
                stage.locate(timestep)
            else:
                stage.fresh = False
            try:
                if agents and agent_ids is None and is_by_agent(stage, agents):
                    for agent_id, data in agents.items():
                        self._log_agent(stage, agent_id, timestep, data)
                elif agents is not None:
                    log_group(stage, agents, agent_ids)
                if environment is not None:
                    self._log_environment(stage, timestep, environment)
            except BaseException:
                stage.withdraw()
                raise

    def log_episode(
        self,
        data: Mapping[str, Any] | None = None,
        *,
        agent_id: Any = "agent_0",
        agents: Mapping[Any, Mapping[str, Any]] | None = None,
        environment: Mapping[str, Any] | None = None,
        timesteps: Iterable[int] | None = None,
        seed: int | None = None,
        **fields: Any,
    ) -> None:
        """Log a whole trajectory as an episode of its own.

        Parameters
        ----------
        data : dict, optional
            Arrays of one agent, flat or nested, with the time axis first.
        agent_id : str, int or tuple, optional
            Whose they are.
        agents : dict, optional
            Instead of `data`: such a dictionary for each agent, by id; agents may live for differently many steps.
        environment : dict, optional
            Arrays of the environment with the time axis first.
        timesteps : sequence of int, optional
            The steps; 0, 1, 2, ... if left out.
        seed : int, optional
            The seed of the episode.
        **fields
            As for `end_episode`.

        Raises
        ------
        ValueMismatchError, SchemaError, AgentError, TimestepError, StateError, StorageError
            As for `log_agent_step`; nothing of the trajectory is recorded then.
        """
        with self._timed() as stage:
            if (data is None) == (agents is None) and not (data is None and environment is not None):
                raise InputError("log_episode takes the arrays of one agent (data) or of several (agents=), not both and not neither.")
            checked = self._fields.checked(seed, fields)
            given = agents if agents is not None else ({agent_id: data} if data is not None else {})
            parts = [Trajectory(stage, who, arrays) for who, arrays in given.items()]
            world = EnvironmentTrajectory(stage, environment) if environment is not None else None
            lengths = [p.length for p in parts] + ([world.length] if world is not None else [])
            steps = steps_of(timesteps, max(lengths, default=0))
            self._begin(stage, {})
            done = 0
            while done < len(steps):
                stage.append(steps[done])
                first, count = stage.offset, 1
                while done + count < len(steps) and stage.has_room():
                    stage.append(steps[done + count])
                    count += 1
                for part in parts:
                    part.put(stage, done, first, count)
                if world is not None:
                    for i in range(done, done + count):
                        self._log_environment(stage, steps[i], world.at(i))
                done += count
            self._end(stage, checked)

    # -- episodes

    def begin_episode(self, seed: int | None = None, **fields: Any) -> int:
        """Begin an episode; the one that is open ends.

        Parameters
        ----------
        seed : int, optional
            Its seed.
        **fields
            What is known of it: numbers, truth values, text. `end_episode` may add to them.

        Returns
        -------
        int
            Its number, from 0.

        Raises
        ------
        MetadataError
            If a field is none of these, or of another type than in the episodes before.
        """
        with self._lock:
            stage = self._ready()
            checked = self._fields.checked(seed, fields)
            self._begin(stage, checked)
            return stage.clock.episode

    def _begin(self, stage: Stage, fields: dict[str, Any]) -> None:
        if stage.clock.is_open:
            self._end(stage, {})
        stage.clock.begin()
        self.report.episodes += 1
        stage.step = -1
        self._fields.open = fields

    def end_episode(self, **fields: Any) -> None:
        """End the open episode.

        Parameters
        ----------
        **fields
            What came of it, such as ``outcome="starved"`` or ``terminated=True``: numbers, truth values, text.

        Raises
        ------
        MetadataError
            If a field is none of these, or of another type than in the episodes before.
        StateError
            If no episode is open.
        """
        with self._lock:
            stage = self._ready()
            if not stage.clock.is_open:
                raise StateError("No episode is open. begin_episode() opens one; so does the first step that is logged.")
            self._end(stage, self._fields.checked(None, fields))

    def _end(self, stage: Stage, fields: dict[str, Any]) -> None:
        all_fields, self._fields.open = self._fields.open | fields, {}
        stage.end_episode(all_fields)

    # -- the rest

    def attach(self, name: str, value: Mapping[str, Any] | Any) -> None:
        """Store a nested dictionary of arrays, text, numbers and None with the run.

        Parameters
        ----------
        name : str
            What to ask for it by: ``ds.sim.attachment(name)``. A name can be used once.
        value : dict or value
            What to store; it is copied.

        Raises
        ------
        MetadataError
            If it cannot be stored, or the name is taken.
        """
        with self._lock:
            stage = self._ready()
            if not isinstance(name, str) or not name:
                raise MetadataError(f"An attachment needs a name of at least one letter, not {name!r}.")
            if name in self._fields.attachments:
                raise MetadataError(f"There is an attachment {name!r} already. Choose another name.")
            stage.attach(name, check_attachment(value, f"attachment {name!r}"))
            self._fields.attachments.add(name)

    def flush(self) -> None:
        """Write everything that was logged to the file, and wait until it is there.

        Raises
        ------
        StorageError
            If the disk refuses; the rows are kept and may be written later.
        """
        with self._timed() as stage:
            stage.flush()

    def finalize(self) -> Report:
        """Write what is left, store the report, and close the file. Calling it again returns the report.

        Returns
        -------
        Report
            What was recorded.

        Raises
        ------
        StorageError
            If the disk refuses. Once there is space, call it again.
        """
        with self._lock:
            stage = self._stage
            if stage is None:
                return self.report
            if stage.clock.is_open:
                self._end(stage, {})
            stage.flush()
            stage.finish()
            self._count(stage)
            self.report.bytes_stored = self._store.stored_bytes()
            self.report.seconds_open = perf_counter() - self._began
            self._store.write_report(self.report.to_dict())
            self._store.complete[()] = 1
            self._file.close()
            self._stage = None
            _open_loggers.discard(self)
            return self.report

    close = finalize

    def _count(self, stage: Stage) -> None:
        report, tally = self.report, stage.writer.tally
        report.rows, report.agents = stage.clock.rows, len(stage.agents)
        report.values, report.bytes_raw, report.late = tally.values, tally.bytes_raw, tally.late
        report.overwritten += tally.overwritten
        report.seconds_logging += self._by_agent_seconds
        report.seconds_waiting = stage.writer.seconds_waited

    @contextlib.contextmanager
    def _timed(self) -> Any:
        with self._lock:
            stage = self._ready()
            began, waited = perf_counter(), stage.writer.seconds_waited
            try:
                yield stage
            finally:
                self.report.seconds_logging += perf_counter() - began - (stage.writer.seconds_waited - waited)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.finalize()

    def __del__(self) -> None:
        if getattr(self, "_stage", None) is not None:
            warnings.warn(f"{self.path} was not closed; it is finalized now. Use 'with HDF5Logger(...)'.", ResourceWarning, stacklevel=2)
            self.finalize()

    def __repr__(self) -> str:
        state = "finalized" if self._stage is None else f"{self._stage.clock.rows} rows so far"
        return f"<HDF5Logger {str(self.path)!r}, {self.simulation}, {state}>"


def _attributes(
    seed: int | None, config: Any, environment_type: str | None, step_duration: float | None, metadata: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return the attributes of the simulation's group."""
    own: dict[str, Any] = {ATTR_DATE: datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}
    if seed is not None:
        if not isinstance(seed, (int, np.integer)) or isinstance(seed, bool) or not -(2**63) <= int(seed) < 2**63:
            raise MetadataError(f"seed={seed!r} is no whole number of 64 bits. Several seeds go into config or metadata.")
        own[ATTR_SEED] = np.int64(seed)
    if config is not None:
        own[ATTR_CONFIG] = to_json(config, "config")
    if environment_type is not None:
        if not isinstance(environment_type, str) or "\0" in environment_type:
            raise MetadataError(f"environment_type={environment_type!r} is no text.")
        own[ATTR_ENVIRONMENT_TYPE] = environment_type
    if step_duration is not None:
        if not isinstance(step_duration, (int, float, np.number)) or not 0 < float(step_duration) < float("inf"):
            raise InputError(f"step_duration={step_duration!r} is no time. Give a number above zero.")
        own[ATTR_STEP_DURATION] = np.float64(step_duration)
    if metadata is not None and not isinstance(metadata, Mapping):
        raise MetadataError(f"metadata={metadata!r} is no dictionary.")
    native, as_json = split_attributes(metadata or {}, "metadata")
    own |= native
    if as_json:
        own[ATTR_JSON_ATTRIBUTES] = to_json(as_json, "metadata")
    return own


@atexit.register
def _finalize_what_was_forgotten() -> None:
    for logger in list(_open_loggers):
        try:
            logger.finalize()
        except SimlabError as e:
            print(f"simlab: {e}", file=sys.stderr)
