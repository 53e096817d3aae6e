"""What the README and the docs say is so: their Python runs, their commands run, their links lead somewhere."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

import simlab

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def blocks(page: Path, language: str) -> list[tuple[int, str]]:
    """Return the code blocks of a page with the line at which each begins."""
    text = page.read_text(encoding="utf-8")
    return [(text[: m.start()].count("\n") + 1, m[2]) for m in BLOCK.finditer(text) if m[1] == language]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture
def folder(demo_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder but for demo.h5, which the pages may use."""
    shutil.copy(demo_run, tmp_path / "demo.h5")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "python")], ids=name)
def test_python_runs(page: Path, folder: Path, require_module) -> None:
    space: dict[str, object] = {"__name__": "__main__"}
    for line, code in blocks(page, "python"):
        for package in ("gymnasium", "yaml"):
            if f"import {package}" in code:
                require_module(package)
        # Blank lines put the block at its place in the page, so that a traceback tells the right line.
        exec(compile("\n" * line + code, str(page), "exec"), space)
    plt.close("all")


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "console")], ids=name)
def test_commands_run(page: Path, folder: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for _, code in blocks(page, "console"):
        for line in code.splitlines():
            if line.startswith("$ simlab "):
                command = [sys.executable, "-m", "simlab", *line.removeprefix("$ simlab ").partition("  #")[0].split()]
                done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env=environment)
                assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(page.read_text(encoding="utf-8")):
        if not link.startswith(("http://", "https://", "#")):
            assert (page.parent / link.partition("#")[0]).exists(), f"{name(page)} links to {link}, which is not there"


def test_readme_is_short() -> None:
    """Ten lines that record, ten that read."""
    record, read = (code for _, code in blocks(ROOT / "README.md", "python"))
    for code in (record, read):
        lines = [line for line in code.splitlines() if line.strip() and not line.startswith(("import ", "from "))]
        assert 8 <= len(lines) <= 10
    commands = [code.strip() for _, code in blocks(ROOT / "README.md", "sh")]
    assert commands == ["python -m pip install . && simlab demo", 'python -m pip install ".[test]" && python -m pytest']


def test_the_api_page_names_everything() -> None:
    import xarray

    text = (ROOT / "docs" / "reference" / "api.md").read_text(encoding="utf-8")
    assert simlab.open_run is not None  # registers ds.sim
    offered = [*simlab.__all__, *(f"ds.sim.{n}" for n in vars(xarray.Dataset.sim) if not n.startswith("_"))]  # type: ignore[attr-defined]
    offered += [f"log.{n}" for n in dir(simlab.HDF5Logger) if not n.startswith("_")]
    missing = [n for n in offered if f"`{n}" not in text]
    assert not missing, f"docs/reference/api.md does not name {missing}"


def test_the_changelog_knows_the_version() -> None:
    assert f"## [{simlab.__version__}]" in (ROOT / "docs" / "CHANGELOG.md").read_text(encoding="utf-8")
