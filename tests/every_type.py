"""Record a small run that has everything a file can hold: every type, odd names, populations, attachments."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import simlab

DTYPES = [
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
    "longdouble",
    "bool",
]
ROWS = 40


def record(path: Path) -> None:
    """Record two simulations: one with every type, one with populations."""
    dice = np.random.default_rng(3)
    config = {"lr": np.float32(0.1), "shape": (3, 4), "name": 'größe "x" \\ ; = {,}\nsecond line\ttab', "nothing": None}
    with simlab.HDF5Logger(
        path, seed=5, config=config, environment_type="types", step_duration=0.1, metadata={"note": "naïve ✓", "tags": ["a", "b"]}
    ) as log:
        for episode in range(2):
            log.begin_episode(seed=episode, outcome=f"end {episode} é", lucky=bool(episode), score=episode / 3)
            for t in range(ROWS // 2):
                for agent in ("α", ("b", 2), 7)[: 1 + t % 3]:
                    data = {f"v_{dtype}": dice.integers(0, 100, 3).astype(dtype) for dtype in DTYPES}
                    data |= {
                        "camera": {"rgb": dice.integers(0, 256, (4, 5, 3), dtype=np.uint8), "depth": dice.random((4, 5), dtype=np.float32)},
                        "says": f"{agent} at {t}: " + "é" * (t % 7),
                        "when": np.datetime64("2026-01-01", "s") + t,
                        "took": np.timedelta64(t, "ms"),
                        "a/b": t,
                        "rewards": dice.random(),
                        "actions": int(dice.integers(5)),
                        "terminated": t == ROWS // 2 - 1,
                    }
                    log.log_agent_step(agent, t, data)
                log.log_env_step(t, {"food": t, "weather": 'wind; rain, "sun"', "open": t % 2 == 0})
                if t % 8 == 0:
                    log.log_env_step(t, {"map": dice.random((6, 7)), "words": f"map {t}"})
        log.attach("params", {"weights": dice.random((3, 2)), "text": "größe", "inner": {"none": None, "list": [1, "a"], "n": 3}})
    kinds = {
        "prey": simlab.Schema(observations=simlab.Variable("sight", shape=(3,), channels=["left", "ahead", "right"])),
        "predator": simlab.Schema(observations=simlab.Variable("smell", shape=(2, 2), dtype="uint8"), rewards=simlab.Variable("rewards")),
    }
    with simlab.HDF5Logger(path, simlab.Schema(populations=kinds), mode="a", simulation="pair/first") as log:
        for t in range(10):
            log.log_agent_step("prey_0", t, {"sight": dice.random(3)})
            log.log_agent_step("predator_0", t, {"smell": dice.integers(0, 9, (2, 2)), "rewards": 1.0})
