"""Rows that are wider than those before them: long texts, agents with pictures that appear late. Memory stays bounded, nothing is lost."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import simlab
from simlab.errors import ValueMismatchError
from simlab.staging.lanes import Lanes


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.h5"


def test_a_long_text_does_not_widen_what_comes_after_it(path: Path) -> None:
    with simlab.HDF5Logger(path) as log:
        for t in range(700):
            for a in range(4):
                log.log_agent_step(a, t, {"say": "y" * 30_000 if (t, a) == (300, 3) else "x" * (t % 50), "n": t})
        assert log._stage is not None
        assert max(lanes.row_bytes for lanes in log._stage.newest.lanes.values()) < 100
    with simlab.open_run(path) as ds:
        lengths = np.char.str_len(ds.say.values)
        want = np.tile(np.arange(700) % 50, (4, 1))
        want[3, 300] = 30_000
        assert (lengths == want).all()
        assert (ds.n.values == np.arange(700)).all()


@pytest.mark.parametrize("text", ["a" * 65_537, "é" * 40_000])
def test_a_text_that_is_too_long_is_refused(path: Path, text: str) -> None:
    with simlab.HDF5Logger(path) as log:
        log.log_agent_step("a", 0, {"say": "a" * 65_536})
        with pytest.raises(ValueMismatchError, match=r"a step holds texts of up to 65,536.*attach"):
            log.log_agent_step("a", 1, {"say": text})
    with simlab.open_run(path) as ds:
        assert [len(t) for t in ds.say.values[0]] == [65_536]


def test_agents_with_pictures_that_appear_late(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    largest = [0]
    arrange = Lanes._arrange

    def measured(self: Lanes, layout: object, variables: object, capacity: int, held: int, n_words: int) -> None:
        arrange(self, layout, variables, capacity, held, n_words)  # type: ignore[arg-type]
        largest[0] = max(largest[0], capacity * held * self.row_bytes)

    monkeypatch.setattr(Lanes, "_arrange", measured)
    with simlab.HDF5Logger(path) as log:
        for t in range(300):
            log.log_env_step(t, {"n": t})
        for t in range(300, 420):
            log.log_step(t, {"v": np.full((64, 84, 84, 3), t % 200, np.uint8)}, agent_ids=list(range(64)), environment={"n": t})
    assert largest[0] < 200e6
    with simlab.open_run(path) as ds:
        assert ds.v[5, 300:, 3, 3, 1].values.tolist() == [t % 200 for t in range(300, 420)]
        assert ds.v[63, 419].values.min() == 419 % 200
        assert ds.n.values.tolist() == list(range(420))
