"""Moments of a run as plain arrays: painted by limits of the episode, nothing clipped unseen, absent told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import simlab
from simlab.errors import AgentError, NotInRunError, TimestepError
from simlab.view.choice import choose
from simlab.view.frames import Episode, frame_at
from simlab.view.paint import ABSENT, CHANNEL_COLORS, PAPER, as_image, color_table, paint, scale_of


def run_of(path: Path, steps: int, values: Callable[[int], dict[str, Any]], **options: Any) -> Any:
    with simlab.HDF5Logger(path, mode="w", **options) as log:
        for t in range(steps):
            log.log_agent_step("a", t, values(t))
    return simlab.open_run(path)


@pytest.mark.parametrize(
    ("shape", "image", "note"),
    [
        ((5, 4), (5, 4, 1), ""),
        ((28, 28, 1), (28, 28, 1), ""),
        ((5, 4, 3), (5, 4, 3), ""),
        ((5, 4, 12), (5, 4, 12), ""),
        ((3, 8, 9), (8, 9, 3), "channels first"),
        ((1, 8, 9), (8, 9, 1), "channels first"),
        ((1, 64, 64, 3), (64, 64, 3), ""),
        ((2, 64, 64, 3), (64, 64, 3), "the first of 2 pictures"),
        ((3, 3, 3), (3, 3, 3), ""),
        ((7,), (1, 7, 1), ""),
    ],
)
def test_values_of_any_shape_become_pictures(shape: tuple[int, ...], image: tuple[int, ...], note: str) -> None:
    found, told = as_image(np.zeros(shape))
    assert found.shape == image
    assert told == note


def test_labelled_channels_are_never_taken_for_rows() -> None:
    assert as_image(np.zeros((3, 8, 9)), labelled=True)[0].shape == (3, 8, 9)


@pytest.mark.parametrize(
    ("values", "style", "low", "high"),
    [
        (np.array([[[0, 255]]], np.uint8), "gray", 0, 255),
        (np.array([[[0, 1]]], np.uint8), "gray", 0, 1),
        (np.array([[[True, False]]]), "gray", 0, 1),
        (np.array([[[0.2, 0.4]]], np.float32), "scale", 0, 1),
        (np.array([[[-0.5, 1.5]]]), "scale", -0.5, 1.5),
        (np.array([[[0.0, 255.0]]]), "scale", 0, 255),
        (np.array([[[-7, 7]]], np.int64), "scale", -7, 7),
        (np.array([[[4.0, np.nan, np.inf]]]), "scale", 4, 4),
    ],
)
def test_limits_are_those_of_the_values(values: np.ndarray[Any, Any], style: str, low: float, high: float) -> None:
    scale = scale_of(values)
    assert scale.style == style
    assert (float(scale.low[0]), float(scale.high[0])) == (low, high)


def test_colours_out_of_range_are_told_not_clipped() -> None:
    values = np.linspace(-0.5, 1.5, 12).reshape(1, 2, 2, 3)
    scale = scale_of(values)
    assert scale.note == "values -0.5 … 1.5"
    painted = paint(values[0], scale)
    assert painted.min() == 0
    assert painted.max() == 255
    assert len(np.unique(painted)) == 12


def test_labelled_channels_lie_over_each_other_in_colours_of_a_legend() -> None:
    values = np.zeros((1, 1, 3, 3), np.uint8)
    values[0, 0, 1, 1] = 7
    values[0, 0, 2, 2] = 255
    values[0, 0, 0, 0] = 0
    scale = scale_of(values, ["walls", "food", "agents"])
    painted = paint(values[0], scale)
    assert [label for label, _ in scale.legend] == ["walls", "food", "agents"]
    assert painted[0].tolist() == [list(PAPER), list(CHANNEL_COLORS[1]), list(CHANNEL_COLORS[2])]


def test_less_than_nothing_is_a_dark_shade_and_nothing_stays_paper() -> None:
    values = np.array([[[[0, 0], [-1, 0], [1, 0], [0, 5], [0.5, 0]]]])
    painted = paint(values[0], scale_of(values, ["smell", "food"]))[0]
    smell, food = np.array(CHANNEL_COLORS[0]), CHANNEL_COLORS[1]
    assert painted[0].tolist() == list(PAPER)
    assert painted[1].tolist() == np.round(0.4 * smell).tolist()
    assert painted[2].tolist() == smell.tolist()
    assert painted[3].tolist() == list(food)
    assert painted[4].tolist() == np.round((np.array(PAPER) + smell) / 2).tolist()


@pytest.mark.parametrize(("value", "note"), [(0, ""), (1, "no value above 1 of 255"), (3, "")])
def test_bytes_of_red_green_blue_go_to_255_however_dark_they_are(value: int, note: str) -> None:
    scale = scale_of(np.full((2, 4, 4, 3), value, np.uint8))
    assert (scale.style, scale.low[0], scale.high[0], scale.note) == ("rgb", 0, 255, note)
    assert scale_of(np.full((2, 4, 4, 3), value, np.uint8), attributes={"valid_min": 0, "valid_max": 3}).high[0] == 3


def test_red_green_blue_by_name_is_a_plain_picture() -> None:
    assert scale_of(np.zeros((1, 2, 2, 3), np.uint8), ["Red", "Green", "Blue"]).style == "rgb"


def test_many_channels_are_averaged_and_this_is_told() -> None:
    values = np.arange(2 * 2 * 12, dtype=float).reshape(1, 2, 2, 12)
    scale = scale_of(values)
    assert scale.note == "mean of 12 channels"
    assert paint(values[0], scale)[0, 0].tolist() == np.round(255 * color_table()[0]).tolist()


def test_channels_first_keep_their_limits_apart() -> None:
    values = np.stack([np.full((8, 9), 1.0), np.full((8, 9), 200.0)])[np.newaxis]
    assert as_image(values[0])[0].shape == (2, 8, 9)  # two rows or two channels: not guessed
    labelled = np.moveaxis(values, 1, -1)
    assert scale_of(labelled, ["a", "b"]).high.tolist() == [1.0, 200.0]


def test_names_of_values_have_colours_and_unnamed_values_are_absent() -> None:
    values = np.array([[[0, 1, 5]]])
    scale = scale_of(values, categories=["free", "wall"])
    assert paint(values[0], scale)[0].tolist() == [list(CHANNEL_COLORS[0]), list(CHANNEL_COLORS[1]), list(ABSENT)]


def test_nan_has_a_colour_of_its_own_and_infinity_lies_on_its_side() -> None:
    values = np.array([[[0.0, 2.0, np.nan, np.inf, -np.inf]]])
    painted = paint(values[0], scale_of(values))[0]
    assert painted[2].tolist() == list(ABSENT)
    assert painted[3].tolist() == painted[1].tolist()
    assert painted[4].tolist() == painted[0].tolist()


def test_all_nan_and_constant_pictures() -> None:
    nothing = np.full((1, 2, 2), np.nan)
    assert scale_of(nothing).note == "no finite values"
    assert not scale_of(nothing).needs_bar
    assert (paint(nothing[0], scale_of(nothing)) == ABSENT).all()
    constant = np.full((1, 2, 2), 7.5)
    assert len(np.unique(paint(constant[0], scale_of(constant)).reshape(-1, 3), axis=0)) == 1


def test_declared_bounds_are_limits_where_values_keep_to_them() -> None:
    values = np.array([[[10, 20]]], np.int32)
    bounds = {"valid_min": 0, "valid_max": 100}
    assert scale_of(values, attributes=bounds).high[0] == 100
    assert scale_of(values * 50, attributes=bounds).high[0] == 1000


def test_limits_are_those_of_the_whole_episode(tmp_path: Path) -> None:
    ds = run_of(tmp_path / "a.h5", 10, lambda t: {"heat": np.full((4, 4), float(10 * t))})
    episode = Episode(ds, 0)
    assert episode.scale("heat", "a").high.tolist() == [90.0]
    first, last = (episode.frame_at("heat", t, "a").image[0, 0] for t in (0, 9))
    assert first.tolist() == np.round(255 * color_table()[0]).tolist()
    assert last.tolist() == np.round(255 * color_table()[-1]).tolist()


def test_frames_of_agents_and_of_the_environment(demo_run: Path) -> None:
    ds = simlab.open_run(demo_run)
    frame = frame_at(ds, "vision", 300, "agent_0")
    assert (frame.time, frame.step, frame.agent, frame.present) == (300, 60, "agent_0", True)
    np.testing.assert_array_equal(frame.values, ds.vision.sel(agent="agent_0", time=300))
    assert frame.image.shape == (11, 11, 3)
    snapshot = frame_at(ds, "state_snapshots", 317)
    assert (snapshot.time, snapshot.step) == (300, 60)
    np.testing.assert_array_equal(snapshot.values, ds.state_snapshots.sel(state_snapshots_time=300))


def test_a_frame_that_was_not_logged_says_so(demo_run: Path) -> None:
    frame = frame_at(simlab.open_run(demo_run), "vision", 0, "agent_12")
    assert not frame.present


def test_what_is_not_there_is_refused_with_what_is(demo_run: Path) -> None:
    ds = simlab.open_run(demo_run)
    with pytest.raises(NotInRunError, match="Did you mean 'vision'"):
        frame_at(ds, "visoin", 0, "agent_0")
    with pytest.raises(AgentError, match="agent_99"):
        frame_at(ds, "vision", 0, "agent_99")
    with pytest.raises(TimestepError, match="99999"):
        frame_at(ds, "vision", 99999, "agent_0")
    with pytest.raises(TimestepError, match="-1"):
        Episode(ds, 0).frame_at("vision", -1, "agent_0")
    with pytest.raises(TimestepError, match="episode 0"):
        Episode(ds, 0).frame_at("vision", 300, "agent_0")


def test_what_is_worth_drawing_is_chosen(demo_run: Path) -> None:
    ds = simlab.open_run(demo_run)
    choice = choose(Episode(ds, 0))
    assert choice.strips == ["state_snapshots", "vision"]
    assert choice.rewards == ["rewards"]
    assert choice.actions == ["actions"]
    assert choice.environment == ["resource_count", "population"]
    assert choice.place == ("proprioception", 0, 1)
    assert choice.series[0] == ("states", 0)
    assert not choice.notes
    named = choose(Episode(ds, 0), agents=["agent_3", "agent_1"], variables="vision")
    assert [named.labels[i] for i in named.drawn] == ["agent_3", "agent_1"]
    assert (named.strips, named.rewards) == (["vision"], [])


def test_what_is_left_out_is_told(tmp_path: Path) -> None:
    ids = [f"a{i}" for i in range(100)]
    with simlab.HDF5Logger(tmp_path / "a.h5") as log:
        log.log_step(0, agents={"x": np.zeros((100, 40)), "rewards": np.zeros(100)}, agent_ids=ids)
    choice = choose(Episode(simlab.open_run(tmp_path / "a.h5"), 0))
    assert len(choice.drawn) == 30
    assert choice.notes == ["30 of 100 agents have lines of their own", "12 of 40 channels drawn"]
