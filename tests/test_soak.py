"""One writer that is killed and goes on, and readers beside it, for a minute."""

from __future__ import annotations

import os

import pytest

from tests.soak import soak


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_minute() -> None:
    line, violations = soak(0.8, readers=3, life=8)
    print(line)
    assert violations == 0, line
