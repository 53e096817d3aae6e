"""``simlab repair``: make a run whose writer died a finished file."""

from __future__ import annotations

import argparse

from simlab.cli.terminal import escape
from simlab.staging.recovery import repair


def run(given: argparse.Namespace) -> int:
    """Repair a file and tell what was there; 1 if something of it cannot be read."""
    told = repair(given.file, given.output)
    for line in str(told).splitlines():
        print(escape(line))
    return 1 if told.unreadable else 0
