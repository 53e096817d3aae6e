"""The clock of rows against a plain list of them."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simlab.errors import TimestepError
from simlab.record.rows import RowClock

OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 4)),
        st.tuples(st.just("append"), st.just(1)),
        st.tuples(st.just("withdraw"), st.just(0)),
        st.tuples(st.just("begin"), st.just(0)),
    ),
    max_size=60,
)


class PlainClock:
    """The rows of every episode in lists."""

    def __init__(self) -> None:
        self.episodes: list[list[int]] = []
        self.times: list[int] = []

    def append(self, step: int) -> int:
        base = self.times[len(self.times) - len(self.episodes[-1]) - 1] + 1 if len(self.times) > len(self.episodes[-1]) else 0
        self.episodes[-1].append(step)
        self.times.append(base + step)
        return len(self.times) - 1


@given(OPERATIONS)
def test_clock_is_that_of_plain_lists(operations: list[tuple[str, int]]) -> None:
    clock, plain = RowClock(), PlainClock()
    clock.begin()
    plain.episodes.append([])
    for what, gap in operations:
        steps = plain.episodes[-1]
        if what == "begin":
            clock.end()
            clock.begin()
            plain.episodes.append([])
        elif what == "append":
            step = (steps[-1] if steps else -1) + gap
            assert clock.append(step) == plain.append(step)
        elif steps:
            clock.withdraw()
            steps.pop()
            plain.times.pop()
        steps = plain.episodes[-1]
        assert clock.rows == len(plain.times)
        assert clock.last_step == (steps[-1] if steps else -1)
        first = clock.rows - len(steps)
        assert clock.first_row == first
        assert [clock.time_of(s) for s in steps] == plain.times[first:]
        for step in range(clock.last_step + 3):
            assert clock.find(step) == (first + steps.index(step) if step in steps else None)


def test_irregular_steps_take_few_bytes() -> None:
    clock, step = RowClock(), 0
    clock.begin()
    for i in range(10_000):
        clock.append(step)
        step += i % 7 + 1
    held: list[Any] = [value for value in vars(clock).values() if hasattr(value, "__len__")]
    assert sum(sys.getsizeof(value) + (0 if hasattr(value, "itemsize") else sum(map(sys.getsizeof, value))) for value in held) < 80_000


def test_step_between_rows_is_refused() -> None:
    clock = RowClock()
    clock.begin()
    for step in (0, 10, 20):
        clock.append(step)
    assert clock.must_find(10) == 1
    with pytest.raises(TimestepError, match="timestep 15 of episode 0 would fall between"):
        clock.must_find(15)
