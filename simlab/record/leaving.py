"""Loggers that nobody closed: collected, left open at the end of the program, or copied into a forked process."""

from __future__ import annotations

import _thread
import atexit
import gc
import os
import sys
import weakref
from typing import Any, Final, Protocol

from simlab.errors import SimlabError


class Logger(Protocol):
    """What is known here of a logger."""

    _stage: Any

    def finalize(self) -> Any:
        """Write what is left and close the file."""

    def _leave_to_parent(self) -> None:
        """Take no more calls in a forked process."""


open_loggers: weakref.WeakSet[Any] = weakref.WeakSet()
"""Loggers that were not finalized."""
_PATIENCE: Final = 60.0
_being_finalized: set[Any] = set()


def _is_collecting() -> bool:
    """Whether the collector is at work in this very moment: it does not begin anew then.

    One of `gc.callbacks` would know as well, but an interrupt that comes while objects are collected would be raised in it, and be lost.
    """
    before = gc.get_stats()[0]["collections"]
    gc.collect(0)
    return bool(gc.get_stats()[0]["collections"] == before)


def finalize_elsewhere(logger: Logger) -> None:
    """Finalize a logger that nobody holds any more, in a thread of its own, and wait for it where that is safe.

    The collector may come by in the middle of a call of h5py, which holds h5py's lock; the writer needs that lock to finish.
    """
    done = _thread.allocate_lock()
    done.acquire()
    _being_finalized.add(done)

    def run() -> None:
        try:
            _finalize_or_tell(logger)
        finally:
            _being_finalized.discard(done)
            done.release()

    _thread.start_new_thread(run, ())
    if not _is_collecting():
        done.acquire(timeout=_PATIENCE)


def _finalize_or_tell(logger: Logger) -> None:
    try:
        logger.finalize()
    except SimlabError as e:
        print(f"simlab: {e}", file=sys.stderr)
        logger._stage = None  # nobody is left to try again
        open_loggers.discard(logger)


def _let_go_after_fork() -> None:
    """Leave every logger to the parent: its writer's thread does not live here, and its locks may be held for ever."""
    left = list(open_loggers)
    open_loggers.clear()
    _being_finalized.clear()
    for logger in left:
        logger._leave_to_parent()


if hasattr(os, "register_at_fork"):  # not on Windows, where nothing forks
    os.register_at_fork(after_in_child=_let_go_after_fork)


@atexit.register
def _finalize_what_was_forgotten() -> None:
    for logger in list(open_loggers):
        _finalize_or_tell(logger)
    for done in list(_being_finalized):
        done.acquire(timeout=60)
