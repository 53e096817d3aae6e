"""Many agents at once, and whole trajectories: arrays with an axis in front."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from simlab.errors import AgentError, TimestepError, ValueMismatchError
from simlab.record.agents import Agent, whole_id
from simlab.record.calls import Fitted, distinct, fit_items, refuse_backwards
from simlab.record.items import GROUP_WORDS, Item, Where, agent_items, environment_items
from simlab.record.rows import whole_step
from simlab.record.stage import Stage
from simlab.schema import Variable
from simlab.schema.values import fit
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
    names = (v.name.split(".")[0] for p in stage.book.schema.population_names for v in stage.book.variables(p))
    return stage.agents.get(key) is not None and key not in names


def is_by_agent(stage: Stage, agents: Mapping[Any, Any]) -> bool:
    """Whether a dictionary has a dictionary for each agent, rather than an array for each variable."""
    if not agents or not all(isinstance(v, Mapping) for v in agents.values()):
        return False
    known = {v.name.split(".")[0] for p in stage.book.schema.population_names for v in stage.book.variables(p)}
    return not any(key in GROUP_WORDS or (key in known and stage.agents.get(key) is None) for key in agents)


def log_group(stage: Stage, data: Mapping[str, Any], ids: Iterable[Any] | None) -> None:
    """Log arrays whose first axis is the agents, at the located row."""
    ids = None if ids is None else list(ids)
    group = stage.window.block
    if group is None or (ids is not None and ids != group.ids):
        group = _group(stage, data, ids)
    row = stage.offset
    if not stage.behind and group.is_blank(row):
        bits = store_each(group.table, data, row)
        if bits >= 0:
            group.set_bits(row, bits)
            stage.fresh = False
            return
    _log_group_slowly(stage, group, data)


def _group(stage: Stage, data: Mapping[str, Any], given: Iterable[Any] | None) -> Group:
    """Return the group of the agents that are named, or of those that logged together last."""

    def where() -> str:
        return f"of all agents at step {stage.step}"

    items = distinct(list(agent_items(data, where, stage.book.names)), where)
    n = _first_axis(items, "agent", where)
    ids = list(given) if given is not None else stage.last_ids
    if ids is None:
        # Nobody said who they are: they are named as PettingZoo names agents.
        ids = [f"agent_{i}" for i in range(n)]
    if len(ids) != n and items:
        raise ValueMismatchError(
            f"{items[0].name!r} {where()} has {n} agents on its first axis, but there are {len(ids)} agent ids. "
            "Pass agent_ids= with one id for each entry of the first axis."
        )
    if len(set(map(whole_id, ids))) != len(ids):
        raise AgentError(f"agent_ids {where()} names an agent twice: {ids[:20]!r}. Name each agent once.")
    agents = [stage.agents.get(i) for i in ids]
    if any(a is None for a in agents):
        first = next(i for i, a in zip(ids, agents, strict=True) if a is None)
        population = stage.book.population_for(whole_id(first), items, lead=1)
        if n:
            fit_items(stage, population, items, where, (n,))  # refuse what does not fit before anybody is born
        agents = [a if a is not None else stage.join(i, population) for i, a in zip(ids, agents, strict=True)]
    known = [a for a in agents if a is not None]
    if len({a.population for a in known}) > 1:
        kinds = sorted({a.population or "the main one" for a in known})
        raise AgentError(f"agent_ids {where()} names agents of different populations ({', '.join(kinds)}). Call log_step once for each.")
    stage.last_ids = ids
    if not known:
        return EMPTY
    group = Group(stage, ids, known)
    stage.window.block = group
    return group


class _Empty(Group):
    """Nobody: a step at which no agent lives."""

    def __init__(self) -> None:
        self.ids, self.agents, self.table = [], [], {}

    def is_blank(self, row: int) -> bool:
        return True

    def set_bits(self, row: int, bits: int) -> None:
        pass


EMPTY = _Empty()


def _log_group_slowly(stage: Stage, group: Group, data: Mapping[str, Any]) -> None:
    step = stage.step

    def where() -> str:
        return f"of {len(group.agents)} agents at step {step}"

    if not group.agents:
        return
    items = distinct(list(agent_items(data, where, stage.book.names)), where)
    fitted, coerced = fit_items(stage, group.population, items, where, (len(group.agents),))
    if stage.behind:
        for agent in group.agents:
            refuse_backwards(stage, agent)
    # New variables, longer text or more words: the arrays may have moved.
    group.lanes.hold({i: v for i, v, _ in fitted}, {i: a.dtype.itemsize for i, _, a in fitted})
    stage.forget_lanes()
    bits = 0
    for i, _variable, array in fitted:
        group.lanes.cells[i][group.slots, stage.offset] = array
        bits |= 1 << i
    stage.report.overwritten += group.add_bits(stage.offset, bits)
    stage.report.coerced += coerced
    stage.fresh = False


def _first_axis(items: Sequence[Item], what: str, where: Where) -> int:
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


class Trajectory:
    """One agent's whole episode, checked and ready to be staged.

    Parameters
    ----------
    stage : Stage
        Where it goes.
    agent_id : object
        Whose it is.
    data : mapping
        Arrays with the time axis first.
    """

    def __init__(self, stage: Stage, agent_id: Any, data: Mapping[str, Any]) -> None:
        def where() -> str:
            return f"of agent {agent_id!r} in episode {stage.clock.episode + 1}"

        items = distinct(list(agent_items(data, where, stage.book.names)), where)
        self.length = _first_axis(items, "time", where)
        agent = stage.agents.get(agent_id)
        population = agent.population if agent is not None else stage.book.population_for(whole_id(agent_id), items, lead=1)
        self.fitted: Fitted = []
        if self.length:
            self.fitted, coerced = fit_items(stage, population, items, where, (self.length,))
            stage.report.coerced += coerced
            self.agent = agent if agent is not None else stage.join(agent_id, population)

    def put(self, stage: Stage, start: int, offset: int, count: int) -> None:
        """Write values ``start ... start + count`` to rows ``offset ...`` of the newest window."""
        stop = min(start + count, self.length)
        if stop <= start:
            return
        lanes = stage.newest.population(self.agent.population)
        slot, bits = lanes.slot(self.agent.index), 0
        rows = slice(offset, offset + stop - start)
        lanes.hold({i: v for i, v, _ in self.fitted}, {i: a.dtype.itemsize for i, _, a in self.fitted})
        for i, _, array in self.fitted:
            lanes.cells[i][slot, rows] = array[start:stop]
            bits |= 1 << i
        for i, word in enumerate(lanes.words):
            word[slot, rows] |= np.uint64((bits >> (WORD * i)) & (2**WORD - 1))
        stage.forget_lanes()


class EnvironmentTrajectory:
    """The environment's numbers and arrays of a whole episode, with the time axis first."""

    def __init__(self, stage: Stage, data: Mapping[str, Any]) -> None:
        def where() -> str:
            return f"of the environment in episode {stage.clock.episode + 1}"

        items = distinct(list(environment_items(data, where)), where)
        self.length = _first_axis(items, "time", where)
        stage.book.add_environment_variables(items, where, lead=1)
        stage.forget_lanes()
        self.columns: list[tuple[str, Array]] = []
        for item in items:
            number = stage.book.number(item.name)
            variable = number[1] if number is not None else stage.book.series(item.name)
            assert isinstance(variable, Variable)
            array, converted = fit(item.value, variable, where, (self.length,))
            stage.report.coerced += self.length if converted else 0
            self.columns.append((item.name, array))

    def at(self, i: int) -> dict[str, Any]:
        """Return the values of one step."""
        return {name: _text(array[i]) for name, array in self.columns} if i < self.length else {}


def _text(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    return np.char.decode(value, "utf-8") if isinstance(value, np.ndarray) and value.dtype.kind == "S" else value


def steps_of(timesteps: Any, length: int) -> Sequence[int]:
    """Return the timesteps of a trajectory: 0, 1, 2, ... unless they are given.

    Raises
    ------
    TimestepError
        If there are too few or too many, or they do not rise.
    """
    if timesteps is None:
        return range(length)
    steps = [whole_step(s) for s in timesteps]
    if len(steps) != length:
        raise TimestepError(f"timesteps has {len(steps)} entries, the arrays have {length} on their time axis. Give one for each.")
    if any(b <= a for a, b in pairwise(steps)):
        raise TimestepError("timesteps does not rise from entry to entry. Sort the trajectory by time.")
    return steps
