"""The viewer in JupyterLab: what is painted is what was logged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import simlab
from simlab.view.desk import Desk
from simlab.view.paint import paint
from tests.browser.pages import Viewer, new_page, open_notebook, run_code, serious, wait_for_python
from tests.browser.runs import STEPS, frame
from tests.browser.servers import Server

pytestmark = pytest.mark.browser


def shows(viewer: Viewer, row: int, episode: int = 0) -> None:
    """Check the painted pixels of two agents."""
    viewer.wait_row(row)
    for i, name in enumerate(("ada", "bob")):
        assert np.array_equal(viewer.pixels("camera", name), frame(episode, i, row)), (row, name)


def test_keys_drag_play_and_episodes(browser: Any, lab: Server, known_run: Path) -> None:
    with new_page(browser) as (page, complaints):
        open_notebook(page, lab, f"import simlab; v = simlab.open_run({str(known_run)!r}).sim.view(); v")
        viewer = Viewer(page)
        shows(viewer, 0)
        viewer.key("ArrowRight", "ArrowRight", "Shift+ArrowRight")
        shows(viewer, 12)
        viewer.key("ArrowLeft", "PageDown")
        shows(viewer, 111)
        viewer.key("End")
        shows(viewer, STEPS - 1)
        viewer.key("Home")
        shows(viewer, 0)

        box = viewer.root.locator(".sl-timeline").bounding_box()
        page.mouse.move(box["x"] + 6, box["y"] + 13)
        page.mouse.down()
        for part in np.linspace(0.1, 0.6, 12):
            page.mouse.move(box["x"] + 6 + part * (box["width"] - 12), box["y"] + 13)
        page.mouse.up()
        assert abs(viewer.row - 0.6 * (STEPS - 1)) <= 2
        shows(viewer, viewer.row)

        plot = viewer.root.locator(".sl-plot").first.bounding_box()
        page.mouse.click(plot["x"] + plot["width"] / 4, plot["y"] + 20)
        assert abs(viewer.row - 0.25 * (STEPS - 1)) <= 3
        shows(viewer, viewer.row)

        viewer.key("Home", "Space")
        page.wait_for_function("() => Number(document.querySelector('.sl-viewer').dataset.row) > 20")
        viewer.key("Space")
        shows(viewer, viewer.row)

        viewer.key("ArrowDown")
        page.wait_for_function("() => document.querySelector('.sl-episode').selectedIndex === 1")
        shows(viewer, 0, episode=1)
        viewer.key("]")
        viewer.wait_row(20)  # a NaN in a picture
        viewer.key("]")
        viewer.wait_row(137)  # the reward that is out of the ordinary
        shows(viewer, 137, episode=1)
        wait_for_python(page, "print(v.episode, v.step, v.playing)", "1 137 False")
        run_code(page, "v.step = 55; v.agents = ['bob', 'cyd']")
        viewer.wait_row(55)
        assert viewer.cell("camera", "cyd").locator(".sl-veil").inner_text() == "absent"
        assert np.array_equal(viewer.pixels("camera", "bob"), frame(1, 1, 55))
        run_code(page, "v.step = 44; v.episode = 0")
        viewer.wait_row(0)
        run_code(page, "v.step = 44")
        viewer.wait_row(44)
        run_code(page, "v.episode = 1; v.step = 44")  # the row that the view is at already, of another episode
        page.wait_for_function("() => document.querySelector('.sl-episode').selectedIndex === 1")
        viewer.wait_row(44)
        wait_for_python(page, "print(v.episode, v.step)", "1 44")
        assert page.locator(".jp-Notebook .jp-CodeCell").count() == 2, "a key of the viewer changed the notebook"
        assert not serious(complaints)


def test_every_style_is_painted_as_python_paints_it(browser: Any, lab: Server, known_run: Path, demo_run: Path) -> None:
    with simlab.open_run(known_run) as ds, simlab.open_run(demo_run) as demo, new_page(browser) as (page, complaints):
        code = f"import simlab; a = simlab.open_run({str(known_run)!r}).sim.view(step=20); a"
        open_notebook(page, lab, code, f"b = simlab.open_run({str(demo_run)!r}).sim.view(3, step=100); b")
        for viewer, desk, names, (k, row) in (
            (Viewer(page), Desk(ds), ("depth", "camera"), (0, 20)),
            (Viewer(page, 1), Desk(demo), ("vision", "state_snapshots"), (3, 100)),
        ):
            viewer.wait_row(row)
            opened = desk.opened(k)
            for name in names:
                agent = None if opened.episode.agent_dim(name) is None else desk.default_agents(k)[0]
                time = int(opened.episode.time[row])
                at = int(np.searchsorted(opened.episode.rows(name), time, "right")) - 1
                wanted = paint(opened.episode.values(name, agent, [at])[0], opened.scale(name)[0])
                assert np.array_equal(viewer.pixels(name, agent and str(agent)), wanted), name
        assert not serious(complaints)
