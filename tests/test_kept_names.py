"""Names that the run keeps for itself, where an environment gives them: recorded, opened, and read by other programs."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import simlab
from simlab.conventions import RESERVED_NAMES
from simlab.errors import SchemaError
from simlab.schema import Schema, Variable

STEPS = 5
KEPT = sorted(RESERVED_NAMES | {"logged_1"})


def data(t: int) -> dict[str, Any]:
    """Return what a grid world of Gymnasium gives, with the info of its wrapper that counts episodes."""
    return {
        "agent": np.array([t, t + 1]),
        "target": np.array([9, 9]),
        "episode": {"r": t / 2, "l": t, "time": np.float32([t, t, t])},
        "action": {"step": t % 4},
        "states": {"complete": t > 3},
    }


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("kept") / "run.h5"
    with simlab.HDF5Logger(path) as log:
        log.begin_episode()
        for t in range(STEPS):
            log.log_agent_step("a", t, data(t))
            log.log_env_step(
                t, {"time": t * 0.1, "episode": {"agent": f"a{t}"}, "agent": np.full(3, t), "map": {"grid": np.full((2, 2), t)}}
            )
        log.end_episode()
    return path


def test_a_run_shows_the_names_as_they_were_given(path: Path) -> None:
    with simlab.open_run(path) as ds:
        assert ds["observation.agent"].sel(agent="a").values.tolist() == [[t, t + 1] for t in range(STEPS)]
        assert ds["episode.r"].sel(agent="a").values.tolist() == [t / 2 for t in range(STEPS)]
        assert ds["episode.time"].shape == (1, STEPS, 3)
        assert ds["action.step"].attrs["modality"] == "actions"
        assert ds["state.complete"].dtype == bool
        assert ds["environment.time"].values.tolist() == [t * 0.1 for t in range(STEPS)]
        assert ds["episode.agent"].values.tolist() == [f"a{t}" for t in range(STEPS)]
        assert ds["environment.agent"].values[-1].tolist() == [STEPS - 1] * 3
        assert ds["map.grid"].values[:, 0, 0].tolist() == list(range(STEPS))
        assert ds.sim.present("observation.agent").values.all()
        assert ds.sim.present("environment.time").values.all()
        assert ds.coords["agent"].values.tolist() == ["a"]
        assert ds.sim.transitions(observation="observation.agent").sizes["transition"] == STEPS - 1


def test_no_variable_is_named_like_a_dimension(path: Path, require_module: Callable[[str], ModuleType]) -> None:
    netcdf = require_module("netCDF4")

    def groups(group: Any) -> Any:
        yield group
        for inner in group.groups.values():
            yield from groups(inner)

    with netcdf.Dataset(path) as file:
        found = {}
        for group in groups(file):
            for name, variable in group.variables.items():
                if "original_name" in variable.ncattrs():
                    found[variable.original_name] = f"{group.path}/{name}"
                    assert not any(name in outer.dimensions for outer in groups(file))
        assert found["observation.agent"].endswith("agents/observations/observation/agent_")
        assert found["episode.r"].endswith("agents/observations/episode_/r")
        assert found["environment.time"].endswith("environment/environment/time_")
        assert file["simulation_0001/agents/observations/observation/agent_"][:].shape == (1, STEPS, 2)


def test_other_programs_open_it(path: Path, require_module: Callable[[str], ModuleType]) -> None:
    xr = require_module("xarray")
    for engine in ("h5netcdf", "netcdf4"):
        require_module({"netcdf4": "netCDF4"}.get(engine, engine))
        with xr.open_datatree(path, engine=engine) as tree:
            assert tree["simulation_0001/agents/observations/episode_/r"].shape == (1, STEPS)
    if shutil.which("ncdump"):
        header = subprocess.run(["ncdump", "-h", path], capture_output=True, text=True, check=True).stdout
        assert 'original_name = "observation.agent"' in header


@pytest.mark.parametrize("name", KEPT)
def test_every_kept_name_comes_back(tmp_path: Path, name: str) -> None:
    path = tmp_path / "run.h5"
    with simlab.HDF5Logger(path) as log:
        for t in range(3):
            log.log_agent_step("a", t, {name: float(t), "deep": {name: {name: t}}, "actions": {name: t, "other": 1}})
            log.log_env_step(t, {name: t, "sub": {name: [t, t]}})
    with simlab.open_run(path) as ds:
        for shown in (f"observation.{name}", f"deep.{name}.{name}", f"action.{name}"):
            assert ds[shown].sel(agent="a").values.tolist() == [0, 1, 2]
        assert ds[f"environment.{name}"].values.tolist() == [0, 1, 2]
        assert ds[f"sub.{name}"].values.tolist() == [[t, t] for t in range(3)]


def test_a_grid_world_with_its_spaces(tmp_path: Path, require_module: Callable[[str], ModuleType]) -> None:
    s = require_module("gymnasium.spaces")
    space = s.Dict(agent=s.Box(0, 4, (2,), int), target=s.Box(0, 4, (2,), int), step=s.Tuple([s.Discrete(2), s.Discrete(3)]))
    schema = Schema.from_spaces(space, s.Dict(agent=s.Discrete(4)))
    names = ["observation.agent", "target", "step.item_0", "step.item_1", "action.agent"]
    assert {v.name for v in schema.variables()} == {*names, "rewards", "terminated", "truncated"}
    assert Schema.from_dict(schema.to_dict()) == schema
    space.seed(3)
    for declared in (schema, None):
        path = tmp_path / f"{declared is None}.h5"
        sample = space.sample()
        with simlab.HDF5Logger(path, schema=declared) as log:
            log.log_agent_step("a", 0, {"observations": sample, "actions": {"agent": 2}, "rewards": 1.0})
            log.log_agent_step("a", 1, {**sample, "actions": {"agent": 3}, "rewards": 1.0})
        with simlab.open_run(path) as ds:
            assert ds["observation.agent"].values.tolist() == [[sample["agent"].tolist()] * 2]
            assert ds["action.agent"].values.tolist() == [[2, 3]]
            assert ds.sim.transitions()["action"].values.tolist() == [2]


def test_a_declared_name_is_not_one_that_the_run_keeps() -> None:
    for name in KEPT:
        with pytest.raises(SchemaError, match=f"the run keeps '{name}' for itself"):
            Variable(name)
        assert Variable(f"info.{name}", 3).dims == (f"info_{name}__channel",)


@pytest.mark.parametrize("words", [("terminations", "truncations"), ("termination", "truncation"), ("dones", "truncated")])
def test_words_for_the_end_of_an_episode(tmp_path: Path, words: tuple[str, str]) -> None:
    path = tmp_path / "run.h5"
    with simlab.HDF5Logger(path) as log:
        for agent, ends in (("a", (True, False)), ("b", (False, True))):
            for t in range(3):
                last = dict(zip(words, (t == 2 and end for end in ends), strict=True))
                log.log_agent_step(agent, t + 3 * (agent == "b"), {"o": float(t), "actions": t, "rewards": 1.0} | last)
    with simlab.open_run(path) as ds:
        assert {ds[word].attrs["modality"] for word in words} == {"terminations"}
        got = ds.sim.transitions()
        assert got.observation.values.tolist() == [0, 1, 2] * 2
        assert got.terminated.values.tolist() == [False, False, True, False, False, False]
        assert got.truncated.values.tolist() == [False, False, False, False, False, True]
