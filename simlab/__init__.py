"""Record simulations and look inside them.

`HDF5Logger` records a run; `open_run` opens it as a lazy `xarray.Dataset` whose ``.sim`` accessor knows agents, episodes and
steps. The names below are loaded when they are first used, so that a worker that only records never imports xarray.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simlab.read.following import follow
    from simlab.read.runs import list_runs, open_run, open_tree
    from simlab.record.logger import HDF5Logger
    from simlab.schema import Schema, Variable
    from simlab.staging.recovery import repair
    from simlab.staging.snapshots import snapshot

__version__ = "0.1.0"

_HOMES = {
    "HDF5Logger": "simlab.record.logger",
    "Schema": "simlab.schema",
    "Variable": "simlab.schema",
    "follow": "simlab.read.following",
    "list_runs": "simlab.read.runs",
    "open_run": "simlab.read.runs",
    "open_tree": "simlab.read.runs",
    "repair": "simlab.staging.recovery",
    "snapshot": "simlab.staging.snapshots",
}

__all__ = ["HDF5Logger", "Schema", "Variable", "follow", "list_runs", "open_run", "open_tree", "repair", "snapshot"]


def __getattr__(name: str) -> object:
    if name == "errors":
        return importlib.import_module("simlab.errors")
    if name not in _HOMES:
        raise AttributeError(f"module 'simlab' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
