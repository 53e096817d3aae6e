"""Agents whose ids are not the usual text: they come back as they were, and are told apart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import simlab
from simlab.errors import AgentError


def test_an_empty_id_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "run.h5"
    with simlab.HDF5Logger(path) as log:
        log.log_agent_step("1", 0, {"x": 0.0})
        log.log_agent_step("", 0, {"x": 1.0})
        log.log_agent_step("''", 0, {"x": 2.0})
    with simlab.HDF5Logger(path, mode="a", resume=True) as log:
        log.log_agent_step("", 1, {"x": 3.0})
    with simlab.open_run(path) as ds:
        assert ds.sim.agents == ["1", "", "''"]
        assert len(set(ds.agent.values.tolist())) == 3
        assert ds.sim.agent("").x.values.tolist() == [1.0, 3.0]
        assert ds.sim.agent("1").x.values[0] == 0.0


@pytest.mark.parametrize("ids", [(0, 1, 2, 3), ((0, 5), (1, 5), (2, 5), (3, 5))])
def test_numbers_form_populations_by_their_shapes(tmp_path: Path, ids: tuple[object, ...]) -> None:
    path = tmp_path / "run.h5"
    with simlab.HDF5Logger(path) as log:
        for t in range(3):
            for i, agent in enumerate(ids):
                log.log_agent_step(agent, t, {"v": np.full(3 + 2 * (i % 2), i + t / 10)})
    with simlab.open_run(path) as ds:
        assert ds.v.values[:, :, 0].tolist() == [[0.0, 0.1, 0.2], [2.0, 2.1, 2.2]]
        assert ds["population.v"].values[:, :, 0].tolist() == [[1.0, 1.1, 1.2], [3.0, 3.1, 3.2]]


@pytest.mark.parametrize(("agent", "told"), [([1], "list"), (np.zeros(2), "ndarray"), (2**70, "64 bits"), (True, "bool")])
def test_what_cannot_be_an_id_is_refused(tmp_path: Path, agent: object, told: str) -> None:
    with simlab.HDF5Logger(tmp_path / "run.h5") as log:
        for t in range(4):
            log.log_agent_step("a", t, {"x": 1.0})
        for step in (3, 4):  # at the newest row, and at a new one
            with pytest.raises(AgentError, match=told):
                log.log_agent_step(agent, step, {"x": 1.0})
    with simlab.open_run(tmp_path / "run.h5") as ds:
        assert ds.sizes["agent"] == 1
        assert ds.sizes["time"] == 4


def test_new_agents_may_report_beside_old_ones_at_rows_that_left(tmp_path: Path) -> None:
    """Their places are not side by side, and the file has no room for the new one yet."""
    path = tmp_path / "run.h5"
    with simlab.HDF5Logger(path) as log:
        for t in range(600):
            log.log_agent_step("lead", t, {"z": 1.0})
            if t == 0:
                for name in ("k0", "k1"):
                    log.log_agent_step(name, 0, {"z": 0.0})
        log.log_agent_step("k0", 5, {"z": 7.0})
        log.log_agent_step("n0", 5, {"z": 8.0})
        report = log.finalize()
    assert (report.dropped, report.late, report.values) == (0, 2, 604)
    with simlab.open_run(path) as ds:
        assert ds.z.values[:, 5].tolist()[::3] == [1.0, 8.0]
        assert ds.z.values[1, 5] == 7.0
        assert ds.sim.present("z").values[:, 5].tolist() == [True, True, False, True]
