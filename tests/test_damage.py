"""A damaged part costs itself: it is named, and what else there is is read."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray as xr

import simlab
from simlab.cli import main
from simlab.errors import DamageWarning, FormatError, NotInRunError, StateError, StorageError
from simlab.storage import decoding
from tests import handmade

SIMULATION = "simulation_0001"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return handmade.write(tmp_path / "run.h5")


def flip(path: Path, name: str, *offset: int) -> None:
    """Change bytes in the middle of a chunk, as a failing disk does."""
    with h5py.File(path) as file:
        info = file[f"{SIMULATION}/{name}"].id.get_chunk_info_by_coord(offset)
    whole = bytearray(path.read_bytes())
    whole[info.byte_offset + info.size // 2] ^= 0xFF
    path.write_bytes(whole)


# -- several simulations


@pytest.fixture
def two(path: Path) -> Path:
    handmade.write(path, "simulation_0002", mode="a")
    with h5py.File(path, "r+") as file:
        run = file[SIMULATION]
        for name in ("time", "step", "episode"):
            del run[name]
            run.create_group(name)
    return path


def test_a_broken_simulation_is_listed_with_its_problem(two: Path) -> None:
    table = simlab.list_runs(two)
    assert list(table.index) == [SIMULATION, "simulation_0002"]
    assert "lacks time, step and episode" in table.problem[SIMULATION]
    assert table.rows[SIMULATION] is not table.rows["simulation_0002"]
    assert (table.rows["simulation_0002"], table.seed["simulation_0002"], table.problem["simulation_0002"]) == (300, 4, "")


def test_a_broken_simulation_does_not_stop_info(two: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", str(two)]) == 0
    out = capsys.readouterr().out
    assert "cannot be read: Simulation 'simulation_0001'" in out
    assert "300" in next(line for line in out.splitlines() if "simulation_0002" in line)
    assert main(["info", str(two), "--json"]) == 0
    broken, whole = json.loads(capsys.readouterr().out)["simulations"]
    assert "lacks time" in broken["problems"][0]
    assert (whole["rows"], whole["problems"]) == (300, [])


def test_a_broken_simulation_does_not_stop_the_others(two: Path) -> None:
    with simlab.open_run(two, simulation="simulation_0002") as ds:
        np.testing.assert_array_equal(ds.rewards.values, handmade.values()["rewards"])
    with pytest.raises(FormatError, match=r"simulation_0001.*lacks time"):
        simlab.open_run(two, simulation=SIMULATION)


# -- chunks


def test_a_flipped_chunk_is_told_by_variable_and_place(path: Path) -> None:
    flip(path, "agents/observations/vision", 1, 64, 0, 0, 0)
    with simlab.open_run(path) as ds:
        with pytest.raises(StorageError, match=r"observations/vision'.*run\.h5.*1 chunk, by place: agent 1-1, time 64-127 "):
            ds.vision.load()
        expected = handmade.values()["vision"]
        np.testing.assert_array_equal(ds.vision[:, :64].values, expected[:, :64])
        np.testing.assert_array_equal(ds.vision[2:].values, expected[2:])


def test_all_damaged_chunks_are_told_at_once(path: Path) -> None:
    for agent in range(3):
        flip(path, "agents/observations/vision", agent, 128, 0, 0, 0)
    with simlab.open_run(path) as ds, pytest.raises(StorageError, match=r"3 chunks.*agent 0-0.*agent 1-1.*agent 2-2"):
        ds.vision.load()


def test_a_clock_with_a_flipped_chunk_is_numbered_anew(path: Path) -> None:
    with h5py.File(path, "r+") as file:
        time = file[f"{SIMULATION}/time"]
        kept, name = time[...], time.name
        del file[name]
        scale = file.create_dataset(name, data=kept, maxshape=(None,), chunks=(1024,), compression="gzip")
        scale.make_scale("time")
    flip(path, "time", 0)
    with pytest.warns(DamageWarning, match="Rows are numbered instead"):
        ds = simlab.open_run(path)
    np.testing.assert_array_equal(ds.time.values, np.arange(300))
    np.testing.assert_array_equal(ds.rewards.values, handmade.values()["rewards"])


def test_a_dataset_that_is_cut_short_is_filled_up_and_told(path: Path) -> None:
    with h5py.File(path, "r+") as file:
        file[f"{SIMULATION}/agents/rewards"].resize(100, axis=1)
        file[f"{SIMULATION}/agents/observations/word"].resize(100, axis=1)
    with pytest.warns(DamageWarning, match=r"agents/rewards' is cut short: it holds 100 of 300 along 'time'"):
        ds = simlab.open_run(path)
    expected = handmade.values()
    assert ds.rewards.dims == ("agent", "time")
    np.testing.assert_array_equal(ds.rewards[:, :100].values, expected["rewards"][:, :100])
    assert np.isnan(ds.rewards[:, 100:].values).all()
    np.testing.assert_array_equal(ds.rewards[0, [5, 99, 100, -1]].values, [*expected["rewards"][0, [5, 99]], np.nan, np.nan])
    assert np.isnan(ds.rewards[0, -1].values)
    np.testing.assert_array_equal(ds.word[:, 98:102].values, np.where([[True, True, False, False]], expected["word"][:, 98:102], ""))


def test_what_no_memory_holds_is_not_asked_for(path: Path) -> None:
    with h5py.File(path, "r+") as file:
        file[f"{SIMULATION}/environment/state_snapshots_time"].resize((1 << 45,))
        file[f"{SIMULATION}/environment/state_snapshots"].resize(1 << 45, axis=0)
    with pytest.warns(DamageWarning, match=r"state_snapshots_time'.*Select a part of it"):
        simlab.open_run(path)


# -- attachments


def test_of_a_damaged_attachment_the_rest_is_returned(tmp_path: Path) -> None:
    path = tmp_path / "run.h5"
    weights = np.random.default_rng(0).random((300, 300))
    with simlab.HDF5Logger(path) as log:
        log.log_agent_step("a", 0, {"rewards": 1.0})
        log.attach("params", {"weights": weights, "inner": {"bias": np.arange(3)}, "text": "x"})
        log.attach("alone", weights)
    for name in ("params/weights", "alone"):
        flip(path, f"attachments/{name}", 0, 0)
    with simlab.open_run(path) as ds:
        with pytest.warns(DamageWarning, match=r"attachments/params/weights'.*damaged in 1 chunk"):
            held = ds.sim.attachment("params")
        assert list(held) == ["inner", "text"]
        np.testing.assert_array_equal(held["inner"]["bias"], np.arange(3))
        with pytest.raises(StorageError, match=r"attachments/alone'.*run\.h5"):
            ds.sim.attachment("alone")


# -- bits, ids


def test_bits_that_cannot_be_read_are_no_bits(path: Path) -> None:
    with h5py.File(path, "r+") as file:
        del file[f"{SIMULATION}/agents/logged"].attrs["flag_masks"]
    with pytest.warns(DamageWarning, match="what was logged is not known"):
        ds = simlab.open_run(path)
    with pytest.raises(StateError, match="bits that tell it are damaged"):
        ds.sim.present("actions")


def test_a_variable_that_was_logged_and_is_gone_is_told(path: Path) -> None:
    with h5py.File(path, "r+") as file:
        del file[f"{SIMULATION}/agents/rewards"]
    with pytest.warns(DamageWarning, match="'rewards' was logged, but is not in the file"):
        simlab.open_run(path)


def test_ids_that_are_gone_are_numbers(path: Path) -> None:
    with h5py.File(path, "r+") as file:
        del file[f"{SIMULATION}/agent_id"]
    with pytest.warns(DamageWarning, match="agents are numbered"):
        ds = simlab.open_run(path)
    assert ds.sim.agents == [str(i) for i in range(5)]


def test_bits_are_read_once_for_all_variables(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[int] = []
    plain = decoding.decode_chunk
    with simlab.open_run(path) as ds:
        monkeypatch.setattr(decoding, "decode_chunk", lambda *given: decoded.append(1) or plain(*given))
        first = ds.sim.present("actions").values
        assert decoded
        decoded.clear()
        assert ds.sim.present("rewards").values.sum() == first.sum() + 10
        assert ds.sim.present("actions").values is not first
        assert ds.sel(time=slice(0, 9)).sim.present("actions").shape == (5, 10)
        assert not decoded


# -- what is not there


def test_a_modality_that_is_not_there(tmp_path: Path) -> None:
    with simlab.HDF5Logger(tmp_path / "run.h5") as log:
        log.log_agent_step("a", 0, {"vision": np.zeros(3), "rewards": 1.0})
    with simlab.open_run(tmp_path / "run.h5") as ds:
        with pytest.raises(NotInRunError, match=r"no modality 'actions' here; there is observations \(vision\), rewards \(rewards\)"):
            ds.sim.load(modality="actions")
        with pytest.raises(NotInRunError, match=r"no modality 'vision'.*'vision' is a variable: ds\['vision'\]"):
            ds.sim.load(modality="vision")
        with pytest.raises(NotInRunError, match="Did you mean 'rewards'"):
            ds.sim.load(modality=["observations", "reward"])


# -- to netCDF


@pytest.mark.parametrize("engine", ["h5netcdf", "netcdf4"])
def test_lists_of_one_entry_and_names_with_slashes_survive_netcdf(tmp_path: Path, engine: Any) -> None:
    with simlab.HDF5Logger(tmp_path / "run.h5", metadata={"tags": ["a"], "sizes": [3], "both": ["a", "b"]}) as log:
        log.log_agent_step("a", 0, {"arm/left": 1.0, "leg": 2.0})
    with simlab.open_run(tmp_path / "run.h5") as ds:
        ds.sim.to_netcdf(tmp_path / "run.nc", engine=engine)
        given = ds.sim.attributes
    with xr.open_dataset(tmp_path / "run.nc", engine=engine) as ds:
        assert (ds.sim.attributes["tags"], ds.sim.attributes["sizes"]) == (given["tags"], given["sizes"]) == (["a"], [3])
        assert list(ds.sim.attributes["both"]) == ["a", "b"]
        assert float(ds["arm_left"][0, 0]) == 1.0
        assert ds["arm_left"].attrs["original_name"] == "arm/left"


def test_a_whole_file_tells_nothing(demo_run: Path, tmp_path: Path) -> None:
    shutil.copy(demo_run, tmp_path / "run.h5")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with simlab.open_run(tmp_path / "run.h5") as ds:
            assert len(ds.sim.episodes.episode) == 6
        with simlab.open_tree(tmp_path / "run.h5") as tree:
            assert SIMULATION in tree
    assert simlab.list_runs(tmp_path / "run.h5").problem.tolist() == [""]
