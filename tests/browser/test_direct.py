"""What a viewer does when answers fail, a run grows, or two runs stand side by side; without Jupyter, so that a test holds every string."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import simlab
from simlab.view.desk import Desk
from simlab.view.kinds import Panel
from simlab.view.paint import color_table, paint
from tests.browser import runs
from tests.browser.direct import show
from tests.browser.pages import Viewer, new_page

pytestmark = pytest.mark.browser


def record(path: Path, steps: int, **values: Any) -> Path:
    """Record a run of two agents; every value is a function of the step and the place of the agent."""

    def variable(name: str, one: np.ndarray[Any, Any]) -> simlab.Variable:
        channels = ("near", "far") if one.ndim == 3 and one.shape[-1] == 2 else None
        return simlab.Variable(name, one.shape, one.dtype.name, kind="image" if one.ndim > 1 else None, channels=channels)

    schema = simlab.Schema(observations=[variable(name, np.asarray(make(0, 0))) for name, make in values.items()])
    with simlab.HDF5Logger(path, schema, mode="w") as log:
        for step in range(steps):
            for i, agent in enumerate(("ada", "bob")):
                log.log_agent_step(agent, step, {"observations": {name: make(step, i) for name, make in values.items()}})
    return path


def status(viewer: Viewer) -> str:
    return str(viewer.root.locator(".sl-status").inner_text())


def wait_for_status(page: Any, words: str) -> None:
    page.wait_for_function("(words) => document.querySelector('.sl-status').textContent.includes(words)", arg=words)


def asked(page: Any, ask: str) -> list[dict[str, Any]]:
    return [question for question in page.evaluate("() => window.asked") if question["ask"] == ask]


def test_limits_grow_with_a_run(browser: Any, tmp_path: Path) -> None:
    with simlab.HDF5Logger(tmp_path / "run.h5") as log, new_page(browser) as (page, complaints):

        def write(first: int, last: int) -> None:
            for t in range(first, last):
                rgb = np.full((8, 8, 3), 0 if t < 10 else 200, np.uint8)
                heat = np.linspace(0, 1 if t < 10 else 30, 64, dtype=np.float32).reshape(8, 8)
                log.log_agent_step("a", t, {"rgb": rgb, "heat": heat})

        write(0, 10)
        (viewer,) = show(page, tmp_path, simlab.open_run(log.path, live=True).sim.view(-1, live=True, step=-1))
        viewer.wait_row(9)
        write(10, 60)
        viewer.wait_row(59)
        assert (viewer.pixels("rgb") == 200).all()
        page.wait_for_function("() => [...document.querySelectorAll('.sl-legend')].some((e) => e.textContent.includes('30'))")
        assert viewer.pixels("heat")[-1, -1].tolist() == np.round(255 * color_table()[-1]).tolist()
        assert "".join(viewer.root.locator(".sl-state").all_text_contents()) == ""
        page.wait_for_timeout(2500)
        assert len(asked(page, "scale")) == 4, "limits are asked for again although nothing is new"
        assert not complaints


def test_before_the_first_picture_a_failure_is_shown_and_tried_again(browser: Any, known_run: Path, tmp_path: Path) -> None:
    faults = ["disk on fire"] * 2
    with simlab.open_run(known_run) as ds, new_page(browser) as (page, _):
        show(page, tmp_path, ds.sim.view(step=3), fault=lambda q: faults.pop() if q["ask"] == "episode" and faults else None, wait=False)
        page.wait_for_selector("[role=alert]")
        assert page.locator("[role=alert]").inner_text() == "disk on fire"
        viewer = Viewer(page)
        viewer.wait_row(3)
        assert np.array_equal(viewer.pixels("camera", "ada"), runs.frame(0, 0, 3))
        assert page.locator("[role=alert]").count() == 0
        assert status(viewer) == ""


@pytest.mark.parametrize("ask", ["block", "tile", "scale", "events"])
def test_what_failed_is_told_and_tried_again(browser: Any, known_run: Path, tmp_path: Path, ask: str) -> None:
    failures: dict[str, int] = {}

    def fault(question: dict[str, Any]) -> str | None:
        if question["ask"] != ask:
            return None
        key = str({name: value for name, value in question.items() if name not in ("id", "inflate")})
        failures[key] = failures.get(key, 0) + 1
        return "the disk hums" if failures[key] < 3 else None

    with simlab.open_run(known_run) as ds, new_page(browser) as (page, complaints):
        (viewer,) = show(page, tmp_path, ds.sim.view(step=3, panels=["camera", "rewards"]), fault=fault)
        wait_for_status(page, "the disk hums")
        if ask in ("block", "scale"):
            assert not viewer.root.locator(".sl-cell canvas").first.is_visible(), "a picture that is not here looks black"
        page.wait_for_function("() => document.querySelector('.sl-status').textContent === ''")
        viewer.wait_row(3)
        assert np.array_equal(viewer.pixels("camera", "ada"), runs.frame(0, 0, 3))
        assert viewer.root.locator(".sl-blank").count() == 0
        assert len(viewer.root.locator(".sl-values").first.inner_text()) > 3
        assert page.locator(".sl-kind option").count() > 1
        assert not complaints


def test_a_lasting_failure_is_not_asked_for_ever(browser: Any, known_run: Path, tmp_path: Path) -> None:
    with simlab.open_run(known_run) as ds, new_page(browser) as (page, _):
        page.clock.install()
        (viewer,) = show(page, tmp_path, ds.sim.view(panels=["rewards"]), fault=lambda q: "no such tile" if q["ask"] == "tile" else None)
        for _again in range(12):
            page.clock.run_for(5_000)
        assert status(viewer) == "no such tile"
        count = len(asked(page, "tile"))
        page.clock.run_for(60_000)
        assert len(asked(page, "tile")) == count <= 6


def test_two_runs_of_other_sizes_and_ranges(browser: Any, tmp_path: Path) -> None:
    pieces = {"heat": lambda t, i: np.full((4, 6), t + i, np.float32), "q": lambda t, i: np.float32([t, i])}
    record(tmp_path / "a.h5", 12, **pieces, only=lambda t, i: np.float32(t))
    record(tmp_path / "b.h5", 12, heat=lambda t, i: np.full((8, 3), 100 - t, np.float32), q=lambda t, i: np.float32([7, t, i]))
    with (
        simlab.open_run(tmp_path / "a.h5") as ds,
        simlab.open_run(tmp_path / "b.h5") as other,
        new_page(browser) as (page, complaints),
    ):
        (viewer,) = show(page, tmp_path, ds.sim.view(other=other, panels=["heat", "q", "only"], step=10))
        viewer.wait_row(10)
        wait_for_status(page, "B has no only")
        table = np.round(255 * color_table())
        for side, value, shape in (("A · bob", 11, (4, 6, 3)), ("B · ada", 90, (8, 3, 3))):
            painted = viewer.pixels("heat", side)
            assert painted.shape == shape
            assert (painted == table[int(np.round(255 * value / 100))]).all(), "limits are not those of both sides"
        legend = viewer.root.locator(".sl-legend")
        assert legend.inner_text().split() == ["0", "100"]
        values = viewer.root.locator(".sl-values")
        assert values.nth(0).locator("span").all_inner_texts() == ["A 10", "B 7", "A 10", "B 7"]
        assert values.nth(1).locator("span").all_inner_texts() == ["A 0", "B 10", "A 1", "B 10"]
        assert viewer.root.locator(".sl-pair").count() == 2
        assert viewer.root.locator(".sl-pair").first.locator(".sl-name").all_inner_texts() == ["A · ada", "B · ada"]
        assert not complaints


def test_what_the_second_side_did_is_dashed(browser: Any, known_run: Path, tmp_path: Path) -> None:
    with simlab.open_run(known_run) as ds, new_page(browser) as (page, _):
        (viewer,) = show(page, tmp_path, ds.sim.view(other=1, panels=["actions"], agents=["ada"]))
        viewer.wait_row(0)
        page.evaluate("() => { window.views[0].window = [0, 16]; window.views[0].moved(); }")
        page.wait_for_timeout(300)
        edges = viewer.root.locator(".sl-plot canvas").evaluate(
            """(canvas) => {
              const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
              const filled = (x, y) => data[4 * (y * canvas.width + x) + 3] > 200;
              const most = [];
              for (let y = 0; y < canvas.height; y++) {
                let inside = 0;
                for (let x = 1; x < canvas.width; x++) inside += filled(x, y) !== filled(x - 1, y);
                most.push(inside);
              }
              return most;
            }"""
        )
        assert max(edges) > 60, "both sides look the same"
        assert 0 < min(count for count in edges if count) < 40


def test_limits_of_each_step_are_those_of_what_is_painted(browser: Any, tmp_path: Path) -> None:
    dice = np.random.default_rng(1)
    cube = dice.random((8, 8, 12)).astype(np.float32) * np.arange(12, dtype=np.float32)
    record(tmp_path / "a.h5", 3, n12=lambda t, i: cube)
    with simlab.open_run(tmp_path / "a.h5") as ds, new_page(browser) as (page, _):
        (viewer,) = show(page, tmp_path, ds.sim.view(panels=[Panel("picture", "n12", limits="step")]))
        viewer.wait_row(0)
        mean = cube.astype(float).mean(axis=-1)
        painted = viewer.pixels("n12", "ada")
        table = np.round(255 * color_table())
        assert painted[np.unravel_index(mean.argmin(), mean.shape)].tolist() == table[0].tolist()
        assert painted[np.unravel_index(mean.argmax(), mean.shape)].tolist() == table[-1].tolist()
        assert viewer.root.locator(".sl-state").first.inner_text() == ""


def test_infinite_and_negative_values(browser: Any, tmp_path: Path) -> None:
    def heat(t: int, i: int) -> np.ndarray[Any, Any]:
        out = np.linspace(0, 5, 24, dtype=np.float32).reshape(4, 6)
        out[0, :3] = [np.inf, -np.inf, np.nan]
        return out

    def smell(t: int, i: int) -> np.ndarray[Any, Any]:
        return np.stack([np.linspace(-1, 0.5, 24).reshape(4, 6), np.eye(4, 6) * 3], axis=-1).astype(np.float32)

    record(tmp_path / "a.h5", 3, heat=heat, smell=smell, again=heat)
    with simlab.open_run(tmp_path / "a.h5") as ds, new_page(browser) as (page, _):
        (viewer,) = show(page, tmp_path, ds.sim.view(panels=["heat", "smell", Panel("picture", "again", limits=(1, 9))]))
        viewer.wait_row(0)
        opened = Desk(ds).opened(0)
        for name, make in (("heat", heat), ("smell", smell)):
            assert np.array_equal(viewer.pixels(name, "ada"), paint(make(0, 0), opened.scale(name)[0])), name
        assert viewer.cell("heat", "ada").locator(".sl-state").first.inner_text() == "1 NaN, 2 infinite"
        assert "1 NaN, 2 infinite, 2 px beyond limits" in viewer.root.locator(".sl-picture-panel").nth(2).inner_text()
        assert "near (−1 … 0.5, dark below 0)" in viewer.root.locator(".sl-picture-panel").nth(1).inner_text()
        assert "far: 0 … 3" in str(viewer.root.locator(".sl-key").nth(1).get_attribute("title"))


def test_nothing_is_asked_for_while_nothing_moves(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "wide.h5"
    with simlab.HDF5Logger(path, mode="w") as log:
        wide = np.arange(64, dtype=float)
        for step in range(1024):
            for i in range(12):
                log.log_agent_step(f"a{i}", step, {"p": wide + step, "q": wide - step})
    with simlab.open_run(path) as ds, new_page(browser) as (page, complaints):
        (viewer,) = show(
            page, tmp_path, ds.sim.view(panels=["p", Panel("lines", "q", channels=[40, 63])], agents=[f"a{i}" for i in range(12)])
        )
        page.evaluate("() => { const view = window.views[0]; view.sides[0].limit = 2 ** 20; view.sides[0].tiles.clear(); view.moved(); }")
        page.wait_for_function(
            "() => [...document.querySelectorAll('.sl-values')].every((e) => e.textContent && !e.textContent.includes('…'))"
        )
        count = len(asked(page, "tile"))
        page.wait_for_timeout(2500)
        tiles = asked(page, "tile")
        assert len(tiles) == count <= 4
        assert {tile["name"]: len(tile["channels"]) for tile in tiles} == {"p": 24, "q": 2}
        told = viewer.root.locator(".sl-fewer")
        assert told.all_inner_texts() == ['24 of 64 channels of p; for others: panels=[Panel("lines", "p", channels=[24, …])]']
        assert viewer.root.locator(".sl-values").nth(25).inner_text().split()[0] == "63"
        assert not complaints


def test_playing_keeps_its_pace(browser: Any, known_run: Path, tmp_path: Path) -> None:
    """The clock goes on where the episode begins again, and a linked viewer does not set it back."""
    with simlab.open_run(known_run) as ds, new_page(browser) as (page, _):
        show(page, tmp_path, ds.sim.view(panels=["rewards"]), ds.sim.view(panels=["energy"]))
        counted = """([n, speed]) => {
          const view = window.views[0];
          const keep = view.invalidate;
          view.invalidate = () => {};
          Object.assign(view, { n, speed, loop: true, playing: true, row: 0, began: null });
          let steps = 0;
          for (let frame = 0; frame <= 600; frame++) {
            const before = view.row;
            advance(view, (1000 * frame) / 60);
            steps += (view.row - before + n) % n;
          }
          view.invalidate = keep;
          Object.assign(view, { n: 300, playing: false, row: 0, loop: false, speed: 30 });
          return steps;
        }"""
        assert page.evaluate(counted, [200, 240]) == pytest.approx(2400, abs=4)
        assert page.evaluate(counted, [3, 60]) == pytest.approx(600, abs=2)


@pytest.mark.parametrize("late", [0, 60])
def test_linked_viewers_keep_their_pace(browser: Any, known_run: Path, tmp_path: Path, late: int) -> None:
    """They are linked in the page, or by the kernel, which hears of a step and tells it late."""
    with simlab.open_run(known_run) as ds, new_page(browser) as (page, _):
        show(page, tmp_path, ds.sim.view(panels=["rewards"]), ds.sim.view(panels=["energy"]))
        rows = page.evaluate(
            """async (late) => {
              const [a, b] = window.views;
              const kernel = { step: 0, playing: false };
              for (const [from, to] of [[a, b], [b, a]]) {
                for (const name of late ? [] : ['step', 'playing']) {
                  from.model.on(`change:${name}`, () => to.model.set(name, from.model.get(name)));
                }
                from.model.save_changes = () => {
                  const told = { step: from.model.get('step'), playing: from.model.get('playing') };
                  if (late) setTimeout(() => {
                    for (const name of ['step', 'playing']) {
                      if (kernel[name] === told[name]) continue;
                      kernel[name] = told[name];
                      setTimeout(() => to.model.set(name, told[name]), late);
                    }
                  }, late);
                };
              }
              a.play(true);
              await new Promise((done) => setTimeout(done, 2500));
              const there = [a.row, b.row];
              a.play(false);
              await new Promise((done) => setTimeout(done, 900));
              return [...there, b.playing, a.row, b.row];
            }""",
            late,
        )
        assert 55 < rows[0] < 100
        assert 55 < rows[1] < 100
        assert rows[2] is False
        assert late or rows[3] == rows[4]  # by way of the kernel, each may hear the last word of the other


def test_it_does_not_play_by_itself_where_motion_is_unwanted(browser: Any, known_run: Path, tmp_path: Path) -> None:
    with simlab.open_run(known_run) as ds, new_page(browser) as (page, _):
        page.emulate_media(reduced_motion="reduce")
        viewer = ds.sim.view(panels=["rewards"])
        viewer.playing = True
        show(page, tmp_path, viewer)
        page.wait_for_function("() => window.views[0].model.get('playing') === false")
        page.evaluate("() => window.views[0].model.set('playing', true)")
        page.wait_for_function("() => window.views[0].row > 3")
