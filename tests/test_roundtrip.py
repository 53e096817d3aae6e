"""Every variable and every attribute of a run is read, with the right values, by the readers that other people use.

The files are walked with h5py; what it finds is what each of the others has to find.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

import simlab
from simlab.demo import record_demo
from tests import every_type
from tests.foreign import cdl, readers
from tests.foreign.reading import Reading, differences, manifest


@pytest.fixture(scope="module")
def every_type_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("types") / "types.h5"
    every_type.record(path)
    return path


@pytest.fixture(scope="module")
def short_demo_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo, shorter: ncdump takes 20 µs for every number it prints."""
    path = tmp_path_factory.mktemp("demo") / "demo.h5"
    record_demo(path, episodes=3, steps=60)
    return path


@pytest.fixture(scope="module", params=["short_demo", "pursuit", "every_type"])
def run(request: pytest.FixtureRequest) -> Path:
    """The runs that are held against every reader."""
    made = request.getfixturevalue(f"{request.param}_run")
    return made[0] if isinstance(made, tuple) else made


@pytest.fixture(scope="module")
def expected(run: Path) -> Reading:
    return manifest(run)


def test_the_walk_sees_what_was_recorded(run: Path, expected: Reading) -> None:
    """h5py: the raw datasets hold what the Dataset shows; a walk that misses something would prove nothing."""
    with simlab.open_run(run, simulation="simulation_0001") as ds, h5py.File(run, "r") as file:
        for name in ("vision", "actions", "rewards", "terminated"):
            if name not in ds:
                continue
            (path,) = [p for p in expected.variables if p.startswith("/simulation_0001/agents/") and p.endswith(f"/{name}")]
            raw = file[path]
            values = ds[name].values
            logged = np.broadcast_to(ds.sim.present(name).values.reshape(values.shape[:2] + (1,) * (values.ndim - 2)), values.shape)
            np.testing.assert_array_equal(raw[()][: len(values)].astype(values.dtype)[logged], values[logged])
    assert ("", "Conventions") in expected.attributes
    assert ("/simulation_0001", "config") in expected.attributes
    assert len(expected.variables) > 15
    assert len(expected.attributes) > 30


@pytest.mark.parametrize("engine", ["h5netcdf", "netcdf4"])
def test_xarray(run: Path, expected: Reading, engine: str, require_module) -> None:
    require_module("h5netcdf" if engine == "h5netcdf" else "netCDF4")
    assert differences(expected, readers.with_xarray(run, engine)) == []


@pytest.mark.parametrize("engine", ["h5netcdf", "netcdf4"])
def test_xarray_decodes_what_the_file_says(run: Path, engine: str, require_module) -> None:
    """Without simlab: booleans are booleans, agents have their names."""
    import xarray as xr

    require_module("h5netcdf" if engine == "h5netcdf" else "netCDF4")
    with xr.open_datatree(run, engine=engine) as tree, simlab.open_run(run, simulation="simulation_0001") as ds:
        simulation = tree["simulation_0001"]
        assert simulation["agent_id"].values.tolist() == ds.agent.values.tolist()
        terminated = next(node["terminated"] for node in simulation.subtree if "terminated" in node.variables)
        assert terminated.dtype == bool


def test_netcdf4_python(run: Path, expected: Reading, require_module) -> None:
    require_module("netCDF4")
    assert differences(expected, readers.with_netcdf4(run)) == []


def test_ncdump(run: Path, expected: Reading, require_program) -> None:
    assert differences(expected, cdl.with_ncdump(require_program("ncdump"), run)) == []


def shuffles(dataset: h5py.Dataset) -> bool:
    return bool(dataset.shuffle)


@pytest.mark.parametrize("level", [1, 6])
def test_variables_are_shuffled_where_that_helps(tmp_path: Path, require_module, level: int) -> None:
    """What the first rows tell decides; what comes late, or after the run was taken up again, is written the same way."""
    dice = np.random.default_rng(0)
    repeated = dice.choice([0.1, -0.7, 2.3, 5.9], (900, 4))
    near = np.cumsum(dice.normal(size=(900, 4)), axis=0).astype(np.float32)
    few = dice.choice([2.5, 1e-3, 7.25], (45, 32, 32))
    there = np.ones((900, 4), bool)
    there[100:700, 3] = False
    rewards, xs = np.where(there, repeated, np.nan).T, np.where(there, near, np.float32(np.nan)).T

    def log_rows(log: simlab.HDF5Logger, rows: range) -> None:
        for t in rows:
            log.log_step(t, {"rewards": repeated[t, :3], "x": near[t, :3]}, agent_ids=list("abc"))
            if t % 20 == 0:
                log.log_env_step(t, {"grid": few[t // 20]})

    def log_late(log: simlab.HDF5Logger, rows: range) -> None:
        for t in rows:
            log.log_agent_step("d", t, {"rewards": repeated[t, 3], "x": near[t, 3]})

    path = tmp_path / "run.h5"
    with simlab.HDF5Logger(path, compression=level, checksums=True) as log:
        log_rows(log, range(700))
        log_late(log, range(100))
    with simlab.HDF5Logger(path, mode="a", resume=True, compression=level) as log:
        log_rows(log, range(700, 900))
        log_late(log, range(700, 900))  # the first 700 steps are those of an episode that ended
    agents, grid = "simulation_0001/agents", "simulation_0001/environment/grid"
    with h5py.File(path) as file:
        assert not shuffles(file[f"{agents}/rewards"])
        assert shuffles(file[f"{agents}/observations/x"])
        assert not shuffles(file[grid])
        assert np.array_equal(np.ma.filled(file[f"{agents}/rewards"][...], np.nan), rewards, equal_nan=True)
        assert (file[grid][...] == few).all()
        assert {file[f"{agents}/rewards"].id.get_chunk_info(i).filter_mask for i in range(4)} == {0}
    with require_module("netCDF4").Dataset(path) as file:
        assert np.array_equal(np.ma.filled(file[f"{agents}/rewards"][...], np.nan), rewards, equal_nan=True)
        assert np.array_equal(np.ma.filled(file[f"{agents}/observations/x"][...], np.nan), xs, equal_nan=True)
        assert (file[grid][...] == few).all()
    with simlab.open_run(path) as ds:
        assert np.array_equal(ds.rewards.values, rewards, equal_nan=True)
        assert np.array_equal(ds.x.values, xs, equal_nan=True)
        assert (ds.grid.values == few).all()


def test_the_programs_read_shuffled_variables_and_others(run: Path) -> None:
    found: set[bool] = set()
    with h5py.File(run) as file:
        file.visititems(
            lambda _, each: (
                found.add(shuffles(each)) if isinstance(each, h5py.Dataset) and each.chunks and each.dtype.itemsize > 1 else None
            )
        )
    assert found == {False, True}


def test_octave_netcdf(run: Path, expected: Reading, require_program, tmp_path: Path) -> None:
    """``ncinfo`` for what there is, ``ncread`` for every variable; it gives floats that have a ``_FillValue`` as doubles."""
    found = readers.with_octave_netcdf(require_program("octave-cli"), run, tmp_path)
    for path, values in found.variables.items():
        if (path, "_FillValue") in expected.attributes and values.dtype == np.float64:
            found.variables[path] = values.astype(expected.variables[path].dtype)
    assert differences(expected, found) == []


def test_octave_load_hdf5(run: Path, expected: Reading, require_program, tmp_path: Path) -> None:
    """``load -hdf5`` gives every number, as double where it is a float.

    It knows no attributes, and stops at arrays of characters with two dimensions, so it gets a copy without them.
    """
    copy = readers.without_characters(run, tmp_path / "numbers.h5")
    found = readers.with_octave_hdf5(require_program("octave-cli"), copy, tmp_path)
    numbers = {path: values for path, values in expected.variables.items() if values.dtype.kind != "S"}
    assert len(numbers) > 15
    assert differences(Reading(numbers), found, types=False) == []


def test_r_ncdf4(run: Path, expected: Reading, require_program, tmp_path: Path) -> None:
    """R has doubles only: the values are the same, the types cannot be."""
    largest = max(max(map(abs, v.ravel().tolist())) for v in expected.variables.values() if v.dtype.kind in "iu" and v.size)
    assert largest < 2**53
    found = readers.with_r(require_program("Rscript"), run, tmp_path)
    assert differences(expected, found, types=False) == []


def check_cf(path: Path, report: Path, *options: str) -> list[str]:
    """Return what the IOOS compliance checker has to say against a file, errors and warnings."""
    program = Path(sys.executable).with_name("compliance-checker")
    command = [str(program), "--test=cf:1.11", "--format=json", f"--output={report}", *options, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert report.exists(), done.stderr[-2000:]
    found = json.loads(report.read_text(encoding="utf-8"))["cf:1.11"]
    assert found["possible_points"] > 0
    return [message for check in found["high_priorities"] + found["medium_priorities"] for message in check["msgs"]]


def test_cf_file(demo_run: Path, tmp_path: Path, require_module) -> None:
    require_module("compliance_checker")
    copy = tmp_path / "demo.nc"
    shutil.copy(demo_run, copy)
    assert check_cf(copy, tmp_path / "report.json") == []


def test_cf_dataset(demo_run: Path, tmp_path: Path, require_module) -> None:
    """The run as one flat Dataset, saved by xarray.

    One check is left out: that a dimension called "time" has the standard name "time". CF does not ask for it (see issue 1245 of
    ioos/compliance-checker), and it would be wrong: with that name goes a date, and the run clock counts steps.
    """
    require_module("compliance_checker")
    with simlab.open_run(demo_run) as ds:
        ds.to_netcdf(tmp_path / "flat.nc")
    left_out = "--skip-checks=check_spatiotemporal_dims_have_coordinate_vars"
    assert check_cf(tmp_path / "flat.nc", tmp_path / "report.json", left_out) == []


def test_flat_dataset_comes_back(demo_run: Path, tmp_path: Path) -> None:
    import xarray as xr

    with simlab.open_run(demo_run) as ds:
        ds.to_netcdf(tmp_path / "flat.nc")
        with xr.open_dataset(tmp_path / "flat.nc") as back:
            for name in ds.variables:
                np.testing.assert_array_equal(back[name].values, ds[name].values, err_msg=str(name))
                assert back[name].dtype == ds[name].dtype or ds[name].dtype.kind in "OUT", name


class TestTheComparison:
    """A comparison that cannot fail proves nothing: each kind of difference is seen."""

    one = Reading(
        {"/a": np.array([1.0, np.nan], "f4"), "/t": np.array([[b"a", b"b"], [b"c", b""]], "S1")},
        {("/a", "units"): np.array([b"m"], object), ("/a", "n"): np.array([3], "i4")},
        {"/a": ("x",)},
    )

    def test_same(self) -> None:
        assert differences(self.one, self.one) == []
        whole = replace(self.one, variables={**self.one.variables, "/t": np.array([b"ab", b"c"], object)})
        assert differences(self.one, whole, types=False) == []

    @pytest.mark.parametrize(
        ("path", "values", "told"),
        [
            ("/a", np.array([1.0, 2.0], "f4"), "/a differs"),
            ("/a", np.array([1.0, np.nan], "f8"), "/a has type float64"),
            ("/a", np.array([1.0], "f4"), "/a has shape"),
            ("/t", np.array([[b"a", b"b"], [b"d", b""]], "S1"), "/t differs"),
            ("/new", np.array([1]), "/new is not in the file"),
        ],
    )
    def test_variable(self, path: str, values: np.ndarray, told: str) -> None:
        other = replace(self.one, variables={**self.one.variables, path: values})
        assert told in "\n".join(differences(self.one, other))

    @pytest.mark.parametrize(
        ("key", "value", "told"),
        [
            (("/a", "units"), np.array([b"s"], object), "differs"),
            (("/a", "n"), np.array([3], "i8"), "has type int64"),
            (("", "more"), np.array([3], "i8"), "is not in the file"),
        ],
    )
    def test_attribute(self, key: tuple[str, str], value: np.ndarray, told: str) -> None:
        other = replace(self.one, attributes={**self.one.attributes, key: value})
        assert told in "\n".join(differences(self.one, other))

    def test_missing(self) -> None:
        assert len(differences(self.one, Reading())) == 4
        assert "has dimensions" in differences(self.one, replace(self.one, dims={"/a": ("y",)}))[0]
