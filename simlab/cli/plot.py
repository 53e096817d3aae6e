"""``simlab plot RUN``: a figure of an episode, its agents, or all returns."""

from __future__ import annotations

import argparse
import os

import simlab
from simlab.cli.export import named_agents
from simlab.cli.terminal import escape
from simlab.errors import InputError, StorageError, did_you_mean

_SUFFIXES = (".png", ".pdf", ".svg", ".jpg", ".webp")


def run(given: argparse.Namespace) -> int:
    """Draw and save a figure."""
    suffix = os.path.splitext(given.output)[1].lower()
    if suffix not in _SUFFIXES:
        known = ", ".join(_SUFFIXES)
        raise InputError(f"{given.output!r} ends in {suffix or 'nothing'}; a figure ends in {known}.{did_you_mean(suffix, _SUFFIXES)}")
    with simlab.open_run(given.file, simulation=given.simulation) as ds:
        if given.what == "returns":
            figure = ds.sim.plot_returns()
        elif given.what == "agents":
            figure = ds.sim.plot_agents(given.episode)
        else:
            figure = ds.sim.plot_episode(given.episode, agents=named_agents(given.agents, ds.sim.agents))
        try:
            figure.savefig(given.output, dpi=given.dpi)
        except OSError as error:
            raise StorageError(f"{given.output!r} cannot be written: {error.strerror or error}.") from error
    print(escape(given.output))
    return 0
