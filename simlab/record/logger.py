"""`HDF5Logger`: the hand the simulation holds."""

from __future__ import annotations

import os
import warnings
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import Any, Literal, Self

import numpy as np

from simlab import __version__
from simlab.conventions import ATTR_SCHEMA
from simlab.errors import InputError, MetadataError, StateError, StorageError
from simlab.metadata.encoding import is_utf8
from simlab.record.book import SchemaBook
from simlab.record.dropping import Dropping, checked_names
from simlab.record.durability import Durability
from simlab.record.interrupts import Uninterrupted
from simlab.record.leaving import finalize_elsewhere, open_loggers
from simlab.record.log_calls import LogCalls
from simlab.record.report import Report
from simlab.record.resuming import begun_episodes, checked_resume, continue_simulation, keep_begun, restore, settle, settle_schema
from simlab.record.run_attributes import run_attributes
from simlab.record.stage import Stage
from simlab.schema import Schema
from simlab.schema.files import as_schema
from simlab.schema.keeping import schema_to_json
from simlab.staging.committing import Committer
from simlab.staging.encoders import Encoders
from simlab.storage.attachments import check_attachment
from simlab.storage.codec import resolve_compression
from simlab.storage.opening import absolute_path
from simlab.storage.runfile import RunFile, check_simulation_name


class HDF5Logger(LogCalls):
    """Record a simulation to a run file.

    Parameters
    ----------
    path : path-like
        The file, by custom ``*.h5``. "~" is expanded. Its folder must be there.
    schema : Schema, dict or path-like, optional
        What the run holds; a file of it is JSON or YAML. Left out, it is inferred from what is logged first and enforced from then on.
    compression : {"gzip", "lzf", "zstd", "blosc2"} or int or None, optional
        "gzip" (deflate, with byte shuffle where that helps) is read by everything; a number from 0 to 9 is its level. "lzf" is read
        by h5py alone, "zstd" and "blosc2" need hdf5plugin, here and at every reader. None stores the bytes as they are.
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
    durability : {"process", "fsync", "none"}, optional
        "process": what a call logged survives whatever ends the process (a kill, a full memory, a forgotten close), in a journal beside the
        run; only a loss of power may cost the last seconds. "fsync" bounds that loss too, to `fsync_seconds` or `fsync_steps`. "none"
        keeps no journal: rows since the last full window are lost with the process.
    fsync_seconds : float, optional
        With "fsync": how often the journal is made to reach the disk itself.
    fsync_steps : int, optional
        With "fsync": do so after so many steps too.
    journal_dir : path-like, optional
        A folder for the journal, where the run lies on a network; whoever opens an unfinished run needs it too.
    resume : bool or int, optional
        With ``mode="a"``: go on with the simulation at its next step; without a name, with the one that was left open, or else the one
        that was begun last. The episode that was open stays open. A number goes on after that step of the newest episode and cuts later
        rows off: the checkpoint is older than the file. If that episode had ended it is open again, with its fields (but for returns,
        ``terminated`` and ``truncated``) until `end_episode` gives others. Where the run goes on is recorded as ``resumed``. If there is
        no such simulation yet, it is begun.
    checksums : bool, optional
        Give every chunk a checksum (HDF5's fletcher32), so that a flipped bit is found where nothing is compressed too.
    drop_when_slow : iterable of str, optional
        Variables whose values are dropped, and counted, while the disk is slower than the simulation. Without them the simulation waits.

    Attributes
    ----------
    path : Path
        Where the file lies.
    simulation : str
        The name of the simulation's group.

    Raises
    ------
    RunExistsError, RunNotFoundError, RunInUseError, StorageError
        If the file cannot be made; nothing that was there is touched.
    SchemaError, MetadataError
        If the schema, the compression, the config or the metadata cannot be stored.

    Notes
    -----
    Rows are staged in a memory-mapped journal beside the run, and compressed and written by a thread of its own. An error there is
    raised by the next call, once. A call that raises has recorded nothing, and everything before it stays. A logger may be used from
    several threads.

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
        durability: Literal["process", "fsync", "none"] = "process",
        fsync_seconds: float = 1.0,
        fsync_steps: int | None = None,
        journal_dir: str | os.PathLike[str] | None = None,
        resume: bool | int = False,
        checksums: bool = False,
        drop_when_slow: Iterable[str] = (),
    ) -> None:
        super().__init__()
        self._stage: Stage | None = None
        self.path = Path(absolute_path(path))
        self._report = Report()
        self._began = perf_counter()
        given = as_schema(schema)
        if not isinstance(checksums, (bool, np.bool_)):
            raise InputError(f"checksums={checksums!r} is neither True nor False.")
        default = replace(resolve_compression(compression, "HDF5Logger"), checksum=bool(checksums))
        for variable in (*(v for p in given.population_names for v in given.variables(p)), *given.environment):
            if variable.compression != "inherit":
                resolve_compression(variable.compression, f"Variable {variable.name!r}")
        attributes = run_attributes(seed, config, environment_type, step_duration, metadata)
        attributes[ATTR_SCHEMA] = schema_to_json(given)
        check_simulation_name(simulation)  # before a file that is there is replaced
        rule = Durability.checked(durability, fsync_seconds, fsync_steps, journal_dir)
        droppable = checked_names(drop_when_slow)
        after = checked_resume(resume, mode)
        repair, lock = settle(self.path, after is False, simulation) if mode == "a" else (None, None)
        self._file = RunFile(self.path, mode, __version__, rule.sync, lock)
        try:
            left = None
            if after is not False:
                left_open = "" if repair is None else repair.simulation
                found = continue_simulation(self._file, simulation, left_open, after, attributes, default, given)
                if found is not None:
                    self.simulation, self._store, left = found
                    begun = begun_episodes(repair, self.simulation, left, after)
                    keep_begun(self._file.lock.folder, begun)
            if left is None:
                self.simulation, self._store = self._file.add_simulation(simulation, attributes, default)
            book = self._book = SchemaBook(given if left is None else settle_schema(given, left))
            self._file.beat()
            self._journal = rule.open_journal(self._file.lock, self.simulation)
            self._encoders = Encoders()
            counters = weakref.WeakMethod(self._counters)
            committer = Committer(self._store, self._encoders, self._journal, lambda: method() if (method := counters()) else {})
            self._stage = Stage(self.path, book, self._report, self._journal, committer, self._file.beat, rule)
            self._stage.dropping = Dropping(droppable, book)
            if left is not None:
                restore(self._stage, self._fields, self._report, left, begun)
        except BaseException:
            self._file.close()
            raise
        open_loggers.add(self)

    def _counters(self) -> dict[str, float]:
        stage = self._stage
        return {} if stage is None else self._counted(stage).to_dict()

    @property
    def schema(self) -> Schema:
        """The schema as it is by now."""
        return self._book.schema

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
        with Uninterrupted(), self._lock:
            stage = self._ready()
            if not isinstance(name, str) or not name or "\0" in name or not is_utf8(name):
                raise MetadataError(f"An attachment needs a name of at least one letter, not {name!r}.")
            if name in self._fields.attachments:
                raise MetadataError(f"There is an attachment {name!r} already. Choose another name.")
            stage.attach(name, check_attachment(value, f"attachment {name!r}"))
            self._fields.attachments.add(name)

    def flush(self) -> None:
        """Write everything that was logged to the file, and wait until it is there.

        Nothing needs it: what was logged survives the process without it, and readers see it. Chunks that are not full are written
        again when they are, and HDF5 does not use their old place again: a flush with every step makes a file many times as large.

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
        with Uninterrupted(), self._lock:
            stage = self._stage
            if stage is None:
                return self._report
            if stage.clock.is_open:
                self._end(stage, {})
            stage.finish()
            stage.dropping.warn_of_unknown()
            report = self._counted(stage)
            report.seconds_open = perf_counter() - self._began
            try:
                report.bytes_stored = self._store.stored_bytes()
                self._store.finish(report.to_dict())
                stage.writer.stop()
                self._encoders.stop()
                self._journal.close()
                self._file.close()
            except OSError as e:
                why = os.strerror(e.errno) if e.errno else e
                raise StorageError(f"{self.path} holds every row, but could not be closed: {why}. Call finalize() again.") from e
            self._stage, self._report = None, report
            open_loggers.discard(self)
            del stage  # and with it the staged rows' memory, whose files Windows removes only now
            self._journal.close()
            self._file.lock.remove_rest()
            return report

    close = finalize

    def _leave_to_parent(self) -> None:
        """Take no more calls in a process that was forked while it was recorded; the parent goes on as if nothing had happened."""
        self._stage, self._is_forked = None, True
        self._journal.let_go()
        if self._acquire(blocking=False):  # free, or of a call that itself forked and still gives it back
            self._release()
        else:
            self._new_lock()

    @property
    def report(self) -> Report:
        """What was recorded. Until `finalize`, values and bytes are those of rows that left for the disk."""
        stage = self._stage
        return self._report if stage is None else self._counted(stage)

    def _counted(self, stage: Stage) -> Report:
        report, tally = self._report, stage.committer.tally
        return replace(
            report,
            rows=stage.clock.rows,
            agents=len(stage.agents),
            values=tally.values,
            bytes_raw=tally.bytes_raw,
            late=tally.late,
            overwritten=report.overwritten + tally.overwritten,
            dropped=report.dropped + stage.writer.dropped,
            seconds_logging=report.seconds_logging + self._by_agent_seconds,
            seconds_waiting=stage.writer.seconds_waited,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        raise StateError(
            f"{self!r} cannot be sent to another process: one process writes a file. Give the process a path, and let it open a logger of "
            "its own there."
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.finalize()

    def __del__(self) -> None:
        if getattr(self, "_stage", None) is not None:
            warnings.warn(f"{self.path} was not closed; it is finalized now. Use 'with HDF5Logger(...)'.", ResourceWarning, stacklevel=2)
            finalize_elsewhere(self)

    def __repr__(self) -> str:
        state = "finalized" if self._stage is None else f"{self._stage.clock.rows} rows so far"
        return f"<HDF5Logger {str(self.path)!r}, {self.simulation}, {state}>"
