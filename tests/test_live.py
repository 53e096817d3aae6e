"""A run that is being recorded: opened, refreshed, followed, copied, from this process and from others."""

from __future__ import annotations

import pickle
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest
import xarray as xr

import simlab
from simlab.cli import main
from simlab.errors import RunExistsError, RunNotFoundError, StateError, UnfinishedRunWarning

WRITER = """
    import os, sys, time
    import numpy as np
    import simlab
    path, rows, pause, end = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
    with simlab.HDF5Logger(path, seed=3) as log:
        for t in range(rows):
            if t % 100 == 0:
                log.begin_episode(seed=t)
            step = t % 100
            for a in range(2 + t // 150):
                log.log_agent_step(f"agent_{a}", step, {"x": np.full(3, t, np.float32), "rewards": 1.0, "say": "x" * (t % 50)})
            log.log_env_step(step, {"n": t, "grid": np.full((4, 4), t)} | ({"late": t} if t > 120 else {}))
            time.sleep(pause)
        if end == "kill":
            os.kill(os.getpid(), 9)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.h5"


def start(path: Path, rows: int, pause: float = 0.002, end: str = "end") -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", textwrap.dedent(WRITER), str(path), str(rows), str(pause), end])


def check(ds: xr.Dataset, first: int = 0) -> int:
    """Check every value of some rows of what WRITER records, and return how many they are."""
    n = ds.sizes["time"]
    want = np.arange(first, first + n)
    if not n:
        return 0
    assert (ds.step.values == want % 100).all()
    assert (ds.episode.values == want // 100).all()
    for variable in ds.data_vars.values():
        assert variable.sizes.get("time", n) == n
    # The newest row may be half there: the writer is in the middle of it.
    whole = want[:-1]
    if "n" in ds:
        assert (ds.n.values[:-1] == whole).all()
    if "grid" in ds and ds.grid.dims[0] == "time":
        assert (ds.grid.values[:-1, 1, 2] == whole).all()
    if "x" in ds:
        x, present = ds.x.values, ds.sim.present("x").values
        for a in range(x.shape[0]):
            lives = whole >= max(0, a - 1) * 150
            assert (present[a, :-1] == lives).all()
            assert (x[a, :-1][lives] == whole[lives, None]).all()
            assert np.isnan(x[a, :-1][~lives]).all()
        assert [len(text) for text in ds.say.values[0, :-1]] == (whole % 50).tolist()
    return n


def test_a_run_of_this_process(path: Path) -> None:
    with simlab.HDF5Logger(path) as log:
        assert simlab.open_run(path).sizes["time"] == 0
        opened = []
        for t in range(600):
            log.log_agent_step(("a", t // 300), t, {"x": np.full(2, t), "say": "é" * (t % 7)})
            log.log_env_step(t, {"n": t, "grid": [t, t]})
            if t % 97 == 0 or t in (255, 256, 257, 599):
                ds = simlab.open_run(path)
                assert ds.n.values.tolist() == list(range(t + 1))
                assert ds.grid.values[:, 1].tolist() == list(range(t + 1))
                assert ds.sim.agents == [("a", i) for i in range(t // 300 + 1)]
                assert ds.x.values[t // 300, -1].tolist() == [t, t]
                assert ds.say.values[t // 300, -1] == "é" * (t % 7)
                opened.append((t, ds))
        for t, ds in opened:  # what was opened stays as it was
            assert ds.n.values.tolist() == list(range(t + 1))
    with simlab.open_run(path) as ds:
        assert ds.n.values.tolist() == list(range(600))


def test_presence_of_several_variables(path: Path) -> None:
    with simlab.HDF5Logger(path) as log:
        for t in range(400):
            log.log_agent_step("a", t, {"x": 1.0} | ({"y": 2.0} if t % 2 else {}) | ({"z": 3.0} if t > 300 else {}))
        ds = simlab.open_run(path)
        rows = np.arange(400)
        for name, wanted in (("x", rows >= 0), ("y", rows % 2 == 1), ("z", rows > 300), ("x", rows >= 0)):
            assert (ds.sim.present(name).values[0] == wanted).all()


def test_refresh_gives_the_longer_one(path: Path) -> None:
    with simlab.HDF5Logger(path) as log:
        log.log_env_step(0, {"n": 0})
        first = simlab.open_run(path)
        log.log_env_step(1, {"n": 1})
        second = first.sim.refresh()
        assert (first.n.values.tolist(), second.n.values.tolist()) == ([0], [0, 1])
        log.begin_episode(seed=4)
        log.log_env_step(0, {"n": 2})
        third = second.sim.refresh()
        assert third.sim.episodes.complete.values.tolist() == [True, False]
        assert third.sim.episode(0).sizes["time"] == 2
    assert third.sim.refresh().sim.episodes.seed.values.tolist() == [0, 4]


def test_a_live_dataset_goes_to_another_process(path: Path) -> None:
    with simlab.HDF5Logger(path) as log:
        for t in range(300):
            log.log_agent_step("a", t, {"x": [t, t]})
        ds = simlab.open_run(path)
        there = pickle.loads(pickle.dumps(ds))
        assert there.x.values[0, :, 0].tolist() == list(range(300))


@pytest.mark.slow
def test_another_process_writes_and_several_read(path: Path) -> None:
    writer = start(path, 700)
    problems: list[BaseException] = []

    def read() -> None:
        try:
            ds, rows = simlab.open_run(path, live=True), 0
            while writer.poll() is None:
                assert ds.sizes["time"] >= rows
                rows = check(ds)
                ds.close()
                ds = simlab.open_run(path)
        except BaseException as e:
            problems.append(e)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert writer.wait() == 0
    if problems:
        raise problems[0]
    with simlab.open_run(path) as ds:
        assert check(ds) == 700


@pytest.mark.slow
@pytest.mark.parametrize("end", ["end", "kill"])
def test_follow_steps(path: Path, end: str) -> None:
    writer = start(path, 500, end=end)
    seen = 0
    with pytest.warns(UnfinishedRunWarning) if end == "kill" else _nothing():
        for new in simlab.follow(path, every=0.1, timeout=20):
            assert new.time.values[0] == seen
            seen += check(new, seen)
    assert seen == 500
    writer.wait()


class _nothing:
    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: Any) -> None:
        pass


@pytest.mark.slow
def test_follow_episodes(path: Path) -> None:
    writer = start(path, 350)
    numbers = []
    for episode in simlab.follow(path, by="episodes", every=0.1, timeout=20):
        numbers.append(int(episode.episode[0]))
        assert episode.sizes["time"] in (100, 50)
    assert numbers == [0, 1, 2, 3]
    assert writer.wait() == 0


def test_values_stay_with_their_agents(path: Path) -> None:
    """The windows that are staged hold some of the older agents only, and new ones."""
    log = simlab.HDF5Logger(path)
    for t in range(512):
        for a in "abc":
            log.log_agent_step(a, t, {"v": 1.0})
    for t in range(512, 600):
        for a, v in (("b", 10.0), ("d", 20.0), ("e", 30.0)):
            log.log_agent_step(a, t, {"v": v})
    with simlab.open_run(path) as ds:
        assert ds.agent.values.tolist() == list("abcde")
        assert ds.v.sel(time=599).values[[1, 3, 4]].tolist() == [10.0, 20.0, 30.0]
    log.finalize()
    log = simlab.HDF5Logger(path, mode="a", resume=True)
    log.begin_episode()
    for a in ("f", "c", ("g", 1)):
        log.log_agent_step(a, 0, {"v": 2.0})
    with simlab.open_run(path) as ds:
        assert ds.sim.agents == [*"abcdef", ("g", 1)]
        assert ds.sim.agent(("g", 1)).v.values[-1] == 2.0
    log.finalize()


def test_returns_of_episodes_that_ended_in_staged_rows(path: Path) -> None:
    with simlab.HDF5Logger(path) as log:
        for episode in range(3):
            log.begin_episode(seed=episode)
            for t in range(5):
                log.log_agent_step("a", t, {"rewards": 1.5 * episode, "x": t})
                if episode:
                    log.log_agent_step("b", t, {"rewards": -1})
            if episode == 0:
                log.flush()  # the first one's rows are in the file, and its end is not
        with simlab.open_run(path) as ds:
            table = ds.sim.episodes
            assert table.complete.values.tolist() == [True, True, False]
            assert table.return_sum.values[:2].tolist() == [0.0, 2.5]
            assert table.return_min.values[:2].tolist() == [0.0, -5.0]
            assert np.isnan(table.return_sum.values[2])
            assert ds.sim.present("return_mean").values.tolist() == [True, True, False]
    with simlab.open_run(path) as ds:
        assert ds.sim.episodes.return_sum.values.tolist() == [0.0, 2.5, 10.0]


STORM = """
    import sys, time
    import simlab
    with simlab.HDF5Logger(sys.argv[1]) as log:
        ends, t = time.monotonic() + 6, 0
        while time.monotonic() < ends:
            log.log_agent_step("a", t, {"x": t})
            log.attach(f"note_{t}", {"t": t})
            t += 1
"""


@pytest.mark.slow
def test_readers_get_in_where_structure_changes_all_the_time(path: Path) -> None:
    writer = subprocess.Popen([sys.executable, "-c", textwrap.dedent(STORM), str(path)])
    while not path.exists():
        time.sleep(0.01)
    opened = 0
    while writer.poll() is None:
        with simlab.open_run(path) as ds:
            if "x" in ds:  # not before the first row
                assert ds.x.values.size == 0 or ds.x.values[0].tolist() == list(range(ds.sizes["time"]))
            opened += 1
    assert writer.wait() == 0
    assert opened > 1


def test_follow_gives_up(path: Path) -> None:
    with pytest.raises(RunNotFoundError):
        next(iter(simlab.follow(path, every=0.01, timeout=0.05)))
    with pytest.raises(ValueError, match="neither 'steps' nor 'episodes'"):
        next(iter(simlab.follow(path, by="rows")))  # type: ignore[arg-type]


@pytest.mark.slow
def test_snapshots_are_finished_files(path: Path, tmp_path: Path) -> None:
    writer = start(path, 500)
    while not path.exists():
        time.sleep(0.01)
    rows, k = 0, 0
    while writer.poll() is None:
        told = simlab.snapshot(path, tmp_path / f"{k}.nc")
        assert told.rows["simulation_0001"] >= rows
        rows = told.rows["simulation_0001"]
        with netCDF4.Dataset(tmp_path / f"{k}.nc") as nc:
            assert len(nc["simulation_0001"].dimensions["time"]) == rows
        with simlab.open_run(tmp_path / f"{k}.nc") as ds:
            assert check(ds) == rows
            assert "complete" in ds.sim.episodes
        k += 1
    assert writer.wait() == 0
    assert k > 2


def test_snapshot_refuses_and_takes_what_is_finished(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RunNotFoundError):
        simlab.snapshot(path, tmp_path / "a.nc")
    with simlab.HDF5Logger(path) as log:
        log.log_env_step(0, {"n": 1})
    assert main(["snapshot", str(path), str(tmp_path / "a.nc")]) == 0
    assert "simulation_0001 has 1 rows" in capsys.readouterr().out
    with pytest.raises(RunExistsError):
        simlab.snapshot(path, tmp_path / "a.nc")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.nc", "run.h5"]


@pytest.fixture(autouse=True)
def _no_sidecar_is_left(path: Path) -> Iterator[None]:
    yield
    left = path.with_name(path.name + ".journal")
    assert not left.exists() or path.exists()


def test_follow_hands_out_whole_steps(path: Path) -> None:
    code = """
        import sys, time, simlab
        with simlab.HDF5Logger(sys.argv[1]) as log:
            for t in range(40):
                for a in range(3):
                    log.log_agent_step(f"a{a}", t, {"r": float(t)})
                    time.sleep(0.01)
    """
    writer = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code), str(path)])
    there = np.zeros(3, int)
    for new in simlab.follow(path, every=0.05, timeout=20):
        there += new.sim.present("r").values.sum(axis=1)
    assert there.tolist() == [40, 40, 40]
    assert writer.wait() == 0


@pytest.mark.parametrize("by", ["step", "steps", "episode", "episodes"])
def test_follow_takes_one_and_many(path: Path, by: Any) -> None:
    with simlab.HDF5Logger(path) as log:
        log.log_env_step(0, {"n": 0})
    assert [new.n.values.tolist() for new in simlab.follow(path, by=by)] == [[0]]


def test_follow_stays_with_its_simulation(path: Path) -> None:
    log = simlab.HDF5Logger(path, simulation="s")
    log.log_agent_step("a", 0, {"r": 1.0})
    log.log_agent_step("a", 1, {"r": 1.0})
    following = simlab.follow(path, every=0.05)
    assert next(following).r.values.tolist() == [[1.0]]
    log.log_agent_step("a", 2, {"r": 1.0})
    log.finalize()
    other = simlab.HDF5Logger(path, mode="a", simulation="t")
    other.log_agent_step("a", 0, {"r": 2.0})
    assert [value for new in following for value in new.r.values[0].tolist()] == [1.0, 1.0]
    other.finalize()


@pytest.mark.parametrize("by", ["steps", "episodes"])
def test_follow_tells_of_another_run_in_its_place(path: Path, by: Any) -> None:
    log = simlab.HDF5Logger(path)
    for episode in range(2):
        log.begin_episode()
        for t in range(5):
            log.log_agent_step("a", t, {"r": float(episode)})
    following = simlab.follow(path, by=by, every=0.02)
    assert next(following).sizes["time"] == (9 if by == "steps" else 5)
    log.finalize()
    with simlab.HDF5Logger(path, mode="w") as other:
        for t in range(100):
            other.log_agent_step("a", t, {"r": 9.0})
    told = "rows up to step 3 of episode 1" if by == "steps" else "episodes up to 0"
    with pytest.raises(StateError, match=f"replaced by another run.*{told}"):
        next(following)


def test_follow_tells_of_a_run_that_is_gone_and_made_anew(path: Path) -> None:
    log = simlab.HDF5Logger(path)
    log.log_agent_step("a", 0, {"r": 1.0})
    log.log_agent_step("a", 1, {"r": 1.0})
    following, late = simlab.follow(path, every=0.02), simlab.follow(path, every=0.02)
    assert next(following).sizes["time"] == 1
    assert next(late).sizes["time"] == 1
    log.finalize()
    path.unlink()
    with pytest.raises(RunNotFoundError, match="removed while it was followed; rows up to step 0 of episode 0 were handed out"):
        next(following)
    with simlab.HDF5Logger(path) as log:  # the system may give it the number of the file that is gone
        for t in range(10):
            log.log_agent_step("a", t, {"r": 2.0})
    with pytest.raises(StateError, match="replaced by another run"):
        next(late)


def test_follow_tells_of_rows_that_were_cut_off(path: Path) -> None:
    log = simlab.HDF5Logger(path)
    for t in range(20):
        log.log_agent_step("a", t, {"r": 1.0})
    following = simlab.follow(path, every=0.02)
    assert next(following).sizes["time"] == 19
    log.finalize()
    log = simlab.HDF5Logger(path, mode="a", resume=10)
    for t in range(11, 40):
        log.log_agent_step("a", t, {"r": 2.0})
    with pytest.raises(StateError, match=r"resumed at an earlier step.*step 18 of episode 0"):
        next(following)
    log.finalize()


def test_follow_goes_on_where_a_run_is_resumed(path: Path) -> None:
    log = simlab.HDF5Logger(path)
    for t in range(20):
        log.log_agent_step("a", t, {"r": 1.0})
    following = simlab.follow(path, every=0.02)
    assert next(following).sizes["time"] == 19
    log.finalize()
    log = simlab.HDF5Logger(path, mode="a", resume=True)
    for t in range(20, 40):
        log.log_agent_step("a", t, {"r": 2.0})
    assert next(following).r.values[0].tolist() == [1.0] + [2.0] * 19
    log.finalize()
    assert next(following).r.values.tolist() == [[2.0]]
    assert list(following) == []


@pytest.mark.parametrize("flushes", [0, 1, 2])
def test_an_array_that_was_logged_again_at_time_0(path: Path, flushes: int) -> None:
    def now() -> list[list[int]]:
        with simlab.open_run(path, live=True) as ds:
            return [ds.g.values[:, 0, 0].tolist(), ds[ds.g.dims[0]].values.tolist(), ds.at_all.values[:, 0].tolist()]

    log = simlab.HDF5Logger(path)
    log.log_env_step(0, {"g": np.full((2, 2), 1), "at_all": [5, 5]})
    if flushes:
        log.flush()
    log.log_env_step(0, {"g": np.full((2, 2), 2)})
    assert now() == [[2], [0], [5]]
    if flushes > 1:
        log.flush()
    log.log_env_step(1, {"n": 1})
    log.log_env_step(2, {"g": np.full((2, 2), 3)})
    assert now() == [[2, 3], [0, 2], [5]]
    log.log_env_step(2, {"g": np.full((2, 2), 4)})
    assert now() == [[2, 4], [0, 2], [5]]
    log.finalize()
    assert now() == [[2, 4], [0, 2], [5]]


@pytest.mark.parametrize("flush", [False, True])
def test_what_was_told_at_the_begin_of_the_open_episode(path: Path, flush: bool) -> None:
    def table(known: list[str]) -> tuple[list[Any], ...]:
        with simlab.open_run(path) as ds:
            episodes = ds.sim.episodes
            there = [ds.sim.present(name).values.tolist() for name in known]
            return episodes.seed.values.tolist(), episodes.own.values.tolist(), episodes.part.values.tolist(), *there

    log = simlab.HDF5Logger(path)
    log.begin_episode(seed=5, own="x", part=1)
    log.log_agent_step("a", 0, {"r": 1.0})
    if flush:
        log.flush()
    assert table(["own"]) == ([5], ["x"], [1], [True])
    log.begin_episode(seed=6, own="longer")
    log.log_agent_step("a", 0, {"r": 1.0})
    if flush:
        log.flush()
    assert table(["seed", "own", "part"]) == ([5, 6], ["x", "longer"], [1, 0], [True, True], [True, True], [True, False])
    log.begin_episode(part=0.5)
    log.log_agent_step("a", 0, {"r": 1.0})
    assert table(["part"]) == ([5, 6, 0], ["x", "longer", ""], [1, 0, 0.5], [True, False, True])
    log.finalize()
    assert table(["seed"])[::3] == ([5, 6, 0], [True, True, False])


def test_info_in_the_process_that_records(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with simlab.HDF5Logger(path) as log:
        for t in range(300):
            log.log_agent_step("a", t, {"r": 1.0})
        assert main(["info", str(path)]) == 0
        told = capsys.readouterr().out
        assert "being recorded" in told
        assert "300 rows, 1 agent" in told
        log.log_agent_step("a", 300, {"r": 1.0})
    assert main(["info", str(path)]) == 0
    assert "301 rows" in capsys.readouterr().out
