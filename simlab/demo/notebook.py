"""The notebook that `simlab demo` puts beside its run: plain JSON, nothing to install to write it."""

from __future__ import annotations

import json
import os
from typing import Any, Final

_CELLS: Final = (
    (
        "markdown",
        "# A look at the demo run\n\n"
        "Foragers on a torus with walls look for food. They see 11×11 cells, remember where food was, have offspring when they are "
        "well fed and starve when they find none. The run has several episodes: in some food grows fast, in some hardly at all.",
    ),
    ("code", "import simlab\n\nds = simlab.open_run({file!r})\nds"),
    ("markdown", "Everything is labelled and nothing is read before it is asked for. The episodes:"),
    ("code", "ds.sim.episodes.to_dataframe()"),
    ("code", "ds.sim.plot_episode(0)"),
    ("markdown", "The same episode to move through. Click into it and use the arrow keys; `?` lists all keys:"),
    ("code", "ds.sim.view(0)"),
    ("markdown", "What one agent got, and what an agent got in each episode, as the mean over those that lived in it:"),
    ("code", 'ds.rewards.sel(agent="agent_0", time=slice(0, 100)).plot();'),
    ("code", "ds.sim.episodes.return_mean.to_series()"),
    (
        "markdown",
        "An agent that was not born yet, or has died, logged nothing. Integers that were not logged read as 0, floats as NaN; "
        "`ds.sim.present(name)` tells which values were logged:",
    ),
    ("code", 'ds.sim.present("actions").sum("agent").plot();'),
    (
        "markdown",
        "Channels have names. How much food the agents saw; `where(present)` leaves those out that saw nothing because they did not live:",
    ),
    (
        "code",
        'seen = (ds.vision.sel(vision_channel="food") > 0).sum(("vision_y", "vision_x"))\n'
        'seen.where(ds.sim.present("vision")).mean("agent").plot();',
    ),
    ("markdown", "The observations of one agent, and aligned transitions for learning from the run:"),
    ("code", 'ds.sim.load_observations("agent_1", start=100, end=200)'),
    ("code", 'ds.sim.transitions(agent_id="agent_1")'),
    ("markdown", "What the run was made from, and the world at a moment:"),
    ("code", 'ds.sim.config, ds.sim.attachment("world")["walls"].shape'),
    ("code", 'ds.sim.snapshot("state_snapshots", time=100).sel(state_snapshots_channel="food").plot(yincrease=False);'),
)


def starter_notebook(file: str) -> dict[str, Any]:
    r"""Return a notebook that opens a demo run and looks at it.

    Parameters
    ----------
    file : str
        The run file, as the notebook's folder sees it.

    Examples
    --------
    >>> notebook = starter_notebook("demo.h5")
    >>> notebook["nbformat"], notebook["cells"][1]["source"][2]
    (4, "ds = simlab.open_run('demo.h5')\n")
    """
    cells: list[dict[str, Any]] = []
    for i, (kind, source) in enumerate(_CELLS):
        text = source.replace("{file!r}", repr(file))
        cell: dict[str, Any] = {"cell_type": kind, "id": f"cell-{i}", "metadata": {}, "source": text.splitlines(keepends=True)}
        if kind == "code":
            cell |= {"execution_count": None, "outputs": []}
        cells.append(cell)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": cells, "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}}, "nbformat": 4, "nbformat_minor": 5}


def write_starter_notebook(path: str | os.PathLike[str], file: str) -> None:
    """Write the notebook of `starter_notebook` to a file."""
    with open(path, "w", encoding="utf-8") as out:
        json.dump(starter_notebook(file), out, indent=1, ensure_ascii=False)
        out.write("\n")
