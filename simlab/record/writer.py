"""The background thread: encodes what was staged in a pool, writes it, commits it, and reports what went wrong."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

from simlab.errors import SimlabError, StorageError
from simlab.record.durability import Durability
from simlab.staging.committing import Committer
from simlab.staging.jobs import Job
from simlab.staging.windows import Window
from simlab.storage.damage import reason
from simlab.storage.forking import undisturbed
from simlab.storage.journal import Journal
from simlab.storage.lock import BEAT_SECONDS

_MAY_PASS: Final = (OSError, RuntimeError)
"""What a full or absent disk raises, through HDF5; anything else would fail again."""
LONGEST_QUEUE_BYTES: Final = 64 << 20


class Writer:
    """Writes jobs in order, in a thread of its own.

    Parameters
    ----------
    path : Path
        The file, for messages.
    committer : Committer
        Writes a job; from now on only this thread touches the file.
    release : callable
        Takes back a window whose rows are written.
    beat : callable
        Shows others that the run is being recorded, and says whether it is still this writer's.
    rule : Durability
        How often the journal has to reach the disk itself.
    journal : Journal
        The journal.

    Attributes
    ----------
    failure : Exception or None
        What went wrong and nobody was told yet.
    dropped : int
        Values that could not be written and were given up.
    seconds_waited : float
        Time that callers had to wait.
    """

    def __init__(
        self,
        path: Path,
        committer: Committer,
        release: Callable[[Window], None],
        beat: Callable[[], bool],
        rule: Durability,
        journal: Journal,
    ) -> None:
        self._path, self._committer, self._release, self._beat = path, committer, release, beat
        self._rule, self._journal = rule, journal
        self._last_sync = time.monotonic()
        self.seconds_waited = 0.0
        self._jobs: deque[Job] = deque()
        self._current: Job | None = None
        self._cost = 0
        self._stopping = False
        self._stuck = False
        self.failure: Exception | None = None
        self._failed_rows = ""
        self.dropped = 0
        self._carried: Job | None = None
        self._lost = False
        self._last_beat = time.monotonic()
        self._change = threading.Condition()
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

    @property
    def is_behind(self) -> bool:
        """Whether a job that was handed over is not written yet."""
        return bool(self._jobs)

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
        failure = self.failure
        if failure is None:
            return
        if not self._lost:
            self.failure = None
        if isinstance(failure, SimlabError):
            raise failure
        number = failure.errno if isinstance(failure, OSError) else None
        told = failure.strerror if isinstance(failure, OSError) and failure.filename else ""  # the file's own words, not HDF5's
        why = told or (os.strerror(number) if number else str(failure))
        if isinstance(failure, _MAY_PASS):
            what = "They are kept in memory and tried again with the next rows"
        else:
            what = "They are lost, and counted as dropped"
        error = StorageError(f"{self._failed_rows} could not be written to {self._path}: {why}. {what}; what was committed before is safe.")
        error.errno = number
        raise error from failure

    def stop(self) -> None:
        """End the threads; every job has to be written."""
        with self._change:
            self._stopping = True
            self._change.notify_all()
        self._thread.join()

    def _wake(self) -> None:
        self._stuck = self._lost
        self._change.notify_all()

    def sync_journal(self) -> None:
        """Have the journal reach the disk itself; the next call is told if it cannot, and it is tried again when it is due."""
        try:
            self._journal.sync()
        except OSError as e:
            self._not_kept_up(e)

    def _not_kept_up(self, error: OSError) -> None:
        self.failure = self.failure or StorageError(
            f"The journal {self._path.name}.journal of {self._path} could not be kept up ({reason(error)}). Rows go on being recorded; "
            "until it can be, a loss of power may cost them."
        )

    # -- the thread

    def _keep_time(self) -> None:
        """Do what is due: have the journal reach the disk, and show others that the run is being recorded.

        If another process took the run over, which took this one for dead, this one gives up.
        """
        now = time.monotonic()
        try:
            if self._rule.seconds and now - self._last_sync >= self._rule.seconds:
                self._last_sync = now
                self.sync_journal()
            if now - self._last_beat < BEAT_SECONDS or self._lost:
                return
            self._last_beat = now
            is_mine = self._beat()
        except OSError as e:
            self._not_kept_up(e)
            return
        if not is_mine:
            self._lost = self._stuck = True
            self.failure = StorageError(
                f"{self._path} was deleted, replaced or taken over by another process, or its folder {self._path.name}.journal was "
                "removed. Nothing more can be recorded to it from here."
            )

    def _next(self) -> Job | None:
        """Return the job after the one that is being written."""
        with self._change:
            return self._jobs[1] if len(self._jobs) > 1 else None

    def _run(self) -> None:
        while True:
            with self._change:
                while not self._stopping and (not self._jobs or self._stuck):
                    self._change.wait(min(BEAT_SECONDS, self._rule.seconds or BEAT_SECONDS))
                    self._keep_time()
                if not self._jobs or self._stuck:
                    return
                job = self._current = self._jobs[0]
            self._keep_time()
            if self._lost:
                with self._change:
                    self._current = None
                    self._change.notify_all()
                continue
            try:
                if self._carried is not None:
                    job.agents, job.ended = self._carried.agents + job.agents, self._carried.ended + job.ended
                    self._carried = None
                with undisturbed():
                    self._committer.write(job, self._next)
            except Exception as e:
                may_pass = isinstance(e, _MAY_PASS)
                with self._change:
                    self.failure, self._failed_rows, self._stuck = e, _rows_of(job), may_pass
                    self._current = None
                    self._change.notify_all()
                if may_pass:
                    continue
                self.dropped += job.values()
                self._committer.keep_clock(job)
                self._carried = job  # who appeared, and which episodes ended, is told with the next job
                if job.window is not None and job.release:
                    job.window.retire()
            if job.window is not None and job.release:
                self._release(job.window)
            with self._change:
                self._jobs = deque(other for other in self._jobs if other is not job)
                self._cost -= job.cost
                self._current = None
                self._change.notify_all()


def _rows_of(job: Job) -> str:
    """Return which rows a job writes, in words."""
    window = job.window
    if window is None or not window.count or window.late:
        return f"Rows up to {job.rows}"
    last = window.count - 1
    return f"Rows up to {job.rows} (step {window.step[last]} of episode {window.episode[last]})"
