"""The viewer without Jupyter: a page from a file, Voilà, static pages, and the command that opens a browser."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import simlab
from tests.browser.pages import Viewer, new_page, serious
from tests.browser.runs import STEPS, frame
from tests.browser.servers import ROOT, environment, notebook, start

pytestmark = pytest.mark.browser


def test_a_page_from_a_file(browser: Any, known_run: Path, tmp_path: Path) -> None:
    with simlab.open_run(known_run) as ds:
        ds.sim.export(tmp_path / "page.html", episode=1, agents=["ada", "cyd"])
        ds.sim.export(tmp_path / "thin.html", episode=0, agents="bob", every=10)
    with new_page(browser) as (page, complaints):
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto((tmp_path / "page.html").as_uri() + "#episode=1&step=30")
        viewer = Viewer(page)
        viewer.wait_row(30)
        assert np.array_equal(viewer.pixels("camera", "ada"), frame(1, 0, 30))
        viewer.key("End")
        viewer.wait_row(STEPS - 1)
        assert np.array_equal(viewer.pixels("camera", "cyd"), frame(1, 2, STEPS - 1))
        viewer.key("Home", "Space")
        page.wait_for_function("() => Number(document.querySelector('.sl-viewer').dataset.row) > 40")
        viewer.key("Space")
        row = viewer.row
        viewer.wait_row(row)
        assert np.array_equal(viewer.pixels("camera", "ada"), frame(1, 0, row))
        page.goto((tmp_path / "thin.html").as_uri())
        viewer = Viewer(page)
        viewer.wait_row(0)
        viewer.key("PageDown", "ArrowRight", "ArrowRight")
        viewer.wait_row(102)
        assert np.array_equal(viewer.pixels("camera", "bob"), frame(0, 1, 100))
        assert all(url.startswith(("file:", "data:", "blob:")) for url in asked)
        assert not complaints


def test_voila(browser: Any, known_run: Path, require_module: Callable[[str], ModuleType], tmp_path: Path) -> None:
    require_module("voila")
    (tmp_path / "nb").mkdir()
    notebook(tmp_path / "nb" / "show.ipynb", f"import simlab; v = simlab.open_run({str(known_run)!r}).sim.view(step=8); v")
    server = start("voila", tmp_path / "nb", tmp_path / "home")
    try:
        with new_page(browser) as (page, complaints):
            page.goto(f"{server.url}/voila/render/show.ipynb")
            viewer = Viewer(page)
            viewer.wait_row(8)
            viewer.key("ArrowRight", "PageDown")
            viewer.wait_row(109)
            assert np.array_equal(viewer.pixels("camera", "ada"), frame(0, 0, 109))
            assert not serious(complaints)
    finally:
        server.stop()


@pytest.fixture
def viewing(known_run: Path, tmp_path: Path) -> Iterator[str]:
    """Return the address that ``simlab view`` prints."""
    command = [sys.executable, "-m", "simlab", "view", str(known_run), "--episode", "1", "--agents", "bob", "--no-browser"]
    process = subprocess.Popen(command, cwd=ROOT, env=environment(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    yield process.stdout.readline().strip()
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130


def test_the_command(browser: Any, require_module: Callable[[str], ModuleType], viewing: str) -> None:
    require_module("voila")
    assert viewing.startswith("http://127.0.0.1:")
    with new_page(browser) as (page, _):
        page.goto(viewing.partition("?")[0])
        assert not page.locator(".sl-viewer").count(), "the server shows the run without its token"
        page.goto(viewing)
        viewer = Viewer(page)
        viewer.wait_row(0)
        assert np.array_equal(viewer.pixels("camera", "bob"), frame(1, 1, 0))


def test_a_static_page_shows_a_picture(browser: Any, known_run: Path, require_module: Callable[[str], ModuleType], tmp_path: Path) -> None:
    """A notebook made into HTML has a picture of the episode and a sentence, although no kernel is there."""
    require_module("nbconvert")
    notebook(tmp_path / "show.ipynb", f"import simlab; v = simlab.open_run({str(known_run)!r}).sim.view(step=8); v")
    command = [sys.executable, "-m", "nbconvert", "--to", "html", "--execute", str(tmp_path / "show.ipynb")]
    done = subprocess.run(command, env=environment(tmp_path / "home"), capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    context = browser.new_context(java_script_enabled=True, offline=True)
    page = context.new_page()
    page.goto((tmp_path / "show.html").as_uri())
    poster = page.locator("[class^='simlab-poster']").first
    assert poster.is_visible()
    assert poster.locator("img").evaluate("(image) => image.complete && image.naturalWidth > 100")
    assert "Run the cell" in poster.inner_text()
    context.close()
