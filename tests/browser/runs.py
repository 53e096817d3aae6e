"""Runs whose pictures a test knows by heart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import simlab

AGENTS = ("ada", "bob", "cyd")
STEPS = 300


def frame(episode: int, agent: int, step: int, side: int = 84) -> np.ndarray[Any, Any]:
    """Return a picture that no other moment has: colour gradients, and a bar code of the step along the upper edge."""
    y, x = np.mgrid[0:side, 0:side]
    out = np.stack([(x * 3 + step) % 256, (y * 3 + 40 * agent) % 256, (x + y + 90 * episode) % 256], axis=-1).astype(np.uint8)
    bits = [step >> i & 1 for i in range(10)]
    out[:8] = np.repeat(np.array(bits, np.uint8) * 255, 9)[:side][None, :, None] if side >= 84 else out[:8]
    return out


def record(path: Path, episodes: int = 2, steps: int = STEPS, agents: int = 3, shift: int = 0, side: int = 84) -> Path:
    """Record a run of known pictures, and series to look at beside them.

    Parameters
    ----------
    path : Path
        Where to.
    episodes, steps, agents : int
        How much.
    shift : int
        From this step on every reward is another one; 0 for never.
    side : int
        Pixels of a picture's edge.
    """
    names = [*AGENTS, *(f"agent_{i}" for i in range(len(AGENTS), agents))][:agents]
    schema = simlab.Schema(
        observations=[
            simlab.Variable("camera", (side, side, 3), "uint8", kind="image"),
            simlab.Variable("depth", (16, 12), "float32", kind="image"),
            simlab.Variable("place", (2,), "float32", channels=("x", "y")),
        ],
        actions=simlab.Variable("actions", dtype="int8", categories=("left", "right", "stay")),
        rewards=simlab.Variable("rewards", dtype="float32"),
        environment=[simlab.Variable("energy", dtype="float64")],
    )
    with simlab.HDF5Logger(path, schema, mode="w", seed=1, environment_type="bar code") as log:
        for episode in range(episodes):
            log.begin_episode(seed=episode)
            for step in range(steps):
                for i, name in enumerate(names):
                    if i == 2 and 50 <= step < 60:
                        continue  # it is away for a while
                    depth = np.linspace(0, 1 + step / 100, 192, dtype=np.float32).reshape(16, 12)
                    if step == 20:
                        depth[3, 4] = np.nan
                    log.log_agent_step(
                        name,
                        step,
                        {
                            "camera": frame(episode, i, step, side),
                            "depth": depth,
                            "place": [10 * np.cos(step / 20 + i), 10 * np.sin(step / 20 + i)],
                            "actions": (step // 7 + i) % 3,
                            "rewards": np.sin(step / 9 + i) + (20 if step == 137 else 0) + (0.25 if shift and step >= shift else 0),
                        },
                    )
                log.log_env_step(step, {"energy": 100 - step / 7})
            log.end_episode(outcome="done" if episode % 2 else "lost")
    return path
