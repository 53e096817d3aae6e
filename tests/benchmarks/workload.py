"""The reference work: 32 agents in a grid world, 205 MB in 4,000 steps."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


def workload(agents: int = 32, steps: int = 4000, seed: int = 0) -> dict[str, Array]:
    """Return what the agents log, as arrays of shape (steps, agents, ...)."""
    rng = np.random.default_rng(seed)
    size = 64
    grid = (rng.random((size, size, 3)) < 0.15).astype(np.float32)
    padded = np.pad(grid, ((5, 6), (5, 6), (0, 0)), mode="wrap")
    position = rng.integers(0, size, (agents, 2))
    vision = np.empty((steps, agents, 11, 11, 3), np.float32)
    for t in range(steps):
        position = (position + rng.integers(-1, 2, (agents, 2))) % size
        for a, (y, x) in enumerate(position):
            vision[t, a] = padded[y : y + 11, x : x + 11]

    def walk(channels: int, scale: float) -> Array:
        return np.cumsum(rng.normal(size=(steps, agents, channels)).astype(np.float32) * np.float32(scale), 0, dtype=np.float32)

    return {
        "vision": vision,
        "proprioception": walk(16, 0.05),
        "abstract_state": np.round(walk(8, 0.05), 2),
        "actions": rng.integers(0, 5, (steps, agents)).astype(np.int32),
        "rewards": np.where(rng.random((steps, agents)) < 0.1, 1.0, -0.01).astype(np.float32),
        "states": walk(12, 0.02),
    }
