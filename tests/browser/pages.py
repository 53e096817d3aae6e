"""A page with a viewer, and what a test does with it."""

from __future__ import annotations

import base64
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from tests.browser.servers import Server, notebook

READY = "print('RE' + 'ADY')"
_PIXELS = """(canvas) => {
  const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  let text = '';
  for (let i = 0; i < data.length; i += 32768) text += String.fromCharCode(...data.subarray(i, i + 32768));
  return [canvas.width, canvas.height, btoa(text)];
}"""


def _pixels(canvas: Any) -> np.ndarray[Any, Any]:
    wide, high, text = canvas.evaluate(_PIXELS)
    return np.frombuffer(base64.b64decode(text), np.uint8).reshape(high, wide, 4)


class Viewer:
    """One viewer on a page.

    Parameters
    ----------
    page : playwright Page
        The page.
    place : int
        Which viewer on it.
    """

    def __init__(self, page: Any, place: int = 0) -> None:
        self.page = page
        self.root = page.locator(".sl-viewer").nth(place)
        self.root.wait_for(timeout=30_000)
        page.wait_for_function("(n) => document.querySelectorAll('.sl-viewer[data-row]').length > n", arg=place, timeout=30_000)

    @property
    def row(self) -> int:
        """The row that is shown once everything that was done has been drawn."""
        self.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        return int(self.root.get_attribute("data-row"))

    def wait_row(self, row: int) -> None:
        """Wait until the cursor is at a row and every picture that is to come has come."""
        self.page.wait_for_function(
            "([root, row]) => root.dataset.row === row && !root.querySelector('.sl-waiting')", arg=[self.root.element_handle(), str(row)]
        )

    def cell(self, variable: str, label: str | None = None) -> Any:
        """Return the cell of a picture."""
        panel = self.root.locator(f".sl-picture-panel[aria-label='Pictures: {variable}']")
        return panel.locator(".sl-cell", has_text=label) if label else panel.locator(".sl-cell").first

    def pixels(self, variable: str, label: str | None = None) -> np.ndarray[Any, Any]:
        """Return what is painted: (height, width, 3)."""
        return _pixels(self.cell(variable, label).locator("canvas"))[..., :3]

    def pixels_of(self, selector: str) -> np.ndarray[Any, Any]:
        """Return what is painted on a canvas: (height, width, 3)."""
        return _pixels(self.root.locator(selector).first)[..., :3]

    def drawn(self, series: str) -> np.ndarray[Any, Any]:
        """Return what is drawn of a series: (height, width, 4)."""
        return _pixels(self.root.locator(f".sl-plot canvas[aria-label^='{series} ']"))

    def key(self, *names: str) -> None:
        self.root.focus()
        for name in names:
            self.page.keyboard.press(name)


@contextmanager
def new_page(browser: Any, width: int = 1200, height: int = 1100) -> Iterator[tuple[Any, list[str]]]:
    """Open a page of its own, and keep what it complains about."""
    context = browser.new_context(viewport={"width": width, "height": height})
    page = context.new_page()
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(f"{error}\n{getattr(error, 'stack', '') or ''}"))
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    try:
        yield page, complaints
    finally:
        context.close()


def serious(complaints: list[str]) -> list[str]:
    """Return the complaints that are about the viewer or about errors of the page; Jupyter itself asks for what is not there."""
    harmless = (
        "Failed to load resource",
        "favicon",
        "net::ERR",
        "WebSocket connection",
        "reading 'schema'",
        "shared module is not a function",
    )
    # The last two are about other extensions, in Notebook 7 and in Voilà; code of the viewer is loaded from a blob.
    return [text for text in complaints if "blob:" in text or not any(word in text for word in harmless)]


def open_notebook(page: Any, server: Server, *cells: str, source: Path | None = None, program: str = "lab") -> None:
    """Open a fresh copy of a notebook in JupyterLab or Notebook 7, run all cells and wait for the end of the last one."""
    path = server.folder / f"n{len(list(server.folder.glob('*.ipynb')))}.ipynb"
    if source is None:
        notebook(path, *cells, READY)
    else:
        shutil.copy(source, path)
    page.goto(f"{server.url}/{'lab/tree' if program == 'lab' else 'notebooks'}/{path.name}?reset")
    page.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=60_000)
    page.wait_for_function("window.jupyterapp?.shell.currentWidget?.sessionContext?.isReady", timeout=60_000)
    page.evaluate("() => { window.jupyterapp.commands.execute('notebook:run-all-cells') }")
    if source is None:
        page.wait_for_function(
            "[...document.querySelectorAll('.jp-OutputArea-output pre')].some((e) => e.textContent.includes('READY'))", timeout=60_000
        )


def run_code(page: Any, code: str) -> str:
    """Run code in the kernel of the notebook and return what it prints."""
    return str(
        page.evaluate(
            """async (code) => {
              const kernel = window.jupyterapp.shell.currentWidget.sessionContext.session.kernel;
              const future = kernel.requestExecute({ code, store_history: false });
              let text = '';
              future.onIOPub = (message) => {
                if (message.header.msg_type === 'stream') text += message.content.text;
                if (message.header.msg_type === 'error') text += message.content.ename + ': ' + message.content.evalue;
              };
              await future.done;
              return text.trim();
            }""",
            code,
        )
    )


def wait_for_python(page: Any, code: str, wanted: str) -> None:
    """Wait until code prints what is wanted: the page tells the kernel a little later what was done."""
    found = ""
    for _ in range(40):
        found = run_code(page, code)
        if found == wanted:
            return
        page.wait_for_timeout(150)
    raise AssertionError(f"{code} printed {found!r}, not {wanted!r}")
