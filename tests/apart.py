"""Calls in processes of their own, a few at a time, each with a time limit: what a damaged file may crash or hang, it crashes alone."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection, wait
from typing import Any

_PRELOADED = ["h5py", "xarray", "pandas", "simlab.read.runs", "simlab.cli.info", "simlab.demo", "tests.hostile", "tests.random_damage"]


def run_apart(
    function: Callable[..., Any], cases: Iterable[tuple[Any, ...]], limit: float = 60.0, processes: int | None = None
) -> Iterator[tuple[tuple[Any, ...], str, Any]]:
    """Yield for each case: the case, "done", "crash" or "hang", and what the function returned or how it ended.

    `function` is called with a folder of its own after the first argument of the case.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    waiting = iter(cases)
    running: dict[Connection, tuple[tuple[Any, ...], Any, float, Any]] = {}
    count = processes or max(2, len(os.sched_getaffinity(0)))
    while True:
        while len(running) < count and (case := next(waiting, None)) is not None:
            ours, theirs = context.Pipe(duplex=False)
            folder = tempfile.TemporaryDirectory()
            worker = context.Process(target=_call, args=(theirs, function, (case[0], folder.name, *case[1:])), daemon=True)
            worker.start()
            theirs.close()
            running[ours] = (case, worker, time.monotonic() + limit, folder)
        if not running:
            return
        ready = set(wait(list(running), timeout=0.5))
        for ours, (case, worker, deadline, folder) in list(running.items()):
            if ours in ready:
                try:
                    outcome, value = "done", ours.recv()
                except EOFError:
                    worker.join()
                    outcome, value = "crash", f"exit code {worker.exitcode}"
            elif time.monotonic() > deadline:
                worker.kill()
                outcome, value = "hang", f"more than {limit} s"
            else:
                continue
            worker.join()
            ours.close()
            del running[ours]
            folder.cleanup()
            yield case, outcome, value


def _call(answer: Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    # What HDF5 or the C library says of a crash is not for the terminal.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    answer.send(function(*arguments))
