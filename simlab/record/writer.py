"""The background thread: encodes what was staged in a pool, writes it, commits it, and reports what went wrong."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import numpy as np

from simlab.errors import SimlabError, StorageError
from simlab.record.encoders import Encoders
from simlab.record.jobs import Block, Job
from simlab.record.returns import Returns, Sums, returns_on_disk, sums_of
from simlab.record.sealing import Chunk, Tally, chunks_of_lanes
from simlab.record.staging import Window
from simlab.schema import Variable
from simlab.storage.runfile import RunFile
from simlab.storage.simulation import SimulationStore

Array = np.ndarray[Any, np.dtype[Any]]

_MAY_PASS: Final = (OSError, RuntimeError)
"""What a full or absent disk raises, through HDF5; anything else would fail again."""
LONGEST_QUEUE_BYTES: Final = 64 << 20


class Writer:
    """Writes jobs in order, in a thread of its own.

    Parameters
    ----------
    file : RunFile
        Open for writing; from now on only this thread touches it.
    store : SimulationStore
        The simulation.
    release : callable
        Takes back a window whose rows are written.

    Attributes
    ----------
    failure : Exception or None
        What went wrong and nobody was told yet.
    tally : Tally
        What the rows that left held.
    dropped : int
        Values that could not be written and were given up.
    seconds_waited : float
        Time that callers had to wait.
    """

    def __init__(self, file: RunFile, store: SimulationStore, release: Callable[[Window], None]) -> None:
        self._file, self._store, self._release = file, store, release
        self.tally = Tally()
        self.seconds_waited = 0.0
        self._returns = Returns()
        self._touched_late: set[int] = set()
        self._ended = -1
        self._committed = 0
        self._tails: dict[str, Array] = {}
        self._jobs: deque[Job] = deque()
        self._current: Job | None = None
        self._cost = 0
        self._stopping = False
        self._stuck = False
        self.failure: Exception | None = None
        self._failed_rows = 0
        self.dropped = 0
        self._carried: Job | None = None
        self._clocks: list[tuple[int, Array, Array, Array]] = []
        self._change = threading.Condition()
        self._encoders = Encoders()
        self._thread = threading.Thread(target=self._run, name="simlab-writer", daemon=True)
        self._thread.start()

    # -- the simulation's side

    def submit(self, job: Job) -> None:
        """Hand over a job; waits while too much is queued. What went wrong since is told to the next call, before it does anything."""
        began = time.perf_counter()
        with self._change:
            self._jobs.append(job)
            self._cost += job.cost
            self._wake()
            while self._cost > LONGEST_QUEUE_BYTES and len(self._jobs) > 1 and not self._stuck:
                self._change.wait()
        self.seconds_waited += time.perf_counter() - began

    def drain(self) -> None:
        """Wait until every job is written; a job that failed is tried once more.

        Raises
        ------
        StorageError
            If one cannot be written.
        """
        began = time.perf_counter()
        with self._change:
            self._wake()
            while self._jobs and not self._stuck:
                self._change.wait()
        self.seconds_waited += time.perf_counter() - began
        self.raise_failure()

    def withdraw(self, job: Job) -> bool:
        """Take a job back that failed, or waits behind one that did, and say whether it was still there."""
        with self._change:
            while self._current is job:
                self._change.wait()
            there = any(job is other for other in self._jobs)
            if there:
                self._stuck = self._stuck and job is not self._jobs[0]
                self._jobs = deque(other for other in self._jobs if other is not job)
                self._cost -= job.cost
        return there

    def wait_for(self, ready: Callable[[], bool]) -> None:
        """Wait until `ready` holds, which a finished job may bring about.

        Raises
        ------
        StorageError
            If nothing will bring it about because the disk refuses.
        """
        began = time.perf_counter()
        with self._change:
            while not ready():
                if self._stuck:
                    self._wake()
                    self._change.wait_for(lambda: self._stuck or ready())
                    if self._stuck and not ready():
                        break
                else:
                    self._change.wait()
        self.seconds_waited += time.perf_counter() - began
        if not ready():
            self.raise_failure()

    def raise_failure(self) -> None:
        """Raise what went wrong in the background, once."""
        failure, self.failure = self.failure, None
        if failure is None:
            return
        if isinstance(failure, SimlabError):
            raise failure
        number = failure.errno if isinstance(failure, OSError) else None
        why = os.strerror(number) if number else str(failure)
        if isinstance(failure, _MAY_PASS):
            what = "They are kept in memory and tried again with the next rows"
        else:
            what = "They are lost, and counted as dropped"
        error = StorageError(
            f"Rows up to {self._failed_rows} could not be written to {self._file.path}: {why}. {what}; what was committed before is safe."
        )
        error.errno = number
        raise error from failure

    def stop(self) -> None:
        """End the threads; every job has to be written."""
        with self._change:
            self._stopping = True
            self._change.notify_all()
        self._thread.join()
        self._encoders.stop()

    def _wake(self) -> None:
        self._stuck = False
        self._change.notify_all()

    # -- the thread

    def _run(self) -> None:
        while True:
            with self._change:
                while not self._stopping and (not self._jobs or self._stuck):
                    self._change.wait()
                if not self._jobs or self._stuck:
                    return
                job = self._current = self._jobs[0]
            try:
                self._write(job)
            except Exception as e:
                may_pass = isinstance(e, _MAY_PASS)
                with self._change:
                    self.failure, self._failed_rows, self._stuck = e, job.rows, may_pass
                    self._current = None
                    self._change.notify_all()
                if may_pass:
                    continue
                self.dropped += job.values()
                self._keep_clock(job)
                self._carried = job  # who appeared, and which episodes ended, is told with the next job
            if job.window is not None and job.release:
                self._release(job.window)
            with self._change:
                self._jobs = deque(other for other in self._jobs if other is not job)
                self._cost -= job.cost
                self._current = None
                self._change.notify_all()

    def _keep_clock(self, job: Job) -> None:
        """Keep the clock of rows whose values are given up: it has to rise all the same."""
        window = job.window
        if window is not None and not window.late:
            n = window.count
            self._clocks.append((window.first, window.time[:n].copy(), window.step[:n].copy(), window.episode[:n].copy()))

    def _write(self, job: Job) -> None:
        """Write a job. Doing it twice leaves the same values, so a job that failed halfway is simply done again."""
        store, window, tally = self._store, job.window, Tally()
        if self._carried is not None:
            job.agents, job.ended = self._carried.agents + job.agents, self._carried.ended + job.ended
            self._carried = None
        counts: dict[str, int] = {}
        for population, index, _, _ in job.agents:
            counts[population] = max(counts.get(population, 0), index + 1)
        for population, variables in job.variables.items():
            store.ensure_population(population, variables, counts.get(population, 0), job.span)
        if job.environment:
            store.ensure_environment(job.environment, job.span)
        for variable in job.series:
            store.ensure_series(variable)
        self._write_agents(job)
        for clock in self._clocks:
            store.write_clock(*clock)
        if window is not None and not window.late:
            n = window.count
            store.write_clock(window.first, window.time[:n], window.step[:n], window.episode[:n])
        store.resize(job.rows)
        added: Sums = {}
        tails: dict[str, Array] = {}
        self._encoders.write(self._job_chunks(job, tally, tails))
        if window is not None and window.count:
            if window.late:
                self._touched_late.update(np.unique(window.episode[: window.count]).tolist())
            else:
                added = sums_of(window, job.variables)
        while job.attachments:
            store.attach(*job.attachments[0])
            job.attachments.pop(0)
        for episode, fields in job.ended:
            store.episodes.write(episode, fields | self._returns_of(episode, fields, added, job.variables))
        self._committed = max(self._committed, job.rows)
        self._file.commit(store, self._committed)
        self._tails |= tails
        self._clocks.clear()
        self._count(job, tally, added)

    def _returns_of(
        self, episode: int, fields: dict[str, Any], added: Sums, variables: Mapping[str, tuple[Variable, ...]]
    ) -> dict[str, float]:
        """Return the statistics of an ended episode's returns."""
        if episode in self._touched_late:
            return returns_on_disk(self._store.grids, variables, fields["start"], fields["length"])
        return self._returns.statistics(episode, added)

    def _count(self, job: Job, tally: Tally, added: Sums) -> None:
        """Take over what a job that was written counted; rows that stay staged are counted when they leave."""
        for episode, _ in job.ended:
            self._returns.forget(episode)
            self._touched_late.discard(episode)
            self._ended = episode
        for block in job.blocks:
            self.tally.values += len(block.values) - block.again
            self.tally.bytes_raw += block.values[int(block.again) :].nbytes
        if job.window is None or job.release:
            self._returns.keep({episode: sums for episode, sums in added.items() if episode > self._ended})
            self.tally.add(tally)

    def _write_agents(self, job: Job) -> None:
        by_population: dict[str, list[tuple[int, str, str]]] = {}
        for population, index, label, key in job.agents:
            by_population.setdefault(population, []).append((index, label, key))
        for population, members in by_population.items():
            self._store.write_agents(population, members[0][0], [m[1] for m in members], [m[2] for m in members])

    def _job_chunks(self, job: Job, tally: Tally, tails: dict[str, Array]) -> Iterator[Chunk]:
        if job.window is not None and job.window.count:
            yield from self._window_chunks(job.window, tally)
        for block in job.blocks:
            yield from self._series_chunks(block, tails)

    def _window_chunks(self, window: Window, tally: Tally) -> Iterator[Chunk]:
        for name, lanes in window.lanes.items():
            if lanes.agents:
                yield from chunks_of_lanes(self._store.grids[name], lanes, window, tally)
        if self._store.environment is not None:
            yield from chunks_of_lanes(self._store.environment, window.environment, window, tally)

    def _series_chunks(self, block: Block, tails: dict[str, Array]) -> Iterator[Chunk]:
        """Yield the chunks that rows of a series fill, the last one perhaps in part; its rows are kept for the next time."""
        column = self._store.ensure_series(block.variable)
        self._store.write_series_time(column, block.first, block.time)
        start = block.first // column.rows * column.rows
        name = block.variable.name
        kept = tails.get(name, self._tails.get(name))
        values = block.values
        if start < block.first:
            assert kept is not None
            values = np.concatenate([kept[: block.first - start], values])
        for row in range(0, len(values), column.rows):
            yield Chunk(column, (start + row,), values[row : row + column.rows], None, replaces=True)
        tail = len(values) % column.rows or column.rows
        tails[name] = values[len(values) - tail :]
