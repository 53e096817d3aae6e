"""What readers see and press, mostly on pages from a file, which need no server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import simlab
from simlab.view.kinds import KINDS, register_panel
from tests.browser.pages import Viewer, new_page, open_notebook, serious, wait_for_python
from tests.browser.servers import Server

pytestmark = pytest.mark.browser


@contextmanager
def page_of(
    browser: Any, run: Path, folder: Path, width: int = 1200, height: int = 900, **options: Any
) -> Iterator[tuple[Viewer, list[str]]]:
    """Export a run and open the page."""
    with simlab.open_run(run) as ds:
        ds.sim.export(folder / "page.html", **options)
    with new_page(browser, width, height) as (page, complaints):
        page.goto((folder / "page.html").as_uri())
        yield Viewer(page), complaints


# -- keys


def test_keys_stay_where_they_belong(browser: Any, known_run: Path, tmp_path: Path) -> None:
    panels = ["camera", "rewards", "table"]
    with page_of(browser, known_run, tmp_path, episode=[0, 1], every=50, panels=panels) as (viewer, complaints):
        page = viewer.page
        page.add_style_tag(content=".sl-table { max-height: 60px !important; }")
        table = viewer.root.locator(".sl-table")
        table.focus()
        for name in ("ArrowDown", "ArrowDown", "End", "ArrowUp"):
            page.keyboard.press(name)
        page.wait_for_function("() => document.querySelector('.sl-table').scrollTop > 40")
        assert viewer.row == 0
        assert viewer.root.locator(".sl-episode").first.evaluate("(e) => e.selectedIndex") == 0
        page.keyboard.press("ArrowRight")
        viewer.wait_row(1)
        page.locator("input.sl-range").focus()
        page.keyboard.press("ArrowUp")
        page.keyboard.press("Shift+ArrowUp")
        viewer.wait_row(12)
        page.keyboard.press("ArrowDown")
        viewer.wait_row(11)
        assert viewer.root.locator(".sl-episode").first.evaluate("(e) => e.selectedIndex") == 0
        assert not complaints


def test_the_window_for_colours_closes(browser: Any, known_run: Path, tmp_path: Path) -> None:
    with page_of(browser, known_run, tmp_path, every=50, panels=["depth", "rewards"]) as (viewer, complaints):
        tune, tuner = viewer.root.locator(".sl-tune"), viewer.root.locator(".sl-tuner")
        tune.click()
        picture, window = viewer.root.locator(".sl-screen").first.bounding_box(), tuner.bounding_box()
        assert window["y"] + window["height"] <= picture["y"], "it covers the picture"
        tuner.locator("select").first.focus()
        viewer.page.keyboard.press("Escape")
        assert not tuner.is_visible()
        assert tune.evaluate("(e) => e === document.activeElement && e.getAttribute('aria-expanded') === 'false'")
        tune.click()
        viewer.root.locator(".sl-plot").first.click()
        assert not tuner.is_visible()
        tune.click()
        tune.click()
        assert not tuner.is_visible()
        assert not complaints


def test_keys_with_control_are_the_notebooks(browser: Any, lab: Server, known_run: Path) -> None:
    with new_page(browser) as (page, complaints):
        open_notebook(page, lab, f"import simlab; v = simlab.open_run({str(known_run)!r}).sim.view(); v")
        viewer = Viewer(page)
        dirty = "() => window.jupyterapp.shell.currentWidget.context.model.dirty"
        for target in (viewer.root, viewer.root.locator(".sl-play"), viewer.root.locator("input.sl-range")):
            page.evaluate("() => { window.jupyterapp.shell.currentWidget.context.model.dirty = true }")
            target.focus()
            for _ in range(10):  # one that is still busy with the save before does not begin another
                page.keyboard.press("Control+s")
                page.wait_for_timeout(1000)
                if not page.evaluate(f"({dirty})()"):
                    break
            assert not page.evaluate(f"({dirty})()")
        viewer.key("m", "d", "d")  # letters are still the viewer's
        assert viewer.root.evaluate("(root) => [root, ...root.querySelectorAll('button')].every((e) => e.dataset.lmSuppressShortcuts)")
        assert page.locator(".jp-Notebook .jp-CodeCell").count() == 2
        assert not serious(complaints)


# -- looks

LOOKS = """(root) => {
  const parse = (text) => text.match(/[0-9.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255).map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const walk = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  const found = [];
  while (walk.nextNode()) {
    const element = walk.currentNode.parentElement;
    const shown = walk.currentNode.textContent.trim() && element.getClientRects().length;
    if (!shown || element.closest('option, select, .sl-play, .sl-live')) continue;
    const style = getComputedStyle(element);
    const contrast = 1.05 / (light(parse(style.color)) + 0.05);
    if (contrast < 4.5 || parseFloat(style.fontSize) < 11) found.push([walk.currentNode.textContent, contrast, style.fontSize]);
  }
  return found;
}"""


def test_text_can_be_read(browser: Any, known_run: Path, tmp_path: Path) -> None:
    with page_of(browser, known_run, tmp_path, every=50, agents=["ada", "bob", "cyd"]) as (viewer, complaints):
        viewer.page.wait_for_function("() => document.querySelectorAll('.sl-sign').length > 1")
        assert viewer.root.evaluate(LOOKS) == []
        assert viewer.root.locator(".sl-sign", has_text="reward").is_visible()
        inside = "(e) => e.parentElement.getBoundingClientRect().bottom - e.getBoundingClientRect().bottom"
        assert all(lane.evaluate(inside) >= -1 for lane in viewer.root.locator(".sl-lanes span").all())
        assert not complaints


def test_small_windows(browser: Any, known_run: Path, tmp_path: Path) -> None:
    with page_of(browser, known_run, tmp_path, 960, 540, every=50, agents=["ada", "bob", "cyd"]) as (viewer, complaints):
        for part in (".sl-play", ".sl-timeline"):
            box = viewer.root.locator(part).bounding_box()
            assert box["y"] + box["height"] < 540, "it is below the window"
        viewer.page.set_viewport_size({"width": 392, "height": 800})
        assert viewer.root.locator("select.sl-episode").bounding_box()["width"] > 180
        assert viewer.root.evaluate("(root) => root.scrollWidth <= root.clientWidth")
        for menu in viewer.root.locator(".sl-menu-root > button").all():
            menu.click()
            box = viewer.root.locator(".sl-menu:visible").bounding_box()
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= 392
        assert not complaints


# -- steps and names

LABEL = "\u202egnp.exe\x1b[31m" + "A" * 290


@pytest.fixture(scope="module")
def sparse_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run with a row for every tenth step, agents of odd names, and an episode without steps."""
    path = tmp_path_factory.mktemp("sparse") / "sparse.h5"
    with simlab.HDF5Logger(path) as log:
        for episode in range(2):
            log.begin_episode()
            for step in range(0, 500, 10):
                for agent in (LABEL, "bob"):
                    log.log_agent_step(agent, step, {"rewards": float(step), "view": np.full((4, 4, 3), episode, np.uint8)})
                log.log_env_step(step, {"note": LABEL})
            log.end_episode()
        log.begin_episode()
        log.end_episode()
    return path


def test_steps_are_those_that_were_logged(browser: Any, sparse_run: Path, tmp_path: Path) -> None:
    with page_of(browser, sparse_run, tmp_path, episode=[0, 1, 2], panels=["rewards"]) as (viewer, complaints):
        page = viewer.page
        viewer.key(*["Shift+ArrowRight"] * 3, *["ArrowRight"] * 7)
        viewer.wait_row(37)
        assert viewer.root.locator(".sl-now").inner_text() == "step 370"
        marks = viewer.root.locator(".sl-mark button").first
        viewer.key("m")
        assert viewer.root.locator("input[placeholder='note for step 370']").is_visible()
        page.keyboard.press("Enter")
        viewer.key("m")
        assert marks.inner_text() == "episode 0, step 370"
        page.keyboard.press("Escape")
        viewer.key("ArrowDown")
        viewer.wait_row(0)
        viewer.key("m")
        page.wait_for_function("() => document.querySelector('.sl-mark button').textContent === 'episode 0, step 370'")
        page.keyboard.press("Escape")
        viewer.key("ArrowDown")
        page.wait_for_function("() => document.querySelector('.sl-end').textContent === 'no steps'")
        viewer.key("m")
        assert viewer.root.locator("input[placeholder='this episode has no steps']").is_disabled()
        assert not complaints


def test_labels_are_inert_and_short(browser: Any, sparse_run: Path, tmp_path: Path) -> None:
    with page_of(browser, sparse_run, tmp_path, episode=0, panels=["view", "rewards", "table"]) as (viewer, complaints):
        viewer.root.locator("button[aria-label='Agents that are shown']").click()
        told = viewer.root.evaluate(
            """(root) => [root.innerText, ...[...root.querySelectorAll('*')]
              .flatMap((e) => [e.title ?? '', e.getAttribute('aria-label') ?? ''])]"""
        )
        assert not [text for text in told if "\u202e" in text or "\x1b" in text]
        assert "\ufffdgnp.exe\ufffd[31mAAA" in told[0]
        assert any(len(text) > 290 for text in told[1:]), "the whole label is nowhere"
        lengths = viewer.root.locator("[aria-label]").evaluate_all("(all) => all.map((e) => e.getAttribute('aria-label').length)")
        assert max(lengths) < 80
        head = viewer.root.locator(".sl-table thead th").all()
        assert all(cell.evaluate("(e) => e.scrollWidth <= e.clientWidth") for cell in head)
        box = viewer.root.locator(".sl-menu .sl-check input").first
        box.click()
        box.click()
        assert viewer.root.locator(".sl-cell").count() == 2, "the label is not the agent's any more"
        assert not complaints


def test_large_numbers_are_agents(browser: Any, lab: Server, tmp_path: Path) -> None:
    large = 2**60 + 1
    with simlab.HDF5Logger(tmp_path / "large.h5") as log:
        log.begin_episode()
        for agent in (7, 11, large):
            log.log_agent_step(agent, 0, {"rewards": 1.0})
    with new_page(browser) as (page, complaints):
        open_notebook(page, lab, f"import simlab; v = simlab.open_run({str(tmp_path / 'large.h5')!r}).sim.view(); v")
        viewer = Viewer(page)
        viewer.root.locator("button[aria-label='Agents that are shown']").click()
        viewer.root.locator(".sl-menu .sl-check", has_text="7").first.click()
        wait_for_python(page, "print(v.agents)", f"[11, {large}]")
        assert viewer.root.locator(".sl-menu .sl-check").nth(2).inner_text().strip() == str(large)
        assert not serious(complaints)


# -- series


@pytest.fixture(scope="module")
def long_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run of two long series: actions of which only two occur, and a line that leaves the numbers for a while."""
    path = tmp_path_factory.mktemp("long") / "long.h5"
    schema = simlab.Schema(
        observations=[simlab.Variable("heat", dtype="float32")], actions=simlab.Variable("actions", dtype="int8", categories=tuple("abcde"))
    )
    steps = np.arange(60_000)
    heat = np.sin(steps / 3000)
    heat[20_000:40_000] = np.inf
    with simlab.HDF5Logger(path, schema) as log:
        log.log_episode({"heat": heat, "actions": np.where(steps % 3, 4, 0)}, agent_id="ada")
    return path


@pytest.mark.parametrize("page", [True, False], ids=["page", "kernel"])
def test_long_series(browser: Any, request: pytest.FixtureRequest, long_run: Path, tmp_path: Path, page: bool) -> None:
    def check(viewer: Viewer) -> None:
        viewer.page.wait_for_function(
            "() => [...document.querySelectorAll('.sl-values')].every((e) => e.textContent && e.textContent !== '…')"
        )
        ink = viewer.drawn("actions")
        colored = np.ptp(ink[..., :3].astype(int), axis=2) > 60
        lanes = [colored[round(3 + (i + 0.5) * (len(ink) - 6) / 5)].mean() for i in range(5)]
        assert min(lanes[0], lanes[4]) > 0.9, lanes
        assert lanes[1:4] == [0, 0, 0], "actions that nobody took"
        colored = np.ptp(viewer.drawn("heat")[..., :3].astype(int), axis=2) > 60
        wide = colored.shape[1]
        middle = colored[:, int(0.4 * wide) : int(0.6 * wide)]
        assert middle[:3].any(axis=0).all(), "no mark where it is infinite"
        assert not middle[4:].any(), "a line where there is no number"

    if page:
        with page_of(browser, long_run, tmp_path) as (viewer, complaints):
            check(viewer)
            assert not complaints
    else:
        with new_page(browser) as (tab, complaints):
            lab = request.getfixturevalue("lab")
            open_notebook(tab, lab, f"import simlab; v = simlab.open_run({str(long_run)!r}).sim.view(); v")
            check(Viewer(tab))
            assert not serious(complaints)


# -- maps


def test_a_map_of_very_many(browser: Any, lab: Server, tmp_path: Path) -> None:
    schema = simlab.Schema(observations=[simlab.Variable("place", (3,), "float32", channels=("up", "east", "north"), units="m")])
    with simlab.HDF5Logger(tmp_path / "many.h5", schema) as log:
        log.begin_episode()
        for step in range(3):
            for i in range(600):
                if i != 5 or step == 0:
                    log.log_agent_step(f"a{i}", step, {"place": [0, i % 30, i // 30]})
    code = "import simlab; from simlab.view.kinds import Panel"
    with new_page(browser) as (page, complaints):
        view = "sim.view(step=1, agents=['a599'], panels=[Panel('map', variable='place', x='east', y='north')])"
        open_notebook(page, lab, f"{code}; v = simlab.open_run({str(tmp_path / 'many.h5')!r}).{view}; v")
        viewer = Viewer(page)
        facts = viewer.root.locator(".sl-panel[aria-label='Map'] .sl-facts")
        page.wait_for_function("() => document.querySelector('.sl-map canvas').dataset.row === '1'")
        assert facts.inner_text() == "511 here of 512 drawn, 600 in all"
        ink = viewer.pixels_of(".sl-map canvas").astype(int)
        assert (np.abs(ink - (0xD5, 0x5E, 0x00)).sum(axis=2) < 12).sum() > 20, "the chosen agent is not on the map"
        assert not serious(complaints)


def test_a_map_of_two_populations(browser: Any, tmp_path: Path) -> None:
    place = simlab.Variable("place", (2,), "float32", channels=("x", "y"))
    kinds = {"birds": simlab.Schema(observations=[place]), "cats": simlab.Schema(observations=[place])}
    schema = simlab.Schema(populations=kinds, agents={"birds": ["b0", "b1"], "cats": ["c0"]})
    with simlab.HDF5Logger(tmp_path / "two.h5", schema) as log:
        log.begin_episode()
        for step in range(30):
            log.log_agent_step("b0", step, {"place": [step, 0]})
            log.log_agent_step("c0", step, {"place": [step, 20]})
        log.log_agent_step("b1", 30, {"place": [0, 0]})
    with page_of(browser, tmp_path / "two.h5", tmp_path) as (viewer, complaints):
        viewer.key("PageDown", "ArrowLeft")
        viewer.page.wait_for_function("() => document.querySelector('.sl-map canvas').dataset.row === '29'")
        assert viewer.root.locator(".sl-panel[aria-label='Map'] .sl-facts").inner_text() == "birds: 1 of 2 here · cats: 1 of 1 here"
        viewer.root.locator("button[aria-label='Agents that are shown']").click()
        viewer.root.locator(".sl-menu .sl-check", has_text="c0").click()
        viewer.page.keyboard.press("Escape")
        dark = viewer.drawn("cats.place x")[..., :3].astype(int).sum(axis=2) < 600
        assert dark.sum() > 60, "it does not say that nobody is chosen"
        assert not complaints


# -- panels of one's own

OWN = """
export default { render(api) {
  const text = document.createElement("b"); text.className = "own"; api.root.append(text);
  return {
    draw(row) {
      if (row === 7) throw new Error("seven is too many");
      text.textContent = ["bob", "ada", "nobody"].map((label) => api.value(label)?.[0] ?? String(api.value(label))).join(" ");
    },
    destroy() { window.destroyed = (window.destroyed ?? 0) + 1; },
  };
} };
"""


def test_a_panel_of_ones_own(browser: Any, known_run: Path, tmp_path: Path) -> None:
    register_panel("own", lambda episode, name: name == "actions", OWN)
    try:
        with page_of(browser, known_run, tmp_path, every=50, agents=["ada", "bob"], panels=["actions", "rewards"]) as (viewer, complaints):
            page = viewer.page
            page.wait_for_function("() => document.querySelector('.own')?.textContent === '1 0 undefined'")
            viewer.root.locator("button[aria-label='Agents that are shown']").click()
            viewer.root.locator(".sl-word", has_text="none").click()
            page.wait_for_function("() => window.destroyed === 1")
            page.wait_for_function("() => document.querySelector('.own')?.textContent === '1 0 undefined'")
            assert viewer.root.locator(".sl-status").inner_text() == ""
            page.keyboard.press("Escape")
            viewer.key(*["ArrowRight"] * 7)
            viewer.wait_row(7)
            viewer.key("ArrowRight")
            viewer.wait_row(8)  # the viewer goes on
            assert "failed in draw: seven is too many" in viewer.root.locator(".sl-broken").inner_text()
            assert [text for text in complaints if "seven" not in text] == []
    finally:
        KINDS.pop("own")
