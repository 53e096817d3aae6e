"""pyproject.toml and environment.yml name the same packages with the same lowest versions."""

from __future__ import annotations

import importlib.metadata
import os
import re
import tomllib
from pathlib import Path

import pytest

import simlab

ROOT = Path(__file__).parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

# Names on conda-forge, where they are not the one on PyPI in small letters.
CONDA = {"isal": "python-isal", "matplotlib": "matplotlib-base", "dask": "dask-core", "playwright": "playwright-python"}
# What pettingzoo[sisl] asks for, and what conda itself needs to make the environment.
ONLY_CONDA = {"python", "pip", "pygame", "pymunk", "pybox2d", "scipy"}


def wanted() -> dict[str, str]:
    """Return every package that pyproject.toml asks for, by its conda-forge name, with its lowest version."""
    project = PYPROJECT["project"]
    lines = [*PYPROJECT["build-system"]["requires"], *project["dependencies"]]
    for extra in project["optional-dependencies"].values():
        lines += extra
    out: dict[str, str] = {}
    for line in lines:
        match = re.fullmatch(r"([A-Za-z0-9_-]+)(?:\[[^\]]*\])?(>=[\d.]+)?", line)
        assert match, f"{line!r} is not written as name>=version"
        name = match[1].lower()
        if name != "simlab":
            out[CONDA.get(name, name)] = match[2] or ""
    return out


def given() -> dict[str, str]:
    """Return the packages of environment.yml with their lowest versions."""
    text = (ROOT / "environment.yml").read_text(encoding="utf-8")
    lines = re.findall(r"^  - ([a-z0-9_-]+)(>=[\d.]+)?$", text.partition("dependencies:")[2], re.MULTILINE)
    return dict(lines)


def test_same_packages() -> None:
    assert given().keys() - ONLY_CONDA == wanted().keys()


def test_same_versions() -> None:
    environment = given()
    assert {name: environment[name] for name in wanted()} == wanted()


def test_same_python() -> None:
    assert given()["python"] == PYPROJECT["project"]["requires-python"]


def test_version_is_that_of_the_package() -> None:
    if "simlab" not in {d.name for d in importlib.metadata.distributions()} and not os.environ.get("SIMLAB_REQUIRE_ALL"):
        pytest.skip("simlab is not installed, only on the path")
    assert importlib.metadata.version("simlab") == simlab.__version__


def test_yaml_is_yaml(require_module) -> None:
    yaml = require_module("yaml")
    document = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    assert document["name"] == "simlab"
    assert document["channels"] == ["conda-forge"]
    assert all(isinstance(line, str) for line in document["dependencies"])
