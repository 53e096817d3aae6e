"""Run files that other programs copied, and files that are none: what can be done with them, and what is said."""

from __future__ import annotations

import subprocess
import warnings
from pathlib import Path

import gymnasium.spaces
import h5py
import numpy as np
import pytest
import xarray as xr

import simlab
from simlab.errors import FormatError, MetadataError, ValueMismatchError


def record(path: Path) -> Path:
    with simlab.HDF5Logger(path, seed=3) as log:
        for t in range(5):
            log.log_agent_step("a", t, {"x": float(t), ".": t})
    return path


def test_a_copy_by_netcdf(tmp_path: Path, require_program) -> None:
    """netCDF writes numbers among the attributes as arrays of one, and a superblock that cannot be written beside readers."""
    path = record(tmp_path / "run.h5")
    subprocess.run([require_program("nccopy"), str(path), str(tmp_path / "copy.h5")], check=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with simlab.open_run(tmp_path / "copy.h5") as ds:
            assert ds.attrs["seed"] == 3
            assert ds.x.values.tolist() == [[0.0, 1.0, 2.0, 3.0, 4.0]]
    before = (tmp_path / "copy.h5").read_bytes()
    for more in ({}, {"resume": True}):
        with pytest.raises(FormatError, match="copied by another program"):
            simlab.HDF5Logger(tmp_path / "copy.h5", mode="a", **more)
    assert (tmp_path / "copy.h5").read_bytes() == before
    assert [p.name for p in tmp_path.iterdir() if p.is_dir()] == []


def test_names_that_netcdf_refuses_are_written_under_others(tmp_path: Path) -> None:
    with simlab.open_run(record(tmp_path / "run.h5")) as ds:
        ds.sim.to_netcdf(tmp_path / "run.nc")
    with xr.open_dataset(tmp_path / "run.nc") as ds:
        (name,) = [n for n in ds.data_vars if ds[n].attrs.get("original_name") == "."]
        assert ds[name].values.tolist() == [[0, 1, 2, 3, 4]]


def test_no_snapshot_of_a_file_that_is_no_run(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["\x1b[2Jevil\n"] = np.zeros(3)
    for call in (lambda: simlab.snapshot(tmp_path / "other.h5", tmp_path / "copy.h5"), lambda: simlab.open_run(tmp_path / "other.h5")):
        with pytest.raises(FormatError, match="no run of simlab") as told:
            call()
        assert "\x1b" not in str(told.value)
    assert [p.name for p in tmp_path.iterdir()] == ["other.h5"]


def test_attributes_that_the_run_keeps_for_itself(tmp_path: Path) -> None:
    with pytest.raises(MetadataError, match="simlab_schema"):
        simlab.HDF5Logger(tmp_path / "run.h5", metadata={"simlab_schema": [1, None]})
    assert list(tmp_path.iterdir()) == []


def test_parts_of_two_spaces_that_are_called_alike(tmp_path: Path) -> None:
    space = gymnasium.spaces.Tuple((gymnasium.spaces.Discrete(5), gymnasium.spaces.Box(-1, 1, (2,))))
    with (
        simlab.HDF5Logger(tmp_path / "run.h5") as log,
        pytest.raises(ValueMismatchError, match="as one of the actions and as one of the"),
    ):
        log.log_agent_step("a", 0, {"observations": space.sample(), "actions": space.sample()})


def test_the_demo_says_what_its_next_step_needs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib.util

    from simlab.cli import main

    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *given: None if name == "jupyterlab" else real(name, *given))
    assert main(["demo", str(tmp_path / "demo"), "--episodes", "1"]) == 0
    assert "pip install jupyterlab" in capsys.readouterr().out
