"""Other people's files: what is one longer than the rest is told."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

import simlab
from simlab.errors import FormatError


@pytest.mark.parametrize("group", ["", "episode_0/"])
def test_observations_that_are_one_longer_than_actions_are_told(tmp_path: Path, group: str) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file[f"{group}observations"] = np.zeros((101, 4))
        file[f"{group}actions"] = np.zeros((100, 2))
        file[f"{group}rewards"] = np.zeros(100)
    with pytest.raises(FormatError, match=r"'observations' has 101 entries and 'actions', 'rewards' 100.*observations\[1:\]"):
        simlab.open_run(path)


def test_episodes_first(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["obs"] = np.zeros((7, 101, 4))
        file["actions"] = np.zeros((7, 100, 2))
    with pytest.raises(FormatError, match=r"'obs' has 101 entries and 'actions' 100.*obs\[:, 1:\]"):
        simlab.open_run(path)


def test_arrays_of_one_length_or_of_other_names_are_not_suspected(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["observations"], file["actions"], file["weights"] = np.zeros(100), np.zeros(100), np.zeros(101)
    with pytest.raises(FormatError) as told:
        simlab.open_run(path)
    assert "what was seen" not in str(told.value)
