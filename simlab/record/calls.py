"""The second look at what is logged: new names, other types, None, values that do not fit, rows that come late."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from simlab.errors import TimestepError, ValueMismatchError
from simlab.record.acceptance import accept, join, note_growth, tell
from simlab.record.agents import Agent, whole_id
from simlab.record.items import Item, Where, agent_items, environment_items
from simlab.record.stage import NOWHERE, Stage
from simlab.schema import Variable
from simlab.schema.values import fit
from simlab.staging.lanes import Lanes
from simlab.staging.records import store

Array = np.ndarray[Any, np.dtype[Any]]
Fitted = list[tuple[int, Variable, Array]]


class FittedAgent:
    """One agent's values at the located row, all of which fit; `write` records them."""

    __slots__ = ("_agent", "_coerced", "_fitted")

    def __init__(self, agent: Agent, fitted: Fitted, coerced: int) -> None:
        self._agent, self._fitted, self._coerced = agent, fitted, coerced

    def prepare(self, stage: Stage) -> None:
        """Make room for the values; the disk may refuse it."""
        make_room(stage, stage.window.population(self._agent.population), self._agent.index, self._fitted)

    def write(self, stage: Stage) -> None:
        """Record the values."""
        write(stage, stage.window.population(self._agent.population), self._agent.index, self._fitted)
        stage.report.coerced += self._coerced


def fit_agent(stage: Stage, agent_id: Any, data: Mapping[str, Any]) -> FittedAgent:
    """Fit one agent's values for the located row, whatever they are. What is new is added to the stage, which can take it back.

    Raises
    ------
    SimlabError
        If anything does not fit.
    """
    step = stage.step

    def where() -> str:
        return f"of agent {agent_id!r} at step {step}"

    items = distinct(list(agent_items(data, where, stage.book.names)), where)
    agent = stage.agents.get(agent_id)
    if agent is not None and stage.behind:
        refuse_backwards(stage, agent)
    population = agent.population if agent is not None else stage.book.population_for(whole_id(agent_id), items)
    fitted, coerced = fit_items(stage, population, items, where)
    return FittedAgent(agent if agent is not None else join(stage, agent_id, population), fitted, coerced)


class Fit(Protocol):
    """Values that fit."""

    def prepare(self, stage: Stage) -> None:
        """Make room for the values; the disk may refuse it."""

    def write(self, stage: Stage) -> None:
        """Record the values."""


def record(stage: Stage, *fits: Fit | None) -> None:
    """Record what a call fitted, all of it or nothing: what may be refused comes first."""
    parts = [fit for fit in fits if fit is not None]
    for part in parts:
        part.prepare(stage)
    tell(stage)
    for part in parts:
        part.write(stage)
    accept(stage)


def log_agent(stage: Stage, agent_id: Any, data: Mapping[str, Any]) -> None:
    """Log one agent's values at the located row, whatever they are; either all of them or none."""
    record(stage, fit_agent(stage, agent_id, data))


def fit_each(stage: Stage, each: Mapping[Any, Mapping[str, Any]]) -> EachAgent:
    """Fit the values of several agents for the located row, a dictionary for each."""
    quick: list[tuple[Any, int]] = []
    slow: list[FittedAgent] = []
    window, offset = stage.window, stage.offset
    for agent_id, data in each.items():
        # Rows that are blank may be written at once: they count from when their bits are set. But nothing is laid out for a variable
        # that came with this very call, since it may be taken back.
        if not stage.behind and not stage.undo:
            lane = window.by_id.get(agent_id) or stage.lane(agent_id)
            if lane is not None and not lane.words[offset]:
                bits = store(lane, data, offset)
                if bits >= 0:
                    quick.append((agent_id, bits))
                    continue
        slow.append(fit_agent(stage, agent_id, data))
    return EachAgent(quick, slow)


class EachAgent:
    """The values of several agents at the located row, all of which fit; `write` records them."""

    __slots__ = ("_quick", "_slow")

    def __init__(self, quick: list[tuple[Any, int]], slow: list[FittedAgent]) -> None:
        self._quick, self._slow = quick, slow

    def prepare(self, stage: Stage) -> None:
        """Make room for the values; the disk may refuse it."""
        for fitted in self._slow:
            fitted.prepare(stage)

    def write(self, stage: Stage) -> None:
        """Record the values."""
        window, offset = stage.window, stage.offset
        for agent_id, bits in self._quick:
            lane = window.by_id.get(agent_id)
            if lane is not None:
                lane.words[offset] = bits
            else:  # arrays moved since, and what was written moved along
                agent = stage.agents.get(agent_id)
                assert agent is not None
                lanes = window.population(agent.population)
                lanes.set_bits(lanes.slot(agent.index), offset, bits)
        for fitted in self._slow:
            fitted.write(stage)


def distinct(items: list[Item], where: Where) -> list[Item]:
    """Return the items if no name is there twice."""
    if len({i.name for i in items}) != len(items):
        names = [i.name for i in items]
        twice = next(n for n in names if names.count(n) > 1)
        kinds = sorted({i.modality for i in items if i.name == twice})
        if len(kinds) > 1:
            raise ValueMismatchError(
                f"{twice!r} {where()} is given twice, as one of the {' and as one of the '.join(kinds)}. A name stands for one variable: "
                "call the parts of a space differently (gymnasium.spaces.Dict names them)."
            )
        raise ValueMismatchError(f"{twice!r} {where()} is given twice, once nested and once not. Give it once.")
    return items


def fit_items(stage: Stage, population: str, items: Sequence[Item], where: Where, lead: tuple[int, ...] = ()) -> tuple[Fitted, int]:
    """Return items as arrays that fit their variables, and how many values had to be converted; new names become variables."""
    book = stage.book
    items = distinct(book.canonical(population, items), where)
    coerced = 0
    arrays: dict[str, Array] = {}

    def take(item: Item, variable: Variable) -> None:
        nonlocal coerced
        arrays[item.name], converted = fit(item.value, variable, where, lead)
        coerced += (lead[0] if lead else 1) if converted else 0

    known = [(item, found[1]) for item in items if (found := book.lookup(population, item.name)) is not None]
    for item, variable in known:
        take(item, variable)
    before = book.schema
    book.add_agent_variables(population, items, where, len(lead))
    note_growth(stage, before)
    fitted: Fitted = []
    for item in items:
        found = book.lookup(population, item.name)
        assert found is not None
        if item.name not in arrays:
            take(item, found[1])
        fitted.append((*found, arrays[item.name]))
    return fitted, coerced


def refuse_backwards(stage: Stage, agent: Agent) -> None:
    """Raise if the located row is older than the newest one of this agent."""
    row = stage.window.first + stage.offset
    lanes = stage.window.population(agent.population)
    newer = agent.last_row > row
    if agent.index in lanes.agents:
        newer = newer or lanes.logged_after(lanes.slot(agent.index), stage.offset)
    if stage.window is not stage.newest:
        newest = stage.newest.population(agent.population)
        newer = newer or (agent.index in newest.agents and newest.logged_after(newest.slot(agent.index), -1))
    if newer:
        step = stage.step
        stage.step = NOWHERE
        raise TimestepError(
            f"Agent {agent.id!r} runs backwards: step {step} of episode {stage.clock.episode} comes after a newer one of its own. "
            "If a new episode starts, call begin_episode() first."
        )


def make_room(stage: Stage, lanes: Lanes, index: int, fitted: Fitted) -> int:
    """Make room for one agent's values in its lanes, and return its slot."""
    version, slot = lanes.version, lanes.slot(index)
    lanes.hold({i: v for i, v, _ in fitted}, {i: a.dtype.itemsize for i, _, a in fitted})
    if lanes.version != version:
        stage.forget_lanes()
    return slot


def write(stage: Stage, lanes: Lanes, index: int, fitted: Fitted) -> None:
    """Write fitted values of one agent (or of the environment, index 0) at the located row: values first, bits last."""
    slot, bits = make_room(stage, lanes, index, fitted), 0
    for i, _, array in fitted:
        lanes.cells[i][slot, stage.offset] = array
        bits |= 1 << i
    old = lanes.bits_of(slot, stage.offset)
    lanes.set_bits(slot, stage.offset, old | bits)
    stage.report.overwritten += (old & bits).bit_count()


class FittedEnvironment:
    """The environment's values at the located row, all of which fit; `write` records them."""

    __slots__ = ("_coerced", "_numbers", "_series")

    def __init__(self, numbers: Fitted, series: list[tuple[Variable, Array]], coerced: int) -> None:
        self._numbers, self._series, self._coerced = numbers, series, coerced

    def prepare(self, stage: Stage) -> None:
        """Make room for the values; the disk may refuse it."""
        if self._numbers:
            make_room(stage, stage.window.environment, 0, self._numbers)

    def write(self, stage: Stage) -> None:
        """Record the values."""
        for variable, array in self._series:
            _log_series(stage, variable, array)
        if self._numbers:
            write(stage, stage.window.environment, 0, self._numbers)
        stage.report.coerced += self._coerced


class EnvironmentBits:
    """The environment's numbers at the located row, which are written but for their bits."""

    __slots__ = ("_bits",)

    def __init__(self, bits: int) -> None:
        self._bits = bits

    def prepare(self, stage: Stage) -> None:
        """There is room."""

    def write(self, stage: Stage) -> None:
        """Record the values."""
        lane = stage.window.environment_lane
        if lane is not None:
            lane.words[stage.offset] = self._bits
        else:  # arrays moved since, and what was written moved along
            stage.window.environment.set_bits(0, stage.offset, self._bits)


def fit_environment(stage: Stage, data: Mapping[str, Any]) -> FittedEnvironment | EnvironmentBits:
    """Fit the environment's values for the located row. What is new is added to the stage, which can take it back.

    Raises
    ------
    SimlabError
        If anything does not fit.
    """
    lane = stage.environment_lane()
    if lane is not None and not stage.behind and not lane.words[stage.offset]:
        bits = store(lane, data, stage.offset)
        if bits >= 0:
            return EnvironmentBits(bits)
    step = stage.step

    def where() -> str:
        return f"of the environment at step {step}"

    book = stage.book
    items = distinct(list(environment_items(data, where)), where)
    before = book.schema
    arrays: dict[str, Array] = {}
    coerced = 0
    for known in (True, False):
        if not known:
            book.add_environment_variables(items, where)
            note_growth(stage, before)
        for item in items:
            number = book.number(item.name)
            variable = number[1] if number else book.series(item.name)
            if variable is not None and item.name not in arrays:
                arrays[item.name], converted = fit(item.value, variable, where)
                coerced += converted
    series = [(v, arrays[i.name]) for i in items if (v := book.series(i.name)) is not None]
    for variable, _ in series:
        _check_series(stage, variable)
    numbers: Fitted = [(*found, arrays[i.name]) for i in items if (found := book.number(i.name)) is not None]
    if numbers and stage.behind:
        _refuse_environment_backwards(stage)
    return FittedEnvironment(numbers, series, coerced)


def _refuse_environment_backwards(stage: Stage) -> None:
    lanes = stage.window.environment
    newer = stage.environment_last_row > stage.window.first + stage.offset
    newer = newer or (bool(lanes.agents) and lanes.logged_after(0, stage.offset))
    if stage.window is not stage.newest:
        newest = stage.newest.environment
        newer = newer or (bool(newest.agents) and newest.logged_after(0, -1))
    if newer:
        step = stage.step
        stage.step = NOWHERE
        raise TimestepError(
            f"The environment runs backwards: step {step} of episode {stage.clock.episode} comes after a newer one of its own. "
            "If a new episode starts, call begin_episode() first."
        )


def _check_series(stage: Stage, variable: Variable) -> None:
    now = int(stage.window.time[stage.offset]) if not stage.window.late else stage.time()
    if now < stage.series.last_time(variable):
        raise TimestepError(
            f"{variable.name!r} of the environment runs backwards: step {stage.step} of episode {stage.clock.episode} comes after a newer "
            "one of its own. Log it in order; if a new episode starts, call begin_episode() first."
        )


def _log_series(stage: Stage, variable: Variable, array: Array) -> None:
    if stage.series.log(variable, stage.time(), array):
        stage.report.overwritten += 1
    stage.send_series()
