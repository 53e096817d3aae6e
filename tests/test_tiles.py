"""Series by the tile: the values themselves, and least and greatest of windows, against numpy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import simlab
from simlab.errors import InputError
from simlab.view.blocks import Presence
from simlab.view.frames import Episode
from simlab.view.tiles import BINS, channels_of, least_and_greatest, read_tile, tile_rows, which_occurred


@pytest.fixture(scope="module")
def long_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("long") / "run.h5"
    dice = np.random.default_rng(1)
    with simlab.HDF5Logger(path) as log:
        log.log_episode(
            {
                "observations": dice.normal(size=(5000, 3)).astype(np.float32),
                "rewards": dice.normal(size=5000),
                "actions": np.arange(5000) % 7,
            },
            agent_id="a",
        )
        log.begin_episode()
        for step in range(40):
            log.log_agent_step("b", step, {"mood": "well" if step % 2 else "ill", "rewards": 1.0})
    return path


def tile(episode: Episode, name: str, agents: list[int], level: int, number: int) -> tuple[dict[str, Any], list[bytes]]:
    return read_tile(episode, Presence(episode), name, agents, level, number, channels_of(episode, name))


def test_values_as_they_are(long_run: Path) -> None:
    with simlab.open_run(long_run) as ds:
        episode = Episode(ds, 0)
        for name in ("observations", "rewards", "actions"):
            for number in range(5):
                header, (values, there) = tile(episode, name, [0], 0, number)
                wanted = episode.values(name, "a")[number * BINS : (number + 1) * BINS]
                found = np.frombuffer(values, header["dtype"]).reshape(header["shape"])
                assert np.array_equal(found[0], wanted.reshape(len(wanted), -1))
                assert np.frombuffer(there, np.uint8).all()
                assert header["rows"] == len(wanted)


@pytest.mark.parametrize("level", [2, 4, 8, 14])
def test_least_and_greatest_of_the_file(long_run: Path, level: int) -> None:
    with simlab.open_run(long_run) as ds:
        episode = Episode(ds, 0)
        wanted = episode.values("observations", "a").astype(float)
        for number in range(-(-5000 // tile_rows(level))):
            header, (octets,) = tile(episode, "observations", [0], level, number)
            found = np.frombuffer(octets).reshape(header["shape"])[0]
            for point in range(len(found)):
                window = wanted[header["first"] + point * 2**level :][: min(2**level, header["rows"] - point * 2**level)]
                assert np.array_equal(found[point], np.stack([window.min(axis=0), window.max(axis=0)], axis=-1))


def test_absent_is_told(long_run: Path) -> None:
    with simlab.open_run(long_run) as ds:
        episode = Episode(ds, 1)
        header, (_, there) = tile(episode, "rewards", [0, 1], 0, 0)
        assert np.frombuffer(there, np.uint8).reshape(2, -1).tolist() == [[0] * 40, [1] * 40]
        _, (octets,) = tile(episode, "rewards", [0, 1], 2, 0)
        ends = np.frombuffer(octets).reshape(2, -1)
        assert np.isnan(ends[0]).all()
        assert (ends[1] == 1).all()
        assert header["rows"] == 40


def test_text(long_run: Path) -> None:
    with simlab.open_run(long_run) as ds:
        header, buffers = tile(Episode(ds, 1), "mood", [0, 1], 0, 0)
        assert buffers == []
        assert header["text"][1][:3] == ["ill", "well", "ill"]
        assert set(header["text"][0]) == {""}


def test_no_such_tile(long_run: Path) -> None:
    with simlab.open_run(long_run) as ds:
        episode = Episode(ds, 0)
        for level, number in ((0, 5), (0, -1), (-1, 0), (99, 0)):
            with pytest.raises((InputError, ValueError)):
                tile(episode, "rewards", [0], level, number)
        with pytest.raises(InputError, match="agents"):
            tile(episode, "rewards", [7], 0, 0)


@given(
    hnp.arrays(np.float64, st.tuples(st.integers(1, 2), st.integers(1, 20), st.integers(1, 2))), st.sampled_from([1, 2, 4, 8]), st.data()
)
def test_least_and_greatest_lose_nothing(values: np.ndarray[Any, Any], every: int, data: st.DataObject) -> None:
    there = data.draw(hnp.arrays(bool, values.shape[:2]))
    found = least_and_greatest(values, there, every)
    shown = np.where(there[..., None], values, np.nan)
    for point in range(found.shape[1]):
        window = shown[:, point * every : (point + 1) * every]
        for agent, channel in np.ndindex(values.shape[0], values.shape[2]):
            numbers = window[agent, :, channel][~np.isnan(window[agent, :, channel])]
            low, high = found[agent, point, channel]
            assert (np.isnan(low) and np.isnan(high)) if not numbers.size else (low, high) == (numbers.min(), numbers.max())


def test_values_with_names_are_told_apart(tmp_path: Path) -> None:
    """Of actions 0 and 4 alone, a point of many steps does not say that 1, 2 and 3 were taken too."""
    schema = simlab.Schema(actions=simlab.Variable("actions", dtype="int8", categories=tuple("abcde")), rewards=simlab.Variable("rewards"))
    actions = np.where(np.arange(3000) % 2, 4, 0)
    actions[2000:2016] = 3
    with simlab.HDF5Logger(tmp_path / "run.h5", schema) as log:
        log.log_episode({"actions": actions, "rewards": np.ones(3000)}, agent_id="a")
    with simlab.open_run(tmp_path / "run.h5") as ds:
        header, (ends, masks) = tile(Episode(ds, 0), "actions", [0], 4, 0)
        found = np.frombuffer(masks, np.uint32)
        assert header["occurred"]
        assert found.shape == (np.frombuffer(ends).size // 2,)
        assert found[2000 // 16] == 1 << 3
        assert set(np.delete(found, 2000 // 16).tolist()) == {1 | 1 << 4}
        assert "occurred" not in tile(Episode(ds, 0), "rewards", [0], 4, 0)[0]


def test_which_occurred() -> None:
    values = np.array([[[0], [31], [32], [-1], [5]]], np.int64)
    there = np.array([[True, True, True, True, False]])
    assert which_occurred(values, there, 5).ravel().tolist() == [1 | 1 << 31]
    assert which_occurred(np.array([[[True], [False], [True]]]), np.ones((1, 3), bool), 2).ravel().tolist() == [3, 2]


def test_tiles_stay_small() -> None:
    for level in range(0, 24, 2):
        assert tile_rows(level) % (1 << level) == 0
        assert tile_rows(level) >> level <= BINS
