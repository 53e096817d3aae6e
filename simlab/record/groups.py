"""Many agents at one step: arrays with the axis of the agents in front."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from simlab.errors import AgentError, ValueMismatchError
from simlab.record.acceptance import join
from simlab.record.agents import Agent, whole_id
from simlab.record.calls import Fitted, distinct, fit_items, refuse_backwards
from simlab.record.items import GROUP_WORDS, Item, Where, agent_items
from simlab.record.stage import Stage
from simlab.staging.lanes import WORD
from simlab.staging.records import Cell, enter, store_each

Array = np.ndarray[Any, np.dtype[Any]]


class _Rows:
    """The cells of one variable for a group of agents: what is stored at a row goes to all of them."""

    __slots__ = ("_cells", "_slots")

    def __init__(self, cells: Array, slots: slice | Array) -> None:
        self._cells = cells
        self._slots = slots

    def __setitem__(self, row: int, values: Array) -> None:
        self._cells[self._slots, row] = values


class Group:
    """Agents of one population that log together, in one window.

    Attributes
    ----------
    ids : list
        Who they are, as the caller named them. (The caller may change its own list in place; so this is a copy.)
    agents : list of Agent
        Who they are.
    """

    def __init__(self, stage: Stage, ids: list[Any], agents: list[Agent]) -> None:
        self.ids, self.agents = ids, agents
        self.population = agents[0].population
        lanes = stage.window.population(self.population)
        version = lanes.version
        self.slots = lanes.slots([a.index for a in agents])
        variables = stage.book.variables(self.population)
        lanes.hold(dict(enumerate(variables)))
        if lanes.version != version:
            stage.forget_lanes()
        self.table: dict[str, Any] = {}
        for i, variable in enumerate(variables):
            cell = Cell(variable, i, _Rows(lanes.cells[i], self.slots))
            cell.shape = (len(agents), *variable.shape)
            cell.scalar = cell.weak = None
            enter(self.table, variable, cell)
        self.lanes = lanes

    def is_blank(self, row: int) -> bool:
        """Whether none of the group has logged anything at a row."""
        return not any(word[self.slots, row].any() for word in self.lanes.words)

    def set_bits(self, row: int, bits: int) -> None:
        """Set the logged bits at a row that was blank."""
        for i, word in enumerate(self.lanes.words):
            word[self.slots, row] = (bits >> (WORD * i)) & (2**WORD - 1)

    def add_bits(self, row: int, bits: int) -> int:
        """Set logged bits at a row and return how many were set already."""
        overwritten = 0
        for i, word in enumerate(self.lanes.words):
            part = np.uint64((bits >> (WORD * i)) & (2**WORD - 1))
            old = word[self.slots, row]
            overwritten += int(np.bitwise_count(old & part).sum())
            word[self.slots, row] = old | part
        return overwritten


def by_agent(stage: Stage, agents: Mapping[Any, Any]) -> Mapping[Any, Any]:
    """Return what PettingZoo hands out, a dictionary by agent for each of observations, rewards, ..., as a dictionary for each agent.

    ``{"observations": {"a": o, "b": p}, "rewards": {"a": 1.0, "b": 0.0}}`` is taken so if several modalities have the same keys, or if the
    keys are agents that are known; anything else is returned as it is.
    """
    if not agents or not all(key in GROUP_WORDS and isinstance(value, Mapping) and value for key, value in agents.items()):
        return agents
    keys = [list(value) for value in agents.values()]
    known = all(_known(stage, key) for key in keys[0])
    if not known and (len(keys) < 2 or any(k != keys[0] for k in keys[1:])):
        return agents
    turned: dict[Any, dict[str, Any]] = {}
    for word, each in agents.items():
        for agent_id, value in each.items():
            turned.setdefault(agent_id, {})[word] = value
    return turned


def _known(stage: Stage, key: Any) -> bool:
    return stage.agents.get(key) is not None and key not in stage.book.roots


def is_by_agent(stage: Stage, agents: Mapping[Any, Any]) -> bool:
    """Whether a dictionary has a dictionary for each agent, rather than an array for each variable."""
    if not agents or not all(isinstance(v, Mapping) for v in agents.values()):
        return False
    known = stage.book.roots
    return not any(key in GROUP_WORDS or (key in known and stage.agents.get(key) is None) for key in agents)


class GroupBits:
    """The values of a group at the located row, which are written but for their bits."""

    __slots__ = ("_bits", "_group")

    def __init__(self, group: Group, bits: int) -> None:
        self._group, self._bits = group, bits

    def prepare(self, stage: Stage) -> None:
        """There is room."""

    def write(self, stage: Stage) -> None:
        """Record the values."""
        self._group.set_bits(stage.offset, self._bits)
        stage.last_ids = self._group.ids


class FittedGroup:
    """The values of a group at the located row, all of which fit; `write` records them."""

    __slots__ = ("_agents", "_coerced", "_fitted", "_group", "_ids")

    def __init__(self, ids: list[Any], agents: list[Agent], fitted: Fitted, coerced: int) -> None:
        self._ids, self._agents, self._fitted, self._coerced = ids, agents, fitted, coerced

    def prepare(self, stage: Stage) -> None:
        """Make room for the values; the disk may refuse it."""
        self._group = self._laid_out(stage)

    def _laid_out(self, stage: Stage) -> Group:
        group: Group | None = stage.window.block
        if group is None or group.agents != self._agents:
            group = stage.window.block = Group(stage, self._ids, self._agents)
        version = group.lanes.version
        # Longer text, or more words: the arrays may move.
        group.lanes.hold({i: v for i, v, _ in self._fitted}, {i: a.dtype.itemsize for i, _, a in self._fitted})
        if group.lanes.version != version:
            stage.forget_lanes()
        return group

    def write(self, stage: Stage) -> None:
        """Record the values."""
        group, bits = self._group, 0
        for i, _, array in self._fitted:
            group.lanes.cells[i][group.slots, stage.offset] = array
            bits |= 1 << i
        stage.report.overwritten += group.add_bits(stage.offset, bits)
        stage.report.coerced += self._coerced
        stage.last_ids = self._ids


def fit_group(stage: Stage, data: Mapping[str, Any], given: Iterable[Any] | None) -> GroupBits | FittedGroup | None:
    """Fit arrays whose first axis is the agents for the located row; None if there are no agents.

    What is new is added to the stage, which can take it back.

    Raises
    ------
    SimlabError
        If anything does not fit.
    """
    ids = None if given is None else list(given)
    group = stage.window.block
    if group is None or (ids is not None and ids != group.ids):
        ids, agents, population = _members(stage, data, ids)
        if not ids:
            return None
        if None in agents:
            _refuse_backwards(stage, agents)
            fitted, coerced = _fit_group(stage, population, data, len(ids))
            joined = [a if a is not None else join(stage, i, population) for i, a in zip(ids, agents, strict=True)]
            return FittedGroup(ids, joined, fitted, coerced)
        group = stage.window.block = Group(stage, ids, [a for a in agents if a is not None])
    if not stage.behind and group.is_blank(stage.offset):
        bits = store_each(group.table, data, stage.offset)
        if bits >= 0:
            return GroupBits(group, bits)
    _refuse_backwards(stage, group.agents)
    return FittedGroup(group.ids, group.agents, *_fit_group(stage, group.population, data, len(group.agents)))


def _refuse_backwards(stage: Stage, agents: Iterable[Agent | None]) -> None:
    if stage.behind:
        for agent in agents:
            if agent is not None:
                refuse_backwards(stage, agent)


def _fit_group(stage: Stage, population: str, data: Mapping[str, Any], n: int) -> tuple[Fitted, int]:
    step = stage.step

    def where() -> str:
        return f"of {n} agents at step {step}"

    items = distinct(list(agent_items(data, where, stage.book.names)), where)
    return fit_items(stage, population, items, where, (n,))


def _members(stage: Stage, data: Mapping[str, Any], given: list[Any] | None) -> tuple[list[Any], list[Agent | None], str]:
    """Return the ids of the agents that are named, or of those that logged together last; those that are known; their population."""

    def where() -> str:
        return f"of all agents at step {stage.step}"

    items = distinct(list(agent_items(data, where, stage.book.names)), where)
    n = first_axis(items, "agent", where)
    ids = given if given is not None else stage.last_ids
    if ids is None:
        ids = _usual_ids(stage, n, where)
    if len(ids) != n and items:
        raise ValueMismatchError(
            f"{items[0].name!r} {where()} has {n} agents on its first axis, but there are {len(ids)} agent ids. "
            "Pass agent_ids= with one id for each entry of the first axis."
        )
    if len(set(map(whole_id, ids))) != len(ids):
        raise AgentError(f"agent_ids {where()} names an agent twice: {ids[:20]!r}. Name each agent once.")
    agents = [stage.agents.get(i) for i in ids]
    population = ""
    if None in agents:
        first = next(i for i, a in zip(ids, agents, strict=True) if a is None)
        population = stage.book.population_for(whole_id(first), items, lead=1)
    kinds = {a.population for a in agents if a is not None} | ({population} if None in agents else set())
    if len(kinds) > 1:
        names = ", ".join(sorted(kind or "the main one" for kind in kinds))
        raise AgentError(f"agent_ids {where()} names agents of different populations ({names}). Call log_step once for each.")
    return ids, agents, population


def _usual_ids(stage: Stage, n: int, where: Where) -> list[str]:
    """Name agents of whom nobody said who they are as PettingZoo names agents, unless there are others whom they may be."""
    ids = [f"agent_{i}" for i in range(n)]
    if len(stage.agents) and not all(stage.agents.get(i) for i in ids):
        known = ", ".join(map(repr, stage.agents.ids(5)))
        raise AgentError(
            f"The arrays {where()} do not say whose they are, and there are agents already ({known}"
            f"{', ...' if len(stage.agents) > 5 else ''}). Pass agent_ids= with one id for each entry of the first axis."
        )
    return ids


def first_axis(items: Sequence[Item], what: str, where: Where) -> int:
    """Return the common length of the first axis."""
    length: int | None = None
    for item in items:
        try:
            n = len(item.value)
        except TypeError:
            raise ValueMismatchError(
                f"{item.name!r} {where()} is the single value {item.value!r}; pass an array with the {what} axis first."
            ) from None
        if length is not None and n != length:
            raise ValueMismatchError(
                f"{item.name!r} {where()} has {n} entries on its first axis, {items[0].name!r} has {length}. "
                f"Every array has the {what} axis first, all of one length."
            )
        length = n
    return length or 0
