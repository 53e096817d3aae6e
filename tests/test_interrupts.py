"""Ctrl-C at any moment of a loop that logs: what had returned is there, and the logger goes on as if nothing had been."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import simlab
from simlab.errors import StorageError
from simlab.record.interrupts import Uninterrupted
from simlab.record.stage import Stage
from simlab.storage.journal import Journal

pytestmark = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs a timer")


def test_a_block_ends_before_it_is_interrupted() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), Uninterrupted(), Uninterrupted():  # noqa: PT012
        signal.raise_signal(signal.SIGINT)
        done.append("the rest")
    assert done == ["the rest"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_interrupt_comes_at_once() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), Uninterrupted():  # noqa: PT012
        signal.raise_signal(signal.SIGINT)
        done.append("first")
        signal.raise_signal(signal.SIGINT)
        done.append("second")
    assert done == ["first"]


def test_threads_are_left_alone() -> None:
    found = []

    def run() -> None:
        with Uninterrupted():
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert found == [signal.default_int_handler]


def test_interrupts_while_a_window_is_handed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, left = Stage._job_of, [True]

    def interrupted(self: Stage, window, release, segment):
        if left and window.count == 256:
            left.clear()
            signal.raise_signal(signal.SIGINT)
        return real(self, window, release, segment)

    monkeypatch.setattr(Stage, "_job_of", interrupted)
    returned = -1
    with pytest.raises(KeyboardInterrupt), simlab.HDF5Logger(tmp_path / "run.h5") as log:  # noqa: PT012
        for t in range(1000):
            log.log_agent_step("a", t, {"r": float(t)})
            returned = t
    with simlab.open_run(tmp_path / "run.h5") as ds:
        assert ds.r.values[0].tolist() == [float(t) for t in range(returned + 2)]  # the call that was interrupted was done


@pytest.mark.parametrize("seed", range(6))
def test_interrupts_at_any_moment(tmp_path: Path, seed: int) -> None:
    dice = np.random.default_rng(seed)
    path = tmp_path / "run.h5"
    log = simlab.HDF5Logger(path)
    expected: dict[tuple[int, int], float] = {}
    grids: dict[int, int] = {}
    episode, t, interrupts = 0, 0, 0
    log.begin_episode(seed=0)
    ends = time.monotonic() + 2.5

    def again(_: int, __: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, again)
    timer = signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        while time.monotonic() < ends:
            try:
                signal.setitimer(signal.ITIMER_REAL, float(dice.uniform(0.0005, 0.03)))
                while time.monotonic() < ends + 20:
                    value = float(t + 1000 * episode)
                    log.log_agent_step("a", t, {"r": value, **({f"v{t // 300}": value} if t % 300 == 0 else {})})
                    expected[episode, t] = value
                    log.log_step(t, {"r": np.array([value + 0.5])}, agent_ids=["b"])
                    if t % 50 == 0:
                        log.log_env_step(t, {"grid": np.full((3, 3), t + episode)})
                        grids[episode, t] = t + episode
                    t += 1
                    if t % 777 == 0:
                        log.flush()
                    if t == 900:
                        log.end_episode()
                        log.begin_episode(seed=episode + 1)
                        episode, t = episode + 1, 0
            except KeyboardInterrupt:
                signal.setitimer(signal.ITIMER_REAL, 0)
                interrupts += 1
                episode = log._stage.clock.episode if log._stage.clock.is_open else log.begin_episode(seed=episode + 1)
                t = log._stage.clock.last_step + 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, timer)
        signal.signal(signal.SIGINT, before)
    report = log.finalize()
    assert interrupts > 20
    assert report.dropped == 0
    with simlab.open_run(path) as ds:
        values = ds.r.sel(agent="a").values
        rows = {(int(e), int(s)): i for i, (e, s) in enumerate(zip(ds.episode.values, ds.step.values, strict=True))}
        for key, value in expected.items():
            assert values[rows[key]] == value, key
        for (k, step), value in grids.items():
            assert (ds.sim.snapshot("grid", int(ds.time.values[rows[k, step]])).values == value).all()
        table = ds.sim.episodes
        assert (np.diff(table.start.values) >= 0).all()
        for k, start, length in zip(table.episode.values, table.start.values, table.length.values, strict=True):
            assert (ds.episode.values[start : start + length] == k).all()


def test_a_row_that_the_journal_refuses_may_be_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The refusal comes while the row is made: rows, steps and episodes stay what they were."""
    log = simlab.HDF5Logger(tmp_path / "run.h5", compression=None)
    log.begin_episode(seed=1)
    real, refuses, refused = Journal.allocate, [False], 0

    def allocate(self: Journal, name, head, size):
        if refuses[0]:
            raise StorageError("full")
        return real(self, name, head, size)

    monkeypatch.setattr(Journal, "allocate", allocate)
    for episode in range(2):
        for t in range(40):
            refuses[0] = True
            try:
                log.log_agent_step("a", t, {"v": np.full(50_000, t + episode)})
            except StorageError:
                refused += 1
                refuses[0] = False
                log.log_agent_step("a", t, {"v": np.full(50_000, t + episode)})
            refuses[0] = False
        log.log_agent_step("b", 10, {"v": np.full(50_000, 200)})
        log.end_episode()
    log.finalize()
    assert refused > 1
    with simlab.open_run(tmp_path / "run.h5") as ds:
        assert ds.step.values.tolist() == [*range(40)] * 2
        assert ds.v.sel(agent="a").values[:, 7].tolist() == [*range(40), *range(1, 41)]
        assert np.flatnonzero(ds.sim.present("v").sel(agent="b").values).tolist() == [10, 50]
        assert ds.sim.episodes.start.values.tolist() == [0, 40]
        assert ds.sim.episodes.length.values.tolist() == [40, 40]
        assert ds.sim.present("seed").values.tolist() == [True, False]
