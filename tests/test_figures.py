"""One episode at a glance, for whatever a run may hold: the figure comes out, says what it lacks, and changes nothing else."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure

import simlab
from simlab import Schema, Variable
from simlab.errors import AgentError, NotInRunError
from simlab.view.figures import plot_episode

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _nothing_global_changes() -> Iterator[None]:
    before = dict(matplotlib.rcParams)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield
    assert dict(matplotlib.rcParams) == before


def words(figure: Figure) -> str:
    figure.savefig(io.BytesIO(), format="png", dpi=40)
    texts = [t.get_text() for t in figure.texts]
    insets: list[Any] = [inset for ax in figure.axes for inset in ax.child_axes]
    for ax in [*figure.axes, *insets]:
        texts += [ax.get_title(loc="left"), *(t.get_text() for t in ax.texts), *(t.get_text() for t in ax.get_yticklabels())]
    return "\n".join(texts)


def record(path: Path, fill: Callable[[Any], object], schema: Schema | None = None) -> Any:
    with simlab.HDF5Logger(path, schema, mode="w") as log:
        fill(log)
    return simlab.open_run(path)


def test_the_demo_at_a_glance(demo_run: Path) -> None:
    with simlab.open_run(demo_run) as ds:
        told = words(ds.sim.plot_episode(2))
        for part in (
            "Episode 2 of grid_world",
            "season drought",
            "outcome starved",
            "state_snapshots",
            "vision of agent_",
            "walls",
            "step 0",
        ):
            assert part in told
        for part in ("rewards of all agents", "actions of agent_", "left", "hunger", "resource_count", "where they went"):
            assert part in told
        assert "Not all is drawn" not in told


def test_agents_and_variables_can_be_chosen(demo_run: Path) -> None:
    ds = simlab.open_run(demo_run)
    told = words(plot_episode(ds, 0, agents="agent_3", variables=["vision", "rewards"], figsize=(6, 4)))
    assert "vision of agent_3" in told
    assert "rewards of agent_3" in told
    assert "hunger" not in told
    figure = plot_episode(ds, -1, agents=["agent_1", "agent_2"], figsize=(6, 4))
    assert tuple(figure.get_size_inches()) == (6, 4)
    assert f"Episode {int(ds.episode[-1])}" in words(figure)


def test_what_is_not_in_the_run_is_refused(demo_run: Path) -> None:
    ds = simlab.open_run(demo_run)
    with pytest.raises(NotInRunError, match="Did you mean 'rewards'"):
        plot_episode(ds, 0, variables="rewrads")
    with pytest.raises(AgentError, match="nobody"):
        plot_episode(ds, 0, agents="nobody")
    with pytest.raises(NotInRunError):
        plot_episode(ds, 99)


def test_a_part_of_a_run_is_drawn(demo_run: Path) -> None:
    ds = simlab.open_run(demo_run)
    assert "vision of agent_1" in words(ds.sim.agent("agent_1").sim.plot_episode(0))
    assert "rewards" in words(ds.sel(agent=["agent_1", "agent_2"])[["rewards"]].sim.plot_episode(0))
    assert "not logged in this episode" in words(plot_episode(ds, 2, agents="agent_16"))


def test_an_agent_without_a_value_is_absent(tmp_path: Path) -> None:
    def fill(log: Any) -> None:
        for t in range(12):
            log.log_agent_step("a", t, {"rewards": 1.0, "image": np.full((3, 3), t, np.uint8)})
            if t < 4:
                log.log_agent_step("b", t, {"rewards": 2.0})

    told = words(plot_episode(record(tmp_path / "a.h5", fill), agents="b"))
    assert "not logged in this episode" in told
    assert "rewards of b" in told


@pytest.mark.parametrize("k", [0, 1, 2])
def test_episodes_of_no_step_and_of_one(tmp_path: Path, k: int) -> None:
    def fill(log: Any) -> None:
        log.begin_episode()
        log.end_episode()
        log.begin_episode()
        log.log_agent_step("a", 0, {"rewards": 1.0, "vision": np.zeros((4, 4, 3), np.uint8), "actions": 1})
        log.begin_episode()
        log.log_env_step(0, {"n": 1, "grid": np.zeros((4, 4))})

    told = words(plot_episode(record(tmp_path / "a.h5", fill), k))
    assert ("no steps in this episode" in told) == (k == 0)
    assert f"Episode {k}" in told


def test_a_run_without_agents(tmp_path: Path) -> None:
    def fill(log: Any) -> None:
        for t in range(5):
            log.log_env_step(t, {"n": t, "grid": np.arange(16.0).reshape(4, 4) - 3})

    told = words(plot_episode(record(tmp_path / "a.h5", fill)))
    assert "5 steps  ·  0 agents" in told
    assert "grid" in told


def test_ten_thousand_agents_are_limited_and_this_is_said(tmp_path: Path) -> None:
    ids = [f"agent_{i}" for i in range(10_000)]

    def fill(log: Any) -> None:
        for t in range(6):
            values = {"rewards": RNG.normal(size=10_000), "actions": RNG.integers(0, 4, 10_000), "x": RNG.normal(size=(10_000, 20))}
            log.log_step(t, agents=values, agent_ids=ids)

    told = words(plot_episode(record(tmp_path / "a.h5", fill)))
    assert "10,000 agents" in told
    assert "30 of 10,000 agents have lines of their own" in told
    assert "12 of 20 channels drawn" in told


IMAGES = {
    "2-D": np.arange(12, dtype=np.uint8).reshape(3, 4),
    "one channel": np.zeros((28, 28, 1), np.uint8),
    "colour": RNG.integers(0, 255, (6, 6, 3), dtype=np.uint8),
    "twelve channels": RNG.normal(size=(6, 6, 12)),
    "a batch of one": RNG.integers(0, 255, (1, 6, 6, 3), dtype=np.uint8),
    "channels first": RNG.random((3, 6, 8), dtype=np.float32),
    "boolean": RNG.random((5, 5)) > 0.5,
    "beyond 0 to 1": np.linspace(-0.5, 1.5, 16).reshape(4, 4),
    "0 to 255": np.linspace(0, 255, 48).reshape(4, 4, 3),
    "NaN": np.full((4, 4), np.nan),
    "infinite": np.array([[np.inf, 0.0], [1.0, -np.inf]]),
    "constant": np.full((4, 4), 3.5),
    "wide": np.zeros((2, 300), np.uint8),
    "high": np.zeros((300, 2), np.uint8),
    "two channels": RNG.random((5, 5, 2)),
}


@pytest.mark.parametrize("kind", IMAGES)
def test_pictures_of_every_kind(tmp_path: Path, kind: str) -> None:
    ds = record(tmp_path / "a.h5", lambda log: [log.log_agent_step("a", t, {"image": IMAGES[kind]}) for t in range(4)])
    told = words(plot_episode(ds))
    assert "image of a" in told
    for which, note in {
        "twelve channels": "mean of 12 channels", "channels first": "channels first", "NaN": "all NaN", "infinite": "inf",
        "beyond 0 to 1": "1.5", "two channels": "channel 1",
    }.items():  # fmt: skip
        if kind == which:
            assert note in told


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 0.0, 1e300, 5])
def test_series_of_every_kind(tmp_path: Path, value: float) -> None:
    ds = record(
        tmp_path / "a.h5", lambda log: [log.log_agent_step("a", t, {"rewards": value, "p": np.array([value, 1.0])}) for t in range(8)]
    )
    words(plot_episode(ds))


def test_long_episodes_sparse_steps_and_odd_names(tmp_path: Path) -> None:
    def long(log: Any) -> None:
        for t in range(0, 50_000, 5):
            log.log_agent_step(("robot", 1), t, {"rewards": np.sin(t), "actions": t % 1000, "q": float(t)})

    assert "running mean of 400 steps" in words(plot_episode(record(tmp_path / "a.h5", long)))

    def odd(log: Any) -> None:
        for t in range(3):
            log.log_agent_step("$x_1$\x1b[31m" + "a" * 200, t, {"rewards": 1.0, "we$ird/na^me": np.zeros(2), "text": "hi"})
        log.end_episode(note="$\\frac{1}{$", other="x" * 500)

    told = words(plot_episode(record(tmp_path / "b.h5", odd)))
    assert "\x1b" not in told


def test_actions_without_names_have_rows_and_large_numbers_small_print(tmp_path: Path) -> None:
    def fill(log: Any) -> None:
        for t in range(40):
            log.log_agent_step("a", t, {"actions": {"turn": t % 3 - 1, "rare": (5, 7000)[t % 2], "far": 37 * t}, "rewards": 1e19 * t})
            log.log_agent_step("a", t, {"note": "x", "word": "y"})

    figure = plot_episode(record(tmp_path / "a.h5", fill))
    told = words(figure)
    ticks = {ax.get_title(loc="left"): [tick.get_text() for tick in ax.get_yticklabels()] for ax in figure.axes}
    assert (ticks["turn of a"], ticks["rare of a"]) == (["-1", "0", "1"], ["5", "7000"])
    assert "2 variables of text" in told
    [rewards] = [ax for ax in figure.axes if ax.get_title(loc="left").startswith("rewards")]
    assert rewards.yaxis.get_offset_text().get_text()
    assert rewards.yaxis.get_offset_text().get_fontsize() < rewards.title.get_fontsize()


def test_populations_are_told(tmp_path: Path) -> None:
    def fill(log: Any) -> None:
        for t in range(8):
            log.log_agent_step("prey_0", t, {"vision": np.ones((5, 5, 2), np.uint8), "rewards": 1.0})
            log.log_agent_step("wolf_0", t, {"smell": np.zeros(3, np.float32), "rewards": 0.5})

    prey = Schema(observations=[Variable("vision", (5, 5, 2), "uint8", channels=("grass", "wolf"))], rewards=Variable("rewards"))
    wolf = Schema(observations=[Variable("smell", (3,))], rewards=Variable("rewards"))
    ds = record(tmp_path / "a.h5", fill, Schema(populations={"prey": prey, "wolf": wolf}))
    told = words(plot_episode(ds))
    assert "prey.vision of prey_0" in told
    assert "only prey" in told
    assert "wolf.smell of wolf_0" in words(plot_episode(ds, agents="wolf_0"))


def test_the_figure_shows_itself_and_pyplot_stays_out(demo_run: Path) -> None:
    code = f"""if True:
        import sys, simlab
        figure = simlab.open_run({str(demo_run)!r}).sim.plot_episode(0, variables="rewards")
        assert figure._repr_png_().startswith(b"\\x89PNG")
        assert "matplotlib.pyplot" not in sys.modules
    """
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ)


def test_the_figure_can_be_saved_for_print(demo_run: Path) -> None:
    figure = plot_episode(simlab.open_run(demo_run), 0, variables="rewards")
    for kind in ("pdf", "svg"):
        out = io.BytesIO()
        figure.savefig(out, format=kind)
        assert out.tell() > 1000
