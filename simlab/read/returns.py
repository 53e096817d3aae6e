"""Returns of episodes that ended while their rows are staged: nobody has summed them yet."""

from __future__ import annotations

import numpy as np

from simlab.staging.returns import RETURN_FIELDS, statistics
from simlab.storage.dtypes import Array
from simlab.storage.grids import RunContents

_ROWS_AT_ONCE = 4096


def staged_returns(contents: RunContents, starts: Array, lengths: Array) -> dict[str, Array]:
    """Return the statistics of returns of some episodes, by field, from the rewards themselves.

    Parameters
    ----------
    contents : RunContents
        A run that is being recorded.
    starts, lengths : array
        First row and length of each episode.
    """
    out = {name: np.full(len(starts), np.nan) for name in RETURN_FIELDS}
    for i, (start, length) in enumerate(zip(starts.tolist(), lengths.tolist(), strict=True)):
        for name, value in statistics(_sums(contents, start, start + length)).items():
            out[name][i] = value
    return out


def _sums(contents: RunContents, start: int, end: int) -> list[float]:
    """Return the summed rewards of each agent that has any."""
    found: list[float] = []
    for name, disk in contents.rewards.items():
        grid = contents.populations.get(name)
        member = next((m for m in grid.members if m.disk == disk), None) if grid is not None else None
        if grid is None or member is None or disk not in grid.bits:
            continue
        bits, mask = grid.bits[disk]
        sums, present = np.zeros(grid.n_agents), np.zeros(grid.n_agents, bool)
        for row in range(start, end, _ROWS_AT_ONCE):
            rows = slice(row, min(row + _ROWS_AT_ONCE, end))
            logged = bits.read(slice(None), rows) & mask != 0
            sums += np.where(logged, member.stored.read(slice(None), rows), 0).sum(axis=1, dtype=np.float64)
            present |= logged.any(axis=1)
        found += sums[present].tolist()
    return found
