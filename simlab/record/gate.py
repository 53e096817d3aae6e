"""Who may log, one call at a time, and how long that took."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import Any, Final

from simlab.errors import StateError, StorageError
from simlab.record.acceptance import say_not_done
from simlab.record.interrupts import Uninterrupted
from simlab.record.report import Report
from simlab.record.stage import Stage

_GAP: Final = 127
"""Calls by agent between two that are timed: 1 to this, 64 on average. A clock read costs a tenth of a call."""


class Gate:
    """What every call of the logger passes."""

    path: Path
    _report: Report
    _stage: Stage | None

    def __init__(self) -> None:
        self._new_lock()
        self._is_forked = False
        self._calls, self._sampled = 0, 0
        self._sample_at = self._dice = 1
        self._by_agent_seconds = 0.0

    def _new_lock(self) -> None:
        self._lock = threading.RLock()
        self._acquire, self._release = self._lock.acquire, self._lock.release

    def _ready(self) -> Stage:
        """Return the stage, or raise what stands against logging."""
        stage = self._stage
        if stage is None and self._is_forked:
            raise StateError(
                f"{self.path} is recorded by the process that this one was forked from; only that one can log to it. "
                "Give every process a file of its own."
            )
        if stage is None:
            raise StateError(
                f"{self.path} was finalized; nothing can be logged to it any more. Make a new HDF5Logger, with mode='a' to add to the file."
            )
        if stage.writer.failure is not None:
            try:
                stage.writer.raise_failure()
            except StorageError as e:
                say_not_done(e)
                raise
        return stage

    def _timed(self) -> Timed:
        """Return what lets one call pass at a time, and times it."""
        return Timed(self)

    def _time_one(self, stage: Stage, call: Callable[..., None], *given: Any) -> None:
        """Make a call, and have its time stand for all since the last that was timed.

        Which calls are timed is drawn by lot (the minimal standard generator): every 64th would ever be the same agent's.
        """
        stands_for, self._sampled = self._calls - self._sampled, self._calls
        self._dice = self._dice * 48271 % 2147483647
        self._sample_at = self._calls + 1 + self._dice % _GAP
        self._calls -= 1  # the call counts itself
        began, waited = perf_counter(), stage.writer.seconds_waited
        try:
            call(*given)
        finally:
            ended = perf_counter()
            took = ended - began - (stage.writer.seconds_waited - waited)
            self._by_agent_seconds += stands_for * (took - (perf_counter() - ended))


class Timed:
    """One call that holds the lock, is not interrupted, and adds its time, without waiting, to the report."""

    __slots__ = ("_began", "_gate", "_stage", "_uninterrupted", "_waited")

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._uninterrupted = Uninterrupted()

    def __enter__(self) -> Stage:
        gate = self._gate
        self._uninterrupted.__enter__()
        gate._acquire()
        try:
            self._stage = stage = gate._ready()
        except BaseException:
            gate._release()
            self._uninterrupted.__exit__(None, None, None)
            raise
        self._began, self._waited = perf_counter(), stage.writer.seconds_waited
        return stage

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        gate = self._gate
        gate._report.seconds_logging += perf_counter() - self._began - (self._stage.writer.seconds_waited - self._waited)
        gate._release()
        self._uninterrupted.__exit__(kind, error, trace)
