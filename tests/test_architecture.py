"""The house stands as it is drawn: imports go down, rooms are small, and a worker loads only what it needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import simlab

PACKAGE = Path(simlab.__file__).parent
ROOT = Path(__file__).parent.parent
ANALYSIS = {"xarray", "pandas", "matplotlib", "ipywidgets", "IPython", "h5netcdf", "dask"}
ROOMS = sorted(PACKAGE.rglob("*.py"))


def loaded_by(code: str) -> set[str]:
    """Return the top-level modules that a fresh interpreter has loaded after running some code."""
    report = "import sys; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", f"{code}\n{report}"], capture_output=True, text=True, check=True, cwd=ROOT)
    return set(done.stdout.split())


def test_imports_go_down() -> None:
    from importlinter.cli import EXIT_STATUS_SUCCESS, lint_imports

    assert lint_imports(config_filename=str(ROOT / "pyproject.toml")) == EXIT_STATUS_SUCCESS


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: str(room.relative_to(PACKAGE)))
def test_rooms_are_small(room: Path) -> None:
    lines = room.read_text(encoding="utf-8").count("\n")
    assert lines <= 350, f"{room} has {lines} lines; split it by what it does"


def test_rooms_say_what_they_are() -> None:
    vague = {"utils", "util", "helpers", "core", "misc", "common", "manager"}
    assert not {room.stem for room in ROOMS} & vague


def test_the_door_loads_nothing_heavy() -> None:
    assert not loaded_by("import simlab") & (ANALYSIS | {"h5py", "isal"})


def test_recording_needs_no_analysis_package(tmp_path: Path) -> None:
    code = f"""
import simlab
with simlab.HDF5Logger({str(tmp_path / "run.h5")!r}, seed=1) as log:
    for step in range(5):
        log.log_agent_step("a", step, {{"vision": [1.0, 2.0], "rewards": 0.5}})
        log.log_env_step(step, {{"food": step}})
"""
    assert not loaded_by(code) & ANALYSIS


def test_h5py_is_loaded_by_storage_alone() -> None:
    for room in ROOMS:
        if "storage" not in room.relative_to(PACKAGE).parts:
            text = room.read_text(encoding="utf-8")
            assert "import h5py" not in text, f"{room} imports h5py; only simlab.storage does"
