"""Journals that end anywhere or have flipped bytes, and files whose last writes came in part: right data, a told gap or our own error."""

from __future__ import annotations

import numpy as np
import pytest

from tests.crash import Violation
from tests.killing import can_trace
from tests.torn import Traced, some_writes, trace, try_state

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not can_trace(), reason="processes are traced on Linux only")]


@pytest.fixture(scope="module")
def traced() -> Traced:
    for seed in range(1, 20):
        found = trace(seed, 14, 0.25, 0.45)
        if found is not None and found.returned > 12 and len(found.journal) > 4 and len(found.writes) > 10:
            return found
    raise AssertionError("no run is killed with rows in its journal")


def test_journals_cut_anywhere(traced: Traced) -> None:
    dice = np.random.default_rng(1)
    tally: dict[str, int] = {}
    for name, data in sorted((n, d) for n, d in traced.journal.items() if d):
        for n in sorted({0, len(data) - 1, *dice.integers(len(data), size=2).tolist()}):
            cut = traced.journal | {name: data[:n]}
            try_state(traced, traced.final, cut, f"{name} cut at {n} of {len(data)}", tally)
    assert sum(tally.values()) >= 15
    assert tally.get("gap+gap", 0) > 0


def test_bytes_flipped_in_journals(traced: Traced) -> None:
    """What has a checksum: heads of files, events, redo files. A row itself is stored by the processor, and has none."""
    dice = np.random.default_rng(2)
    tally: dict[str, int] = {}
    for name, data in sorted((n, d) for n, d in traced.journal.items() if d):
        most = len(data) if name.endswith((".events", ".redo", ".json")) else 200
        for at in dice.integers(min(most, len(data)), size=2).tolist():
            flipped = bytearray(data)
            flipped[at] ^= 1 << int(dice.integers(8))
            state = traced.journal | {name: bytes(flipped)}
            try_state(traced, traced.final, state, f"{name} flipped at {at}", tally)
    assert sum(tally.values()) >= 15


def test_writes_in_part_and_out_of_order(traced: Traced) -> None:
    dice = np.random.default_rng(3)
    tally: dict[str, int] = {}
    for i in range(15):
        try_state(traced, some_writes(traced, dice), traced.journal, f"state {i}", tally, power=True)
    assert sum(tally.values()) == 15


def test_a_wrong_value_would_be_found(traced: Traced) -> None:
    changed = Traced(traced.base, traced.final, traced.writes, traced.journal, traced.calls[1:], traced.returned)
    with pytest.raises(Violation):
        try_state(changed, traced.final, traced.journal, "other calls", {})
