"""The viewer without a browser: its traits, its answers, what it keeps and what it lets go of."""

from __future__ import annotations

import json
import os
import re
import zlib
from pathlib import Path
from typing import Any

import ipywidgets
import numpy as np
import pytest
import traitlets

import simlab
from simlab.errors import AgentError, InputError, NotInRunError, StateError
from simlab.read.accessor import SimulationAccessor
from simlab.storage import opening
from simlab.view.desk import Desk
from simlab.view.events import find_events
from simlab.view.kinds import KINDS, Panel, choose_panels, register_panel
from simlab.view.script import PARTS, module
from simlab.view.viewer import EpisodeViewer


@pytest.fixture
def run(tmp_path: Path) -> Path:
    path = tmp_path / "run.h5"
    with simlab.HDF5Logger(path, seed=1) as log:
        for episode in range(3):
            log.begin_episode()
            for step in range(20 + episode):
                for agent in ("a", "b", "c")[: 2 if step < 5 else 3]:
                    if agent == "b" and step > 15:
                        continue
                    picture = np.full((6, 5, 3), step + 10 * episode, np.uint8)
                    reward = np.nan if step == 3 else 40.0 if step == 12 and agent == "a" else step % 3 - 1.0
                    log.log_agent_step(agent, step, {"vision": picture, "rewards": reward, "actions": np.int8(step % 2)})
                log.log_env_step(step, {"food": step * 2, "note": f"step {step}"})
            log.end_episode()
    return path


def asked(viewer: EpisodeViewer, question: dict[str, Any]) -> tuple[dict[str, Any], list[bytes]]:
    """Send a question as a browser does, and return what the viewer sends."""
    sent: list[Any] = []
    viewer.send = lambda content, buffers=None: sent.append((content, buffers))  # type: ignore[method-assign]
    viewer._handle_custom_msg({**question, "id": "x.1"}, [])
    assert sent[0][0]["id"] == "x.1"
    json.dumps(sent[0][0], allow_nan=False)
    return sent[0]


# -- traits


def test_traits(run: Path) -> None:
    with simlab.open_run(run) as ds:
        viewer = ds.sim.view(-1, agents=["a", "c"], step=4, speed=10, layout={"width": "90%"})
        assert isinstance(viewer, ipywidgets.DOMWidget)
        assert (viewer.episode, viewer.step, viewer.agents, viewer.playing, viewer.speed, viewer.loop) == (
            2,
            4,
            ["a", "c"],
            False,
            10,
            False,
        )
        seen: list[int] = []
        viewer.observe(lambda change: seen.append(change["new"]), "step")
        viewer.step = 7
        assert viewer.at["step"].item() == 7
        assert viewer.at.vision.sel(agent="a").values[0, 0, 0] == 27
        slider = ipywidgets.IntSlider(max=50)
        traitlets.link((viewer, "step"), (slider, "value"))
        slider.value = 9
        assert seen == [7, 9]
        viewer.close()


def test_the_last_step(run: Path) -> None:
    with simlab.open_run(run) as ds:
        assert ds.sim.view(1, step=-1).step == 20


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"episode": 9}, NotInRunError, "no episode 9"),
        ({"agents": ["z"]}, AgentError, "no agent 'z'"),
        ({"panels": ["vison"]}, NotInRunError, "vision"),
        ({"panels": [Panel("picure", "vision")]}, InputError, "picture"),
        ({"panels": [Panel("picture", "vision", colormap="virdis")]}, InputError, "viridis"),
        ({"panels": [Panel("picture", "vision", limits=(3, 1))]}, InputError, "lowest"),
        ({"panels": [Panel("picture", "vision", channels=[9])]}, NotInRunError, "no channel 9"),
        ({"panels": [Panel("picture", "vision", limits=(0, np.inf))]}, InputError, "lowest"),
        ({"panels": [Panel("picture", "vision", colour="magma")]}, InputError, "no option 'colour'.*colormap"),
        ({"panels": [Panel("picture", colour="magma")]}, InputError, "no option 'colour'"),
        ({"panels": [Panel("table", x="food")]}, InputError, "no option 'x'; it has none"),
        ({"panels": [Panel("picture", "rewards")]}, InputError, "needs a variable of pictures.*Panel\\('lines', 'rewards'\\)"),
        ({"panels": [Panel("picture", "note")]}, InputError, "'note' is text.*'table'"),
        ({"panels": [Panel("lines", "note")]}, InputError, "needs numbers"),
        ({"panels": [Panel("lines", "vision")]}, InputError, "shape \\(6, 5, 3\\).*Panel\\('picture', 'vision'\\)"),
        ({"panels": [Panel("steps", "rewards")]}, InputError, "whole number"),
        ({"events": {"x": 3}}, InputError, "truth values"),
        ({"other": "run.h5"}, InputError, "open_run"),
        ({"other": 44}, NotInRunError, "no episode 44"),
    ],
)
def test_what_is_refused(run: Path, options: dict[str, Any], error: type[Exception], words: str) -> None:
    with simlab.open_run(run) as ds, pytest.raises(error, match=words):
        ds.sim.view(**options)


def test_traits_refuse_what_there_is_not(run: Path) -> None:
    with simlab.open_run(run) as ds:
        viewer = ds.sim.view()
        for name, value, error in (("episode", 5, NotInRunError), ("agents", ["q"], AgentError), ("speed", -1.0, InputError)):
            with pytest.raises(error):
                setattr(viewer, name, value)
        with pytest.raises(InputError):
            viewer.bookmarks = [{"episode": "one"}]
        assert viewer.episode == 0


def test_what_was_set_last_is_where_the_view_is(run: Path) -> None:
    with simlab.open_run(run) as ds:
        viewer = ds.sim.view()
        viewer.step = 17
        viewer.episode = 1
        assert viewer.step == 0
        assert viewer.at["episode"].item() == 1
        viewer.step = 17
        assert viewer.at["step"].item() == 17
        viewer.set_state({"episode": 2, "step": 9})  # a browser goes to a bookmark
        assert (viewer.episode, viewer.step) == (2, 9)
        viewer.set_state({"episode": 1})  # to the same step of another episode
        assert (viewer.episode, viewer.step) == (1, 9)


def test_no_step_is_beyond_the_end(run: Path) -> None:
    with simlab.open_run(run) as ds:
        viewer = ds.sim.view(step=9999)
        assert viewer.step == 19
        viewer.step = -3
        assert viewer.step == 0
        both = ds.sim.view(0, other=2)  # the cursor is that of the longer one
        both.step = 9999
        assert both.step == 21


def test_an_episode_that_the_other_run_lacks_is_refused(run: Path, tmp_path: Path) -> None:
    with simlab.HDF5Logger(tmp_path / "short.h5") as log:
        log.begin_episode()
        log.log_agent_step("a", 0, {"rewards": 1.0})
    with simlab.open_run(run) as ds, simlab.open_run(tmp_path / "short.h5") as short:
        viewer = ds.sim.view(other=short, step=3)
        with pytest.raises(NotInRunError, match=r"other run has no episode 2.*0 to 0"):
            viewer.episode = 2
        assert (viewer.episode, viewer.step) == (0, 3)


def test_agents_come_as_readers_have_them(run: Path) -> None:
    with simlab.open_run(run) as ds:
        for given in (ds.agent.values[:2], ds.agent[:2], ["a", "b"], ("a", "b"), [ds.agent[0], ds.agent[1]], ds.indexes["agent"][:2]):
            assert ds.sim.view(agents=given).agents == ["a", "b"]
        for given in ("b", ds.agent[1], ds.agent.values[1]):
            assert ds.sim.view(agents=given).agents == ["b"]
        viewer = ds.sim.view()
        viewer.agents = ["c"]
        with pytest.raises(AgentError, match="no agent 'z'"):
            ds.sim.view(agents=np.array(["a", "z"]))


def test_an_empty_run(tmp_path: Path) -> None:
    with simlab.HDF5Logger(tmp_path / "run.h5", seed=1):
        pass
    with simlab.open_run(tmp_path / "run.h5") as ds, pytest.raises(NotInRunError, match="no episodes"):
        ds.sim.view()


def test_the_file_is_let_go(run: Path) -> None:
    viewer = simlab.open_run(run).sim.view(events=None)
    asked(viewer, {"ask": "block", "side": 0, "episode": 0, "name": "vision", "block": 0, "chunk": 0})
    place = os.path.realpath(run)
    assert any(os.path.realpath(path) == place for path, _ in opening._open)
    viewer.close()
    viewer.close()
    assert not any(os.path.realpath(path) == place for path, _ in opening._open)
    with pytest.raises(StateError, match="closed"):
        _ = viewer.at


# -- answers


def test_answers(run: Path) -> None:
    with simlab.open_run(run) as ds:
        viewer = ds.sim.view()
        told, _ = asked(viewer, {"ask": "episodes", "side": 0})
        assert told["count"] == 3
        about, _ = asked(viewer, {"ask": "episode", "side": 0, "episode": 1})
        assert about["n"] == 21
        assert about["variables"]["vision"]["layout"]["direct"]
        assert {(p["kind"], p["variable"]) for p in about["panels"] if p["shown"]} >= {("picture", "vision"), ("lines", "rewards")}
        scale, _ = asked(viewer, {"ask": "scale", "side": 0, "episode": 1, "name": "vision"})
        assert (scale["style"], scale["high"]) == ("rgb", [255.0])
        grown, _ = asked(viewer, {"ask": "grown", "episode": 1})
        assert grown == {"n": 21, "episodes": 3, "complete": True, "id": "x.1"}


@pytest.mark.parametrize(
    "question",
    [
        {"ask": "nonsense"},
        {"ask": "__class__"},
        {"ask": "block", "episode": 0, "name": "vision", "block": "x", "chunk": 0},
        {"ask": "block", "episode": 0, "name": "rewards", "block": 0, "chunk": 0},
        {"ask": "block", "episode": 77, "name": "vision", "block": 0, "chunk": 0},
        {"ask": "tile", "episode": 0, "name": "<b>", "agents": [0], "channels": [0], "level": 0, "tile": 0},
        {"ask": "tile", "episode": 0, "name": "rewards", "agents": [0], "channels": [99], "level": 0, "tile": 0},
        {"ask": "tile", "episode": 0},
        {"ask": "scale", "episode": 0, "name": "vision", "channels": [12]},
    ],
)
def test_a_wrong_question_is_answered(run: Path, question: dict[str, Any]) -> None:
    with simlab.open_run(run) as ds:
        told, buffers = asked(ds.sim.view(), question)
        assert told["error"]
        assert not buffers


@pytest.mark.parametrize("ask", ["episodes", "episode", "scale", "block", "tile", "events", "grown", "difference"])
def test_every_question_is_answered_whatever_goes_wrong(run: Path, ask: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise zlib.error("incorrect data check")

    for name in ("episode_list", "describe", "find_scale", "read_block", "read_tile", "find_events"):
        monkeypatch.setattr(f"simlab.view.desk.{name}", fail)
    monkeypatch.setattr("simlab.view.viewer.first_difference", fail)
    monkeypatch.setattr(Desk, "follow", fail)
    with simlab.open_run(run) as ds:
        place = {"name": "vision", "block": 0, "chunk": 0, "agents": [0], "channels": [0], "level": 0, "tile": 0, "other": 1}
        told, _ = asked(ds.sim.view(other=1, live=True), {"ask": ask, "side": 0, "episode": 0, **place})
        assert told["error"] == "error: incorrect data check"


def test_a_file_written_again_is_told(run: Path) -> None:
    viewer = simlab.open_run(run).sim.view()
    with simlab.HDF5Logger(run, mode="w") as log:
        log.log_agent_step("z", 0, {"rewards": 1.0})
    told, _ = asked(viewer, {"ask": "block", "side": 0, "episode": 0, "name": "vision", "block": 0, "chunk": 0})
    assert "written again" in told["error"]


def test_the_timestep_of_a_row(tmp_path: Path) -> None:
    with simlab.HDF5Logger(tmp_path / "sparse.h5") as log:
        for episode in range(2):
            log.begin_episode()
            for step in range(episode, 200, 10):
                log.log_agent_step("a", step, {"rewards": 1.0})
    with simlab.open_run(tmp_path / "sparse.h5") as ds:
        viewer = ds.sim.view(1, step=3)
        moments = [[0, 0], [0, 19], [1, 3], [0, 20], [1, 20], [7, 0], [0, -1]]
        answer, _ = asked(viewer, {"ask": "steps", "side": 0, "moments": moments})
        assert answer["steps"] == [0, 190, 31, None, None, None, None]
        assert "step 31" in viewer._still()["text/plain"]


# -- events


def test_events(run: Path) -> None:
    with simlab.open_run(run) as ds:
        viewer = ds.sim.view(events={"full": ds.food > 30})
        found = [(event["kind"], event["step"]) for event in viewer.events]
        assert ("birth", 5) in found
        assert ("death", 15) in found
        assert ("NaN", 3) in found
        assert ("reward", 12) in found
        assert ("full", 16) in found
        assert found[-1] == ("end", 19)
        assert [row for _, row in found] == sorted(row for _, row in found)


def test_conditions_are_those_of_the_episode(run: Path) -> None:
    with simlab.open_run(run) as ds:
        opened = Desk(ds, events={"negative": ds.rewards < 0}).opened(2)
        events, notes = find_events(opened.episode, opened.presence, {"negative": ds.rewards < 0})
        rewards = opened.episode.data.rewards.values
        wanted = (rewards < 0).any(axis=0)
        starts = np.flatnonzero(wanted & ~np.concatenate([[False], wanted[:-1]]))
        assert [e.row for e in events if e.kind == "negative"] == starts.tolist()
        assert notes == []


# -- panels


def test_panels(run: Path) -> None:
    with simlab.open_run(run) as ds:
        episode = Desk(ds).opened(0).episode
        panels = [panel for panel, shown in choose_panels(episode, ["food", Panel("picture", "vision", channels=[0]), "table"]) if shown]
        assert [(p.kind, p.variable) for p in panels] == [("lines", "food"), ("picture", "vision"), ("table", None)]
        assert {p.variable for p, _ in choose_panels(episode, ["table"])} == {None, "vision", "rewards", "actions", "food"}


def test_limits_of_a_panel_may_be_numpy_numbers(run: Path) -> None:
    with simlab.open_run(run) as ds:
        panels = [Panel("picture", "vision", limits=(np.float32(1), np.int64(9)))]
        about, _ = asked(ds.sim.view(panels=panels), {"ask": "episode", "side": 0, "episode": 0})
        assert about["panels"][0]["options"]["limits"] == [1, 9]


@pytest.fixture
def flock(tmp_path: Path) -> Path:
    """Return a run of two populations whose positions have names of their own."""
    place = simlab.Variable("place", (3,), "float32", channels=("height", "east", "north"), units="m")
    spot = simlab.Variable("spot", (2,), "float32", channels=("x", "y"))
    schema = simlab.Schema(
        populations={
            "birds": simlab.Schema(observations=[place], rewards=simlab.Variable("joy")),
            "cats": simlab.Schema(observations=[spot]),
        },
        agents={"birds": [f"bird_{i}" for i in range(5)], "cats": [f"cat_{i}" for i in range(4)]},
        environment=[simlab.Variable("ball", (2,), channels=("x", "y"))],
    )
    with simlab.HDF5Logger(tmp_path / "flock.h5", schema, seed=1) as log:
        log.begin_episode()
        for step in range(4):
            for i in range(5):
                log.log_agent_step(f"bird_{i}", step, {"place": [1, i, step], "joy": 1.0})
            for i in range(step + 1):
                log.log_agent_step(f"cat_{i}", step, {"spot": [i, step]})
            log.log_env_step(step, {"ball": [0, step]})
    return tmp_path / "flock.h5"


def test_the_places_of_a_map(flock: Path) -> None:
    with simlab.open_run(flock) as ds:
        place, spot = "birds.place", "cats.spot"

        def places(*panels: str | Panel) -> list[Any]:
            about, _ = asked(ds.sim.view(panels=panels), {"ask": "episode", "side": 0, "episode": 0})
            return next(panel["options"]["places"] for panel in about["panels"] if panel["kind"] == "map" and panel["shown"])

        assert places("map") == [[spot, 0, 1]]
        assert places(Panel("map", variable=place, x="east", y="north")) == [[place, 1, 2]]
        assert places(Panel("map", x="east", y="north")) == [[place, 1, 2]]
        assert places(Panel("map", place, x=2, y=0)) == [[place, 2, 0]]
        for panel, error, words in (
            (Panel("map", place), NotInRunError, "height, east, north"),
            (Panel("map", place, x="nope", y="north"), NotInRunError, "no channel 'nope'; it has height, east, north"),
            (Panel("map", x="nope", y="north"), NotInRunError, "height, east, north"),
            (Panel("map", place, x="east"), InputError, "y=None"),
            (Panel("map", "birds.joy"), InputError, "height, east, north"),
            (Panel("map", "ball"), InputError, "a variable of agents"),
        ):
            with pytest.raises(error, match=words):
                ds.sim.view(panels=[panel])


def test_some_of_each_population_are_shown(flock: Path) -> None:
    with simlab.open_run(flock) as ds:
        assert ds.sim.view().agents == ["bird_0", "bird_1", "cat_0", "cat_1"]


def test_a_kind_of_ones_own(run: Path) -> None:
    register_panel("dial", lambda episode, name: name == "food", "export default { render() { return {} } }")
    try:
        with simlab.open_run(run) as ds:
            about, _ = asked(ds.sim.view(panels=["food"]), {"ask": "episode", "side": 0, "episode": 0})
            assert about["panels"][0]["kind"] == "dial"
            assert "render()" in about["scripts"]["dial"]
        with pytest.raises(InputError, match="already"):
            register_panel("lines", lambda episode, name: True, "")
    finally:
        KINDS.pop("dial")


def test_numbers_that_a_page_cannot_hold(tmp_path: Path) -> None:
    large = 2**60 + 1
    with simlab.HDF5Logger(tmp_path / "large.h5") as log:
        log.begin_episode()
        for agent in (7, 11, large):
            log.log_agent_step(agent, 0, {"rewards": 1.0})
    with simlab.open_run(tmp_path / "large.h5") as ds:
        viewer = ds.sim.view()
        about, _ = asked(viewer, {"ask": "episode", "side": 0, "episode": 0})
        names = about["populations"][0]["agents"]
        assert names == [7, 11, str(large)]
        assert viewer.get_state("agents")["agents"] == names
        viewer.set_state({"agents": names[1:]})
        assert viewer.agents == [11, large]
        with pytest.raises(AgentError):
            viewer.set_state({"agents": [1152921504606847000]})


# -- two sides


def test_the_first_difference(run: Path) -> None:
    with simlab.open_run(run) as ds:
        same = ds.sim.view(0, other=ds)
        assert same.difference == {"row": None, "text": "no difference in what both have"}
        viewer = ds.sim.view(0, other=1)
        assert viewer.difference is not None
        assert viewer.difference["row"] == 0
        changed = ds.assign(food=ds.food.where(ds.time != 7, 99)).assign()
        changed["food"].attrs = ds.food.attrs
        other = ds.sim.view(0, other=changed)
        assert other.difference == {"row": 7, "text": "first difference: food at step 7"}
        told, _ = asked(other, {"ask": "difference", "episode": 0, "other": 0})
        assert told["row"] == 7


def test_the_other_run_shows_of_the_panels_what_it_has(run: Path, tmp_path: Path) -> None:
    with simlab.HDF5Logger(tmp_path / "other.h5") as log:
        for step in range(3):
            log.log_agent_step("a", step, {"rewards": 1.0})
    with simlab.open_run(run) as ds, simlab.open_run(tmp_path / "other.h5") as other:
        viewer = ds.sim.view(panels=["vision", "rewards"], other=other)
        about, _ = asked(viewer, {"ask": "episode", "side": 1, "episode": 0})
        assert [panel["variable"] for panel in about["panels"] if panel["shown"]] == ["rewards"]


# -- bookmarks


def test_bookmarks_are_kept_beside_the_run(run: Path) -> None:
    with simlab.open_run(run) as ds:
        viewer = ds.sim.view(1, step=5)
        viewer.bookmark("see <this>")
        kept = json.loads((run.parent / "run.h5.bookmarks.json").read_text())
        assert kept == {"simulation_0001": [{"episode": 1, "step": 5, "note": "see <this>"}]}
        assert ds.sim.view().bookmarks == viewer.bookmarks


def test_viewers_of_one_run_keep_each_others_bookmarks(run: Path) -> None:
    place = run.parent / "run.h5.bookmarks.json"
    with simlab.open_run(run) as ds:
        one, two = ds.sim.view(), ds.sim.view(1)
        one.bookmark("a")
        two.bookmark("b")
        assert [mark["note"] for mark in json.loads(place.read_text())["simulation_0001"]] == ["a", "b"]
        assert [mark["note"] for mark in two.bookmarks] == ["a", "b"]
        one.bookmarks = []
        assert [mark["note"] for mark in one.bookmarks] == ["b"]
        two.bookmark("b")
        two.bookmarks = two.bookmarks[:1]  # of two that are equal, one goes
        assert [mark["note"] for mark in ds.sim.view().bookmarks] == ["b"]


@pytest.mark.skipif(os.name != "posix", reason="modes of files are those of POSIX")
def test_others_may_read_the_bookmarks(run: Path) -> None:
    before = os.umask(0o022)
    try:
        with simlab.open_run(run) as ds:
            ds.sim.view().bookmark("x")
    finally:
        os.umask(before)
    assert (run.parent / "run.h5.bookmarks.json").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(
    "content", ["[", "[]", '{"simulation_0001": [1]}', '{"simulation_0001": [{"episode": 0, "step": -1}]}', "[" * 100_000]
)
def test_a_damaged_file_of_bookmarks_is_left_as_it_is(run: Path, content: str) -> None:
    place = run.parent / "run.h5.bookmarks.json"
    place.write_text(content)
    with simlab.open_run(run) as ds:
        viewer = ds.sim.view()
        assert viewer.bookmarks == []
        assert "left as it is" in viewer._bookmarks_note
        if not content.startswith("{"):
            viewer.bookmark("kept here")
            assert place.read_text() == content
            assert len(viewer.bookmarks) == 1


def test_bookmarks_where_nothing_can_be_written(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.mkstemp", refuse)
    with simlab.open_run(run) as ds:
        viewer = ds.sim.view()
        viewer.bookmark("x")
        assert "Permission denied" in viewer._bookmarks_note
        assert len(viewer.bookmarks) == 1


# -- a run that is being written


def test_it_follows(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    longer = tmp_path / "longer.h5"
    with simlab.HDF5Logger(longer, seed=1) as log:
        for _episode in range(4):
            log.begin_episode()
            for step in range(30):
                log.log_agent_step("a", step, {"rewards": 1.0})
    monkeypatch.setattr(SimulationAccessor, "refresh", lambda self: simlab.open_run(longer), raising=False)
    with simlab.open_run(run) as ds:
        viewer = ds.sim.view(live=True)
        assert viewer.live
        told, _ = asked(viewer, {"ask": "grown", "episode": 0})
        assert (told["n"], told["episodes"]) == (30, 4)
        viewer.episode = 3
        about, _ = asked(viewer, {"ask": "episode", "side": 0, "episode": 3})
        assert about["n"] == 30
        viewer.close()
        assert not any(os.path.realpath(path) == os.path.realpath(longer) for path, _ in opening._open)


def test_limits_are_those_of_the_rows_that_there_are_by_now(tmp_path: Path) -> None:
    with simlab.HDF5Logger(tmp_path / "run.h5") as log:

        def record(first: int, last: int) -> None:
            for t in range(first, last):
                dark = t < 10
                picture, heat = np.full((8, 8, 3), 0 if dark else 200, np.uint8), np.full((8, 8), 0.5 if dark else 30.0, np.float32)
                log.log_agent_step("a", t, {"rgb": picture, "heat": heat})

        record(0, 10)
        viewer = simlab.open_run(log.path, live=True).sim.view(live=True)
        for high in (1, 30):
            for name, wanted in (("rgb", 255), ("heat", high)):
                scale, _ = asked(viewer, {"ask": "scale", "side": 0, "episode": 0, "name": name})
                assert scale["high"] == [wanted]
            if high == 1:
                record(10, 40)
                asked(viewer, {"ask": "grown", "episode": 0})
        viewer.close()


def test_it_follows_a_run_of_this_process(tmp_path: Path) -> None:
    with simlab.HDF5Logger(tmp_path / "run.h5") as log:

        def record(first: int, last: int) -> None:
            for t in range(first, last):
                log.log_agent_step("a", t, {"vision": np.full((32, 32, 3), t % 256, np.uint8), "rewards": float(t)})

        record(0, 40)
        viewer = simlab.open_run(log.path, live=True).sim.view(live=True)
        for n in (40, 120, 300, 301):
            record(int(asked(viewer, {"ask": "episode", "side": 0, "episode": 0})[0]["n"]), n)
            told, _ = asked(viewer, {"ask": "grown", "episode": 0})
            assert told["n"] == n
            about, _ = asked(viewer, {"ask": "episode", "side": 0, "episode": 0})
            assert about["n"] == n
            layout = about["variables"]["vision"]["layout"]
            assert not layout["direct"]  # a part of it is not in the file yet
            wanted = {"ask": "block", "side": 0, "episode": 0, "name": "vision", "block": 0}
            told, buffers = asked(viewer, {**wanted, "chunk": (n - 1) // layout["length"]})
            raw = zlib.decompress(buffers[0]) if told["deflated"] else bytes(buffers[0])
            newest = np.frombuffer(raw, np.uint8).reshape(-1, 32, 32, 3)[n - 1 - told["first"]]
            assert (newest == (n - 1) % 256).all()
        viewer.close()


def test_without_live_nothing_is_followed(run: Path) -> None:
    with simlab.open_run(run) as ds:
        viewer = ds.sim.view()
        viewer.refresh()
        assert not viewer.live


# -- what stands for it


def test_a_picture_stands_for_it(run: Path) -> None:
    with simlab.open_run(run) as ds:
        viewer = ds.sim.view(step=3)
        told = viewer._still()
        assert "data:image/png;base64," in told["text/html"]
        assert "Run the cell" in told["text/html"]
        assert viewer._poster in told["text/html"]
        state = viewer.get_state()
        assert len(json.dumps({k: v for k, v in state.items() if k not in ("_esm", "_css", "layout")}, default=str)) < 2000, (
            "data in traits"
        )


def test_names_are_inert(tmp_path: Path) -> None:
    bad = "<img src=x onerror=alert(1)></script>\x1b[31m"
    with simlab.HDF5Logger(tmp_path / "run.h5") as log:
        log.begin_episode()
        for step in range(3):
            log.log_agent_step(bad, step, {bad: step, "vision": np.zeros((3, 3), np.uint8)})
        log.end_episode(outcome=bad)
    with simlab.open_run(tmp_path / "run.h5") as ds:
        viewer = ds.sim.view()
        assert "<img src=x" not in viewer._still()["text/html"]
        told, _ = asked(viewer, {"ask": "episodes", "side": 0})
        assert "\x1b" not in json.dumps(told, ensure_ascii=False)
        page = Path(ds.sim.export(tmp_path / "page.html")).read_text()
        assert "<img src=x" not in page
        assert page.count("</script>") == 2


# -- the script


def test_the_parts_make_one_module() -> None:
    text = module("page")
    assert "\nimport " not in text
    assert text.count("\nexport ") == 1
    folder = Path(simlab.__file__).parent / "view" / "browser"
    parts = {part.stem: part.read_text(encoding="utf-8") for part in folder.glob("*.js")}
    assert parts.keys() == {*PARTS, "page"}
    found = [
        name
        for part in parts.values()
        for name in re.findall(r"^(?:export )?(?:async )?(?:function|class|const|let) (\w+)", part, re.MULTILINE)
    ]
    assert len(found) == len(set(found)), "two parts have the same name for something"
    assert set(found) == set(re.findall(rf"^(?:async )?(?:function|class|const|let) ({'|'.join(found)})\b", text, re.MULTILINE))
    for name, part in parts.items():
        assert "innerHTML" not in part, f"{name} may read text of a file as markup"
        assert part.count("\n") <= 520, f"{name} is large; split it by what it does"
        assert all(line.count("`") % 2 == 0 for line in part.splitlines()), f"{name} has text over several lines"
