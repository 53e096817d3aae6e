"""What goes in comes out, type for type: the logger against a model that keeps everything in dictionaries."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import simlab
from simlab.errors import SimlabError
from simlab.record import pool as pool_room
from simlab.record import stage as stage_room

VARIABLES: dict[str, tuple[str, tuple[int, ...]]] = {
    "vision": ("float32", (3, 2)),
    "body": ("float64", (4,)),
    "count": ("int64", ()),
    "flag": ("bool", ()),
    "half": ("float16", ()),
    "wave": ("complex64", (2,)),
    "when": ("datetime64[us]", ()),
    "name": ("str", ()),
    "big": ("uint8", (40, 60)),
    "actions": ("int8", ()),
    "rewards": ("float32", ()),
}
ENVIRONMENT: dict[str, tuple[str, tuple[int, ...]]] = {"food": ("int32", ()), "weather": ("str", ()), "grid": ("uint16", (5, 4))}


def value(name: str, kinds: dict[str, tuple[str, tuple[int, ...]]], key: int) -> Any:
    """Return a value that depends on a number alone."""
    dtype, shape = kinds[name]
    rng = np.random.default_rng(key)
    if dtype == "str":
        return "äx" * int(rng.integers(0, 40))
    if dtype.startswith("datetime"):
        return np.datetime64(int(rng.integers(-(10**15), 10**15)), "us")
    raw = rng.integers(-120, 120, shape) if dtype != "bool" else rng.integers(0, 2, shape)
    if np.dtype(dtype).kind == "c":
        raw = raw + 1j * rng.integers(-9, 9, shape)
    with np.errstate(all="ignore"):
        out = np.asarray(raw).astype(dtype)
    return out[()] if not shape else out


class Model:
    """Everything that was logged, in dictionaries."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int]] = []  # (episode, step)
        self.agents: dict[tuple[int, Any, str], Any] = {}  # (row, agent, variable)
        self.numbers: dict[tuple[int, str], Any] = {}
        self.grids: dict[int, Any] = {}
        self.ids: list[Any] = []
        self.episode = -1
        self.open = False

    def row(self, step: int) -> int:
        if not self.open:
            self.episode, self.open = self.episode + 1, True
        key = (self.episode, step)
        if key not in self.rows:
            self.rows.append(key)
        return self.rows.index(key)

    def log(self, step: int, agent: Any, data: dict[str, Any]) -> None:
        row = self.row(step)
        if agent not in self.ids:
            self.ids.append(agent)
        for name, v in data.items():
            self.agents[row, agent, name] = v


names = st.lists(st.sampled_from(sorted(VARIABLES)), min_size=1, max_size=5, unique=True)
agent = st.sampled_from(["a", "b", "ç", 3, (1, "x")])
operation = st.one_of(
    st.tuples(st.just("agent"), agent, st.integers(0, 3), names),
    st.tuples(st.just("all"), st.lists(agent, min_size=1, max_size=4, unique=True), st.integers(0, 2), names),
    st.tuples(
        st.just("environment"), st.just(0), st.integers(0, 2), st.lists(st.sampled_from(sorted(ENVIRONMENT)), min_size=1, unique=True)
    ),
    st.tuples(st.just("behind"), agent, st.integers(1, 20), names),
    st.tuples(st.just("episode"), st.just(0), st.just(0), st.just([])),
    st.tuples(st.just("flush"), st.just(0), st.just(0), st.just([])),
    st.tuples(st.just("trajectory"), agent, st.integers(0, 40), names),
)


def run(operations: list[Any], log: simlab.HDF5Logger, model: Model, repeat: int) -> None:
    """Do the operations on both."""
    step, key, latest_grid = -1, 0, -1
    for _ in range(repeat):
        for what, who, ahead, which in operations:
            key += 1
            if what == "episode":
                log.begin_episode(seed=key)
                model.episode, model.open, step, latest_grid = model.episode + 1, True, -1, -1
            elif what == "flush":
                log.flush()
            elif what == "agent":
                step = max(step, 0) + ahead if step >= 0 else ahead
                data = {n: value(n, VARIABLES, key * 100 + i) for i, n in enumerate(which)}
                log.log_agent_step(who, step, data)
                model.log(step, who, data)
            elif what == "behind":
                steps = [s for e, s in model.rows if e == model.episode and s <= step - ahead] if model.open else []
                if not steps:
                    continue
                late = steps[-1]
                row = model.rows.index((model.episode, late))
                newer = any(r > row for r, a, _ in model.agents if a == who)
                data = {n: value(n, VARIABLES, key * 100 + i) for i, n in enumerate(which)}
                if newer:
                    with pytest.raises(simlab.errors.TimestepError, match="runs backwards"):
                        log.log_agent_step(who, late, data)
                else:
                    log.log_agent_step(who, late, data)
                    model.log(late, who, data)
            elif what == "all":
                step = step + ahead if step >= 0 else ahead
                each = {n: [value(n, VARIABLES, key * 1000 + 50 * i + j) for j in range(len(who))] for i, n in enumerate(which)}
                stacked = {n: np.stack(vs) if VARIABLES[n][0] != "str" else vs for n, vs in each.items()}
                log.log_step(step, agents=stacked, agent_ids=list(who))
                for j, a in enumerate(who):
                    model.log(step, a, {n: vs[j] for n, vs in each.items()})
            elif what == "environment":
                step = step + ahead if step >= 0 else ahead
                data = {n: value(n, ENVIRONMENT, key * 100 + i) for i, n in enumerate(which)}
                row_is_new = not model.open or (model.episode, step) not in model.rows
                if "grid" in data and not row_is_new and latest_grid == step:
                    del data["grid"]
                log.log_env_step(step, data)
                row = model.row(step)
                for n, v in data.items():
                    if n == "grid":
                        model.grids[row] = v
                        latest_grid = step
                    else:
                        model.numbers[row, n] = v
            else:
                arrays = {n: [value(n, VARIABLES, key * 1000 + 50 * i + j) for j in range(ahead)] for i, n in enumerate(which)}
                stacked = {
                    n: (np.stack(vs) if VARIABLES[n][0] != "str" else vs) if vs else np.empty((0, *VARIABLES[n][1]))
                    for n, vs in arrays.items()
                }
                log.log_episode(stacked, agent_id=who)
                model.episode, model.open, step, latest_grid = model.episode + 1, True, -1, -1
                for j in range(ahead):
                    model.log(j, who, {n: vs[j] for n, vs in arrays.items()})
                model.open = False


def schema() -> simlab.Schema:
    """Return a schema of all variables, so that types do not hang on which value comes first."""
    places = {"actions": "actions", "rewards": "rewards"}
    groups: dict[str, list[simlab.Variable]] = {}
    for n, (dtype, shape) in VARIABLES.items():
        groups.setdefault(places.get(n, "observations"), []).append(simlab.Variable(n, shape=shape, dtype=dtype))
    return simlab.Schema(**groups, environment=[simlab.Variable(n, shape=s, dtype=d) for n, (d, s) in ENVIRONMENT.items()])


def same(found: Any, expected: Any) -> bool:
    """Whether two values are equal, bit for bit and type for type."""
    a, b = np.asarray(found), np.asarray(expected)
    if a.dtype.kind in "US" or b.dtype.kind in "US":
        return str(found) == str(expected)
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


@pytest.mark.parametrize("rows", [8, 16])
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(operations=st.lists(operation, min_size=1, max_size=14), repeat=st.integers(1, 6))
def test_what_goes_in_comes_out(rows: int, operations: list[Any], repeat: int) -> None:
    """Small windows, so that rotations, late values and partial flushes happen within a few rows."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(stage_room, "MOST_ROWS", rows)
        patch.setattr(pool_room, "MOST_ROWS", rows)
        path = Path(folder) / "run.h5"
        model = Model()
        with simlab.HDF5Logger(path, schema()) as log:
            run(operations, log, model, repeat)
        assert log.report.rows == len(model.rows)
        compare(path, model)


def compare(path: Path, model: Model) -> None:
    """Compare a run, as `open_run` gives it, with the model."""
    with simlab.open_run(path) as ds:
        assert ds.sizes["time"] == len(model.rows)
        assert ds.episode.values.tolist() == [e for e, _ in model.rows]
        assert ds.step.values.tolist() == [s for _, s in model.rows]
        assert (np.diff(ds.time.values) > 0).all()
        assert list(ds.sim.agents) == model.ids
        for name in VARIABLES:
            present = ds.sim.present(name).values
            values = ds[name].values
            for i, who in enumerate(model.ids):
                for row in range(len(model.rows)):
                    expected = model.agents.get((row, who, name))
                    assert bool(present[i, row]) == (expected is not None), (name, who, row)
                    if expected is not None:
                        assert same(values[i, row], expected), (name, who, row, values[i, row], expected)
        for name in ("food", "weather"):
            present, values = ds.sim.present(name).values, ds[name].values
            for row in range(len(model.rows)):
                assert bool(present[row]) == ((row, name) in model.numbers)
                if (row, name) in model.numbers:
                    assert same(values[row], model.numbers[row, name])
        grid = ds["grid"]
        clock = ds[grid.dims[0]].values
        assert clock.tolist() == [int(ds.time.values[row]) for row in sorted(model.grids)]
        for k, row in enumerate(sorted(model.grids)):
            assert same(grid.values[k], model.grids[row])


def test_file_is_plain_hdf5(tmp_path: Path) -> None:
    """The same, read with h5py alone: no reader of ours is in the way."""
    with simlab.HDF5Logger(tmp_path / "run.h5") as log:
        for t in range(300):
            for a in range(1 + t // 100):
                log.log_agent_step(f"agent_{a}", t, {"x": np.float32(t + a / 10), "rewards": 1.0})
    with h5py.File(tmp_path / "run.h5") as f:
        x = f["simulation_0001/agents/observations/x"][...]
        logged = f["simulation_0001/agents/logged"][...]
    expected = np.full((3, 300), np.nan, np.float32)
    for a in range(3):
        expected[a, 100 * a :] = (np.arange(100 * a, 300) + a / 10).astype(np.float32)
    np.testing.assert_array_equal(x, expected)
    np.testing.assert_array_equal(logged, np.where(np.isnan(expected), 0, 3))


def test_refused_calls_leave_no_trace(tmp_path: Path) -> None:
    """A call that raises has recorded nothing, not even a row."""
    with simlab.HDF5Logger(tmp_path / "run.h5") as log:
        log.log_agent_step("a", 0, {"x": 1.0, "n": 1})
        for data in ({"x": [1.0, 2.0], "n": 2}, {"x": 2.0, "n": 0.5}, {"x": "text"}, {"new": 1.0, "n": object()}, {3: 1.0}, [1]):
            with contextlib.suppress(SimlabError):
                log.log_agent_step("a", 1, data)  # type: ignore[arg-type]
                pytest.fail(f"{data!r} was taken")
        log.log_agent_step("a", 2, {"x": 3.0, "n": 3})
    assert log.report.rows == 2
    with simlab.open_run(tmp_path / "run.h5") as ds:
        assert ds.step.values.tolist() == [0, 2]
        assert ds.x.values.tolist() == [[1.0, 3.0]]
        assert "new" not in ds


@pytest.mark.parametrize("lag", [1, 7, 8, 9, 30])
def test_agents_out_of_step(tmp_path: Path, lag: int) -> None:
    """Slow agents fill rows that are there, whether those are staged or on disk already; nobody's values suffer."""
    model = Model()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stage_room, "MOST_ROWS", 8)
        patch.setattr(pool_room, "MOST_ROWS", 8)
        with simlab.HDF5Logger(tmp_path / "run.h5", schema()) as log:
            for t in range(100):
                for who, behind in (("a", 0), ("b", lag), ("ç", 2 * lag)):
                    if t >= behind:
                        which = sorted(VARIABLES)[(t + behind) % 5 :: 2]
                        data = {n: value(n, VARIABLES, 1000 * t + 10 * behind + i) for i, n in enumerate(which)}
                        log.log_agent_step(who, t - behind, data)
                        model.log(t - behind, who, data)
                if t == 50:
                    log.flush()
    compare(tmp_path / "run.h5", model)
    assert log.report.late > 0  # at the seam between windows even the smallest lag is late


def test_one_agent_after_the_other(tmp_path: Path) -> None:
    """A loop over agents around a loop over steps: the later agents' values all come late, and all arrive."""
    with simlab.HDF5Logger(tmp_path / "run.h5") as log:
        for a in range(4):
            for t in range(1000):
                log.log_agent_step(f"agent_{a}", t, {"x": float(1000 * a + t), "rewards": 0.5})
    assert log.report.late == 3 * 768 * 2
    with simlab.open_run(tmp_path / "run.h5") as ds:
        np.testing.assert_array_equal(ds.x.values, np.arange(4000.0).reshape(4, 1000))
        assert ds.sim.present("x").values.all()
        assert ds.sim.episodes.return_sum.values.tolist() == [2000.0]


def test_overwritten_late_values_are_counted_and_replaced(tmp_path: Path) -> None:
    """A value on disk may be written again by its own agent's newest step only while nothing newer of it is there."""
    with simlab.HDF5Logger(tmp_path / "run.h5") as log:
        for t in range(600):
            log.log_agent_step("fast", t, {"rewards": 1.0})
            if t < 3:
                log.log_agent_step("slow", t, {"rewards": 1.0})
        log.log_agent_step("slow", 2, {"rewards": 5.0})
    assert (log.report.overwritten, log.report.late) == (1, 1)
    with simlab.open_run(tmp_path / "run.h5") as ds:
        assert ds.rewards.sel(agent="slow", time=[0, 1, 2]).values.tolist() == [1.0, 1.0, 5.0]
        assert ds.sim.episodes.return_sum.values.tolist() == [607.0]
