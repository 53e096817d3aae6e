from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import shutil
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import simlab
from simlab.errors import DamageWarning, FormatError, InputError, RunInUseError, RunNotFoundError, StateError, UnfinishedRunWarning
from simlab.storage import opening
from simlab.storage.finding import find_simulations
from simlab.storage.opening import RunSource, close_handles
from tests import handmade


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return handmade.write(tmp_path / "run.h5")


def can_be_locked(path: Path) -> bool:
    """Whether another program could write the file now."""
    code = f"import fcntl; fcntl.flock(open({str(path)!r}, 'rb'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


def is_open(path: Path) -> bool:
    """Whether this process has the file open."""
    return any(place == str(path) and bool(handle.file) for (place, _), handle in opening._open.items())


def test_one_handle_is_shared_and_the_last_reader_closes_it(run: Path) -> None:
    first, second = RunSource(run), RunSource(run)
    assert first.file() is second.file()
    first.close()
    assert second.file()
    assert is_open(run)
    second.close()
    assert not is_open(run)


def test_a_forgotten_dataset_closes_its_file(run: Path) -> None:
    ds = simlab.open_run(run)
    assert is_open(run)
    del ds
    gc.collect()
    assert not is_open(run)


def test_the_with_block_closes_and_what_was_not_loaded_says_so(run: Path) -> None:
    with simlab.open_run(run) as ds:
        loaded = ds.rewards.load()
    assert not is_open(run)
    assert loaded.shape == (5, 300)
    with pytest.raises(StateError, match="was closed"):
        ds.vision.values  # noqa: B018


def test_closing_one_dataset_leaves_another_of_the_file(run: Path) -> None:
    one, other = simlab.open_run(run), simlab.open_run(run)
    one.close()
    assert other.rewards.values.shape == (5, 300)


def test_reopening_shows_what_was_recorded_since(tmp_path: Path) -> None:
    path = handmade.write(tmp_path / "run.h5")
    old = simlab.open_run(path)
    assert old.sizes["time"] == 300
    close_handles(path)
    handmade.write(path, committed=200)
    assert simlab.open_run(path).sizes["time"] == 200
    with pytest.raises(StateError, match="written again"):
        old.vision.values  # noqa: B018


def test_a_file_that_was_replaced_is_not_taken_for_the_old_one(run: Path, tmp_path: Path) -> None:
    old = simlab.open_run(run)
    handmade.write(tmp_path / "new.h5", committed=100)
    os.replace(tmp_path / "new.h5", run)
    with pytest.raises(StateError, match="replaced"):
        old.vision.values  # noqa: B018
    assert simlab.open_run(run).sizes["time"] == 100


def test_a_file_that_is_gone_says_so(run: Path) -> None:
    old = simlab.open_run(run)
    run.unlink()
    with pytest.raises(RunNotFoundError, match="is gone"):
        old.vision.values  # noqa: B018


def test_a_pickled_dataset_does_not_read_another_file(run: Path) -> None:
    packed = pickle.dumps(simlab.open_run(run))
    handmade.write(run, committed=100)
    with pytest.raises(StateError, match="written again"):
        pickle.loads(packed).vision.values  # noqa: B018


def test_datasets_pickle_by_path(run: Path) -> None:
    ds = simlab.open_run(run)
    packed = pickle.dumps(ds)
    assert len(packed) < 40_000
    again = pickle.loads(packed)
    np.testing.assert_array_equal(again.vision.values, ds.vision.values)
    assert again.sim.agents == ds.sim.agents


def _total(ds: object) -> float:
    return float(ds.vision.astype(float).sum())  # type: ignore[attr-defined]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_read_what_the_parent_opened(run: Path, method: str) -> None:
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"this system has no {method}")
    ds = simlab.open_run(run)
    total = _total(ds)  # the handle and the threads are in use before the fork
    ds = simlab.open_run(run)
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.map(_total, [ds] * 4) == [total] * 4
    assert _total(ds) == total
    assert is_open(run)


def test_many_threads_read_one_dataset(run: Path) -> None:
    ds = simlab.open_run(run)
    expected = handmade.values()
    wrong: list[str] = []

    def read(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for name in rng.permutation(["vision", "rewards", "odd", "hunger", "heat", "word"]):
            start = int(rng.integers(0, 200))
            got = ds[name].isel(agent=slice(1, 4), time=slice(start, start + 90)).values
            if not np.array_equal(got, expected[name][1:4, start : start + 90], equal_nan=got.dtype.kind == "f"):
                wrong.append(name)

    threads = [threading.Thread(target=read, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_home_and_relative_paths(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(run.parent))
    monkeypatch.chdir(run.parent)
    for path in ("~/run.h5", "run.h5", Path("run.h5"), Path("~/run.h5")):
        assert simlab.open_run(path).sizes["time"] == 300
        assert len(simlab.list_runs(path)) == 1


def test_a_read_only_file_in_a_read_only_folder_opens(run: Path) -> None:
    run.chmod(0o444)
    run.parent.chmod(0o555)
    try:
        assert simlab.open_run(run).rewards.values.shape == (5, 300)
    finally:
        run.parent.chmod(0o755)


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"", "empty"), (b"hello\n" * 20, "text"), (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n", "git-LFS")],
)
def test_what_is_no_run_is_named(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "run.h5"
    path.write_bytes(content)
    for opener in (simlab.open_run, simlab.open_tree, simlab.list_runs):
        with pytest.raises(FormatError, match=said) as caught:
            opener(path)
        assert str(path) in str(caught.value)


def test_a_file_that_lacks_its_end_shows_the_rest(run: Path) -> None:
    with simlab.open_run(run) as ds:
        whole = ds.load()
    content = run.read_bytes()
    run.write_bytes(content[:-1])
    with pytest.warns(DamageWarning, match=rf"truncated: it holds {len(content) - 1} of {len(content)} bytes.*What can be read"):
        ds = simlab.open_run(run)
    with ds:
        assert set(ds.data_vars) == set(whole.data_vars)
        assert (ds.time.values == whole.time.values).all()
    with pytest.raises(FormatError, match=r"truncated.*simlab\.open_run shows"):
        simlab.repair(run)
    assert run.read_bytes() == content[:-1]


def test_half_a_file_is_called_truncated(run: Path) -> None:
    content = run.read_bytes()
    run.write_bytes(content[: len(content) // 2])
    with pytest.raises(FormatError, match=rf"truncated.*{len(content) // 2} of {len(content)}"):
        simlab.open_run(run)


def test_missing_files_and_folders(tmp_path: Path) -> None:
    with pytest.raises(RunNotFoundError, match="does not exist"):
        simlab.open_run(tmp_path / "none.h5")
    with pytest.raises(FormatError, match="is a folder"):
        simlab.open_run(tmp_path)
    with pytest.raises(InputError, match="path"):
        simlab.open_run(3)  # type: ignore[arg-type]


def test_a_foreign_file_is_shown_not_opened_empty(tmp_path: Path) -> None:
    path = tmp_path / "demo.hdf5"
    with h5py.File(path, "w") as file:
        file["data/demo_0/actions"] = np.zeros((4, 2))
        file["mask"] = np.zeros(3)
        file["gone"] = h5py.ExternalLink("nowhere.h5", "/x")
    with pytest.raises(FormatError, match=r"data/ \(1 entries\).*mask \(3,\).*open_datatree"):
        simlab.open_run(path)
    with h5py.File(path, "w"):
        pass
    with pytest.raises(FormatError, match="It is empty"):
        simlab.open_run(path)


@pytest.mark.parametrize("version", ["2.0", "10.1"])
def test_a_later_major_format_is_refused(tmp_path: Path, version: str) -> None:
    path = handmade.write(tmp_path / "run.h5", version=version)
    with pytest.raises(FormatError, match=f"format {version}.*pip install --upgrade simlab"):
        simlab.open_run(path)


def test_a_later_minor_format_is_read(tmp_path: Path) -> None:
    path = handmade.write(tmp_path / "run.h5", version="1.7")
    with h5py.File(path, "r+") as file:
        new = file["simulation_0001"].create_group("messages")
        new["sent"] = np.arange(3)
        file["simulation_0001"].attrs["novel"] = np.arange(4)
        file["simulation_0001"]["loop"] = h5py.SoftLink("/simulation_0001")
    assert simlab.open_run(path).sizes["time"] == 300


def test_which_simulation(tmp_path: Path) -> None:
    path = tmp_path / "all.h5"
    handmade.write(path, "demo_10")
    for name in ("demo_2", "teacher_0000/iter_0003", "demo_1"):
        handmade.write(path, name, mode="a", committed=50)
    names = ["demo_1", "demo_2", "demo_10", "teacher_0000/iter_0003"]
    assert find_simulations(str(path)) == names
    assert list(simlab.list_runs(path).index) == names
    with pytest.raises(InputError, match=r"4 simulations: 'demo_1', 'demo_2', 'demo_10'.*simulation='demo_1'"):
        simlab.open_run(path)
    with pytest.raises(RunNotFoundError, match=r"no simulation 'demo_3'.*Did you mean"):
        simlab.open_run(path, simulation="demo_3")
    with pytest.raises(RunNotFoundError, match="teacher_0000"):
        simlab.open_run(path, simulation="teacher_0000")
    with pytest.raises(InputError, match="is no name"):
        simlab.open_run(path, simulation=3)  # type: ignore[arg-type]
    assert simlab.open_run(path, simulation="teacher_0000/iter_0003").sizes["time"] == 50
    assert simlab.open_run(path, simulation="/demo_10/").sizes["time"] == 300


def test_a_file_without_simulations(tmp_path: Path) -> None:
    path = tmp_path / "run.h5"
    with h5py.File(path, "w") as file:
        file.attrs["simlab_format"] = "1.0"
    with pytest.raises(FormatError, match="no simulation was recorded"):
        simlab.open_run(path)
    assert simlab.list_runs(path).empty


def test_a_file_that_another_program_writes(run: Path) -> None:
    code = f"import h5py, sys\nf = h5py.File({str(run)!r}, 'r+')\nprint('open', flush=True)\nsys.stdin.readline()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        with pytest.raises(RunInUseError, match="written by another program"):
            simlab.open_run(run)
        writer.communicate(b"\n")
    assert simlab.open_run(run).sizes["time"] == 300


def test_a_file_that_this_process_writes(run: Path) -> None:
    with h5py.File(run, "r+"), pytest.raises(RunInUseError, match="by this process"):
        simlab.open_run(run)
    assert simlab.open_run(run).sizes["time"] == 300


def test_a_writer_that_died(run: Path) -> None:
    kill = "import h5py, os\nf = h5py.File({!r}, 'r+', libver=('v110', 'v110'))\n{}\nf.flush()\nos.kill(os.getpid(), 9)"
    copy = shutil.copy(run, run.with_name("swmr.h5"))
    for path, mode in ((run, ""), (copy, "f.swmr_mode = True")):
        subprocess.run([sys.executable, "-c", kill.format(str(path), mode)], check=False)
        with pytest.warns(UnfinishedRunWarning, match="did not finish"), simlab.open_run(path) as ds:
            assert ds.rewards.values.shape == (5, 300)


def test_reading_does_not_touch_the_file(run: Path) -> None:
    before = (run.read_bytes(), run.stat().st_mtime_ns)
    with simlab.open_run(run) as ds:
        ds.load()
    assert (run.read_bytes(), run.stat().st_mtime_ns) == before


def test_a_failed_opening_leaves_nothing_open(tmp_path: Path) -> None:
    path = handmade.write(tmp_path / "run.h5", version="9.0")
    with pytest.raises(FormatError):
        simlab.open_run(path)
    assert can_be_locked(path)
    assert not [key for key in opening._open if key[0] == str(path)]


READER = """
    import sys, simlab
    ds = simlab.open_run(sys.argv[1])
    early, late = ds.r.isel(time=slice(0, 100)), ds.r.isel(time=slice(100, None))
    assert (early.values == 1).all()
    print("open", flush=True)
    for line in sys.stdin:
        try:
            told = sorted(set(late.values.ravel().tolist()))
        except simlab.errors.StateError as error:
            told = "written again" in str(error)
        print(told, len(simlab.open_run(sys.argv[1]).time), flush=True)
"""


@pytest.mark.parametrize(("mode", "resume"), [("a", None), ("a", True), ("a", 150), ("w", None)])
def test_a_reader_does_not_stop_a_writer_and_says_that_the_file_was_written_again(
    tmp_path: Path, mode: str, resume: bool | int | None
) -> None:
    path = tmp_path / "run.h5"
    with simlab.HDF5Logger(path, simulation="s") as log:
        for t in range(300):
            log.log_agent_step("a", t, {"r": 1.0})
    again: dict[str, Any] = {"resume": resume} if resume is not None else {}
    start = 151 if resume == 150 else 300 if resume else 0
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(READER), str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as reader:
        assert reader.stdin is not None
        assert reader.stdout is not None

        def look() -> str:
            print(file=reader.stdin, flush=True)
            return reader.stdout.readline().strip()  # type: ignore[union-attr]

        assert reader.stdout.readline() == "open\n"
        log = simlab.HDF5Logger(path, mode=mode, simulation="t" if mode == "a" and not resume else "s", **again)
        for t in range(start, start + 40):
            log.log_agent_step("a", t, {"r": 2.0})
        log.flush()
        looks = [look()] if resume or mode == "w" else []
        log.finalize()
        if resume or mode == "w":
            looks.append(look())
            assert looks == [f"True {start + 40}"] * 2
        else:
            reader.stdin.close()
            assert "2 simulations" not in reader.stdout.read()


def test_a_live_dataset_says_that_rows_were_cut_off_and_logged_anew(tmp_path: Path) -> None:
    path = tmp_path / "run.h5"
    code = """
        import os, sys, simlab
        log = simlab.HDF5Logger(sys.argv[1])
        for t in range(300):
            log.log_agent_step("a", t, {"r": 1.0})
        log.flush()
        print("open", flush=True)
        sys.stdin.readline()
        os.kill(os.getpid(), 9)
    """
    args = [sys.executable, "-c", textwrap.dedent(code), str(path)]
    with subprocess.Popen(args, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        ds = simlab.open_run(path)
        packed = pickle.dumps(ds)
        assert set(ds.r.isel(time=slice(0, 250)).values.ravel().tolist()) == {1.0}
        writer.communicate(b"\n")
    code = """
        import sys, simlab
        with simlab.HDF5Logger(sys.argv[1], mode="a", resume=150) as log:
            for t in range(151, 400):
                log.log_agent_step("a", t, {"r": 2.0})
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code), str(path)], check=True)
    for old in (ds, pickle.loads(packed), ds):
        with pytest.raises(StateError, match="written again"):
            old.r.isel(time=slice(0, 250)).values  # noqa: B018
    assert set(simlab.open_run(path).r.values[0, 151:].tolist()) == {2.0}


def test_workers_do_not_read_what_was_written_since_as_the_old_run(tmp_path: Path) -> None:
    path = tmp_path / "run.h5"
    with simlab.HDF5Logger(path) as log:
        log.log_agent_step("a", 0, {"r": 1.0})
    packed = pickle.dumps(simlab.open_run(path))
    log = simlab.HDF5Logger(path, mode="w")
    log.log_agent_step("a", 0, {"r": 2.0})
    with pytest.raises(StateError, match="written again"):
        pickle.loads(packed).r.values  # noqa: B018
    log.finalize()


def test_others_in_this_process_open_the_file_as_they_like(run: Path) -> None:
    ds = simlab.open_run(run)
    with h5py.File(run, "r") as other:
        assert len(other["simulation_0001"]) > 0
        assert simlab.open_run(run).rewards.values.shape == ds.rewards.shape
    ds.close()
    with h5py.File(run, "r"):
        assert simlab.open_run(run).rewards.values.shape == ds.rewards.shape
        assert not can_be_locked(run)  # by the other one, which has a lock of its own


def test_a_new_dataset_beside_a_stale_one_is_new(run: Path, tmp_path: Path) -> None:
    old = simlab.open_run(run)
    assert old.sizes["time"] == 300
    code = f"from tests import handmade\nimport pathlib\nhandmade.write(pathlib.Path({str(tmp_path / 'new.h5')!r}), committed=200)"
    subprocess.run([sys.executable, "-c", code], check=True)
    with open(run, "r+b") as file:  # in place, as another program writes
        file.truncate(0)
        file.write((tmp_path / "new.h5").read_bytes())
    assert simlab.open_run(run).sizes["time"] == 200
    assert simlab.open_run(run).vision.values.shape[1] == 200
    with pytest.raises(StateError, match="written again"):
        old.vision.values  # noqa: B018


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_reads_and_writes_what_the_parent_has_open(tmp_path: Path) -> None:
    path = tmp_path / "run.h5"
    with simlab.HDF5Logger(path) as log:
        log.log_agent_step("a", 0, {"r": 1.0})
    ds = simlab.open_run(path)
    child = os.fork()
    if not child:
        try:
            assert simlab.open_run(path).r.values.tolist() == [[1.0]]
            log = simlab.HDF5Logger(path, mode="a", resume=True)
            log.log_agent_step("a", 1, {"r": 2.0})
            log.finalize()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    with pytest.raises(StateError, match="written again"):
        ds.r.values  # noqa: B018
    assert simlab.open_run(path).r.values.tolist() == [[1.0, 2.0]]
