"""Open run files: one simulation as a Dataset, a whole file as a tree, a list of what is in it."""

from __future__ import annotations

import importlib.util
import os
import time
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import xarray as xr

import simlab.read.accessor  # noqa: F401  (registers ds.sim)
from simlab.conventions import ATTR_CONFIG, ATTR_DATE, ATTR_ENVIRONMENT_TYPE, ATTR_SEED
from simlab.errors import InputError, MissingPackageError, RunError
from simlab.read.backend import SimlabBackendEntrypoint
from simlab.read.episodes import count_episodes
from simlab.read.flatten import decoded_attributes
from simlab.read.trees import read_tree
from simlab.storage.finding import find_simulations
from simlab.storage.joining import read_contents
from simlab.storage.opening import RunSource, absolute_path

if TYPE_CHECKING:
    import pandas as pd

_PATIENCE: Final = 10.0


def open_run(
    path: str | os.PathLike[str],
    simulation: str | None = None,
    chunks: Any = None,
    population: str | None = None,
    live: bool = False,
) -> xr.Dataset:
    """Open a recorded simulation as one lazy Dataset.

    Nothing but coordinates is read before it is asked for, and then only the chunks that are needed. What is special about
    simulations is below ``ds.sim``: agents, episodes, presence, attachments.

    Parameters
    ----------
    path : str or path-like
        The run file; ``~`` is expanded.
    simulation : str, optional
        Which simulation, where the file holds several: `list_runs` shows them.
    chunks : int, dict, "auto" or {}, optional
        Give the variables as dask arrays; ``{}`` takes the chunks of the file. See `xarray.open_dataset`.
    population : str, optional
        Where agents are of different kinds, show those of one kind only, under plain names ("vision" for "prey.vision").
    live : bool, optional
        Wait up to ten seconds for a run that has not begun. A run that is being recorded is opened either way, with every row that was
        logged by now; ``ds.sim.refresh()`` gives the longer one.

    Returns
    -------
    xarray.Dataset
        Dimensions ``agent``, ``time`` and the variables' own; coordinates ``time`` (the run clock), ``step``, ``episode``,
        the agents' ids and the channels' labels. Use it in a ``with`` block, or call its ``close``.

    Raises
    ------
    RunNotFoundError
        If there is no such file or simulation.
    RunInUseError
        If another program is writing the file.
    FormatError
        If it is no run file; the message says what it is.
    InputError
        If the file holds several simulations and none was chosen.
    MissingPackageError
        If `chunks` is given and dask is not installed.

    Warns
    -----
    DamageWarning
        If a part of the run is damaged. It says which part; the rest is there.

    Examples
    --------
    >>> import os.path, tempfile
    >>> from simlab.demo import record_demo
    >>> path = os.path.join(tempfile.mkdtemp(), "run.h5")
    >>> report = record_demo(path, episodes=2, steps=30)
    >>> with open_run(path) as ds:
    ...     print(ds.rewards.sel(agent="agent_3", time=slice(10, 19)).sizes)
    Frozen({'time': 10})
    """
    if chunks is not None and importlib.util.find_spec("dask") is None:
        raise MissingPackageError("dask", "for open_run(chunks=...)", extra="dask")
    place = absolute_path(_checked(path))
    if live:
        _wait_for(place)
    return xr.open_dataset(place, engine=SimlabBackendEntrypoint, chunks=chunks, simulation=simulation, population=population)


def _wait_for(place: str) -> None:
    """Wait until a run has begun, if somebody is to begin it."""
    until = time.monotonic() + _PATIENCE
    while not os.path.exists(place) and time.monotonic() < until:
        time.sleep(0.05)


def open_tree(path: str | os.PathLike[str]) -> xr.DataTree:
    """Open a whole run file as a tree: one node for each group, as they lie in the file, values in the types that were logged.

    Parameters
    ----------
    path : str or path-like
        The run file.

    Returns
    -------
    xarray.DataTree
        Lazy, like the Datasets of `open_run`.

    Raises
    ------
    RunNotFoundError, RunInUseError, FormatError
        As for `open_run`.

    Examples
    --------
    >>> import os.path, tempfile
    >>> from simlab.demo import record_demo
    >>> path = os.path.join(tempfile.mkdtemp(), "run.h5")
    >>> report = record_demo(path, episodes=2, steps=30)
    >>> with open_tree(path) as tree:
    ...     print(tree["simulation_0001/agents/observations/vision"].dims)
    ('agent', 'time', 'vision_y', 'vision_x', 'vision_channel')
    """
    source = RunSource(_checked(path))
    try:
        tree = read_tree(source)
    except BaseException:
        source.close()
        raise
    tree.set_close(source.close)
    return tree


def list_runs(path: str | os.PathLike[str]) -> pd.DataFrame:
    """List the simulations in a run file.

    Parameters
    ----------
    path : str or path-like
        The run file.

    Returns
    -------
    pandas.DataFrame
        One row for each simulation, in natural order, by its name: episodes, rows, agents, seed, date, environment_type,
        complete (whether it was finalized), the names of its variables, and the problem where it is damaged (else empty). Of a
        simulation that cannot be read, the problem is all that there is.

    Raises
    ------
    RunNotFoundError, RunInUseError, FormatError
        As for `open_run`.

    Examples
    --------
    >>> import os.path, tempfile
    >>> from simlab.demo import record_demo
    >>> path = os.path.join(tempfile.mkdtemp(), "run.h5")
    >>> report = record_demo(path, episodes=2, steps=30)
    >>> list_runs(path).query("episodes > 1").rows
    simulation
    simulation_0001    60
    Name: rows, dtype: int64
    """
    import pandas as pd

    source = RunSource(_checked(path))
    try:
        names = find_simulations(source)
        rows = [_summary(source, name) for name in names]
    finally:
        source.close()
    columns = ["episodes", "rows", "agents", "seed", "date", "environment_type", "complete", "variables", "problem"]
    table = pd.DataFrame(rows, index=pd.Index(names, name="simulation", dtype=object), columns=columns)
    # A simulation that cannot be read must not turn the numbers of the others into floats, nor a missing seed the other seeds.
    whole = {name: pd.array([row.get(name) for row in rows], dtype="Int64") for name in ("episodes", "rows", "agents")}
    flags = pd.array([row.get("complete") for row in rows], dtype="boolean")
    if all("rows" in row for row in rows):
        whole, flags = {name: np.array(values, np.int64) for name, values in whole.items()}, np.array(flags, bool)
    seeds = [row.get("seed") for row in rows]
    numbers = all(seed is None or (type(seed) is int and -(2**63) <= seed < 2**63) for seed in seeds)
    return table.assign(**whole, complete=flags, seed=pd.array(seeds, dtype="Int64") if numbers else pd.Series(seeds, table.index, object))


def _summary(source: RunSource, name: str) -> dict[str, Any]:
    try:
        contents = read_contents(source, name, outline=True)
    except RunError as error:
        return {"variables": [], "problem": str(error)}
    gaps = list(contents.gaps)
    attrs = decoded_attributes({k: v for k, v in contents.attrs.items() if k != ATTR_CONFIG})
    variables = [f"{p.name}.{m.name}" if p.name else m.name for p in contents.populations.values() for m in p.members]
    return {
        "episodes": count_episodes(contents, gaps),
        "rows": contents.rows,
        "agents": sum(p.n_agents for p in contents.populations.values()),
        "seed": attrs.get(ATTR_SEED),
        "date": attrs.get(ATTR_DATE),
        "environment_type": attrs.get(ATTR_ENVIRONMENT_TYPE),
        "complete": contents.complete,
        "variables": variables + [m.name for m in contents.environment.members],
        "problem": "; ".join(dict.fromkeys(gaps)),
    }


def _checked(path: object) -> str | os.PathLike[str]:
    if not isinstance(path, (str, os.PathLike)):
        raise InputError(f"The path of a run file is text or a Path, not {path!r} ({type(path).__name__}).")
    return path
