"""One browser and one server of each kind for all tests of a session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.browser import runs
from tests.browser.servers import Server, start

ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
]  # fmt: skip


@pytest.fixture(scope="session")
def browser(require_module: Callable[[str], ModuleType], require_program: Callable[[str], str]) -> Iterator[Any]:
    """Return Debian's chromium, driven by Playwright; nothing is downloaded."""
    api = require_module("playwright.sync_api")
    program = require_program("chromium")
    with api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=program, args=ARGUMENTS)
        yield found
        found.close()


def _server(program: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder, home = tmp_path_factory.mktemp(f"{program}_notebooks"), tmp_path_factory.mktemp(f"{program}_home")
    server = start(program, folder, home)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def lab(require_module: Callable[[str], ModuleType], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Return a JupyterLab."""
    require_module("jupyterlab")
    yield from _server("lab", tmp_path_factory)


@pytest.fixture(scope="session")
def notebook7(require_module: Callable[[str], ModuleType], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Return a Notebook 7."""
    require_module("notebook")
    yield from _server("notebook", tmp_path_factory)


@pytest.fixture(scope="session")
def known_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run whose pictures are known."""
    return runs.record(tmp_path_factory.mktemp("known") / "known.h5")
