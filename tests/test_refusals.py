"""A disk that refuses once, at each step of making structure: it is told, and in the end the file holds the same as without."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import simlab
from simlab.errors import StorageError
from simlab.storage import episodes, netcdf, simulation, structure

ROOMS = (netcdf, structure, simulation, episodes)
MAKERS = ("create_variable", "create_dimension", "create_coordinate", "create_text_column", "write_attributes", "write_text_rows")


def record(log: simlab.HDF5Logger) -> int:
    """Record two short episodes, trying again what was refused, and return how often that was."""
    refused = 0

    def insist(call: Any, *given: Any, again: bool = True) -> None:
        nonlocal refused
        for _ in range(5):
            try:
                call(*given)
            except StorageError:
                refused += 1
                if again:
                    continue
            return

    for e in range(2):
        for t in range(40):
            for a in range(2):
                insist(log.log_agent_step, f"a{a}", t, {"x": np.full(3, t + a, np.float32), "s": "w" * t, "rewards": 1.0})
            insist(log.log_env_step, t, {"n": t, "g": [t, t]})
            if t == 20:
                insist(log.flush, again=False)
        log.begin_episode(note="x" * e, k=1)
    insist(log.finalize)
    return refused


def held(path: Path) -> tuple[xr.Dataset, xr.Dataset]:
    """Return all that a run holds."""
    with simlab.open_run(path) as ds:
        return ds.load().drop_attrs(), ds.sim.episodes.load().drop_attrs()


@pytest.mark.parametrize("maker", MAKERS)
def test_one_refusal_anywhere_changes_nothing(tmp_path: Path, maker: str) -> None:
    with simlab.HDF5Logger(tmp_path / "whole.h5") as log:
        record(log)
    expected = held(tmp_path / "whole.h5")
    for n in range(1, 100):
        log = simlab.HDF5Logger(tmp_path / f"{n}.h5")
        calls = 0

        def refuse_once(call: Any, n: int = n) -> Any:
            def wrapped(*given: Any, **named: Any) -> Any:
                nonlocal calls
                calls += 1
                if calls == n:
                    raise OSError(errno.ENOSPC, "full")
                return call(*given, **named)

            return wrapped

        with pytest.MonkeyPatch.context() as patch:
            for room in ROOMS:
                if hasattr(room, maker):
                    patch.setattr(room, maker, refuse_once(getattr(room, maker)))
            refused = record(log)
        if calls < n:
            assert n > 1
            return
        assert refused >= 1
        assert log.report.dropped == 0
        run, table = held(tmp_path / f"{n}.h5")
        assert run.identical(expected[0])
        assert table.equals(expected[1])
    pytest.fail("it never ended")
