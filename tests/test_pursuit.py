"""A real environment, recorded with a plain loop, comes back value for value and type for type."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import simlab
from tests.pursuit import Copy

NAMES = ["vision", "actions", "rewards", "terminated", "truncated"]


def test_every_value_and_type(pursuit_run: tuple[Path, Copy]) -> None:
    path, copy = pursuit_run
    with simlab.open_run(path) as ds:
        assert set(ds.data_vars) == set(NAMES)
        assert list(ds.agent.values) == copy.agents
        for name in NAMES:
            expected = copy.array(name)
            got = ds[name].values
            assert got.dtype == expected.dtype, name
            np.testing.assert_array_equal(got, expected, err_msg=name, strict=True)
            assert ds.sim.present(name).values.all()


def test_axes(pursuit_run: tuple[Path, Copy]) -> None:
    path, copy = pursuit_run
    with simlab.open_run(path) as ds:
        assert ds.vision.dims == ("agent", "time", "vision_y", "vision_x", "vision_channel")
        np.testing.assert_array_equal(ds.time, np.arange(len(copy.steps)))
        np.testing.assert_array_equal(ds.step, copy.steps)
        np.testing.assert_array_equal(ds.episode, copy.episodes)


def test_episodes(pursuit_run: tuple[Path, Copy]) -> None:
    path, copy = pursuit_run
    with simlab.open_run(path) as ds:
        assert ds.sim.episodes.sizes["episode"] == 20
        for k in (0, 7, 19):
            rows = np.flatnonzero(np.array(copy.episodes) == k)
            episode = ds.sim.episode(k)
            np.testing.assert_array_equal(episode.vision, copy.array("vision")[:, rows], strict=True)
        sums = ds.rewards.groupby("episode").sum("time").transpose("agent", "episode")
        rewards, episodes = copy.array("rewards"), np.array(copy.episodes)
        expected = np.stack([rewards[:, episodes == k].sum(axis=1) for k in range(20)], axis=1)
        np.testing.assert_allclose(sums, expected)


@pytest.mark.parametrize("agent", ["pursuer_0", "pursuer_5"])
def test_one_agent(pursuit_run: tuple[Path, Copy], agent: str) -> None:
    path, copy = pursuit_run
    with simlab.open_run(path) as ds:
        got = ds.sel(agent=agent, time=slice(100, 200)).vision
        np.testing.assert_array_equal(got, copy.array("vision")[copy.agents.index(agent), 100:201], strict=True)


def test_what_was_said_about_the_run(pursuit_run: tuple[Path, Copy]) -> None:
    path, _ = pursuit_run
    with simlab.open_run(path) as ds:
        assert ds.attrs["seed"] == 7
        assert ds.attrs["environment_type"] == "pursuit_v5"
        assert ds.sim.config == {"max_cycles": 50}
