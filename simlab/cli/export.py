"""``simlab export RUN OUT``: an episode as a page, a film or a picture."""

from __future__ import annotations

import argparse
import os

import simlab
from simlab.cli.terminal import escape, size
from simlab.view.export import export


def run(given: argparse.Namespace) -> int:
    """Export an episode and say what lies where."""
    with simlab.open_run(given.file, simulation=given.simulation) as ds:
        path = export(
            ds, given.out, episode=given.episode, agents=named_agents(given.agents, ds.sim.agents), start=given.start, stop=given.stop,
            step=given.step, every=given.every, fps=given.fps, max_mb=given.max_mb,
        )  # fmt: skip
    print(f"{escape(given.out)}   {size(os.path.getsize(path))}")
    return 0


def named_agents(given: list[str] | None, known: list[object]) -> object:
    """Return agents as the run knows them: an id that is a number may be written as one.

    Examples
    --------
    >>> named_agents(["3", "a"], [3, "a"]), named_agents(["all"], []), named_agents(None, [])
    ([3, 'a'], 'all', None)
    """
    if given is None or given == ["all"]:
        return given and "all"
    return [int(name) if name not in known and name.lstrip("-").isdigit() and int(name) in known else name for name in given]
