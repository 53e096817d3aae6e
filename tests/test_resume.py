"""Going on with a run: after a kill, after a finalize, after a checkpoint that is older than the file."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import simlab
from simlab.errors import InputError, SchemaError
from tests.recorded import small_windows

WRITER = """
    import os, sys
    import numpy as np
    import simlab
    path, first, last, resume, kill = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5] == "kill"
    log = simlab.HDF5Logger(path, mode="a", resume=True if resume < 0 else resume, seed=1)
    if first == 0:
        log.begin_episode(seed=5, kind="long")
    for t in range(first, last):
        for a in range(3 + (t > 450)):
            log.log_agent_step(("agent", a), t, {"x": np.full(5, t, np.float32), "rewards": 0.5, "say": "x" * (t % 40)})
        log.log_env_step(t, {"food": t, "grid": np.full((5, 5), t, np.int16)})
        if t == 100:
            log.attach("kept", {"t": t})
    if kill:
        os.kill(os.getpid(), 9)
    log.end_episode(outcome="done", score=2.5)
    log.finalize()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.h5"


def record(path: Path, first: int, last: int, resume: int = -1, end: str = "kill") -> None:
    code = [sys.executable, "-c", textwrap.dedent(WRITER), str(path), str(first), str(last), str(resume), end]
    out = subprocess.run(code, capture_output=True, text=True, check=False)
    assert out.returncode == (-9 if end == "kill" else 0), out.stderr


def check(path: Path, rows: int) -> None:
    with simlab.open_run(path) as ds:
        want = np.arange(rows)
        assert ds.step.values.tolist() == want.tolist()
        assert ds.time.values.tolist() == want.tolist()
        assert (ds.food.values == want).all()
        assert (ds.grid.values[:, 2, 3] == want).all()
        for a in range(3):
            assert (ds.x.values[a, :, 4] == want).all()
        assert (ds.x.values[3, 451:, 0] == want[451:]).all()
        assert not ds.sim.present("x").values[3, :451].any()
        assert [len(t) for t in ds.say.values[2]] == (want % 40).tolist()
        assert ds.sim.agents == [("agent", i) for i in range(4)]
        assert ds.sim.attachment("kept") == {"t": 100}
        episodes = ds.sim.episodes
        assert episodes.length.values.tolist() == [rows]
        assert (episodes.seed.item(), episodes.kind.item()) == (5, "long")
        assert episodes.return_sum.item() == pytest.approx(0.5 * (3 * rows + rows - 451))


def test_a_run_that_was_killed_twice_goes_on(path: Path) -> None:
    record(path, 0, 333)
    record(path, 333, 700)
    record(path, 700, 900, end="end")
    check(path, 900)
    assert os.listdir(path.parent) == ["run.h5"]
    with simlab.open_run(path) as ds:
        assert [seam["row"] for seam in ds.sim.attributes["resumed"]] == [333, 700]
        assert ds.sim.report["rows"] == 900
        assert ds.sim.episodes.outcome.item() == "done"


@pytest.mark.parametrize("checkpoint", [255, 256, 469, 599])
def test_a_checkpoint_that_is_older_than_the_file(path: Path, checkpoint: int) -> None:
    record(path, 0, 600)
    record(path, checkpoint + 1, 800, resume=checkpoint, end="end")
    check(path, 800)
    with simlab.open_run(path) as ds:
        (seam,) = ds.sim.attributes["resumed"]
        assert (seam["row"], seam["cut_rows"], seam["seed"]) == (checkpoint + 1, 599 - checkpoint, 1)


def test_a_finished_run_goes_on_with_another_episode(path: Path) -> None:
    for k in range(3):
        with simlab.HDF5Logger(path, mode="a", resume=True) as log:
            assert log.simulation == "simulation_0001"
            for t in range(10):
                log.log_agent_step(k, t, {"x": float(t)})
            log.end_episode(score=k)
    with simlab.open_run(path) as ds:
        assert ds.sim.episodes.score.values.tolist() == [0, 1, 2]
        assert ds.sim.agents == [0, 1, 2]
        assert ds.time.values.tolist() == list(range(30))
        assert ds.step.values.tolist() == list(range(10)) * 3
        assert ds.sim.report["values"] == 30


def test_adding_to_a_file_whose_writer_died_recovers_it_first(path: Path) -> None:
    record(path, 0, 300)
    with simlab.HDF5Logger(path, mode="a") as log:
        assert log.simulation == "simulation_0002"
        log.log_env_step(0, {"n": 1})
    table = simlab.list_runs(path)
    assert table.rows.tolist() == [300, 1]
    assert table.complete.tolist() == [True, True]


def test_what_is_declared_has_to_agree(path: Path) -> None:
    with simlab.HDF5Logger(path, {"rewards": {"name": "reward", "dtype": "float32"}}) as log:
        log.log_agent_step("a", 0, {"reward": 1.0})
    with pytest.raises(SchemaError, match="'reward' is declared as int32"):
        simlab.HDF5Logger(path, {"rewards": {"name": "reward", "dtype": "int32"}}, mode="a", resume=True)
    more = {"rewards": {"name": "reward"}, "states": {"name": "mood"}}
    with simlab.HDF5Logger(path, more, mode="a", resume=True) as log:
        log.log_agent_step("a", 1, {"reward": 2.0, "mood": 0.5})
    with simlab.open_run(path) as ds:
        assert ds.reward.values.tolist() == [[1.0, 2.0]]
        assert ds.sim.present("mood").values.tolist() == [[False, True]]


def test_resume_wants_mode_a(path: Path) -> None:
    with pytest.raises(InputError, match="needs mode='a'"):
        simlab.HDF5Logger(path, resume=True)
    with pytest.raises(InputError, match="neither True"):
        simlab.HDF5Logger(path, mode="a", resume=-3)
    assert not path.exists()


def test_windows_that_are_shorter_than_the_chunks_of_the_file(path: Path) -> None:
    """Rows that get wider make windows shorter: several share a chunk that is in the file, and are written one after the other."""
    with simlab.HDF5Logger(path) as log:
        for t in range(100):
            log.log_step(t, {"a": {"rewards": float(t)}}, environment={"food": t + 1})
    with small_windows(16), simlab.HDF5Logger(path, mode="a", resume=True) as log:
        log.begin_episode()
        for t in range(600):
            log.log_step(t, {"a": {"rewards": float(100 + t), "x": np.full(5000, t)}}, environment={"food": 100 + t + 1})
    with simlab.open_run(path) as ds:
        assert ds.food.values.tolist() == list(range(1, 701))
        assert ds.rewards.values[0].tolist() == list(range(700))
        assert ds.sim.present("rewards").values.all()
        assert ds.x.values[0, 100:, -1].tolist() == list(range(600))


LIFE = """
    import os, sys
    import simlab
    path, first, last, how = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    if how == "early":  # the run before is put in order, and nothing is begun yet
        import simlab.record.logger as logger
        logger.Durability.open_journal = lambda *given: os.kill(os.getpid(), 9)
    log = simlab.HDF5Logger(path, mode="a", resume=True)
    if first == 0:
        log.begin_episode(seed=7, map="island")
    for t in range(first, last):
        log.log_agent_step("a", t, {"rewards": 1.0})
    if how == "begin":
        log.begin_episode(seed=8, map="sea")
    os.kill(os.getpid(), 9)
"""


@pytest.mark.filterwarnings("ignore::simlab.errors.UnfinishedRunWarning")
@pytest.mark.parametrize("lives", [[(0, 3, ""), (3, 6, "")], [(0, 3, ""), (3, 3, "early"), (3, 6, "")], [(0, 3, ""), (3, 3, "early")],
                                   [(0, 3, "begin"), (0, 0, "early"), (3, 3, "")]])  # fmt: skip
def test_fields_of_the_open_episode_outlive_every_kill(path: Path, lives: list[tuple[int, int, str]]) -> None:
    for i, (first, last, how) in enumerate(lives):
        first = first if i == 0 else max(first, 1)
        given = [sys.executable, "-c", textwrap.dedent(LIFE), str(path), str(first), str(last), how]
        assert subprocess.run(given, check=False, capture_output=True).returncode == -9
        for repaired in (False, True):
            place = path
            if repaired:
                place = path.with_name(f"repaired_{i}.h5")
                simlab.repair(path, place)
            with simlab.open_run(place) as ds:
                table = ds.sim.episodes
                seeds = [7, 8] if lives[0][2] == "begin" else [7]
                assert table.seed.values.tolist() == seeds
                assert table["map"].values.tolist() == ["island", "sea"][: len(seeds)]
                assert table.complete.values.all()
                assert table.return_sum.values[0] == ds.sizes["time"]


@pytest.mark.filterwarnings("ignore::simlab.errors.UnfinishedRunWarning")
def test_what_an_open_episode_was_told_stays_with_its_simulation(path: Path) -> None:
    life = [sys.executable, "-c", textwrap.dedent(LIFE), str(path)]
    for given in (["0", "3", "begin"], ["1", "3", ""]):
        code = life[2] if given[0] == "0" else life[2].replace("resume=True", 'resume=True, simulation="other"')
        assert subprocess.run([*life[:2], code, str(path), *given], check=False, capture_output=True).returncode == -9
    simlab.repair(path)
    with simlab.open_run(path, "simulation_0001") as ds:
        assert ds.sim.episodes.seed.values.tolist() == [7, 8]
        assert ds.sim.episodes.complete.values.all()
    with simlab.open_run(path, "other") as ds:
        assert ds.sim.episodes.sizes["episode"] == 1
        assert "seed" not in ds.sim.episodes


def test_a_step_that_was_never_reached_is_refused(path: Path) -> None:
    with simlab.HDF5Logger(path) as log:
        for t in range(5):
            log.log_agent_step("a", t, {"reward": 1.0})
    with pytest.raises(InputError, match=r"resume=7 is a step .* ends at step 4.*resume=True"):
        simlab.HDF5Logger(path, mode="a", resume=7)
    assert simlab.list_runs(path).complete.tolist() == [True]
    with simlab.HDF5Logger(path, mode="a", resume=4) as log:
        log.log_agent_step("a", 5, {"reward": 2.0})
    with simlab.open_run(path) as ds:
        assert ds.step.values.tolist() == [0, 1, 2, 3, 4, 5]


def test_a_refused_resume_changes_nothing(path: Path) -> None:
    with simlab.HDF5Logger(path, {"rewards": {"name": "reward", "dtype": "float32"}}) as log:
        log.log_agent_step("a", 0, {"reward": 1.0})
    before = path.read_bytes()
    with pytest.raises(SchemaError):
        simlab.HDF5Logger(path, {"rewards": {"name": "reward", "dtype": "int32"}}, mode="a", resume=True)
    assert simlab.list_runs(path).complete.tolist() == [True]
    with simlab.open_run(path) as ds:
        assert "resumed" not in ds.attrs
    assert len(path.read_bytes()) == len(before)
