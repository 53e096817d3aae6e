from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray as xr

import simlab
from simlab.errors import DamageWarning, FormatError, MissingPackageError, NotInRunError
from simlab.read.backend import SimlabBackendEntrypoint
from simlab.storage import decoding
from tests import handmade

SIMULATION = "simulation_0001"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return handmade.write(tmp_path_factory.mktemp("runs") / "run.h5")


@pytest.fixture
def ds(path: Path) -> Any:
    with simlab.open_run(path) as opened:
        yield opened


def same(got: np.ndarray, expected: np.ndarray) -> None:
    assert got.dtype == expected.dtype or got.dtype.kind == expected.dtype.kind == "U"
    np.testing.assert_array_equal(got, expected)


def test_every_value_in_the_type_that_was_logged(ds: xr.Dataset) -> None:
    for name, expected in handmade.values().items():
        assert ds[name].dims[:2] == ("agent", "time")
        same(ds[name].values, expected)


def test_coordinates(ds: xr.Dataset) -> None:
    assert ds.agent.values.tolist() == handmade.IDS
    same(ds.time.values, np.arange(300))
    same(ds.step.values, (np.arange(300) % 100).astype("i4"))
    same(ds.episode.values, (np.arange(300) // 100).astype("i4"))
    same(ds.simulated_time.values, np.arange(300) % 100 * 0.1)
    assert ds.vision_channel.values.tolist() == ["walls", "food", "agents"]
    assert set(ds.coords) == {"agent", "time", "step", "episode", "simulated_time", "vision_channel", "state_snapshots_time"}


def test_only_variables_are_shown(ds: xr.Dataset) -> None:
    assert set(ds.data_vars) == {*handmade.VARIABLES, "resource_count", "state_snapshots", "wind"}


def test_snapshots_have_their_clock_and_full_series_have_the_run_clock(ds: xr.Dataset) -> None:
    assert ds.state_snapshots.dims == ("state_snapshots_time", "state_snapshots_y", "state_snapshots_x")
    assert ds.state_snapshots_time.values.tolist() == [0, 100, 200]
    assert ds.wind.dims == ("time", "wind_channel")


def test_nothing_is_read_before_it_is_asked_for(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[int] = []
    plain = decoding.decode_chunk
    monkeypatch.setattr(decoding, "decode_chunk", lambda *given: decoded.append(1) or plain(*given))
    with simlab.open_run(path) as ds:
        repr(ds)
        ds._repr_html_()
        before = len(decoded)
        part = ds.vision.sel(agent=handmade.IDS[1], time=slice(64, 127), vision_channel="food")
        assert len(decoded) == before
        same(part.values, handmade.values()["vision"][1, 64:128, :, :, 1])
        assert len(decoded) == before + 1
    assert before <= 8  # steps and agents, no variable


def test_attributes(ds: xr.Dataset) -> None:
    assert ds.attrs["seed"] == 4
    assert ds.attrs["lab"] == "Gießen"
    assert ds.attrs["tags"] == '["a"]'  # of a list of one entry, netCDF readers make the entry
    assert ds.sim.attributes["tags"] == ["a"]
    assert ds.attrs["flag"] == 1
    assert json.loads(ds.attrs["config"])["wind"] is None
    assert ds.sim.attributes["flag"] is True
    assert ds.sim.attributes["nothing"] is None
    assert ds.sim.config == {"lr": 0.1, "wind": None, "shape": [3], "nested": {"a": [1, None]}}
    assert ds.actions.attrs["flag_meanings"] == "up down left right stay"
    assert not set(ds.done.attrs) & {"dtype", "coordinates", "_FillValue"}


def test_rows_that_were_not_committed_are_not_shown(tmp_path: Path) -> None:
    with simlab.open_run(handmade.write(tmp_path / "run.h5", committed=150, ended=1)) as ds:
        assert ds.sizes["time"] == 150
        assert ds.state_snapshots_time.values.tolist() == [0, 100]
        assert ds.wind.dims == ("time", "wind_channel")
        same(ds.vision.values, handmade.values()["vision"][:, :150])
        assert ds.sim.present("actions").shape == (5, 150)


def test_no_rows_at_all(tmp_path: Path) -> None:
    with simlab.open_run(handmade.write(tmp_path / "run.h5", committed=0, ended=0)) as ds:
        assert ds.sizes["time"] == 0
        assert ds.load().vision.shape == (5, 0, 7, 7, 3)
        assert ds.sim.episodes.sizes["episode"] == 0
        assert ds.sim.present("actions").sum() == 0


def test_the_stories(ds: xr.Dataset) -> None:
    one = handmade.IDS[3]
    assert ds.rewards.sel(agent=one, time=slice(100, 200)).shape == (101,)
    assert set(ds.rewards.groupby("episode").sum("time").dims) == {"episode", "agent"}
    assert ds.vision.sel(vision_channel="food").mean(("agent", "time")).shape == (7, 7)
    assert ds.sel(agent=one, time=slice(100, 200)).vision.shape == (101, 7, 7, 3)


@pytest.mark.parametrize("engine", ["h5netcdf", "netcdf4"])
def test_the_dataset_saves(ds: xr.Dataset, tmp_path: Path, engine: str) -> None:
    plain = ds.drop_vars("phase")  # netCDF has no complex numbers
    plain.to_netcdf(tmp_path / "flat.nc", engine=engine)
    with xr.open_dataset(tmp_path / "flat.nc", engine=engine) as back:
        for name in plain.variables:
            np.testing.assert_array_equal(back[name].values, plain[name].values, err_msg=str(name))
            kind = plain[name].dtype.kind
            assert back[name].dtype == plain[name].dtype or kind in "MU" or plain[name].dtype == np.float16, name
        assert back.sim.config == ds.sim.config
        assert back.sim.attributes["flag"] is True
    part = plain.isel(agent=[1, 3], time=slice(5, 90))
    part.to_netcdf(tmp_path / "part.nc", engine=engine)
    with xr.open_dataset(tmp_path / "part.nc", engine=engine) as back:
        np.testing.assert_array_equal(back.vision.values, part.vision.values)


def test_complex_numbers_save_where_the_engine_is_told(ds: xr.Dataset, tmp_path: Path) -> None:
    ds[["phase"]].to_netcdf(tmp_path / "a.nc", engine="h5netcdf", invalid_netcdf=True)
    with xr.open_dataset(tmp_path / "a.nc", engine="h5netcdf", invalid_netcdf=True) as back:
        np.testing.assert_array_equal(back.phase.values, ds.phase.values)


def test_dask(path: Path) -> None:
    pytest.importorskip("dask")
    with simlab.open_run(path, chunks={}) as ds:
        assert ds.vision.chunks[:2] == ((1,) * 5, (64, 64, 64, 64, 44))
        same(ds.vision.data.compute(scheduler="threads"), handmade.values()["vision"])
        assert float(ds.hunger.mean()) == pytest.approx(np.nanmean(handmade.values()["hunger"]))
    with simlab.open_run(path, chunks={"time": 1024, "agent": 5}) as ds:
        assert ds.vision.chunks[:2] == ((5,), (300,))


def test_without_dask(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dask", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingPackageError, match=r"dask is needed.*simlab\[dask\]"):
        simlab.open_run(path, chunks={})


def test_the_engine(path: Path, tmp_path: Path) -> None:
    with xr.open_dataset(path, engine=SimlabBackendEntrypoint, drop_variables=["vision", "no such"]) as ds:
        assert "vision" not in ds
        assert ds.sizes["time"] == 300
    guess = SimlabBackendEntrypoint().guess_can_open
    assert guess(path)
    assert guess(str(path))
    for name, content in (("text.h5", b"text"), ("empty.h5", b"")):
        (tmp_path / name).write_bytes(content)
        assert not guess(tmp_path / name)
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["x"] = [1]
    assert not guess(tmp_path / "other.h5")
    assert not guess(tmp_path / "none.h5")
    assert not guess(tmp_path)
    assert not guess(b"bytes")


def test_a_saved_dataset_is_not_taken_for_a_run(ds: xr.Dataset, tmp_path: Path) -> None:
    ds[["rewards"]].to_netcdf(tmp_path / "flat.nc")
    assert not SimlabBackendEntrypoint().guess_can_open(tmp_path / "flat.nc")


def test_the_tree_is_the_file(path: Path) -> None:
    tree = simlab.open_tree(path)
    node = tree[SIMULATION]
    assert set(node.children) >= {"agents", "environment", "episodes", "report"}
    same(tree[f"{SIMULATION}/agents/observations/vision"].values, handmade.values()["vision"])
    same(tree[f"{SIMULATION}/agents/observations/camera/rgb"].values, handmade.values()["camera.rgb"])
    same(tree[f"{SIMULATION}/agents/observations/phase"].values, handmade.values()["phase"])
    assert tree[f"{SIMULATION}/agents/done"].dtype == bool
    assert node.attrs["tags"] == ["a"]
    assert node.attrs["nothing"] is None
    assert tree[f"{SIMULATION}/episodes/outcome"].values.tolist() == ["starved", "won", "lost in the wööds"]
    tree.close()


def test_the_tree_stops_at_what_was_committed(tmp_path: Path) -> None:
    tree = simlab.open_tree(handmade.write(tmp_path / "run.h5", committed=42))
    assert tree[f"{SIMULATION}/agents/rewards"].shape == (5, 42)
    tree.close()


def test_list_runs(tmp_path: Path) -> None:
    path = handmade.write(tmp_path / "all.h5", "demo_10")
    handmade.write(path, "demo_2", mode="a", committed=250, ended=2)
    with h5py.File(path, "r+") as file:
        del file["demo_2"].attrs["seed"]
        file["demo_10"].attrs["seed"] = np.int64(2**53 + 1)
    table = simlab.list_runs(path)
    assert list(table.index) == ["demo_2", "demo_10"]
    assert table.episodes.tolist() == [3, 3]
    assert table.rows.tolist() == [250, 300]
    assert table.agents.tolist() == [5, 5]
    assert table.complete.tolist() == [False, True]
    assert table.seed["demo_10"] == 2**53 + 1
    assert table.environment_type.tolist() == ["grid_world"] * 2
    assert set(table.variables["demo_2"]) == {*handmade.VARIABLES, "resource_count", "state_snapshots", "wind"}


def test_a_simulation_that_lacks_a_clock_is_read_without_it(tmp_path: Path) -> None:
    path = handmade.write(tmp_path / "run.h5")
    with h5py.File(path, "r+") as file:
        del file[SIMULATION]["step"]
    with pytest.warns(DamageWarning, match="there is no 'step'"):
        ds = simlab.open_run(path)
    assert "step" not in ds.coords
    same(ds.rewards.values, handmade.values()["rewards"])


def test_a_simulation_that_lacks_all_its_clocks(tmp_path: Path) -> None:
    path = handmade.write(tmp_path / "run.h5")
    with h5py.File(path, "r+") as file:
        for name in ("time", "step", "episode"):
            del file[SIMULATION][name]
    with pytest.raises(FormatError, match=r"simulation_0001.*lacks time, step and episode"):
        simlab.open_run(path)


def test_what_is_unknown_is_passed_over(tmp_path: Path) -> None:
    path = handmade.write(tmp_path / "run.h5")
    with h5py.File(path, "r+") as file:
        run = file[SIMULATION]
        run["later"] = np.arange(3)
        run["agents/outside"] = h5py.ExternalLink("nowhere.h5", "/x")
        run["agents/circle"] = h5py.SoftLink(f"/{SIMULATION}/agents")
        run["agents/rewards"].attrs["reference"] = run.ref
    with simlab.open_run(path) as ds:
        assert "later" not in ds
        assert set(ds.data_vars) == {*handmade.VARIABLES, "resource_count", "state_snapshots", "wind"}


# -- what the logger writes


def test_populations(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    sight, smell = rng.normal(size=(2, 10, 3)).astype("f4"), rng.integers(0, 9, (10, 2, 2), dtype="u1")
    schema = simlab.Schema(
        populations={
            "prey": simlab.Schema(observations=simlab.Variable("sight", shape=(3,), channels=["left", "ahead", "right"])),
            "predator": simlab.Schema(observations=simlab.Variable("smell", shape=(2, 2), dtype="u1"), rewards=simlab.Variable("rewards")),
        }
    )
    with simlab.HDF5Logger(tmp_path / "run.h5", schema) as log:
        for t in range(10):
            for i in range(2):
                log.log_agent_step(f"prey_{i}", t, {"sight": sight[i, t]})
            log.log_agent_step("predator_0", t, {"smell": smell[t], "rewards": t})
    with simlab.open_run(tmp_path / "run.h5") as ds:
        assert ds["prey.sight"].dims == ("prey", "time", "prey_sight_channel")
        same(ds["prey.sight"].values, sight)
        same(ds["predator.smell"].values, smell[None])
        assert ds.prey.values.tolist() == ["prey_0", "prey_1"]
        assert ds.prey_sight_channel.values.tolist() == ["left", "ahead", "right"]
        assert ds.sim.agents == ["prey_0", "prey_1", "predator_0"]
        assert set(ds.sim.agent("prey_1").data_vars) == {"prey.sight"}
        same(ds.sim.load_observations("predator_0", start=3, end=5)["predator.smell"].values, smell[3:5])
        assert ds.sim.present("predator.rewards").values.all()
        assert ds.sim.transitions("predator_0").reward.values.tolist() == list(range(9))
        ds.to_netcdf(tmp_path / "flat.nc")
    with simlab.open_run(tmp_path / "run.h5", population="prey") as ds:
        assert ds.sight.dims == ("agent", "time", "sight_channel")
        same(ds.sight.sel(sight_channel="ahead").values, sight[:, :, 1])
        assert set(ds.data_vars) == {"sight"}
        assert ds.sim.agents == ["prey_0", "prey_1"]
        assert ds.sim.present("sight").dims == ("agent", "time")
    with pytest.raises(NotInRunError, match=r"population 'pray'; it has .*Did you mean 'prey'"):
        simlab.open_run(tmp_path / "run.h5", population="pray")


@pytest.mark.parametrize(
    ("ids", "coordinate"),
    [
        ([3, 7, 2**53 + 1], [3, 7, 2**53 + 1]),
        (["b", "a"], ["b", "a"]),
        ([("a", 1), ("a", 2)], None),
        (["x", 7], ["x", "7"]),
    ],
)
def test_ids_come_back_as_they_were(tmp_path: Path, ids: list[Any], coordinate: list[Any] | None) -> None:
    with simlab.HDF5Logger(tmp_path / "run.h5") as log:
        for t in range(3):
            for i, agent_id in enumerate(ids):
                log.log_agent_step(agent_id, t, {"rewards": float(i)})
    with simlab.open_run(tmp_path / "run.h5") as ds:
        assert ds.sim.agents == ids
        assert coordinate is None or ds.agent.values.tolist() == coordinate
        for i, agent_id in enumerate(ids):
            assert ds.sim.agent(agent_id).rewards.values.tolist() == [i] * 3
            assert ds.sim.agent(ds.agent.values[i]).rewards.values.tolist() == [i] * 3  # by its label too


def test_names_as_they_were_given(tmp_path: Path) -> None:
    names = ["a/b", "trail ", ".", "größe", "camera.rgb", "2nd", "x y"]
    with simlab.HDF5Logger(tmp_path / "run.h5") as log:
        for t in range(3):
            log.log_agent_step("a", t, {"observations": {name: t + i for i, name in enumerate(names)}})
    with simlab.open_run(tmp_path / "run.h5") as ds:
        for i, name in enumerate(names):
            assert ds[name].values.tolist() == [[i, i + 1, i + 2]]
            assert ds.sim.present(name).values.all()
        assert set(ds.sim.load("a", "observations").data_vars) == set(names)


@pytest.mark.parametrize("unit", ["Y", "D", "h", "s", "ms", "ns", "ps"])
def test_dates_lose_nothing(tmp_path: Path, unit: str) -> None:
    when = np.datetime64(3, unit)
    with simlab.HDF5Logger(tmp_path / "run.h5") as log:
        log.log_agent_step("a", 0, {"when": when})
    with simlab.open_run(tmp_path / "run.h5") as ds:
        value = ds.when.values[0, 0]
        assert (value == when) if ds.when.dtype.kind == "M" else (value == 3 and unit == "ps")


def test_five_thousand_agents_open_at_once(tmp_path: Path) -> None:
    import time

    with simlab.HDF5Logger(tmp_path / "run.h5") as log:
        for t in range(200):
            alive = [f"agent_{i}" for i in range(t * 25, t * 25 + 25)]
            log.log_step(t, agents={"observations": {"x": np.full((25, 4), t, "f4")}, "rewards": np.ones(25)}, agent_ids=alive)
    with simlab.open_run(tmp_path / "run.h5"):
        pass
    start = time.perf_counter()
    with simlab.open_run(tmp_path / "run.h5") as ds:
        taken = time.perf_counter() - start
        assert ds.sizes["agent"] == 5000
        assert ds.sim.agent("agent_4321").rewards.sum() == 1
    assert taken < 1
