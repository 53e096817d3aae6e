"""Returns of episodes, summed while the rewards go by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from simlab.conventions import REWARDS
from simlab.schema import Variable
from simlab.staging.windows import Window
from simlab.storage.structure import Grid

Array = np.ndarray[Any, np.dtype[Any]]
Sums = dict[int, dict[tuple[str, int], float]]
"""Of each episode, the rewards of each agent (population, place), summed."""
_ROWS_AT_ONCE = 4096
RETURN_FIELDS = ("return_sum", "return_mean", "return_min", "return_max")


def reward_index(variables: tuple[Variable, ...]) -> int | None:
    """Return the index of the variable that is the reward: the first plain number of that modality."""
    for i, v in enumerate(variables):
        if v.modality == REWARDS and not v.shape and v.dtype.kind in "fiub":
            return i
    return None


def reward_of(variables: tuple[Variable, ...]) -> Variable | None:
    """Return the variable that is the reward."""
    index = reward_index(variables)
    return None if index is None else variables[index]


def sums_of(window: Window, variables: Mapping[str, tuple[Variable, ...]]) -> Sums:
    """Return what a window's rewards add to each episode and agent."""
    added: Sums = {}
    episode = window.episode[: window.count]
    starts = np.concatenate([[0], np.flatnonzero(np.diff(episode)) + 1])
    for name, lanes in window.lanes.items():
        index = reward_index(variables.get(name, ()))
        if index is None or index not in lanes.cells or not lanes.agents:
            continue
        mask = lanes.mask(index, slice(0, window.count))
        cells = lanes.cells[index][: len(lanes.agents), : window.count]
        sums = np.add.reduceat(np.where(mask, cells, 0).astype(np.float64), starts, axis=1)
        present = np.logical_or.reduceat(mask, starts, axis=1)
        for k, start in enumerate(starts.tolist()):
            into = added.setdefault(int(episode[start]), {})
            for slot in np.flatnonzero(present[:, k]).tolist():
                into[name, lanes.agents[slot]] = float(sums[slot, k])
    return added


def returns_on_disk(grids: Mapping[str, Grid], variables: Mapping[str, tuple[Variable, ...]], start: int, length: int) -> dict[str, float]:
    """Return the statistics of an episode's returns from the file: what came late may have replaced what was summed."""
    found: list[float] = []
    for name, grid in grids.items():
        index = reward_index(variables.get(name, ()))
        if index is None:
            continue
        field = next(f for f in grid.fields if f.first <= index < f.first + f.bits)
        sums, present = np.zeros(grid.n_agents), np.zeros(grid.n_agents, bool)
        for row in range(start, start + length, _ROWS_AT_ONCE):
            rows = slice(row, min(row + _ROWS_AT_ONCE, start + length))
            mask = field.column.dataset[:, rows] & field.column.type.stored.type(1 << (index - field.first)) != 0
            sums += np.where(mask, grid.columns[index].dataset[:, rows], 0).sum(axis=1, dtype=np.float64)
            present |= mask.any(axis=1)
        found += sums[present].tolist()
    return statistics(found)


def statistics(values: list[float]) -> dict[str, float]:
    """Return the fields of an episode from the returns of its agents; none of them where no agent has any."""
    sums = np.array(values)
    if not sums.size:
        return {}
    return dict(zip(RETURN_FIELDS, map(float, (sums.sum(), sums.mean(), sums.min(), sums.max())), strict=True))


class Returns:
    """Sums of rewards by episode and agent, of episodes that have not ended yet."""

    def __init__(self) -> None:
        self._sums: Sums = {}

    def keep(self, added: Sums) -> None:
        """Add what `sums_of` returned."""
        for episode, sums in added.items():
            into = self._sums.setdefault(episode, {})
            for agent, value in sums.items():
                into[agent] = into.get(agent, 0.0) + value

    def statistics(self, episode: int, added: Sums) -> dict[str, float]:
        """Return the statistics of an episode's returns over its agents, with what a window adds that is not kept yet."""
        sums = dict(self._sums.get(episode, {}))
        for agent, value in added.get(episode, {}).items():
            sums[agent] = sums.get(agent, 0.0) + value
        return statistics(list(sums.values()))

    def forget(self, episode: int) -> None:
        """Let go of an episode whose row is written."""
        self._sums.pop(episode, None)
