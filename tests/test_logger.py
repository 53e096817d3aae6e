"""The logger's calls, and what it says to bad input."""

from __future__ import annotations

import dataclasses
import enum
import errno
import gc
import os
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import simlab
from simlab.errors import (
    AgentError,
    FormatError,
    InputError,
    MetadataError,
    RunExistsError,
    RunInUseError,
    RunNotFoundError,
    SchemaError,
    StateError,
    StorageError,
    TimestepError,
    ValueMismatchError,
)
from simlab.staging import encoders
from simlab.storage.simulation import SimulationStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.h5"


# -- the forms of data


def test_flat_and_nested_are_the_same(path: Path) -> None:
    with simlab.HDF5Logger(path) as log:
        log.log_agent_step("a", 0, {"vision": np.zeros(3, np.float32), "rewards": 1.0, "actions": 2, "states": np.ones(2)})
        log.log_agent_step("a", 1, {"observations": {"vision": np.ones(3, np.float32)}, "rewards": 2.0, "actions": 3, "states": np.ones(2)})
        log.log_agent_step("a", 2, {"camera": {"rgb": 7, "depth": {"near": 1.5}}})
    with simlab.open_run(path) as ds:
        assert ds.vision.values[0, :2, 0].tolist() == [0.0, 1.0]
        assert ds.vision.attrs["modality"] == "observations"
        assert ds.states.attrs["modality"] == "states"
        assert ds["camera.rgb"].values[0].tolist() == [0, 0, 7]
        assert ds["camera.depth.near"].values[0, 2] == 1.5
    with h5py.File(path) as f:
        assert "simulation_0001/agents/observations/camera/depth/near" in f
        assert "simulation_0001/agents/actions" in f


def test_forms_of_log_step_agree(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    vision, rewards = rng.random((50, 3, 4)), rng.random((50, 3))
    ids = ["a", "b", "c"]
    files = {}
    for form in ("agent", "arrays", "dicts", "episode"):
        files[form] = tmp_path / f"{form}.h5"
        with simlab.HDF5Logger(files[form]) as log:
            if form == "episode":
                log.log_episode(agents={a: {"vision": vision[:, i], "rewards": rewards[:, i]} for i, a in enumerate(ids)})
                continue
            for t in range(50):
                each = {a: {"vision": vision[t, i], "rewards": rewards[t, i]} for i, a in enumerate(ids)}
                if form == "agent":
                    for a in ids:
                        log.log_agent_step(a, t, each[a])
                elif form == "arrays":
                    given = ids if t == 0 else None
                    log.log_step(t, agents={"observations": {"vision": vision[t]}, "rewards": rewards[t]}, agent_ids=given)
                else:
                    log.log_step(t, agents=each)
    opened = [simlab.open_run(p).load() for p in files.values()]
    for ds in opened[1:]:
        assert ds.drop_attrs().identical(opened[0].drop_attrs())
    assert opened[0].vision.values.tolist() == vision.transpose(1, 0, 2).tolist()


def test_log_step_without_ids_names_agents_as_pettingzoo_does(path: Path) -> None:
    with simlab.HDF5Logger(path) as log:
        log.log_step(0, agents={"rewards": np.zeros(2)})
    with simlab.open_run(path) as ds:
        assert ds.agent.values.tolist() == ["agent_0", "agent_1"]


def test_log_step_of_agents_that_come_and_go(path: Path) -> None:
    with simlab.HDF5Logger(path) as log:
        for t, ids in enumerate([["a", "b"], ["b", "c"], ["c"], [], ["a"]]):
            log.log_step(t, agents={"rewards": np.arange(len(ids), dtype=np.float32) + t}, agent_ids=ids, environment={"n": len(ids)})
    with simlab.open_run(path) as ds:
        assert ds.sim.present("rewards").values.astype(int).tolist() == [[1, 0, 0, 0, 1], [1, 1, 0, 0, 0], [0, 1, 1, 0, 0]]
        assert ds.rewards.sel(agent="c").values[1:3].tolist() == [2.0, 2.0]
        assert ds.n.values.tolist() == [2, 2, 1, 0, 1]


def test_log_episode_takes_a_garage_path(path: Path) -> None:
    with simlab.HDF5Logger(path) as log:
        for k in range(3):
            n = 300 + k
            log.log_episode(
                {
                    "observations": np.full((n, 2), k),
                    "actions": np.arange(n),
                    "rewards": np.ones(n),
                    "env_infos": {"goal": np.arange(n) * 0.5},
                },
                agent_id="agent_0",
                seed=k,
                environment={"wind": np.arange(n), "map": np.zeros((n, 2, 2), np.uint8)},
                success=k == 1,
            )
    with simlab.open_run(path) as ds:
        assert ds.sim.episodes.length.values.tolist() == [300, 301, 302]
        assert ds.sim.episodes.return_sum.values.tolist() == [300.0, 301.0, 302.0]
        assert ds.sim.episodes.success.values.tolist() == [False, True, False]
        assert ds.sim.episode(2).actions.values[0].tolist() == list(range(302))
        assert ds["env_infos.goal"].values[0, 300:304].tolist() == [0.0, 0.5, 1.0, 1.5]
        assert ds["map"].dims[0] == "time"


def test_gymnasium_tuple_values_become_items(path: Path) -> None:
    with simlab.HDF5Logger(path) as log:
        log.log_agent_step(
            "a", 0, {"observation": (np.zeros(2), np.ones((2, 2))), "position": (1.0, 2.0), "camera": (np.zeros(1), np.ones(2))}
        )
    with simlab.open_run(path) as ds:
        assert ds["item_1"].shape == (1, 1, 2, 2)
        assert ds["camera.item_1"].shape == (1, 1, 2)
        assert ds["position"].shape == (1, 1, 2)


def test_what_spaces_sample_is_taken_as_it_is(path: Path) -> None:
    from gymnasium import spaces

    pairs = [
        (spaces.Box(-1, 1, (3,), np.float32), spaces.Tuple((spaces.Discrete(3), spaces.Discrete(2)))),
        (spaces.Dict(a=spaces.Tuple((spaces.Discrete(3), spaces.Discrete(2))), b=spaces.Dict(c=spaces.MultiBinary(4))), spaces.Discrete(2)),
        (spaces.Tuple((spaces.Box(-1, 1, (2, 2)), spaces.Text(5))), spaces.MultiDiscrete([2, 3])),
    ]
    for observation_space, action_space in pairs:
        schema = simlab.Schema.from_spaces(observation_space, action_space)
        with simlab.HDF5Logger(path, schema, mode="w") as log:
            for t in range(3):
                step = {"action": action_space.sample(), "reward": 0.5, "terminated": False, "truncated": t == 2}
                log.log_agent_step("a", t, {"observation": observation_space.sample()} | step)
                log.log_agent_step("b", t, {"observations": observation_space.sample()} | step)
        assert (log.report.rows, log.report.coerced, log.report.overwritten) == (3, 0, 0)
        with simlab.open_run(path) as ds:
            assert {v.name for v in schema.variables()} <= set(ds.variables)
            assert ds.rewards.values.tolist() == [[0.5] * 3] * 2


def test_values_are_copied(path: Path) -> None:
    inventory, vision = [0.0, 0.0], np.zeros(4, np.float32)
    with simlab.HDF5Logger(path) as log:
        for t in range(10):
            inventory[0], vision[0] = t, t
            log.log_agent_step("a", t, {"inventory": inventory, "vision": vision})
            log.log_env_step(t, {"grid": vision})
            vision[:] = -1
    with simlab.open_run(path) as ds:
        assert ds.inventory.values[0, :, 0].tolist() == list(range(10))
        assert ds.vision.values[0, :, 0].tolist() == list(range(10))
        assert ds.grid.values[:, 0].tolist() == list(range(10))


def test_variables_may_be_late_rare_or_none(path: Path) -> None:
    with simlab.HDF5Logger(path) as log:
        for t in range(1000):
            data: dict[str, Any] = {"x": t}
            if t >= 500:
                data["late"] = np.int32(t)
            data["odd"] = t if t % 2 else None
            data["never"] = None
            log.log_agent_step("a", t, data)
    with simlab.open_run(path) as ds:
        assert ds.late.dtype == np.int32
        assert ds.sim.present("late").values[0].tolist() == [False] * 500 + [True] * 500
        assert ds.sim.present("odd").values[0].tolist() == [False, True] * 500
        assert "never" not in ds


@pytest.mark.parametrize("n", [63, 64, 65, 130])
def test_many_variables(path: Path, n: int) -> None:
    with simlab.HDF5Logger(path) as log:
        for t in range(20):
            log.log_agent_step("a", t, {f"v{i:03}": i + t for i in range(n) if (i + t) % 3 or t < 2})
    with simlab.open_run(path) as ds:
        for i in (0, 1, 62, n - 1):
            expected = [bool((i + t) % 3 or t < 2) for t in range(20)]
            assert ds.sim.present(f"v{i:03}").values[0].tolist() == expected
            assert ds[f"v{i:03}"].values[0, 1] == i + 1


def test_variables_that_come_after_the_bits_are_full(path: Path) -> None:
    with simlab.HDF5Logger(path) as log:
        log.log_agent_step("a", 0, {"first": 1})
        log.flush()
        for t in range(1, 90):
            log.log_agent_step("a", t, {f"v{t}": t})
    with simlab.open_run(path) as ds:
        assert [bool(ds.sim.present(f"v{t}").values[0, t]) for t in range(1, 90)] == [True] * 89
        assert [int(ds.sim.present(f"v{t}").sum()) for t in range(1, 90)] == [1] * 89


@pytest.mark.parametrize(("given", "kind"), [(["a", "b"], "U"), ([3, 7], "i"), ([("wolf", 1), ("wolf", 2)], "U"), ([3, "3"], "U")])
def test_ids_come_back_as_they_were(path: Path, given: list[Any], kind: str) -> None:
    with simlab.HDF5Logger(path) as log:
        for a in given:
            log.log_agent_step(a, 0, {"x": 1})
    with simlab.open_run(path) as ds:
        assert list(ds.sim.agents) == given
        assert ds.agent.dtype.kind == kind
        assert len(set(ds.agent.values.tolist())) == 2
        for a in given:
            assert ds.sim.agent(a).x.size == 1


def test_agents_of_two_kinds_form_populations(path: Path) -> None:
    with simlab.HDF5Logger(path) as log:
        for t in range(5):
            log.log_agent_step("wolf_0", t, {"vision": np.zeros((3, 3)), "rewards": 0.0})
            log.log_agent_step("sheep_0", t, {"vision": np.zeros(5), "rewards": 0.0, "wool": 1})
            log.log_agent_step("sheep_1", t, {"vision": np.ones(5), "rewards": 0.0})
    with simlab.open_run(path) as ds:
        assert ds.vision.shape == (1, 5, 3, 3)
        assert ds["sheep.vision"].dims[:2] == ("sheep", "time")
        assert ds["sheep.vision"].shape == (2, 5, 5)
        assert ds.sim.present("sheep.wool").values.tolist() == [[True] * 5, [False] * 5]


def test_declared_populations(path: Path) -> None:
    inner = {
        "wolf": simlab.Schema(observations=simlab.Variable("sight", shape=(2,)), rewards=simlab.Variable("rewards")),
        "sheep": simlab.Schema(observations=simlab.Variable("smell", shape=(3,)), rewards=simlab.Variable("rewards")),
    }
    schema = simlab.Schema(populations=inner, agents={"wolf": ["alpha"]})
    with simlab.HDF5Logger(path, schema) as log:
        log.log_agent_step("alpha", 0, {"sight": [1.0, 2.0], "rewards": 1.0})
        log.log_agent_step("sheep_0", 0, {"smell": [1.0, 2.0, 3.0]})
        log.log_agent_step("dolly", 0, {"smell": [1.0, 2.0, 3.0]})
        with pytest.raises(SchemaError, match="fits none of the populations"):
            log.log_agent_step("cow_0", 0, {"moo": 1.0})
    with simlab.open_run(path, population="sheep") as ds:
        assert ds.smell.dims[:2] == ("agent", "time")
        assert ds.agent.values.tolist() == ["sheep_0", "dolly"]


# -- clocks and episodes


def test_two_clocks(path: Path) -> None:
    with simlab.HDF5Logger(path, step_duration=0.1) as log:
        for _ in range(2):
            log.begin_episode()
            for t in (0, 10, 20):
                log.log_env_step(t, {"n": t})
    with simlab.open_run(path) as ds:
        assert ds.step.values.tolist() == [0, 10, 20, 0, 10, 20]
        assert ds.time.values.tolist() == [0, 10, 20, 21, 31, 41]
        assert ds.simulated_time.values.tolist() == [s * 0.1 for s in (0, 10, 20, 0, 10, 20)]


def test_episodes_of_every_kind(path: Path) -> None:
    with simlab.HDF5Logger(path) as log:
        log.log_agent_step("a", 0, {"rewards": 1.0})  # outside any: episode 0
        log.begin_episode(seed=5)  # of length 0
        log.begin_episode(seed=6, map="small")
        log.log_agent_step("a", 0, {"rewards": 2.0})
        log.log_agent_step("b", 0, {"rewards": 4.0})
        log.end_episode(outcome="starved", score=3, truncated=True)
        log.log_agent_step("a", 0, {"rewards": 1.0})  # outside again: an episode of its own
    assert log.report.episodes == 4
    with simlab.open_run(path) as ds:
        table = ds.sim.episodes
        assert table.length.values.tolist() == [1, 0, 1, 1]
        assert table.start.values.tolist() == [0, 1, 1, 2]
        assert table.return_sum.values[[0, 2, 3]].tolist() == [1.0, 6.0, 1.0]
        assert table.return_min.values[2] == 2.0
        assert table.outcome.values[2] == "starved"
        assert table["map"].values[2] == "small"


def test_thousands_of_empty_episodes(path: Path) -> None:
    with simlab.HDF5Logger(path) as log:
        for k in range(1000):
            log.begin_episode(seed=k)
    with simlab.open_run(path) as ds:
        assert ds.sim.episodes.seed.values.tolist() == list(range(1000))
        assert ds.sizes["time"] == 0


@pytest.mark.parametrize("step", [-1, 2**31, 1.5, "3", None])
def test_timesteps_that_are_none(path: Path, step: Any) -> None:
    with simlab.HDF5Logger(path) as log:
        with pytest.raises(TimestepError, match=r"timestep"):
            log.log_agent_step("a", step, {"x": 1})
        log.log_agent_step("a", 2**31 - 1, {"x": 1})
    assert log.report.rows == 1


def test_steps_in_disorder(path: Path) -> None:
    with simlab.HDF5Logger(path) as log:
        for t in (0, 5, 10):
            log.log_agent_step("a", t, {"x": t})
        log.log_agent_step("b", 5, {"x": 55})  # a slower agent fills rows that are there
        with pytest.raises(TimestepError, match=r"'a' runs backwards: step 5 .*begin_episode"):
            log.log_agent_step("a", 5, {"x": 1})
        with pytest.raises(TimestepError, match=r"step 7 of episode 0 would fall between rows"):
            log.log_agent_step("b", 7, {"x": 1})
        log.log_agent_step("a", 10, {"x": 11})  # the same step again replaces
        log.log_agent_step("a", 10, {"y": 1})
    assert log.report.overwritten == 1
    with simlab.open_run(path) as ds:
        assert ds.x.values.tolist() == [[0, 5, 11], [0, 55, 0]]


# -- values that do not fit


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ({"vision": np.zeros((2, 2), np.float32)}, r"'vision' of agent 'a' at step 1 has shape \(2, 2\), but the schema says \(2, 2, 3\)"),
        ({"count": float("nan")}, r"'count' of agent 'a' at step 1"),
        ({"count": "three"}, r"'count'"),
        ({"count": 300}, r"'count'.*300"),
        ({"count": np.array([1])}, r"'count'.*shape \(1,\)"),
        ({"flag": [True, None]}, r"'flag'"),
        ({"vision": np.full((2, 2, 3), object())}, r"'vision'"),
        ({"rewards": 1e300}, r"'rewards'.*1e\+?300"),
        ({"rewrads": 1.0}, r"'rewrads' of agent 'a' at step 1 is not in the schema.*Did you mean 'rewards'"),
        ({"vision": b"bytes"}, r"'vision'"),
    ],
)
def test_values_that_do_not_fit(path: Path, bad: dict[str, Any], says: str) -> None:
    schema = simlab.Schema(
        observations=[
            simlab.Variable("vision", shape=(2, 2, 3)),
            simlab.Variable("flag", dtype=bool),
            simlab.Variable("count", dtype="int8"),
        ],
        rewards=simlab.Variable("rewards"),
    )
    good = {"vision": np.ones((2, 2, 3), np.float32), "flag": True, "count": 1, "rewards": 1.0}
    with simlab.HDF5Logger(path, schema) as log:
        log.log_agent_step("a", 0, good)
        with pytest.raises(InputError, match=says):
            log.log_agent_step("a", 1, good | bad)
        with pytest.raises(InputError):
            log.log_step(1, agents={n: [v] for n, v in (good | bad).items()}, agent_ids=["a"])
        log.log_agent_step("a", 2, good)
    with simlab.open_run(path) as ds:
        assert ds.step.values.tolist() == [0, 2]
        assert (ds.vision.values == 1).all()


def test_shape_that_changes_says_both_shapes(path: Path) -> None:
    with simlab.HDF5Logger(path) as log:
        log.log_episode({"obs": np.zeros((4, 21, 2))})
        with pytest.raises(ValueMismatchError, match=r"\(21,\).*\(21, 2\)"):
            log.log_agent_step("agent_0", 0, {"obs": np.zeros(21)})
        with pytest.raises(ValueMismatchError, match=r"'rewards'.* has 5 entries .*'obs' has 4"):
            log.log_episode({"obs": np.zeros((4, 21, 2)), "rewards": np.zeros(5)})
    assert (log.report.rows, log.report.episodes) == (4, 1)


@pytest.mark.parametrize("name", ["a/b", "trail ", ".", "größe", "x" * 300, "white space", "a.", "2nd", "日本"])
def test_odd_names_are_kept(path: Path, name: str) -> None:
    with simlab.HDF5Logger(path) as log:
        log.log_agent_step("a", 0, {name: 1.5})
        log.log_env_step(0, {"env" + name: 2})
    with simlab.open_run(path) as ds:
        assert ds[name].values.tolist() == [[1.5]]
        assert ds["env" + name].values.tolist() == [2]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"": 1}, "empty"),
        ({"x": {"y": 1}, "x.y": 2}, "given twice"),
        ({"x": 1, "x.y": 2}, "clash"),
        ({"a/b": 1, "a_b": 1}, "clash"),
        ({"observations": {"p": 1}, "states": {"p": 2}}, "twice|unique"),
    ],
)
def test_names_that_clash(path: Path, data: dict[str, Any], says: str) -> None:
    with simlab.HDF5Logger(path) as log:
        with pytest.raises(InputError, match=says):
            log.log_agent_step("a", 0, data)
        log.log_agent_step("a", 0, {"fine": 1})
    assert log.report.rows == 1


@pytest.mark.parametrize("bad", [None, 1.5, True, b"a", ["a"], ("a", 1.5), "a\0b", {"a": 1}])
def test_ids_that_are_none(path: Path, bad: Any) -> None:
    with simlab.HDF5Logger(path) as log:
        with pytest.raises(AgentError, match="agent id"):
            log.log_agent_step(bad, 0, {"x": 1})
        with pytest.raises(AgentError, match="agent id"):
            log.log_step(0, agents={"x": [1]}, agent_ids=[bad])
        log.log_agent_step("fine", 0, {"x": 1})
    assert log.report.agents == 1


def test_log_step_with_wrong_ids(path: Path) -> None:
    with simlab.HDF5Logger(path) as log:
        with pytest.raises(ValueMismatchError, match="2 agents on its first axis, but there are 3"):
            log.log_step(0, agents={"x": np.zeros(2)}, agent_ids=["a", "b", "c"])
        with pytest.raises(AgentError, match="twice"):
            log.log_step(0, agents={"x": np.zeros(2)}, agent_ids=["a", "a"])
        with pytest.raises(ValueMismatchError, match="agent axis first"):
            log.log_step(0, agents={"x": 1.0}, agent_ids=["a"])
    assert (log.report.rows, log.report.agents) == (0, 0)


def test_coerced_values_are_counted(path: Path) -> None:
    with simlab.HDF5Logger(path, {"observations": {"x": {"dtype": "float32", "shape": [2]}}}) as log:
        log.log_agent_step("a", 0, {"x": np.zeros(2, np.float32)})
        log.log_agent_step("a", 1, {"x": np.zeros(2, np.float64)})
        log.log_agent_step("a", 2, {"x": [0.0, 1.0]})
    assert log.report.coerced == 1


# -- files


def test_modes(path: Path) -> None:
    with simlab.HDF5Logger(path) as log:
        log.log_agent_step("a", 0, {"x": 1})
    with pytest.raises(RunExistsError, match="mode='w'"):
        simlab.HDF5Logger(path)
    with simlab.HDF5Logger(path, mode="a") as log:
        log.log_agent_step("a", 0, {"x": 2.5})
    assert log.simulation == "simulation_0002"
    with simlab.HDF5Logger(path, mode="a", simulation="teacher_0000/iter_0003") as log:
        log.log_agent_step("b", 0, {"y": 2.5})
    with pytest.raises(RunExistsError, match="already"):
        simlab.HDF5Logger(path, mode="a", simulation="simulation_0001")
    for inside in ("simulation_0001/agents", "teacher_0000"):
        with pytest.raises(RunExistsError, match="inside"):
            simlab.HDF5Logger(path, mode="a", simulation=inside)
    assert list(simlab.list_runs(path).index) == ["simulation_0001", "simulation_0002", "teacher_0000/iter_0003"]
    assert simlab.open_run(path, simulation="teacher_0000/iter_0003").y.values.tolist() == [[2.5]]
    with simlab.HDF5Logger(path, mode="w") as log:
        log.log_agent_step("a", 0, {"x": 3})
    with simlab.open_run(path) as ds:
        assert ds.x.values.tolist() == [[3]]


def test_files_that_cannot_be_made(tmp_path: Path, path: Path) -> None:
    with pytest.raises(RunNotFoundError, match="missing"):
        simlab.HDF5Logger(tmp_path / "missing" / "run.h5")
    with pytest.raises(RunExistsError, match="folder"):
        simlab.HDF5Logger(tmp_path)
    with pytest.raises(InputError, match="mode"):
        simlab.HDF5Logger(path, mode="r")  # type: ignore[arg-type]
    with pytest.raises(SchemaError, match="compression"):
        simlab.HDF5Logger(path, compression="gzipp")
    with pytest.raises(InputError, match="group"):
        simlab.HDF5Logger(path, simulation="a//b")
    assert not path.exists() or path.stat().st_size
    text = tmp_path / "text.h5"
    text.write_text("hello")
    with pytest.raises(FormatError):
        simlab.HDF5Logger(text, mode="a")
    assert text.read_text() == "hello"
    with h5py.File(tmp_path / "foreign.h5", "w") as f:
        f["x"] = 1
    with pytest.raises(FormatError, match="not written by simlab"):
        simlab.HDF5Logger(tmp_path / "foreign.h5", mode="a")


def test_file_that_another_writer_has_open(path: Path) -> None:
    log = simlab.HDF5Logger(path)
    log.log_agent_step("a", 0, {"x": 1})
    for mode in ("w", "a"):
        call = f"simlab.HDF5Logger({str(path)!r}, mode={mode!r})"
        code = f"import simlab\ntry: {call}\nexcept simlab.errors.RunInUseError as e: print('refused', e)"
        out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        assert out.startswith("refused"), out
        with pytest.raises(RunInUseError):
            simlab.HDF5Logger(path, mode=mode)  # type: ignore[arg-type]
    log.log_agent_step("a", 1, {"x": 2})
    log.close()
    with simlab.open_run(path) as ds:
        assert ds.x.values.tolist() == [[1, 2]]


def test_file_that_a_reader_elsewhere_has_open(path: Path) -> None:
    with simlab.HDF5Logger(path) as log:
        log.log_agent_step("a", 0, {"x": 1})
    reader = subprocess.Popen(
        [sys.executable, "-c", f"import h5py; f = h5py.File({str(path)!r}); print('open', flush=True); input()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert reader.stdout is not None
    reader.stdout.readline()
    before = path.read_bytes()
    with pytest.raises(RunInUseError, match="open in another program"):
        simlab.HDF5Logger(path, mode="w")
    assert path.read_bytes() == before
    reader.communicate("\n")
    simlab.HDF5Logger(path, mode="w").close()


def test_recorded_again_while_shown_here(path: Path) -> None:
    for k in range(3):
        with simlab.HDF5Logger(path, mode="w") as log:
            log.log_agent_step("a", 0, {"x": k})
        ds = simlab.open_run(path)
        assert ds.x.values.tolist() == [[k]]
        str(ds)  # stays open, as after a cell


def test_logging_after_close(path: Path) -> None:
    log = simlab.HDF5Logger(path)
    log.log_agent_step("a", 0, {"x": 1})
    report = log.finalize()
    assert log.close() is report
    for call in (
        lambda: log.log_agent_step("a", 1, {"x": 1}),
        lambda: log.begin_episode(),
        lambda: log.flush(),
        lambda: log.attach("a", {}),
    ):
        with pytest.raises(StateError, match="finalized"):
            call()
    with pytest.raises(StateError, match="No episode is open"), simlab.HDF5Logger(path, mode="w") as log:
        log.end_episode()


@pytest.mark.parametrize("schema", [None, {"observations": {"x": {"shape": [3]}}, "environment": {"grid": {"shape": [4, 4]}, "n": {}}}])
def test_empty_runs(path: Path, schema: Any) -> None:
    simlab.HDF5Logger(path, schema).close()
    with simlab.open_run(path) as ds:
        assert (ds.sizes["time"], ds.sizes["agent"]) == (0, 0)
        if schema:
            assert ds.x.shape == (0, 0, 3)
            assert ds.grid.shape[1:] == (4, 4)
    with simlab.HDF5Logger(path, schema, mode="w") as log:
        log.log_step(0, agents={}, environment={"n": 1.0})
    with simlab.open_run(path) as ds:
        assert (ds.sizes["time"], ds.sizes["agent"]) == (1, 0)


def test_what_the_loop_logged_before_it_failed_is_there(path: Path) -> None:
    code = f"""
        import simlab
        log = simlab.HDF5Logger({str(path)!r})
        for t in range(100):
            log.log_agent_step("a", t, {{"x": t}})
        raise RuntimeError("camera unplugged")
    """
    out = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False)
    assert "camera unplugged" in out.stderr
    with simlab.open_run(path) as ds:
        assert ds.x.values.tolist() == [list(range(100))]


def test_forgotten_logger_is_finalized(path: Path) -> None:
    log = simlab.HDF5Logger(path)
    log.log_agent_step("a", 0, {"x": 7})
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        del log
        gc.collect()
    assert any("was not closed" in str(w.message) for w in told)
    with simlab.open_run(path) as ds:
        assert ds.x.values.tolist() == [[7]]


def test_home_is_expanded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(path.parent))
    simlab.HDF5Logger("~/x.h5").close()
    assert (path.parent / "x.h5").exists()
    simlab.open_run("~/x.h5").close()


# -- what comes with a run


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Training:
    lr: float
    layers: tuple[int, ...]


def test_config_metadata_and_attachments(path: Path) -> None:
    config = {"lr": np.float32(0.1), "n": np.int64(3), "wind": None, "shape": (3,), "path": Path("x"), 5: "five", "nan": float("nan"),
              "colour": Colour.RED, "training": Training(0.1, (64, 64)), "big": list(range(50_000))}  # fmt: skip
    metadata = {"tags": ["a"], "empty": [], "flag": np.True_, "none": None, "note": "ü", "n": 3, "vector": np.arange(3.0)}
    attached = {"policy": {"layers": [64, 64], "w": np.arange(12.0).reshape(3, 4), "empty": np.zeros((0, 3))}, "note": None, "s": "",
                "b": True, "a/b": 1, "when": np.datetime64("2026-01-01", "s"), "half": np.float16([1, 2])}  # fmt: skip
    with simlab.HDF5Logger(path, seed=1, config=config, environment_type="grid_world", metadata=metadata) as log:
        log.attach("params", attached)
        attached["policy"]["w"][:] = -1  # type: ignore[index]
        with pytest.raises(MetadataError, match="already"):
            log.attach("params", {})
        with pytest.raises(MetadataError, match="twice"):
            log.attach("twice", {"x": object()})
        loop: dict[str, Any] = {}
        loop["self"] = loop
        with pytest.raises(MetadataError):
            log.attach("loop", loop)
    with pytest.raises(MetadataError, match="refers back"):
        simlab.HDF5Logger(path.with_name("other.h5"), config=loop)
    assert not path.with_name("other.h5").exists()
    with simlab.open_run(path) as ds:
        back = ds.sim.config
        assert [back["lr"], back["path"], back[5], back["big"]] == [config["lr"], Path("x"), "five", config["big"]]
        assert np.isnan(back["nan"])
        assert (back["training"]["lr"], list(back["training"]["layers"])) == (0.1, [64, 64])
        given = ds.sim.attributes
        assert {k: given[k] for k in metadata if k != "vector"} == {k: v for k, v in metadata.items() if k != "vector"}
        assert given["flag"] is True
        assert given["vector"].tolist() == [0.0, 1.0, 2.0]
        assert (ds.attrs["seed"], ds.sim.attributes["tags"]) == (1, ["a"])
        params = ds.sim.attachment("params")
        assert params["policy"]["layers"] == [64, 64]
        assert (params["note"], params["s"], params["b"], params["a/b"]) == (None, "", True, 1)
        assert params["policy"]["w"].tolist() == np.arange(12.0).reshape(3, 4).tolist()
        assert params["policy"]["empty"].shape == (0, 3)
        assert params["half"].dtype == np.float16
        assert params["when"] == np.datetime64("2026-01-01", "s")


@pytest.mark.parametrize("field", [{"length": 1}, {"x": [1]}, {"x": object()}, {"x": "a\0"}])
def test_episode_fields_that_are_none(path: Path, field: dict[str, Any]) -> None:
    with simlab.HDF5Logger(path) as log:
        log.begin_episode()
        with pytest.raises(MetadataError, match="episode"):
            log.end_episode(**field)
        log.end_episode(x=1)
        log.begin_episode()
        with pytest.raises(MetadataError, match="Keep to one type"):
            log.end_episode(x="text")


@pytest.mark.parametrize("compression", ["gzip", 0, 4, 9, "lzf", None, "zstd", "blosc2", "lz4"])
def test_compressions(path: Path, compression: Any) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 5, (300, 3, 6)).astype(np.int32)
    noise = rng.random((300, 3, 64))
    schema = simlab.Schema(
        observations=[simlab.Variable("x", shape=(6,), dtype="int32"), simlab.Variable("noise", shape=(64,), dtype="float64"),
                      simlab.Variable("plain", dtype="int8", compression=None), simlab.Variable("word", dtype="str")],
        extensible=True,
    )  # fmt: skip
    with simlab.HDF5Logger(path, schema, compression=compression) as log:
        for t in range(300):
            log.log_step(
                t,
                agents={"x": x[t], "noise": noise[t], "plain": np.full(3, t % 100, np.int8), "word": ["w" * t, "", "ü"]},
                agent_ids=["a", "b", "c"],
            )
            log.log_env_step(t, {"grid": x[t]})
    with simlab.open_run(path) as ds:
        np.testing.assert_array_equal(ds.x.values, x.transpose(1, 0, 2))
        np.testing.assert_array_equal(ds.noise.values, noise.transpose(1, 0, 2))
        np.testing.assert_array_equal(ds.grid.values, x)
        assert ds.word.values[0].tolist() == ["w" * t for t in range(300)]
        assert ds.plain.values[0, 299] == 99


def test_ten_thousand_agents(path: Path) -> None:
    ids = [f"agent_{i}" for i in range(10_000)]
    with simlab.HDF5Logger(path) as log:
        for t in range(3):
            log.log_step(t, agents={"x": np.arange(10_000) + t, "rewards": np.ones(10_000)}, agent_ids=ids)
    with simlab.open_run(path) as ds:
        assert ds.x.sel(agent="agent_9999").values.tolist() == [9999, 10000, 10001]


def test_agents_that_live_shortly(path: Path) -> None:
    with simlab.HDF5Logger(path) as log:
        for t in range(1000):
            for a in range(max(0, t - 50), t):
                log.log_agent_step(a, t, {"x": float(a * t)})
        assert max(lanes.capacity for lanes in log._stage.newest.lanes.values()) < 700
    with simlab.open_run(path) as ds:
        present = ds.sim.present("x").values
        expected = np.array([[a < t <= a + 50 for t in range(1, 1000)] for a in range(999)])
        np.testing.assert_array_equal(present, expected)
        np.testing.assert_array_equal(ds.x.values[present], np.outer(np.arange(999), np.arange(1, 1000.0))[expected])


def test_text_that_grows(path: Path) -> None:
    with simlab.HDF5Logger(path) as log:
        for t in range(600):
            log.log_agent_step("a", t, {"note": "é" * (t // 2)})
    with simlab.open_run(path) as ds:
        assert ds.note.values[0].tolist() == ["é" * (t // 2) for t in range(600)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
@pytest.mark.parametrize("end", ["sys.exit()", "os._exit(0)", "log.finalize(); sys.exit()", "del log; gc.collect(); sys.exit()"])
def test_forked_child_never_harms_the_file(path: Path, end: str) -> None:
    code = f"""
        import gc, os, sys
        import simlab
        log = simlab.HDF5Logger({str(path)!r})
        for t in range(1000):
            log.log_agent_step("a", t, {{"x": t}})
        log.flush()
        pid = os.fork()
        if pid == 0:
            try:
                log.log_agent_step("a", 1000, {{"x": -1}})
            except simlab.errors.StateError as e:
                print("refused:", e, flush=True)
            {end}
        os.waitpid(pid, 0)
        for t in range(1000, 2000):
            log.log_agent_step("a", t, {{"x": t}})
        log.finalize()
    """
    out = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False, timeout=60)
    assert out.returncode == 0, out.stderr
    assert "refused:" in out.stdout
    with simlab.open_run(path) as ds:
        assert ds.x.values.tolist() == [list(range(2000))]


def test_two_threads_log_at_once(path: Path) -> None:
    with simlab.HDF5Logger(path) as log:

        def work(who: str) -> None:
            for t in range(3000):
                log.log_agent_step(who, t, {"x": float(t), "name": who})

        for t in range(3000):
            log.log_env_step(t, {"n": t})
        threads = [threading.Thread(target=work, args=(f"agent_{i}",)) for i in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    with simlab.open_run(path) as ds:
        assert ds.sizes["time"] == 3000
        for i in range(2):
            assert ds.x.sel(agent=f"agent_{i}").values.tolist() == [float(t) for t in range(3000)]


# -- a disk that refuses


def test_refusal_is_told_once_and_nothing_is_lost(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit, refusals = SimulationStore.commit, [3]

    def sometimes(self: SimulationStore, *given: Any) -> None:
        if refusals[0]:
            refusals[0] -= 1
            raise OSError(errno.ENOSPC, "HDF5 says it at length")
        commit(self, *given)

    monkeypatch.setattr(SimulationStore, "commit", sometimes)
    log, told = simlab.HDF5Logger(path), {}
    for t in range(2000):
        try:
            log.log_agent_step("a", t, {"x": t})
        except StorageError as e:
            told[t] = e
    log.finalize()
    assert 1 <= len(told) <= 3
    assert {e.errno for e in told.values()} == {errno.ENOSPC}
    assert all("No space left on device" in str(e) and isinstance(e.__cause__, OSError) for e in told.values())
    assert log.report.dropped == 0
    with simlab.open_run(path) as ds:
        assert ds.x.values.tolist() == [[t for t in range(2000) if t not in told]]


def test_refusal_without_end(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit, full = SimulationStore.commit, [False]

    def refuse(self: SimulationStore, *given: Any) -> None:
        if full[0]:
            raise OSError(errno.ENOSPC, "full")
        commit(self, *given)

    monkeypatch.setattr(SimulationStore, "commit", refuse)
    log = simlab.HDF5Logger(path)
    kept = []
    for t in range(3000):
        full[0] = t >= 600
        try:
            log.log_agent_step("a", t, {"x": t})
            kept.append(t)
        except StorageError:
            pass
    for _ in range(2):
        with pytest.raises(StorageError, match="No space left"):
            log.finalize()
    full[0] = False
    log.finalize()
    with simlab.open_run(path) as ds:
        assert ds.x.values.tolist() == [kept]
    assert log.report.values == len(kept)


def test_what_cannot_ever_be_written_is_dropped_and_counted(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put, broken = encoders.put, [True]

    def fail_once(encoded: Any) -> None:
        if broken:
            broken.clear()
            raise ValueError("a defect")
        put(encoded)

    monkeypatch.setattr(encoders, "put", fail_once)
    log, told = simlab.HDF5Logger(path), []
    for t in range(2000):
        try:
            log.log_agent_step("a", t, {"x": t})
        except StorageError as e:
            told.append(str(e))
    log.finalize()
    assert [("They are lost, and counted as dropped" in text) for text in told] == [True]
    assert log.report.dropped == 256
    with simlab.open_run(path) as ds:
        present = ds.sim.present("x").values[0]
        assert ds.x.values[0][present].tolist() == ds.step.values[present].tolist()
        assert (~present).sum() == 256


@pytest.mark.parametrize("megabytes", [2, 6])  # no room for the journal, no room for the file
def test_full_disk(tmp_path: Path, megabytes: int) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    if os.geteuid() and not os.environ.get("SIMLAB_REQUIRE_ALL"):
        pytest.skip("only root can mount a small disk")
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}M", "tmpfs", folder], check=True)
    try:
        rng, kept, told = np.random.default_rng(0), [], set()
        log = simlab.HDF5Logger(folder / "run.h5")
        for t in range(4000):
            x = rng.random(500)
            try:
                log.log_agent_step("a", t, {"x": x})
                kept.append(x)
            except StorageError as e:
                told.add(e.errno)
        if megabytes > 2:
            with pytest.raises(StorageError):
                log.finalize()
        assert told == {errno.ENOSPC}
        subprocess.run(["mount", "-o", "remount,size=40M", folder], check=True)
        log.finalize()
        with simlab.open_run(folder / "run.h5") as ds:
            np.testing.assert_array_equal(ds.x.values[0], kept)
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


# -- sizes


def test_wide_values_take_no_more_memory_than_they_need(path: Path) -> None:
    with simlab.HDF5Logger(path) as log:
        for t in range(40):
            log.log_agent_step("a", t, {"picture": np.full((500, 1000, 8), t, np.uint8), "rewards": 1.0})
        assert log._stage is not None
        assert log._stage.span == 8
    with simlab.open_run(path) as ds:
        assert ds.picture[0, :, 7, 7, 7].values.tolist() == list(range(40))


def test_first_rows_may_turn_out_wide(path: Path) -> None:
    with simlab.HDF5Logger(path) as log:
        for t in range(100):
            log.log_env_step(t, {"n": t})
        for t in range(100, 140):
            log.log_agent_step("a", t, {"picture": np.full((400, 1000), t, np.uint8)})
            log.log_agent_step("b", t, {"picture": np.full((400, 1000), t + 1, np.uint8)})
    with simlab.open_run(path) as ds:
        assert ds.picture[1, 100:, 3, 3].values.tolist() == list(range(101, 141))
        assert ds.n.values[:100].tolist() == list(range(100))


@pytest.mark.parametrize("flush", [False, True])
@pytest.mark.parametrize("steps", [10, 300, 600])
def test_report_counts_every_value_once(path: Path, steps: int, flush: bool) -> None:
    with simlab.HDF5Logger(path) as log:
        for t in range(steps):
            log.log_agent_step("a", t, {"x": 1.0})
            log.log_env_step(t, {"food": 1})
            if t % 20 == 0:
                log.log_env_step(t, {"grid": np.zeros((3, 3))})
            if flush and t == steps // 2:
                log.flush()
    grids = len(range(0, steps, 20))
    assert log.report.values == 2 * steps + grids
    assert log.report.bytes_raw == 16 * steps + 72 * grids


def test_episode_fields_that_clash_on_disk(path: Path) -> None:
    with simlab.HDF5Logger(path) as log, pytest.raises(MetadataError, match="same name in the file"):
        log.begin_episode(**{"a b": 1, "a_b": 2})


def test_many_loggers_are_forgotten_in_cycles(tmp_path: Path) -> None:
    code = f"""
        import warnings; warnings.simplefilter("ignore")
        import simlab
        class Trainer:
            def __init__(self, path):
                self.log = simlab.HDF5Logger(path)
                self.step = self._step
            def _step(self, t):
                self.log.log_agent_step("a", t, {{"r": float(t)}})
        for i in range(60):
            trainer = Trainer({str(tmp_path)!r} + f"/{{i}}.h5")
            trainer.step(0)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=60)
    for i in range(60):
        with simlab.open_run(tmp_path / f"{i}.h5") as ds:
            assert ds.r.values.tolist() == [[0.0]]


# -- who is who


def test_ids_that_are_changed_in_place(path: Path) -> None:
    """PettingZoo removes the dead from the very list it handed out."""
    ids = ["a", "b", "c"]
    with simlab.HDF5Logger(path) as log:
        log.log_step(0, agents={"x": np.arange(3)}, agent_ids=ids)
        ids.reverse()
        log.log_step(1, agents={"x": np.arange(3)}, agent_ids=ids)
        ids.remove("a")
        log.log_step(2, agents={"x": np.arange(2)}, agent_ids=ids)
        ids[0] = "z"
        log.log_step(3, agents={"x": np.arange(2)}, agent_ids=iter(ids))
    with simlab.open_run(path) as ds:
        present = ds.sim.present("x").values
        assert ds.agent.values.tolist() == ["a", "b", "c", "z"]
        assert present.astype(int).tolist() == [[1, 1, 0, 0], [1, 1, 1, 1], [1, 1, 1, 0], [0, 0, 0, 1]]
        assert ds.x.where(present, -1).values.tolist() == [[0, 2, -1, -1], [1, 1, 1, 1], [2, 0, 0, -1], [-1, -1, -1, 0]]


def test_a_new_agent_joins_those_it_does_not_contradict(path: Path) -> None:
    with simlab.HDF5Logger(path) as log:
        log.log_agent_step("a0", 0, {"rewards": 1.0, "energy": 1})
        log.log_agent_step("a1", 0, {"actions": 1})
        log.log_agent_step("b0", 0, {})
        log.log_agent_step("c0", 0, {"birth_weight": 3.1})
        with pytest.raises(ValueMismatchError, match="energy"):
            log.log_agent_step("d0", 0, {"energy": 0.5})
        with pytest.raises(ValueMismatchError, match="shape"):
            log.log_agent_step("a2", 0, {"energy": [1, 2]})  # one of theirs by its name
        assert log.schema.population_names == ("",)
    with simlab.open_run(path) as ds:
        assert ds.agent.values.tolist() == ["a0", "a1", "b0", "c0"]


def test_populations_are_founded_with_their_first_value_only(path: Path) -> None:
    with simlab.HDF5Logger(path) as log:
        log.log_agent_step("wolf_0", 0, {"sight": np.zeros(2)})
        with pytest.raises(InputError):
            log.log_agent_step("sheep_0", 0, {"sight": np.zeros(3), "bad": object()})
        assert log.schema.population_names == ("",)
        log.log_agent_step("agent_0", 0, {"sight": np.zeros(4)})
        log.log_agent_step("agent_1", 0, {"sight": np.zeros(4)})
        assert log.schema.population_names == ("", "agent_kind")
    with simlab.open_run(path) as ds:
        assert ds["agent_kind.sight"].shape == (2, 1, 4)


def test_what_pettingzoo_hands_out(path: Path) -> None:
    with simlab.HDF5Logger(path) as log:
        for t in range(3):
            observations = {"a": np.full(2, t), "b": np.full(2, -t)}
            log.log_step(t, agents={"observations": observations, "rewards": {"a": 1.0, "b": 2.0}})
        log.log_step(3, agents={"observations": {"a": np.full(2, 3)}})
    with simlab.open_run(path) as ds:
        assert ds.agent.values.tolist() == ["a", "b"]
        assert ds.observations.values[:, :, 0].tolist() == [[0, 1, 2, 3], [0, -1, -2, 0]]
        assert ds.rewards.values[1, :3].tolist() == [2.0] * 3


@pytest.mark.parametrize("field", [{"note_strlen": 3}, {"complete": 7}, {"logged_1": 1}, {"x": "\udcff"}])
def test_episode_fields_that_the_table_keeps(path: Path, field: dict[str, Any]) -> None:
    with simlab.HDF5Logger(path) as log:
        log.begin_episode()
        with pytest.raises(MetadataError):
            log.end_episode(**field)


def test_whole_lists_are_looked_at(path: Path) -> None:
    with simlab.HDF5Logger(path) as log:
        log.log_episode({"observations": [[0, 0], [0.5, 1.0]], "speed": [0, 0.5]})
        log.begin_episode()
        log.log_step(0, agents={"height": [1, 2.5]}, agent_ids=["agent_0", "agent_1"])
    with simlab.open_run(path) as ds:
        assert ds.speed.values[0, :2].tolist() == [0.0, 0.5]
        assert ds.height.values[:, 2].tolist() == [1.0, 2.5]


@pytest.mark.parametrize("name", ["", "a\0", "\ud800", 3, None])
def test_names_of_attachments_that_are_none(path: Path, name: Any) -> None:
    with simlab.HDF5Logger(path) as log, pytest.raises(MetadataError, match="attachment needs a name"):
        log.attach(name, 1)


# -- what must leave no trace


def test_refused_steps_of_all_agents_leave_no_row(path: Path) -> None:
    with simlab.HDF5Logger(path) as log:
        log.log_step(0, agents={"a": {"x": 1.0}, "b": {"x": 1.0}})
        with pytest.raises(ValueMismatchError):
            log.log_step(1, agents={"a": {"x": "text"}, "b": {"x": 2.0}})
        with pytest.raises(ValueMismatchError):
            log.log_env_step(2, {"n": object()})
        log.log_step(3, agents={})
        with pytest.raises(ValueMismatchError):
            log.log_agent_step("a", 3, {"x": "text"})
    with simlab.open_run(path) as ds:
        assert ds.step.values.tolist() == [0, 3]


@pytest.mark.parametrize("name", ["a.b", "a//b", "", 5, "\ud800"])
def test_a_simulation_without_a_proper_name_costs_no_file(path: Path, name: Any) -> None:
    with simlab.HDF5Logger(path) as log:
        log.log_env_step(0, {"n": 1})
    before = path.read_bytes()
    with pytest.raises(InputError, match="cannot be a group"):
        simlab.HDF5Logger(path, mode="w", simulation=name)
    assert path.read_bytes() == before
    with pytest.raises(InputError):
        simlab.HDF5Logger(path.with_name("new.h5"), simulation=name)
    assert not path.with_name("new.h5").exists()


@pytest.mark.parametrize("place", [5, None, b"run.h5", "", "a\0b"])
def test_paths_that_are_none(place: Any) -> None:
    with pytest.raises(InputError, match="path of a run file"):
        simlab.HDF5Logger(place)


def test_dates_lose_no_digit(path: Path) -> None:
    with simlab.HDF5Logger(path) as log:
        log.log_agent_step("a", 0, {"t": np.datetime64("2020-01-01T00:00:00", "s"), "d": np.timedelta64(3, "s")})
        with pytest.raises(ValueMismatchError):
            log.log_agent_step("a", 1, {"t": np.datetime64("2020-01-01T00:00:00.123", "ms")})
        with pytest.raises(ValueMismatchError):
            log.log_agent_step("a", 1, {"d": np.timedelta64(1500, "ms")})
        log.log_agent_step("a", 1, {"t": np.datetime64("2020-01-01T00:00:01.000", "ms")})
    with simlab.open_run(path) as ds:
        assert ds.t.values.tolist() == np.array([["2020-01-01T00:00:00", "2020-01-01T00:00:01"]], "M8[s]").tolist()


@pytest.mark.parametrize("steps", [[-1, 0], [0, 2**40], [float("nan"), 1], ["a", "b"], [0.5, 1.5], [0, 0], [1]])
def test_timesteps_of_a_trajectory_that_are_none(path: Path, steps: Any) -> None:
    with simlab.HDF5Logger(path) as log, pytest.raises(TimestepError):
        log.log_episode({"x": np.zeros(2)}, timesteps=steps)
    assert log.report.rows == 0


@pytest.mark.parametrize("step", [np.array([1, 2]), [3], "3"])
def test_timesteps_that_cannot_be_compared(path: Path, step: Any) -> None:
    with simlab.HDF5Logger(path) as log:
        log.log_agent_step("a", 0, {"x": 1.0})
        for call in (
            lambda: log.log_agent_step("a", step, {"x": 1.0}),
            lambda: log.log_env_step(step, {"n": 1}),
            lambda: log.log_step(step, agents={"a": {"x": 1.0}}),
        ):
            with pytest.raises(TimestepError):
                call()


def test_environment_that_runs_backwards(path: Path) -> None:
    with simlab.HDF5Logger(path) as log:
        for t in range(600):
            log.log_env_step(t, {"n": t})
        log.log_agent_step("a", 600, {"x": 1})
        with pytest.raises(TimestepError, match="environment runs backwards"):
            log.log_env_step(0, {"n": 7})


def test_flush_that_fails_gives_back_what_it_took(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit, full = SimulationStore.commit, [True]

    def refuse(self: SimulationStore, *given: Any) -> None:
        if full[0]:
            raise OSError(errno.ENOSPC, "full")
        commit(self, *given)

    monkeypatch.setattr(SimulationStore, "commit", refuse)
    with simlab.HDF5Logger(path) as log:
        for t in range(10):
            log.log_agent_step("a", t, {"x": t})
        log.attach("kept", {"n": 1})
        with pytest.raises(StorageError, match="No space left"):
            log.flush()
        log.begin_episode(seed=5)
        for t in range(10):
            log.log_agent_step("b", t, {"x": t, "new": 1.0})
            log.log_env_step(t, {"grid": [t, t]})
        with pytest.raises(StorageError, match="No space left"):
            log.flush()
        full[0] = False
        log.flush()
        log.log_agent_step("a", 10, {"x": 10})
    assert log.report.dropped == 0
    with simlab.open_run(path) as ds:
        assert ds.agent.values.tolist() == ["a", "b"]
        assert ds.x.values[0, :10].tolist() == list(range(10))
        assert ds.x.values[1, 10:20].tolist() == list(range(10))
        assert ds.new.values[1, 10:20].tolist() == [1.0] * 10
        assert ds.grid.values[:, 0].tolist() == list(range(10))
        assert ds.sim.attachment("kept") == {"n": 1}
        assert ds.sim.episodes.length.values.tolist() == [10, 11]


# -- after a refusal, life goes on


def test_rows_after_a_failed_finalize_are_kept(path: Path) -> None:
    for method, times in ((SimulationStore, "commit"), (SimulationStore, "finish")):
        real, left = getattr(method, times), [1]

        def refuse(self: Any, *given: Any, real: Any = real, left: list[int] = left) -> Any:
            if left[0]:
                left[0] -= 1
                raise OSError(errno.ENOSPC, "full")
            return real(self, *given)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(method, times, refuse)
            log = simlab.HDF5Logger(path, mode="w")
            for t in range(10):
                log.log_agent_step("a", t, {"x": t})
            with pytest.raises(StorageError):
                log.finalize()
            for t in range(10):
                log.log_agent_step("a", t, {"x": 10 + t})
            log.flush()
            log.finalize()
        assert (log.report.rows, log.report.dropped) == (20, 0)
        with simlab.open_run(path) as ds:
            assert ds.x.values.tolist() == [list(range(20))]


def test_a_full_disk_does_not_hold_up_the_end(tmp_path: Path) -> None:
    code = f"""
        import errno, simlab
        from simlab.storage.simulation import SimulationStore
        def refuse(*given): raise OSError(errno.ENOSPC, "full")
        log = simlab.HDF5Logger({str(tmp_path / "run.h5")!r})
        SimulationStore.commit = refuse
        log.log_agent_step("a", 0, {{"x": 1.0}})
    """
    out = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False, timeout=20)
    assert "No space left on device" in out.stderr


def test_wide_rows_and_a_laggard_never_wait_for_ever(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = SimulationStore.commit

    def slowly(self: SimulationStore, *given: Any) -> None:
        time.sleep(0.05)
        real(self, *given)

    monkeypatch.setattr(SimulationStore, "commit", slowly)
    with simlab.HDF5Logger(path) as log:
        for t in range(40):
            log.log_agent_step("a", t, {"x": np.full(1 << 17, t, np.float64)})
            if t == 10:
                log.log_agent_step("b", 1, {"rewards": 1.0})
    with simlab.open_run(path) as ds:
        assert ds.x[0, :, 5].values.tolist() == list(range(40))


def test_the_clock_of_dropped_rows_rises(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, broken = SimulationStore.ensure_population, [True]

    def fail_once(self: SimulationStore, *given: Any) -> Any:
        if broken:
            broken.clear()
            raise ValueError("a defect")
        return real(self, *given)

    monkeypatch.setattr(SimulationStore, "ensure_population", fail_once)
    log, told = simlab.HDF5Logger(path), 0
    for t in range(1000):
        try:
            log.log_agent_step("a", t, {"x": t})
        except StorageError:
            told += 1
    log.finalize()
    assert told == 1
    assert log.report.dropped == 256
    with simlab.open_run(path) as ds:
        assert (np.diff(ds.time.values) > 0).all()
        assert ds.agent.values.tolist() == ["a"]


@pytest.mark.parametrize("text", ["\ud800", "a\0b"])
def test_text_that_no_file_holds_costs_no_file(path: Path, text: str) -> None:
    simlab.HDF5Logger(path).close()
    before = path.read_bytes()
    with pytest.raises(MetadataError):
        simlab.HDF5Logger(path, mode="w", environment_type=text)
    assert path.read_bytes() == before


def test_values_given_twice_are_refused_at_every_step(path: Path) -> None:
    with simlab.HDF5Logger(path) as log:
        log.log_agent_step("a", 0, {"v": np.zeros(2), "w": 1.0})
        with pytest.raises(ValueMismatchError, match="given twice"):
            log.log_agent_step("a", 1, {"v": np.zeros(2), "observations": {"v": np.ones(2)}})


def test_group_count_is_a_name_like_any_other_to_those_who_log(path: Path) -> None:
    with simlab.HDF5Logger(path) as log:
        log.log_agent_step("a", 0, {"group_count": 3})
        with pytest.raises(MetadataError):
            log.end_episode(group_count=3)
    with simlab.open_run(path) as ds:
        assert ds["observation.group_count"].values.tolist() == [[3]]
