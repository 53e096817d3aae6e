"""A call that is refused records nothing: the run is what it would be without it."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import simlab
from simlab.errors import AgentError, InputError, StorageError
from simlab.record import pending
from simlab.storage.simulation import SimulationStore

Log = simlab.HDF5Logger
X = np.arange(3, dtype=np.float32)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.h5"


def nothing(log: Log) -> None:
    pass


def some_rows(log: Log) -> None:
    """Two agents and the environment at steps 0 ... 4."""
    for t in range(5):
        for i, who in enumerate(("a", "b")):
            log.log_agent_step(who, t, {"x": X + i, "rewards": 1.0})
        log.log_env_step(t, {"food": t, "grid": np.full((2, 2), t)})
    log.begin_episode(seed=3)
    log.log_step(0, agents={"x": np.stack([X, X])}, agent_ids=["a", "b"], environment={"food": 1})


def flushed_rows(log: Log) -> None:
    """The same, on disk."""
    some_rows(log)
    log.flush()


def many_rows(log: Log) -> None:
    """The same after a window that left."""
    for t in range(300):
        log.log_agent_step("a", t, {"x": X})
    log.begin_episode()
    some_rows(log)


GOOD, BAD = {"x": X, "rewards": 1.0}, {"x": object()}
CALLS: dict[str, Callable[[Log], None]] = {
    "later agent of a dictionary": lambda log: log.log_step(1, agents={"a": GOOD, "b": GOOD, "c": GOOD, "d": BAD}),
    "new names, then a misfit": lambda log: log.log_step(1, agents={"a": GOOD | {"new": "text"}, "b": {"new": "x"}, "c": {"p": {1}}}),
    "agents of another kind": lambda log: log.log_step(
        1, agents={"wolf_1": {"y": 1}, "wolf_2": {"y": 1, "z": X}, "b": {"x": None, "y": b"no"}}
    ),
    "environment after a dictionary": lambda log: log.log_step(1, agents={"a": GOOD, "c": GOOD}, environment={"food": [1, [2]]}),
    "environment after arrays": lambda log: log.log_step(
        1, agents={"x": np.stack([X, X])}, agent_ids=["a", "b"], environment={"food": None, "grid": b"no"}
    ),
    "environment after arrays of new agents": lambda log: log.log_step(
        1, agents={"x": np.stack([X, X]), "q": [1, 2]}, agent_ids=["c", ("d", 1)], environment={"new": 1, "grid": b"no"}
    ),
    "environment after arrays at a row that is there": lambda log: log.log_step(
        0, agents={"x": np.zeros((2, 3))}, agent_ids=["e", "f"], environment={"new": X, "odd": object()}
    ),
    "arrays of two lengths": lambda log: log.log_step(1, agents={"x": np.stack([X, X]), "q": [1]}, agent_ids=["c", "d"]),
    "one agent": lambda log: log.log_agent_step("c", 1, {"new": 1, "x": BAD["x"], "odd": object()}),
    "environment": lambda log: log.log_env_step(1, {"new": 1, "grid": np.full((2, 2), 1), "odd": object()}),
    "episode with a misfit": lambda log: log.log_episode(
        agents={"a": {"x": [X, X]}, "c": {"x": [X, X], "new": [1, 2]}, "d": {"x": [1, [2]]}}, note="lost"
    ),
    "episode with steps that fall": lambda log: log.log_episode(
        {"x": [X, X]}, agent_id="c", environment={"wind": [1, 2]}, timesteps=[4, 2]
    ),
    "episode whose environment misfits": lambda log: log.log_episode({"x": [X, X]}, agent_id="c", environment={"new": [1, 2], "odd": 3}),
}


def after(log: Log) -> None:
    """What is logged when the refused call is over: names and agents of it, with other types."""
    log.log_step(1, agents={"a": {"x": X * 2}, "c": {"new": X}}, environment={"food": 9, "wind": "none"})
    log.log_step(2, agents={"x": np.stack([X, X])}, agent_ids=["b", "d"])
    log.log_episode({"x": [X, X], "q": [0.5, 1.5]}, agent_id="e", note=1)


@pytest.mark.parametrize("before", [nothing, some_rows, flushed_rows, many_rows])
@pytest.mark.parametrize("name", CALLS)
def test_refused_call_records_nothing(tmp_path: Path, name: str, before: Callable[[Log], None]) -> None:
    logs = [simlab.HDF5Logger(tmp_path / f"{which}.h5") for which in ("with", "without")]
    for log in logs:
        before(log)
        if log is logs[0]:
            report, schema = log.report.to_dict(), log.schema
            for _ in range(2):
                with pytest.raises(InputError):
                    CALLS[name](log)
            counts = {k: v for k, v in log.report.to_dict().items() if not k.startswith("seconds")}
            assert counts == {k: report[k] for k in counts}
            assert log.schema == schema
        after(log)
        log.finalize()
    with simlab.open_run(logs[0].path) as ds, simlab.open_run(logs[1].path) as expected:
        assert ds.load().drop_attrs().identical(expected.load().drop_attrs())
        assert list(ds.variables) == list(expected.variables)
        assert ds.sim.episodes.load().drop_attrs().identical(expected.sim.episodes.load().drop_attrs())
        assert ds.sim.report["values"] == expected.sim.report["values"]


def test_refused_first_call_leaves_no_episode(path: Path) -> None:
    with simlab.HDF5Logger(path) as log:
        for call in CALLS.values():
            with pytest.raises(InputError):
                call(log)
        with pytest.raises(simlab.errors.StateError, match="No episode is open"):
            log.end_episode()
        assert log.begin_episode(seed=1) == 0
        with pytest.raises(InputError):
            log.log_agent_step("a", 0, {"x": object()})
        log.log_agent_step("a", 0, {"x": 1.0})
    assert (log.report.episodes, log.report.agents, log.report.rows) == (1, 1, 1)


def test_refused_dictionary_keeps_what_was_at_the_step(path: Path) -> None:
    with simlab.HDF5Logger(path) as log:
        log.log_agent_step("a", 0, {"x": 1.0})
        with pytest.raises(InputError):
            log.log_step(0, agents={"a": {"x": 5.0}, "b": {"x": 2.0}, "c": {"x": "no"}})
        log.log_step(0, agents={"b": {"x": 3.0}})
    assert log.report.overwritten == 0
    with simlab.open_run(path) as ds:
        assert ds.x.values.tolist() == [[1.0], [3.0]]


def test_arrays_that_run_backwards_add_nobody(path: Path) -> None:
    with simlab.HDF5Logger(path) as log:
        for t in range(3):
            log.log_agent_step("a", t, {"x": 1.0})
        for ids in (["b", "a"], ["a", "b"]):
            with pytest.raises(simlab.errors.TimestepError, match="'a' runs backwards"):
                log.log_step(1, agents={"x": [2.0, 2.0], "new": [1, 1]}, agent_ids=ids)
        assert [v.name for v in log.schema.variables()] == ["x"]
    assert (log.report.agents, log.report.rows) == (1, 3)


# -- whose arrays they are


def test_arrays_without_ids_beside_other_agents_are_refused(path: Path) -> None:
    with simlab.HDF5Logger(path) as log:
        log.log_agent_step("wolf", 0, {"x": 1.0})
        log.log_agent_step("prey", 0, {"x": 1.0})
        with pytest.raises(AgentError, match=r"do not say whose they are.*'wolf', 'prey'\)\. Pass agent_ids="):
            log.log_step(1, agents={"x": np.ones(2)})
        log.log_step(1, agents={"x": np.ones(2)}, agent_ids=["wolf", "prey"])
        log.log_step(2, agents={"x": np.ones(2)})
    assert log.report.agents == 2


def test_arrays_without_ids_are_of_the_usual_agents(path: Path) -> None:
    with simlab.HDF5Logger(path) as log:
        log.log_step(0, agents={})
        for i in range(3):
            log.log_agent_step(f"agent_{i}", 0, {"x": float(i)})
        log.log_step(1, agents={"x": np.arange(3.0)})
    with simlab.open_run(path) as ds:
        assert ds.x.values.tolist() == [[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]


# -- a disk that refuses


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    commit, full = SimulationStore.commit, [False]

    def refuse(self: SimulationStore, *given: Any) -> None:
        if full[0]:
            raise OSError(errno.ENOSPC, "full")
        commit(self, *given)

    monkeypatch.setattr(SimulationStore, "commit", refuse)
    return full


NOTHING = "This call did nothing: repeat it."


@pytest.mark.parametrize("kind", ["agent", "dictionary", "arrays", "environment", "array of the environment"])
def test_call_that_is_told_of_a_full_disk_did_nothing(path: Path, full: list[bool], monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(pending, "ENOUGH_BYTES", 3000)
    log, kept, told = simlab.HDF5Logger(path), [], []
    call: Callable[[int], None] = {
        "agent": lambda t: log.log_agent_step("a", t, {"x": float(t)}),
        "dictionary": lambda t: log.log_step(t, agents={"a": {"x": float(t)}}),
        "arrays": lambda t: log.log_step(t, agents={"x": [float(t)]}, agent_ids=["a"]),
        "environment": lambda t: log.log_env_step(t, {"x": float(t)}),
        "array of the environment": lambda t: log.log_env_step(t, {"x": [float(t)], "n": t}),
    }[kind]
    for t in range(2500):
        full[0] = 300 < t < 2000
        try:
            call(t)
            kept.append(float(t))
        except StorageError as e:
            told.append(str(e))
    log.finalize()
    assert told
    assert all("No space left" in text and text.endswith(NOTHING) for text in told)
    with simlab.open_run(path) as ds:
        assert ds.x.values.ravel().tolist() == kept


def test_flush_and_finalize_say_that_the_rows_are_kept(path: Path, full: list[bool]) -> None:
    log = simlab.HDF5Logger(path)
    log.log_agent_step("a", 0, {"x": 1.0})
    full[0] = True
    for call in (log.flush, log.finalize):
        with pytest.raises(StorageError, match="They are kept in memory") as told:
            call()
        assert NOTHING not in str(told.value)
    full[0] = False
    log.finalize()
    with simlab.open_run(path) as ds:
        assert ds.x.values.tolist() == [[1.0]]


def test_trajectory_that_is_cut_says_where(path: Path, full: list[bool]) -> None:
    x = np.arange(5000.0)
    log = simlab.HDF5Logger(path)
    log.log_episode({"x": x[:10]})
    full[0] = True
    with pytest.raises(StorageError, match=r"the first (\d+) of 5000 steps were recorded, as episode 1") as told:
        log.log_episode({"x": x}, note="cut")
    n = int(str(told.value).split("the first ")[1].split()[0])
    for _ in range(3):
        with pytest.raises(StorageError, match=NOTHING):
            log.log_episode({"x": x}, agent_id="b")
    full[0] = False
    for _ in range(2):
        with contextlib.suppress(StorageError):  # the last refusal may not have been told yet
            log.flush()
    log.log_episode({"x": x[n:]})
    log.finalize()
    with simlab.open_run(path) as ds:
        assert ds.x.values.tolist() == [[*x[:10], *x]]
        assert ds.sim.episodes.length.values.tolist() == [10, n, 5000 - n]


def test_many_empty_episodes_on_a_full_disk(path: Path, full: list[bool]) -> None:
    log = simlab.HDF5Logger(path)
    full[0], seeds, told = True, [], []
    for seed in range(600):
        try:
            log.begin_episode(seed=seed)
            seeds.append(seed)
        except StorageError as e:
            told.append(str(e))
    full[0] = False
    log.finalize()
    assert told
    assert all(text.endswith(NOTHING) for text in told)
    with simlab.open_run(path) as ds:
        assert ds.sim.episodes.seed.values.tolist() == seeds
