"""Several viewers on one page, names that would like to be markup, a panel of one's own, readers without a mouse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import simlab
from tests.browser.pages import Viewer, new_page, open_notebook, run_code, serious
from tests.browser.runs import frame
from tests.browser.servers import Server

pytestmark = pytest.mark.browser
BAD = "<img src=x onerror='window.hurt=1'></script>"


@pytest.fixture(scope="module")
def hostile_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run whose every name is markup."""
    path = tmp_path_factory.mktemp("hostile") / "run.h5"
    schema = simlab.Schema(
        observations=[simlab.Variable("view", (4, 4, 2), "uint8", kind="image", channels=(BAD, "b"), long_name=BAD)],
        actions=simlab.Variable("actions", dtype="int8", categories=(BAD, "stay")),
        environment=[simlab.Variable("food", dtype="int32", units=BAD, long_name=BAD)],
    )
    with simlab.HDF5Logger(path, schema, environment_type=BAD) as log:
        log.begin_episode()
        for step in range(5):
            log.log_agent_step(BAD, step, {"view": np.full((4, 4, 2), step, np.uint8), "actions": np.int8(step % 2)})
            log.log_env_step(step, {"food": step})
        log.end_episode(outcome=BAD)
    return path


def test_names_are_text(browser: Any, lab: Server, hostile_run: Path, tmp_path: Path) -> None:
    with simlab.open_run(hostile_run) as ds:
        page_file = ds.sim.export(tmp_path / "page.html")
    with new_page(browser) as (page, complaints):
        open_notebook(
            page, lab, f"import simlab; v = simlab.open_run({str(hostile_run)!r}).sim.view(panels=['view', 'actions', 'food', 'table']); v"
        )
        viewer = Viewer(page)
        viewer.key("ArrowRight")
        viewer.wait_row(1)
        run_code(page, f"v.bookmark({BAD!r})")
        for label in ("Agents that are shown", "Panels that are shown", "Bookmarks (m sets one)"):
            viewer.root.locator(f"button[aria-label='{label}']").click()
        assert BAD in viewer.root.inner_text()
        assert not viewer.root.locator("img").count()
        page.goto(Path(page_file).as_uri())
        Viewer(page)
        assert not page.locator("img").count()
        assert page.evaluate("() => window.hurt") is None
        assert not serious(complaints)


CUSTOM = """
import simlab, ipywidgets
from simlab.view.kinds import register_panel
register_panel("big", lambda episode, name: name == "energy", '''
export default { render(api) {
  const text = document.createElement("b"); text.className = "big"; api.root.append(text);
  return { draw() { text.textContent = String(api.value()?.[0] ?? "?"); } };
} };''')
ds = simlab.open_run(PATH)
a = ds.sim.view(agents=["ada"], panels=["camera", "energy"])
b = ds.sim.view(1, agents=["bob"], panels=["camera", "rewards"])
ipywidgets.jslink((a, "step"), (b, "step"))
display(a, b)
"""


def test_several_viewers(browser: Any, lab: Server, known_run: Path) -> None:
    with new_page(browser) as (page, complaints):
        open_notebook(page, lab, CUSTOM.replace("PATH", repr(str(known_run))))
        first, second = Viewer(page), Viewer(page, 1)
        first.key("PageDown")
        first.wait_row(100)
        second.wait_row(100)  # linked in the browser
        assert np.array_equal(first.pixels("camera", "ada"), frame(0, 0, 100))
        assert np.array_equal(second.pixels("camera", "bob"), frame(1, 1, 100))
        page.wait_for_function("() => document.querySelector('.big').textContent.startsWith('85.7')")
        second.key("ArrowUp")
        page.wait_for_function("() => document.querySelectorAll('.sl-episode')[2].selectedIndex === 0")
        second.wait_row(0)
        first.wait_row(0)
        assert first.root.locator(".sl-episode").first.evaluate("(e) => e.selectedIndex") == 0
        assert not serious(complaints)


def test_without_a_mouse(browser: Any, lab: Server, known_run: Path) -> None:
    """Every control has a name, can be reached with Tab, and the cursor is told as text."""
    with new_page(browser, width=820) as (page, complaints):
        open_notebook(page, lab, f"import simlab; v = simlab.open_run({str(known_run)!r}).sim.view(); v")
        viewer = Viewer(page)
        nameless = viewer.root.evaluate(
            """(root) => [...root.querySelectorAll('button, input, select, canvas[role=img], [role=group], [role=region]')]
              .filter((e) => !e.getAttribute('aria-label') && !e.textContent.trim() && !e.closest('label') && !e.labels?.length)
              .map((e) => e.outerHTML.slice(0, 120))"""
        )
        assert not nameless
        unsafe = viewer.root.evaluate(
            """(root) => [...root.querySelectorAll('button, input, select, [tabindex]')]
              .filter((e) => !e.hasAttribute('data-lm-suppress-shortcuts')).length"""
        )
        assert unsafe == 0, "JupyterLab takes keys from these"
        viewer.root.focus()
        reached = set()
        for _ in range(40):
            page.keyboard.press("Tab")
            reached.add(page.evaluate("() => document.activeElement.getAttribute('aria-label')"))
        assert {"Episode", "Play (Space)", "Step of the episode", "Next event (])", "Loop (l)"} <= reached
        page.locator("input.sl-range").focus()
        page.keyboard.press("ArrowRight")
        viewer.wait_row(1)
        assert page.locator("input.sl-range").get_attribute("aria-valuetext") == "step 1 of 299"
        assert viewer.root.evaluate("(root) => root.scrollWidth <= root.clientWidth"), "it is wider than its place"
        viewer.key("?")
        assert viewer.root.locator(".sl-keys").is_visible()
        page.keyboard.press("Escape")
        assert not viewer.root.locator(".sl-keys").is_visible()
        assert not serious(complaints)
