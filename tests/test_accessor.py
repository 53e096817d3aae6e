from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import simlab
from simlab.errors import AgentError, InputError, NotInRunError, StateError
from tests import handmade

IDS = handmade.IDS
V = handmade.values()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return handmade.write(tmp_path_factory.mktemp("accessor") / "run.h5")


@pytest.fixture
def ds(path: Path) -> Any:
    with simlab.open_run(path) as opened:
        yield opened


def in_memory(ds: xr.Dataset) -> bool:
    return all(v._in_memory for v in ds.variables.values())


def test_modalities_and_variables(ds: xr.Dataset) -> None:
    assert ds.sim.modalities == ["observations", "actions", "rewards", "states", "terminations", "environment"]
    assert set(ds.sim.variables("states")) == {"odd", "hunger"}
    assert set(ds.sim.variables(["actions", "environment"])) == {"actions", "resource_count", "state_snapshots", "wind"}
    assert ds.sim.variables() == list(ds.data_vars)
    with pytest.raises(NotInRunError, match=r"modality 'action'.*Did you mean 'actions'"):
        ds.sim.variables("action")
    with pytest.raises(NotInRunError, match=r"'vision' is a variable"):
        ds.sim.load(modality="vision")


def test_load_observations(ds: xr.Dataset) -> None:
    got = ds.sim.load_observations(IDS[1], start=100, end=200)
    assert in_memory(got)
    assert set(got.data_vars) == set(ds.sim.variables("observations"))
    assert got.sizes["time"] == 100
    assert (got.time.values[0], got.time.values[-1]) == (100, 199)
    np.testing.assert_array_equal(got.vision.values, V["vision"][1, 100:200])
    np.testing.assert_array_equal(got["camera.rgb"].values, V["camera.rgb"][1, 100:200])


def test_load(ds: xr.Dataset) -> None:
    got = ds.sim.load(agent_id=[IDS[2], IDS[0]], modality="actions", start=0, end=50)
    np.testing.assert_array_equal(got.actions.values, V["actions"][[2, 0], :50])
    assert got.agent.values.tolist() == [IDS[2], IDS[0]]
    assert ds.sim.load(modality="rewards", episode=1, end=120).rewards.shape == (5, 20)
    assert ds.sim.load(modality="environment", start=150).state_snapshots_time.values.tolist() == [200]
    assert ds.sim.load(agent_id=[], modality="rewards").rewards.shape == (0, 300)
    assert ds.sim.load(modality="rewards", start=1000).rewards.shape == (5, 0)
    assert ds.sim.load(modality="rewards", start=50, end=20).rewards.shape == (5, 0)
    assert set(ds.sim.load(IDS[0]).data_vars) == set(ds.data_vars)


@pytest.mark.parametrize("bad", ["ten", True, [1]])
def test_a_time_is_a_number(ds: xr.Dataset, bad: Any) -> None:
    with pytest.raises(InputError, match="is no time"):
        ds.sim.load(start=bad)


def test_agents(ds: xr.Dataset) -> None:
    assert ds.sim.agents == IDS
    one = ds.sim.agent(IDS[3])
    np.testing.assert_array_equal(one.rewards.values, V["rewards"][3])
    assert "resource_count" in one
    with pytest.raises(AgentError, match=r"no agent 'agent_3'.*Did you mean 'agent_3é'"):
        ds.sim.agent("agent_3")
    with pytest.raises(AgentError, match="no agent 3"):
        ds.sim.load(agent_id=[IDS[0], 3])


def test_present(ds: xr.Dataset) -> None:
    alive = handmade.alive()
    acted = ds.sim.present("actions")
    assert acted.dims == ("agent", "time")
    assert not acted.variable._in_memory
    expected = alive.copy()
    expected[2, 60:70] = False
    np.testing.assert_array_equal(acted.values, expected)
    np.testing.assert_array_equal(acted.sel(agent=IDS[1]).values, expected[1])
    for name in ("vision", "camera.rgb", "word"):
        np.testing.assert_array_equal(ds.sim.present(name).values, alive)
    np.testing.assert_array_equal(ds.sim.present("resource_count").values, np.arange(300) % 2 == 0)
    assert ds.sim.present("state_snapshots").values.nonzero()[0].tolist() == [0, 100, 200]
    assert ds.sim.present("wind").values.all()
    assert ds.sim.present("outcome").values.tolist() == [False, True, True]
    assert ds.sim.present("start").values.tolist() == [True] * 3
    assert ds.rewards.where(ds.sim.present("actions")).count() == expected.sum()
    with pytest.raises(NotInRunError, match=r"no variable 'action'.*Did you mean 'actions'"):
        ds.sim.present("action")


@pytest.mark.parametrize(
    "part",
    [
        lambda ds: ds.isel(agent=[3, 1], time=slice(50, 130)),
        lambda ds: ds.isel(agent=slice(None, None, -1), time=slice(60, 65)),
        lambda ds: ds.sel(agent=[IDS[2]]),
        lambda ds: ds.sel(agent=IDS[2], time=slice(55, 75)),
        lambda ds: ds.isel(time=62),
        lambda ds: ds.isel(time=slice(0, 0)),
        lambda ds: ds.sim.episode(0),
        lambda ds: ds[["actions"]],
        lambda ds: ds[["actions", "rewards"]].load(),
        lambda ds: ds.copy(deep=True),
        lambda ds: ds.assign(double=ds.rewards * 2),
        lambda ds: pickle.loads(pickle.dumps(ds)),
    ],
)
def test_presence_and_agents_follow_the_selection(ds: xr.Dataset, part: Any) -> None:
    some = part(ds)
    there = some.sim.present("actions")
    assert there.shape == some.actions.shape
    full = ds.sim.present("actions").load()
    np.testing.assert_array_equal(there.values, full.sel(agent=some.agent, time=some.time).values)
    assert some.sim.agents == IDS
    if some.sizes.get("time"):
        first = some.sim.agent(np.atleast_1d(some.agent.values)[0])
        np.testing.assert_array_equal(first.actions.values, np.atleast_2d(some.actions.values)[0])


def test_an_agent_outside_the_selection(ds: xr.Dataset) -> None:
    with pytest.raises(NotInRunError, match="not in this part"):
        ds.isel(agent=[0]).sim.agent(IDS[1])


def test_what_no_longer_knows_its_file(ds: xr.Dataset, tmp_path: Path) -> None:
    plain = ds[["actions", "rewards", "vision"]]
    plain.to_netcdf(tmp_path / "flat.nc")
    with xr.open_dataset(tmp_path / "flat.nc") as back:
        assert back.sim.agents == IDS
        assert back.sim.episode(1).sizes["time"] == 100
        assert back.sim.episodes.length.values.tolist() == [100] * 3
        np.testing.assert_array_equal(back.sim.load_observations(IDS[1], 10, 20).vision.values, V["vision"][1, 10:20])
        for call in (lambda: back.sim.present("actions"), lambda: back.sim.report, lambda: back.sim.attachment("x")):
            with pytest.raises(StateError, match="does not know its run file"):
                call()


def test_snapshot(ds: xr.Dataset) -> None:
    assert int(ds.sim.snapshot("state_snapshots", time=117)[0, 0]) == 36
    assert int(ds.sim.snapshot("state_snapshots", time=100)[0, 0]) == 36
    assert int(ds.sim.snapshot("state_snapshots", 99)[0, 0]) == 0
    assert int(ds.sim.snapshot("state_snapshots")[0, 0]) == 72
    assert int(ds.sim.snapshot("resource_count", time=117)) == 116  # 117 was not logged
    assert float(ds.sim.snapshot("wind", 117.5)[0]) == 234
    with pytest.raises(NotInRunError, match="at or before time -1"):
        ds.sim.snapshot("state_snapshots", -1)
    with pytest.raises(NotInRunError, match="Did you mean 'state_snapshots'"):
        ds.sim.snapshot("state_snapshot", 3)
    with pytest.raises(InputError, match="of the environment"):
        ds.sim.snapshot("rewards", 3)
    with pytest.raises(InputError, match="is no time"):
        ds.sim.snapshot("wind", "3")


def test_report_and_attachments(ds: xr.Dataset, tmp_path: Path) -> None:
    assert ds.sim.report == {"rows": 300, "seconds_logging": 0.5}
    assert ds.sim.attachments == []
    with pytest.raises(NotInRunError, match="there is nothing"):
        ds.sim.attachment("params")
    given = {"policy": {"layers": [64, 64], "w": np.arange(6.0).reshape(2, 3)}, "note": None, "text": "größe", "n": 3, "yes": True}
    with simlab.HDF5Logger(tmp_path / "run.h5", config={"lr": 1}) as log:
        log.log_agent_step("a", 0, {"rewards": 1.0})
        log.attach("params", given)
        log.attach("my weights/2", np.arange(3))
    with simlab.open_run(tmp_path / "run.h5") as run:
        assert run.sim.config == {"lr": 1}
        assert set(run.sim.attachments) == {"params", "my weights/2"}
        got = run.sim.attachment("params")
        np.testing.assert_array_equal(got["policy"].pop("w"), given["policy"].pop("w"))  # type: ignore[attr-defined]
        assert got == given
        assert run.sim.attachment("my weights/2").tolist() == [0, 1, 2]
        assert run.sim.report["rows"] == 1
        with pytest.raises(NotInRunError, match="Did you mean 'params'"):
            run.sim.attachment("parms")


def test_config_may_be_missing(tmp_path: Path) -> None:
    with simlab.HDF5Logger(tmp_path / "run.h5") as log:
        log.log_agent_step("a", 0, {"rewards": 1.0})
    with simlab.open_run(tmp_path / "run.h5") as run:
        assert run.sim.config is None


def test_plot_episode(path: Path) -> None:
    from matplotlib.figure import Figure

    with simlab.open_run(path) as ds:
        assert isinstance(ds.sim.plot_episode(1), Figure)


def test_transitions_tell_of_observations_that_are_logged_now_and_then(tmp_path: Path) -> None:
    with simlab.HDF5Logger(tmp_path / "run.h5") as log:
        for t in range(6):
            log.log_agent_step(
                "a", t, {"obs": float(t), "actions": t, "rewards": 1.0, "terminated": t == 5} | ({"info": 1} if t % 2 == 0 else {})
            )
    with simlab.open_run(tmp_path / "run.h5") as ds:
        with pytest.warns(UserWarning, match=r"'info' \(3 rows\).*transitions\(observation=\['obs'\]\)"):
            assert ds.sim.transitions().step.values.tolist() == [0, 2]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert ds.sim.transitions(observation="obs").step.values.tolist() == [0, 1, 2, 3, 4, 5]
