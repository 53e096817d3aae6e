"""``simlab snapshot``: a finished copy of a run that is being recorded."""

from __future__ import annotations

import argparse

from simlab.cli.terminal import escape
from simlab.staging.snapshots import snapshot


def run(given: argparse.Namespace) -> int:
    """Copy a run and tell what the copy holds."""
    for line in str(snapshot(given.file, given.output)).splitlines():
        print(escape(line))
    return 0
