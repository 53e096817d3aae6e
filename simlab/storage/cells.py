"""A few numbers into a dataset: h5py's own ``dataset[...] = x`` takes ten times as long, and a commit does it fifteen times."""

from __future__ import annotations

from typing import Any

import h5py
import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


def write_scalar(dataset: h5py.Dataset, value: Any) -> None:
    """Write the value of a scalar dataset."""
    dataset.id.write(h5py.h5s.ALL, h5py.h5s.ALL, np.array(value, dataset.dtype))


def write_entries(dataset: h5py.Dataset, start: int, values: Array) -> None:
    """Write entries of a dataset of one axis from `start` on, making it longer where it is too short."""
    end = start + len(values)
    if dataset.id.shape[0] < end:
        dataset.id.set_extent((end,))
    if len(values):
        there = dataset.id.get_space()
        there.select_hyperslab((start,), (len(values),))
        dataset.id.write(h5py.h5s.create_simple((len(values),)), there, np.ascontiguousarray(values))
