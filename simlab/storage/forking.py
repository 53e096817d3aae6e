"""Forks beside a writer: a process that is forked waits for a moment at which no thread is in the middle of a run's file.

A forked child has the memory of its parent and one of its threads. What another thread had begun stays half done there: a handle that
nobody knows of yet, an HDF5 whose end asks for Python when there is none any more. Readers and writers of this process do not wait for
each other here, only for who is about to fork.
"""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401  (it and h5py hold locks over a fork: theirs have to be taken after this one)
import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from typing import Final

import h5py

from simlab.storage.overlay import Overlay

PATIENCE_SECONDS: Final = 10.0
"""How long a fork waits; a disk that does not answer must not keep it for ever."""
_change = threading.Condition()
_at_work: dict[int, int] = {}
"""How deep each thread is inside `undisturbed`."""
_forking: set[int] = set()


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Do a piece of work into which no fork of another thread falls. Inside, nothing may be waited for that a thread which forks does.

    Examples
    --------
    >>> with undisturbed():
    ...     with undisturbed():  # as often as need be
    ...         pass
    """
    me = threading.get_ident()
    with _change:
        if me not in _at_work:
            _change.wait_for(lambda: not _forking - {me})
        _at_work[me] = _at_work.get(me, 0) + 1
    try:
        yield
    finally:
        with _change:
            _at_work[me] -= 1
            if not _at_work[me]:
                del _at_work[me]
                _change.notify_all()


def _wait_for_calm() -> None:
    me = threading.get_ident()
    with _change:
        _forking.add(me)
        _change.notify_all()  # two that fork do not wait for each other
        is_calm = _change.wait_for(lambda: not _at_work.keys() - _forking, PATIENCE_SECONDS)
    if not is_calm:
        print(
            f"simlab: a run has been in the middle of being written for {PATIENCE_SECONDS:.0f} s, so the process is forked beside that. "
            "If the child does not end, fork before the run is recorded, or start processes by 'spawn'.",
            file=sys.stderr,
        )


def _go_on() -> None:
    with _change:
        _forking.discard(threading.get_ident())
        _change.notify_all()


def _begin_anew() -> None:
    global _change
    _change = threading.Condition()
    _forking.clear()
    me = threading.get_ident()
    for other in _at_work.keys() - {me}:
        del _at_work[other]


def leave_to_parent(path: str | os.PathLike[str]) -> None:
    """Close the handles by which the parent of this process writes a file: what HDF5 writes at that goes nowhere, not into the file.

    Left open, HDF5 would take the file for one that it knows, and read it by way of them.
    """
    name = os.fsencode(path)
    for number in h5py.h5f.get_obj_ids(h5py.h5f.OBJ_ALL, h5py.h5f.OBJ_FILE):
        with contextlib.suppress(OSError, RuntimeError, ValueError):  # it cannot be written, which is what HDF5 says
            if number.name == name and number.get_intent() & h5py.h5f.ACC_RDWR:
                nowhere = os.open(os.devnull, os.O_RDWR)
                os.dup2(nowhere, number.get_vfd_handle())
                os.close(nowhere)
                h5py.File(number).close()


def close_overlays() -> None:
    """Close what HDF5 has open over files in memory, whoever opened it."""
    for number in h5py.h5f.get_obj_ids(h5py.h5f.OBJ_ALL, h5py.h5f.OBJ_FILE):
        with contextlib.suppress(OSError, RuntimeError, ValueError):
            if number.name.startswith(f"<{Overlay.__module__}.{Overlay.__name__} ".encode()):  # what h5py calls it
                h5py.File(number).close()


if hasattr(os, "register_at_fork"):  # not on Windows, where nothing forks
    os.register_at_fork(before=_wait_for_calm, after_in_parent=_go_on, after_in_child=_begin_anew)
