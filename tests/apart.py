"""Calls in processes of their own, each with a time limit: what a damaged file may crash or hang, it crashes alone."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection, wait
from typing import Any

_PRELOADED = ["h5py", "xarray", "pandas", "simlab.read.runs", "simlab.cli.info", "simlab.demo", "tests.hostile", "tests.random_damage"]
Case = tuple[Any, ...]


class _Worker:
    """A process that answers one case after the other, until one of them ends it."""

    def __init__(self, function: Callable[..., Any], shared: Case) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(_PRELOADED)
        self.answers, theirs = context.Pipe()
        self.folder = tempfile.TemporaryDirectory()
        self.process = context.Process(target=_answer, args=(theirs, function, self.folder.name, shared), daemon=True)
        self.process.start()
        theirs.close()
        self.case: Case = ()
        self.deadline = 0.0

    def ask(self, case: Case, limit: float) -> None:
        self.case, self.deadline = case, time.monotonic() + limit
        self.answers.send(case)

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.answers.close()
        self.folder.cleanup()


def run_apart(
    function: Callable[..., Any], cases: Iterable[Case], shared: Case = (), limit: float = 60.0, processes: int | None = None
) -> Iterator[tuple[Case, str, Any]]:
    """Yield for each case: the case, "done", "crash" or "hang", and what the function returned or how it ended.

    `function` is called with a folder of its own, what all cases share, and the case.
    """
    waiting = iter(cases)
    workers = [_Worker(function, shared) for _ in range(processes or max(2, len(os.sched_getaffinity(0))))]
    busy: list[_Worker] = []
    try:
        while True:
            for worker in [w for w in workers if w not in busy]:
                if (case := next(waiting, None)) is not None:
                    worker.ask(case, limit)
                    busy.append(worker)
            if not busy:
                return
            ready = set(wait([w.answers for w in busy], timeout=0.5))
            for worker in list(busy):
                if worker.answers in ready:
                    try:
                        outcome, value = "done", worker.answers.recv()
                    except (EOFError, ConnectionError):
                        worker.process.join()
                        outcome, value = "crash", f"exit code {worker.process.exitcode}"
                elif time.monotonic() > worker.deadline:
                    outcome, value = "hang", f"more than {limit} s"
                else:
                    continue
                busy.remove(worker)
                if outcome != "done":
                    worker.end()
                    workers[workers.index(worker)] = _Worker(function, shared)
                yield worker.case, outcome, value
    finally:
        for worker in workers:
            worker.end()


def _answer(cases: Connection, function: Callable[..., Any], folder: str, shared: Case) -> None:
    # What HDF5 or the C library says of a crash is not for the terminal.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    while True:
        cases.send(function(folder, *shared, *cases.recv()))
