"""A whole run file as an xarray.DataTree: the groups as they lie in the file."""

from __future__ import annotations

import xarray as xr

from simlab.conventions import AGENT, EPISODE, ID_SUFFIX, KEY_SUFFIX, LABEL_SUFFIX, STEP, TIME
from simlab.read.arrays import StoredArray, lazy
from simlab.read.flatten import clean_attributes, decoded_attributes
from simlab.storage.groups import StoredGroup, read_groups
from simlab.storage.opening import RunSource

_COORDINATES = (STEP, EPISODE, AGENT + ID_SUFFIX, AGENT + KEY_SUFFIX)


def read_tree(source: RunSource) -> xr.DataTree:
    """Return the groups of a file as a lazy tree."""
    return xr.DataTree.from_dict({group.path: _node(group) for group in read_groups(source)})


def _node(group: StoredGroup) -> xr.Dataset:
    variables, coords = {}, {}
    for name, stored in group.variables.items():
        variable = lazy(stored.dims, StoredArray(stored), clean_attributes(stored))
        is_clock = name in _COORDINATES and stored.dims in ((TIME,), (AGENT,))
        if stored.dims == (name,) or is_clock or name.endswith((LABEL_SUFFIX, ID_SUFFIX)):
            coords[name] = variable
        else:
            variables[name] = variable
    return xr.Dataset(variables, coords, decoded_attributes(group.attrs))
