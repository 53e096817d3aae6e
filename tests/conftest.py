"""What every test stands on: no windows, one hypothesis profile, and no silent skips where everything is required."""

from __future__ import annotations

import importlib
import os
import shutil
from collections.abc import Callable, Generator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

# Before anything imports pygame or matplotlib.
os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
os.environ["MPLBACKEND"] = "Agg"

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from tests.pursuit import Copy

REQUIRE_ALL = os.environ.get("SIMLAB_REQUIRE_ALL", "") not in ("", "0")

# Files on a busy disk take what they take: examples have no deadline.
settings.register_profile("simlab", deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
settings.register_profile("thorough", settings.get_profile("simlab"), max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "simlab"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let no test be skipped where everything is required, whatever skipped it."""
    report = yield
    if REQUIRE_ALL and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome, report.longrepr = "failed", f"{item.nodeid}: {reason} (SIMLAB_REQUIRE_ALL is set, so nothing is skipped)"
    return report


def _missing(what: str, how: str) -> None:
    message = f"{what} is not installed; {how}"
    if REQUIRE_ALL:
        pytest.fail(f"{message} (SIMLAB_REQUIRE_ALL is set, so nothing is skipped)", pytrace=False)
    pytest.skip(message)


@pytest.fixture(scope="session")
def require_program() -> Callable[[str], str]:
    """Return the path of a program; without it the test is skipped, or fails under ``SIMLAB_REQUIRE_ALL=1``."""

    def require(name: str) -> str:
        found = shutil.which(name)
        if found is None:
            _missing(name, "see .ci/run for the Debian package that brings it")
        return str(found)

    return require


@pytest.fixture(scope="session")
def require_module() -> Callable[[str], ModuleType]:
    """Return an optional module; without it the test is skipped, or fails under ``SIMLAB_REQUIRE_ALL=1``."""

    def require(name: str) -> ModuleType:
        try:
            return importlib.import_module(name)
        except ImportError:
            _missing(name, 'add it with: python -m pip install ".[test]"')
            raise

    return require


@pytest.fixture(scope="session")
def demo_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the path of the demo run, as ``simlab demo`` records it. Tests read it; none may change it."""
    from simlab.demo import record_demo

    path = tmp_path_factory.mktemp("demo") / "demo.h5"
    record_demo(path)
    return path


@pytest.fixture(scope="session")
def pursuit_run(tmp_path_factory: pytest.TempPathFactory, require_module: Callable[[str], ModuleType]) -> tuple[Path, Copy]:
    """Return the path of 20 recorded episodes of pursuit, and the copy that was kept of them. Tests read it; none may change it."""
    require_module("pygame")
    require_module("pettingzoo.sisl")
    from tests.pursuit import record

    path = tmp_path_factory.mktemp("pursuit") / "pursuit.h5"
    return path, record(path)
