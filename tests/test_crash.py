"""Writers that are killed at any moment: every call that had returned is in the file, bit for bit, before and after a repair."""

from __future__ import annotations

import pytest

from tests.crash import ALL, CHANGING, Tally, cases, run_cases, sweep
from tests.killing import can_trace

STEPS = 12


def holds(tally: Tally) -> None:
    assert not tally.violations, "\n\n".join(tally.violations)


@pytest.mark.slow
def test_kills_at_random(request: pytest.FixtureRequest) -> None:
    tally = Tally()
    run_cases(cases(40, 4), STEPS, tally)
    holds(tally)
    assert sum(tally.kills.values()) >= 50
    assert tally.values > 1000


@pytest.mark.slow
@pytest.mark.skipif(not can_trace(), reason="processes are traced on Linux only")
@pytest.mark.parametrize(("names", "part"), [(ALL, 0.05), (CHANGING, 0.08)], ids=["before a call", "inside a write"])
def test_kills_at_system_calls(names: tuple[str, ...], part: float) -> None:
    tally = Tally()
    run_cases(sweep(7, 6, names, part), 6, tally)
    holds(tally)
    assert sum(tally.kills.values()) >= 20


@pytest.mark.parametrize("durability", ["fsync", "none"])
def test_kills_with_other_durability(durability: str) -> None:
    tally = Tally()
    if durability == "fsync":
        run_cases(cases(3, 9), STEPS, tally, durability="fsync", fsync_steps=3)
        holds(tally)
        return
    run_cases(cases(4, 9), STEPS, tally, durability="none")
    lost = [v for v in tally.violations if "Wrong" not in v and "missing" not in v and "there is no" not in v]
    assert not lost, "\n\n".join(lost)  # rows may be missing; nothing else may be wrong
