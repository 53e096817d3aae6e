"""Record PettingZoo's pursuit with a plain loop, and keep an independent copy of every value in memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import simlab


@dataclass
class Copy:
    """What was logged, as lists by agent, one entry for each step, in the types that the environment gave."""

    agents: list[str] = field(default_factory=list)
    values: dict[str, dict[str, list[Any]]] = field(default_factory=dict)
    steps: list[int] = field(default_factory=list)
    episodes: list[int] = field(default_factory=list)

    def keep(self, agent: str, data: dict[str, Any]) -> None:
        """Keep a value of its own: the environment is free to use its arrays again."""
        for name, value in data.items():
            self.values.setdefault(name, {}).setdefault(agent, []).append(np.array(value))

    def array(self, name: str) -> np.ndarray:
        """Return one variable as an array of (agent, time, ...)."""
        return np.stack([np.stack(self.values[name][agent]) for agent in self.agents])


def record(path: Path, *, episodes: int = 20, cycles: int = 50, schema: simlab.Schema | None = None) -> Copy:
    """Play pursuit at random, 8 agents that each see 7 × 7 cells in 3 channels."""
    from pettingzoo.sisl import pursuit_v5

    env = pursuit_v5.parallel_env(max_cycles=cycles)
    dice = np.random.default_rng(7)
    copy = Copy(list(env.possible_agents))
    with simlab.HDF5Logger(path, schema, seed=7, config={"max_cycles": cycles}, environment_type="pursuit_v5") as log:
        for episode in range(episodes):
            seen, _ = env.reset(seed=episode)
            log.begin_episode(seed=episode)
            step = 0
            while env.agents:
                actions = {agent: dice.integers(5) for agent in env.agents}
                after, rewards, terminated, truncated, _ = env.step(actions)
                for agent, action in actions.items():
                    data = {
                        "vision": seen[agent],
                        "actions": action,
                        "rewards": rewards[agent],
                        "terminated": terminated[agent],
                        "truncated": truncated[agent],
                    }
                    log.log_agent_step(agent, step, data)
                    copy.keep(agent, data)
                copy.steps.append(step)
                copy.episodes.append(episode)
                seen = after
                step += 1
    env.close()
    return copy
