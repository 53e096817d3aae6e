"""``simlab demo [PATH]``: record a small run, open it, draw it."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from time import perf_counter
from typing import Any

from tqdm import tqdm

import simlab
from simlab.cli.facts import file_facts
from simlab.cli.info import simulation_lines
from simlab.cli.terminal import count, escape
from simlab.demo import record_demo
from simlab.demo.notebook import write_starter_notebook
from simlab.errors import RunExistsError, StorageError

_RUN, _FIGURE, _NOTEBOOK = "demo.h5", "episode.png", "explore.ipynb"


def run(given: argparse.Namespace) -> int:
    """Record the demo into a folder, and say what lies there."""
    folder = os.path.expanduser(given.path)
    run_file, figure_file, notebook_file = (os.path.join(folder, name) for name in (_RUN, _FIGURE, _NOTEBOOK))
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise RunExistsError(f"{folder!r} is a file. Name a folder for the demo: simlab demo FOLDER")
    if os.path.lexists(run_file) and not given.force:
        raise RunExistsError(
            f"{run_file!r} is there already and is not overwritten. Record it again with: simlab demo {folder} --force, "
            "or name another folder."
        )
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"The folder {folder!r} cannot be made: {error.strerror or error}. Name another one: simlab demo FOLDER"
        ) from error
    _record(run_file, given.seed, given.episodes)
    print("\n".join(simulation_lines(file_facts(run_file)["simulations"][0])))
    print()
    with simlab.open_run(run_file) as ds:
        if given.episodes:
            _draw(ds, figure_file)
    if not os.path.exists(notebook_file):  # it may be somebody's by now
        write_starter_notebook(notebook_file, _RUN)
    print(f"Run        {escape(run_file)}")
    if given.episodes:
        print(f"Figure     {escape(figure_file)}")
    print(f"Notebook   {escape(notebook_file)}   open it next: jupyter lab {escape(notebook_file)}")
    if importlib.util.find_spec("jupyterlab") is None:
        print("           JupyterLab is not installed here: python -m pip install jupyterlab, or conda install -c conda-forge jupyterlab")
    return 0


def _record(run_file: str, seed: int, episodes: int) -> None:
    began = perf_counter()
    with tqdm(total=episodes, desc="recording", unit="episode", file=sys.stderr, disable=not sys.stderr.isatty(), leave=False) as bar:
        report = record_demo(run_file, seed=seed, episodes=episodes, mode="w", progress=lambda episode: bar.update(episode - bar.n))
    recorded = f"{count(report.episodes, 'episode')}, {count(report.rows, 'row')}, {count(report.values, 'value')}"
    print(f"Recorded {recorded} in {perf_counter() - began:.1f} s.\n")


def _draw(ds: Any, figure_file: str) -> None:
    """Draw the episode in which most agents lived."""
    lived = [int(ds.sim.episode(int(k)).sim.present("actions").any("time").sum()) for k in ds.sim.episodes["episode"].values]
    best = int(ds.sim.episodes["episode"].values[lived.index(max(lived))])
    ds.sim.plot_episode(best).savefig(figure_file, dpi=110)
