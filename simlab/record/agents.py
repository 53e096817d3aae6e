"""Who is in the run: ids as they were given, the place of each in its population, and the label others read."""

from __future__ import annotations

from collections.abc import Hashable
from itertools import islice
from typing import Any

import numpy as np

from simlab.errors import AgentError
from simlab.metadata import from_json, to_json
from simlab.staging.windows import Window

NEVER = -1


class Agent:
    """One agent.

    Attributes
    ----------
    id : str, int or tuple
        As it was given; numpy's integers as Python's.
    population : str
        Its population's name.
    index : int
        Its place there.
    last_row : int
        The newest row with something logged for it in a window that was sealed, or -1.
    """

    __slots__ = ("id", "index", "last_row", "population")

    def __init__(self, id: Hashable, population: str, index: int) -> None:
        self.id = id
        self.population = population
        self.index = index
        self.last_row = NEVER


def whole_id(agent_id: object) -> Hashable:
    """Return an agent id as text, int, or a tuple of them.

    Raises
    ------
    AgentError
        If it is anything else.

    Examples
    --------
    >>> import numpy as np
    >>> whole_id(np.int64(3)), whole_id(("wolf", 1))
    (3, ('wolf', 1))
    """
    if isinstance(agent_id, (bool, np.bool_)):
        pass
    elif isinstance(agent_id, (int, np.integer)):
        if -(2**63) <= int(agent_id) < 2**63:
            return int(agent_id)
        raise AgentError(f"agent id {agent_id!r} is too large; a whole number has up to 64 bits. Use text instead.")
    elif isinstance(agent_id, str):
        if "\0" not in agent_id and agent_id.encode("utf-8", "replace").decode() == agent_id:
            return str(agent_id)
        raise AgentError(f"agent id {agent_id!r} holds a NUL or half a character. Use plain text.")
    elif isinstance(agent_id, tuple):
        return tuple(whole_id(part) for part in agent_id)
    raise AgentError(f"agent id {agent_id!r} is {type(agent_id).__name__}; an id is text, a whole number, or a tuple of them.")


class AgentRegistry:
    """The agents of a run, by id."""

    def __init__(self) -> None:
        self._agents: dict[Hashable, Agent] = {}
        self._members: dict[str, list[Agent]] = {}
        self._labels: dict[str, set[str]] = {}
        self._unwritten: list[tuple[str, int, str, str]] = []

    def __len__(self) -> int:
        return len(self._agents)

    def get(self, agent_id: Any) -> Agent | None:
        """Return a known agent, or None.

        Raises
        ------
        AgentError
            If the id cannot be one.
        """
        try:
            return self._agents.get(agent_id)
        except TypeError:
            raise AgentError(
                f"agent id {agent_id!r} is {type(agent_id).__name__}; an id is text, a whole number, or a tuple of them."
            ) from None

    def ids(self, most: int) -> list[Hashable]:
        """Return the ids of the first agents."""
        return list(islice(self._agents, most))

    def add(self, agent_id: Hashable, population: str) -> Agent:
        """Make a new agent of a population."""
        agent_id = whole_id(agent_id)
        members = self._members.setdefault(population, [])
        agent = Agent(agent_id, population, len(members))
        self._agents[agent_id] = agent
        members.append(agent)
        label, key = self._label(agent_id, population)
        self._unwritten.append((population, agent.index, label, key))
        return agent

    def restore(self, label: str, key: str, population: str) -> Agent:
        """Add an agent that is in the file, by its label and JSON key; agents are restored in the order of their places."""
        given = from_json(key) if key else label
        agent = self.add(_as_tuples(given), population)
        self._unwritten.pop()
        return agent

    def take_back(self, agent: Agent) -> None:
        """Forget the agent that was added last: the call it appeared with was refused."""
        del self._agents[agent.id]
        self._members[agent.population].pop()
        *_, label, _ = self._unwritten.pop()
        self._labels[agent.population].discard(label)

    def _label(self, agent_id: Hashable, population: str) -> tuple[str, str]:
        taken = self._labels.setdefault(population, set())
        if isinstance(agent_id, str):
            label, key = (agent_id, "") if agent_id else ("''", '""')  # an empty text is none in the file
        else:
            label = str(agent_id) if isinstance(agent_id, int) else repr(agent_id)
            key = to_json(_listed(agent_id), "the agent's id")
        if label in taken:
            key = key or to_json(agent_id, "the agent's id")
            n = 2
            while f"{label} #{n}" in taken:
                n += 1
            label = f"{label} #{n}"
        taken.add(label)
        return label, key

    def members(self, population: str) -> list[Agent]:
        """Return the agents of a population in order of appearance."""
        return self._members.get(population, [])

    def remember_window(self, window: Window) -> None:
        """Note the newest rows of a window at which agents logged."""
        for population, lanes in window.lanes.items():
            members = self._members.get(population, [])
            for place, row in zip(lanes.agents, lanes.last_rows(window.count), strict=True):
                if row >= 0 and window.first + row > members[place].last_row:
                    members[place].last_row = window.first + row

    @property
    def newest_unwritten(self) -> tuple[str, int, str, str]:
        """Population, place, label and JSON key of the agent that appeared last."""
        return self._unwritten[-1]

    def take_unwritten(self) -> list[tuple[str, int, str, str]]:
        """Return population, place, label and JSON key of the agents that appeared since the last call."""
        unwritten, self._unwritten = self._unwritten, []
        return unwritten


def _as_tuples(value: Any) -> Any:
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value


def _listed(agent_id: Any) -> Any:
    return [_listed(part) for part in agent_id] if isinstance(agent_id, tuple) else agent_id
