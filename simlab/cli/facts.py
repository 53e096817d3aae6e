"""What `simlab info` tells, as plain JSON values with stable keys; docs/reference/cli.md lists them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from simlab.conventions import (
    ATTR_CONFIG,
    ATTR_DATE,
    ATTR_ENVIRONMENT_TYPE,
    ATTR_FORMAT,
    ATTR_MODALITY,
    ATTR_SEED,
    ATTR_SOURCE,
    ENVIRONMENT,
    EPISODE,
    GROUP_ATTACHMENTS,
    GROUP_REPORT,
)
from simlab.errors import FormatError, RunError
from simlab.read.episodes import episode_table
from simlab.read.flatten import decoded_attributes
from simlab.storage.classic import describe_classic, is_classic
from simlab.storage.damage import ODD, reason
from simlab.storage.finding import find_simulations, select_simulation
from simlab.storage.grids import Member, RunContents
from simlab.storage.groups import attachment_names, read_scalars
from simlab.storage.joining import read_contents
from simlab.storage.opening import RunSource
from simlab.storage.tree import Tree, describe, describe_dataset

_OWN_KEYS = (ATTR_SEED, ATTR_CONFIG, ATTR_DATE, ATTR_ENVIRONMENT_TYPE)


def file_facts(path: str, simulation: str | None = None) -> dict[str, Any]:
    """Return what there is to tell about any HDF5 or netCDF file.

    Raises
    ------
    RunNotFoundError, RunInUseError, FormatError
        If there is nothing to tell.
    """
    if is_classic(path):
        return foreign_facts(describe_classic(path)) | {"kind": "netcdf3"}
    tree = describe(path, most=0)  # the root's attributes say whether it is a run
    if ATTR_FORMAT not in tree.root.attributes:
        if simulation is not None:
            raise FormatError(f"{tree.path!r} is no run of simlab, so it has no simulation {simulation!r}. Leave --simulation out.")
        return foreign_facts(describe(path))
    source = RunSource(path)
    try:
        names = [select_simulation(source, simulation)] if simulation is not None else find_simulations(source)
        return {
            "path": tree.path,
            "kind": "simlab",
            "file_bytes": tree.file_bytes,
            "format": plain(tree.root.attributes.get(ATTR_FORMAT)),
            "source": plain(tree.root.attributes.get(ATTR_SOURCE)),
            "simulations": [_facts_or_problem(source, name) for name in names],
        }
    finally:
        source.close()


def foreign_facts(tree: Tree) -> dict[str, Any]:
    """Return the tree of a file that simlab did not write."""
    netcdf = any(d.is_dimension or d.dims for d in tree.root.every_dataset())
    root = dataclasses.asdict(tree.root)
    return {
        "path": tree.path,
        "kind": "netcdf4" if netcdf else "hdf5",
        "file_bytes": tree.file_bytes,
        "everything_shown": tree.complete,
        "root": plain(root),
    }


def _facts_or_problem(source: RunSource, name: str) -> dict[str, Any]:
    """Return the facts of a simulation; of one that cannot be read, what is wrong with it: the others are still told."""
    try:
        return simulation_facts(source, name)
    except RunError as error:
        return {"name": plain(name), "problems": [plain(str(error))]}


def simulation_facts(source: RunSource, name: str) -> dict[str, Any]:
    """Return what there is to tell about one simulation."""
    contents = read_contents(source, name)
    gaps = contents.gaps
    attributes = decoded_attributes(contents.attrs, gaps)
    table = episode_table(contents, gaps)
    lengths = np.asarray(table["length"].values)
    variables = _variables(source, contents, gaps)
    raw, stored = (sum(v[key] or 0 for v in variables) for key in ("raw_bytes", "stored_bytes"))
    return {
        "name": plain(name),
        "complete": contents.complete,
        "state": "finalized" if contents.complete else "being recorded" if source.live else "not finalized",
        "rows": contents.rows,
        "agents": sum(p.n_agents for p in contents.populations.values()),
        "populations": {p.name: p.n_agents for p in contents.populations.values() if p.name},
        "episodes": int(table.sizes[EPISODE]),
        "episode_lengths": [int(lengths.min()), int(lengths.max())] if lengths.size else [],
        "episode_fields": [str(field) for field in table.data_vars],
        "seed": plain(attributes.get(ATTR_SEED)),
        "date": plain(attributes.get(ATTR_DATE)),
        "environment_type": plain(attributes.get(ATTR_ENVIRONMENT_TYPE)),
        "config": plain(attributes.get(ATTR_CONFIG)),
        "attributes": {str(key): plain(value) for key, value in attributes.items() if key not in _OWN_KEYS},
        "attachments": [str(a) for a in attachment_names(source, f"{name}/{GROUP_ATTACHMENTS}", gaps)],
        "variables": variables,
        "raw_bytes": raw,
        "stored_bytes": stored,
        "report": plain(read_scalars(source, f"{name}/{GROUP_REPORT}", gaps)),
        "problems": [plain(gap) for gap in dict.fromkeys(gaps)],
    }


def _variables(source: RunSource, contents: RunContents, gaps: list[str]) -> list[dict[str, Any]]:
    out = []
    grids = [*((p.name, p) for p in contents.populations.values()), ("", contents.environment)]
    for population, grid in grids:
        for member in grid.members:
            try:
                out.append(_variable(source, member, f"{population}." if population else "", population))
            except ODD as error:  # what is below a damaged header, no description foresees
                gaps.append(str(error) if isinstance(error, RunError) else f"{member.path!r} cannot be described: {reason(error)}")
    return out


def _variable(source: RunSource, member: Member, prefix: str, population: str) -> dict[str, Any]:
    stored = member.stored
    told = describe_dataset(source.dataset(stored.path), stored.path, axes=False)
    dtype = stored.dtype
    return {
        "name": prefix + member.name,
        "modality": plain(stored.attrs.get(ATTR_MODALITY, ENVIRONMENT)),
        "population": population,
        "dtype": "str" if dtype.kind in "SU" else str(dtype),
        "dims": list(stored.dims),
        "shape": [int(n) for n in stored.shape],
        "units": plain(stored.attrs.get("units", "1")),
        "long_name": plain(stored.attrs.get("long_name", "")),
        "path": stored.path,
        "stored_dtype": told.dtype,
        "chunks": None if told.chunks is None else list(told.chunks),
        "filters": [f.name for f in told.filters],
        "missing_filters": [f.name for f in told.filters if not f.available],
        "raw_bytes": told.raw_bytes,
        "stored_bytes": told.stored_bytes,
    }


def plain(value: Any, depth: int = 0) -> Any:
    """Return a value as strict JSON has it: NaN and infinity as None, dates as text, arrays as lists, no lone surrogates.

    Examples
    --------
    >>> import numpy as np
    >>> plain({"a": np.float32(0.5), "b": float("nan"), 3: (1, 2)})
    {'a': 0.5, 'b': None, '3': [1, 2]}
    """
    if depth > 100:
        return "..."
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist() if value.dtype.kind not in "Mm" else np.asarray(value).astype(str).tolist()
    if isinstance(value, Mapping):
        return {plain(str(key)): plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item, depth + 1) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (bool, int)):
        return value
    return str(value).encode("utf-8", "backslashreplace").decode()
