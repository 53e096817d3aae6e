"""The notebook about the viewer in JupyterLab and in Notebook 7, side by side and live runs, and what stays when the kernel is gone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import simlab
from simlab.view.desk import Desk
from simlab.view.paint import paint
from tests.browser import runs
from tests.browser.pages import Viewer, new_page, open_notebook, run_code, serious, wait_for_python
from tests.browser.servers import ROOT, Server

pytestmark = pytest.mark.browser
ENDED = "[...document.querySelectorAll('.jp-OutputArea-output pre')].some((e) => /READY$/m.test(e.textContent))"
SCRUB = ROOT / "notebooks" / "03_scrub.ipynb"


@pytest.fixture(scope="module")
def short_demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the run that the notebook records."""
    from simlab.demo import record_demo

    path = tmp_path_factory.mktemp("short") / "demo.h5"
    record_demo(path, episodes=3, steps=120)
    return path


def check_vision(viewer: Viewer, desk: Desk, k: int, row: int) -> None:
    """Compare what is painted of the first agent with what Python paints."""
    viewer.wait_row(row)
    opened = desk.opened(k)
    agent = desk.default_agents(k)[0]
    wanted = paint(opened.episode.values("vision", agent, [row])[0], opened.scale("vision")[0])
    assert np.array_equal(viewer.pixels("vision", str(agent)), wanted), (k, row)


@pytest.mark.parametrize("program", ["lab", "notebook"])
def test_the_notebook(browser: Any, request: pytest.FixtureRequest, program: str, short_demo: Path) -> None:
    server: Server = request.getfixturevalue("lab" if program == "lab" else "notebook7")
    with simlab.open_run(short_demo) as ds, new_page(browser, height=900) as (page, complaints):
        desk = Desk(ds)
        open_notebook(page, server, source=SCRUB, program=program)
        page.wait_for_function(ENDED, timeout=60_000)
        viewer = Viewer(page)
        check_vision(viewer, desk, 0, 40)  # a later cell has set the step
        viewer.key("ArrowRight", "ArrowRight", "Shift+ArrowRight")
        check_vision(viewer, desk, 0, 52)
        page.wait_for_function("() => [...document.querySelectorAll('.widget-readout')].some((e) => e.textContent.trim() === '52')")
        plot = viewer.root.locator(".sl-plot canvas").first
        before = plot.evaluate("(canvas) => [canvas.width, canvas.clientWidth]")
        for theme in ("Dark", "Light"):
            page.evaluate(f"() => {{ window.jupyterapp.commands.execute('apputils:change-theme', {{ theme: 'JupyterLab {theme}' }}) }}")
            page.wait_for_function(
                "(dark) => document.querySelector('.sl-viewer').classList.contains('sl-dark') === dark", arg=theme == "Dark"
            )
            page.wait_for_timeout(800)  # Jupyter goes on loading its style sheet
        assert plot.evaluate("(canvas) => [canvas.width, canvas.clientWidth]") == before, "the series were not drawn again"
        viewer.key("ArrowDown")
        check_vision(viewer, desk, 1, 0)
        viewer.key("Space")
        page.wait_for_function("() => Number(document.querySelector('.sl-viewer').dataset.row) > 15")
        viewer.key("Space")
        check_vision(viewer, desk, 1, viewer.row)
        cells = page.locator(".jp-Notebook .jp-Cell").count()
        viewer.key("m")  # JupyterLab would make the cell text, and the viewer would be gone
        page.keyboard.type("dd")
        page.keyboard.press("Enter")
        assert page.locator(".jp-Notebook .jp-Cell").count() == cells
        assert viewer.root.is_visible()
        wait_for_python(page, "print(viewer.bookmarks[-1]['note'], viewer.episode, len(viewer.bookmarks))", "dd 1 2")

        chosen = Viewer(page, 1)
        chosen.root.scroll_into_view_if_needed()
        assert chosen.root.locator(".sl-table tbody tr").count() == len(ds.data_vars)
        first = chosen.root.locator(".sl-table tbody tr", has_text="rewards").locator("td").first
        wanted = float(ds.sim.episode(1).rewards.sel(agent="agent_0").values[0])
        page.wait_for_function("(cell) => /[0-9]/.test(cell.textContent)", arg=first.element_handle())
        assert float(first.inner_text().replace("−", "-")) == pytest.approx(wanted, rel=1e-4)

        both = Viewer(page, 2)
        both.root.scroll_into_view_if_needed()
        assert both.root.locator(".sl-cell").count() == 2
        assert not serious(complaints)


def test_two_runs_side_by_side(browser: Any, lab: Server, known_run: Path, tmp_path: Path) -> None:
    other = runs.record(tmp_path / "other.h5", shift=77, episodes=1)
    code = f"import simlab; a, b = simlab.open_run({str(known_run)!r}), simlab.open_run({str(other)!r})"
    with new_page(browser) as (page, complaints):
        open_notebook(page, lab, code, "v = a.sim.view(other=b, agents=['ada']); v")
        viewer = Viewer(page)
        viewer.wait_row(0)
        assert viewer.root.locator(".sl-picture-panel[aria-label='Pictures: camera'] .sl-cell").count() == 2
        page.wait_for_function("() => [...document.querySelectorAll('.sl-kind option')].some((o) => o.value === 'difference')")
        viewer.root.locator(".sl-kind").select_option("difference")
        viewer.key("]")
        viewer.wait_row(77)
        assert np.array_equal(viewer.pixels("camera", "A · ada"), viewer.pixels("camera", "B · ada"))
        assert np.array_equal(viewer.pixels("camera", "B · ada"), runs.frame(0, 0, 77))
        assert run_code(page, "print(v.difference['row'])") == "77"
        assert not serious(complaints)


LIVE = """
import simlab
from simlab.read.accessor import SimulationAccessor
parts = [{parts}]
def refresh(self):
    return simlab.open_run(parts[0])
SimulationAccessor.refresh = refresh
v = simlab.open_run(parts[0]).sim.view(live=True, step=-1, agents=['ada'])
v
"""


def test_it_follows_a_run(browser: Any, lab: Server, tmp_path: Path) -> None:
    """The run grows (here: another, longer file takes its place), a cursor at the end stays at the end, one elsewhere stays there."""
    paths = [runs.record(tmp_path / f"part{n}.h5", episodes=1 + (n > 200), steps=min(n, 120)) for n in (50, 90, 120, 240)]
    with new_page(browser) as (page, complaints):
        open_notebook(page, lab, LIVE.replace("{parts}", ", ".join(repr(str(p)) for p in paths)))
        viewer = Viewer(page)
        viewer.wait_row(49)
        assert viewer.root.locator(".sl-live").is_visible()
        run_code(page, "parts.pop(0)")
        viewer.wait_row(89)
        assert np.array_equal(viewer.pixels("camera", "ada"), runs.frame(0, 0, 89))
        viewer.key("Home")
        run_code(page, "parts.pop(0)")
        page.wait_for_function("() => document.querySelector('.sl-end').textContent === 'of 119'")
        assert viewer.row == 0
        viewer.key("End")
        viewer.wait_row(119)
        run_code(page, "parts.pop(0)")  # the episode has ended, the next one is there
        page.wait_for_function("() => document.querySelector('.sl-episode').options.length === 2")
        page.wait_for_function("() => document.querySelector('.sl-episode').selectedIndex === 1")
        viewer.wait_row(119)
        assert np.array_equal(viewer.pixels("camera", "ada"), runs.frame(1, 0, 119))
        assert not serious(complaints)


def test_without_a_kernel(browser: Any, lab: Server, known_run: Path) -> None:
    """What is here goes on without a kernel; a notebook that is opened again shows a picture and a sentence."""
    with new_page(browser) as (page, _):
        open_notebook(page, lab, f"import simlab; v = simlab.open_run({str(known_run)!r}).sim.view(step=3); v")
        viewer = Viewer(page)
        viewer.wait_row(3)
        assert page.locator("[class^='simlab-poster']").first.is_hidden()
        run_code(page, "v.close()")  # the widget's view goes; in its place the picture comes back
        page.wait_for_function("() => document.querySelectorAll('.sl-viewer').length === 0")
        assert page.locator("[class^='simlab-poster']").first.is_visible()

    with new_page(browser) as (page, _):
        open_notebook(page, lab, f"import simlab; v = simlab.open_run({str(known_run)!r}).sim.view(step=3); v")
        viewer = Viewer(page)
        viewer.wait_row(3)
        viewer.key("ArrowRight")
        viewer.wait_row(4)
        page.evaluate("async () => { await window.jupyterapp.shell.currentWidget.sessionContext.shutdown() }")
        viewer.key("ArrowRight", "ArrowRight")
        viewer.wait_row(6)
        assert np.array_equal(viewer.pixels("camera", "ada"), runs.frame(0, 0, 6))
        page.evaluate("async () => { await window.jupyterapp.commands.execute('docmanager:save') }")
        name = page.url.split("/")[-1].split("?")[0]
        text = (lab.folder / name).read_text()
        assert len(text) < 300_000, "the notebook has grown"
        page.goto(f"{lab.url}/lab/tree/{name}?reset")
        page.wait_for_selector("[class^='simlab-poster'] img", timeout=30_000)
        assert page.locator("[class^='simlab-poster'] img").first.is_visible()
        assert "Run the cell" in page.locator("[class^='simlab-poster']").first.inner_text()
