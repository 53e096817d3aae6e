"""What of the file stands behind a lazy variable, for a reader that takes chunks as they lie there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import xarray as xr
from xarray.core import indexing

from simlab.read.arrays import StoredArray
from simlab.storage.joining import JoinedVariable
from simlab.storage.reading import StoredVariable

_DEEPEST: Final = 16
_WRAPPERS: Final = (indexing.MemoryCachedArray, indexing.CopyOnWriteArray)


@dataclass(frozen=True, slots=True)
class Behind:
    """A part of a stored variable that was cut out along its first axes.

    Attributes
    ----------
    stored : StoredVariable
        The variable in the file.
    starts : tuple of int
        For each axis, which entry of the file comes first. The entries after it follow one by one.
    """

    stored: StoredVariable
    starts: tuple[int, ...]


def behind(variable: xr.Variable) -> Behind | None:
    """Return what of the file a lazy variable shows.

    Parameters
    ----------
    variable : xarray.Variable
        Of a Dataset that `simlab.open_run` returned, or of a part of it.

    Returns
    -------
    Behind or None
        None where the values are not simply a block of the file: already in memory, computed, turned round, picked one by one, or (of a
        run that is being recorded) not all of them in the file yet.

    Examples
    --------
    >>> import os.path, tempfile
    >>> from simlab.demo import record_demo
    >>> path = os.path.join(tempfile.mkdtemp(), "run.h5")
    >>> report = record_demo(path, episodes=2, steps=30)
    >>> import simlab
    >>> with simlab.open_run(path) as ds:
    ...     print(behind(ds.sim.episode(1).rewards.variable).starts, behind((ds.rewards + 1).variable))
    (0, 30) None
    """
    data: Any = variable._data
    for _ in range(_DEEPEST):
        if isinstance(data, indexing.LazilyIndexedArray):
            inner: Any = data.array
            if not isinstance(inner, StoredArray) or isinstance(inner.stored, JoinedVariable):
                return None
            starts = _starts(data.key.tuple, inner.shape)
            return None if starts is None else Behind(inner.stored, starts)
        if not isinstance(data, _WRAPPERS):
            return None
        data = data.array
    return None


def _starts(key: tuple[Any, ...], shape: tuple[int, ...]) -> tuple[int, ...] | None:
    starts = []
    for one, size in zip(key, shape, strict=True):
        if isinstance(one, slice):
            start, stop, step = one.indices(size)
            if step != 1 and stop - start > 1:
                return None
            starts.append(start)
        elif isinstance(one, np.ndarray) and one.ndim == 1 and one.size and bool((np.diff(one) == 1).all()) and one[0] >= 0:
            starts.append(int(one[0]))
        else:
            return None
    return tuple(starts)
