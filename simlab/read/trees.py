"""A whole run file as an xarray.DataTree: the groups as they lie in the file."""

from __future__ import annotations

import xarray as xr
from xarray.core import indexing

from simlab.conventions import AGENT, EPISODE, ID_SUFFIX, KEY_SUFFIX, LABEL_SUFFIX, STEP, TIME
from simlab.errors import FormatError, StorageError
from simlab.read.arrays import StoredArray, lazy
from simlab.read.flatten import clean_attributes, decoded_attributes
from simlab.read.gaps import tell
from simlab.storage.damage import reason
from simlab.storage.groups import StoredGroup, read_groups
from simlab.storage.opening import RunSource
from simlab.storage.reading import StoredVariable

_COORDINATES = (STEP, EPISODE, AGENT + ID_SUFFIX, AGENT + KEY_SUFFIX)


def read_tree(source: RunSource) -> xr.DataTree:
    """Return the groups of a file as a lazy tree; what of it cannot be shown is told in a warning.

    Raises
    ------
    FormatError
        If the file is too damaged to be looked through.
    """
    gaps: list[str] = []
    nodes: dict[str, xr.Dataset] = {}
    inherited: dict[str, dict[str, int]] = {"": {}}
    for group in read_groups(source):
        gaps += group.gaps
        place = group.path.rstrip("/")
        sizes = dict(inherited[place.rpartition("/")[0]]) if place else {}
        nodes[group.path] = _node(group, sizes, gaps)
        inherited[place] = sizes
    try:
        tree = xr.DataTree.from_dict(nodes)
    except ValueError as error:
        raise FormatError(f"{source.path!r} is damaged: its groups do not fit together ({reason(error)}). Try open_run.") from error
    tell(source.path, gaps)
    return tree


def _node(group: StoredGroup, sizes: dict[str, int], gaps: list[str]) -> xr.Dataset:
    """Return one group; `sizes` holds the dimensions of the groups above, and takes those of this one."""
    above = set(sizes)
    variables, coords = {}, {}
    for name, stored in group.variables.items():
        dims = _fitting(name, stored, sizes, group, gaps)
        is_clock = name in _COORDINATES and stored.dims in ((TIME,), (AGENT,))
        if dims == (name,):
            if name in above:
                gaps.append(f"{stored.path!r} has the name of an axis above it: it is left out")
                continue
            try:  # an index is read at once
                coords[name] = xr.Variable(dims, StoredArray(stored)[indexing.BasicIndexer((slice(None),))], clean_attributes(stored))
            except (FormatError, StorageError) as error:
                gaps.append(str(error))
            continue
        variable = lazy(dims, StoredArray(stored), clean_attributes(stored))
        if is_clock or name.endswith((LABEL_SUFFIX, ID_SUFFIX)):
            coords[name] = variable
        else:
            variables[name] = variable
    return xr.Dataset(variables, coords, decoded_attributes(group.attrs))


def _fitting(name: str, stored: StoredVariable, sizes: dict[str, int], group: StoredGroup, gaps: list[str]) -> tuple[str, ...]:
    """Return names for the axes of a variable under which it fits to what is there."""
    dims: list[str] = []
    for dim, size in zip(stored.dims, stored.shape, strict=True):
        unique = dim
        if dim != name and dim in group.variables and group.variables[dim].dims != (dim,):
            unique = f"{name}_{dim}"
        while sizes.get(unique, size) != size or unique in dims or (unique == name and len(stored.dims) > 1):
            unique = f"{name}_{unique}"
        if unique != dim:
            gaps.append(f"{stored.path!r} has {size:,} entries along {dim!r}, which do not fit the others; its axis is called {unique!r}")
        sizes[unique] = size
        dims.append(unique)
    return tuple(dims)
