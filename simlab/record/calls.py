"""The second look at what is logged: new names, other types, None, values that do not fit, rows that come late."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from simlab.errors import TimestepError, ValueMismatchError
from simlab.record.agents import Agent, whole_id
from simlab.record.items import Item, Where, agent_items, environment_items
from simlab.record.stage import NOWHERE, Stage
from simlab.schema import Variable
from simlab.schema.values import fit
from simlab.staging.lanes import Lanes

Array = np.ndarray[Any, np.dtype[Any]]
Fitted = list[tuple[int, Variable, Array]]


def log_agent(stage: Stage, agent_id: Any, data: Mapping[str, Any]) -> None:
    """Log one agent's values at the located row, whatever they are; either all of them or none.

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
    population = agent.population if agent is not None else stage.book.population_for(whole_id(agent_id), items)
    fitted, coerced = fit_items(stage, population, items, where)
    if agent is None:
        agent = stage.join(agent_id, population)
    elif stage.behind:
        refuse_backwards(stage, agent)
    lanes = stage.window.population(population)
    write(stage, lanes, agent.index, fitted)
    stage.report.coerced += coerced


def distinct(items: list[Item], where: Where) -> list[Item]:
    """Return the items if no name is there twice."""
    if len({i.name for i in items}) != len(items):
        names = [i.name for i in items]
        twice = next(n for n in names if names.count(n) > 1)
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
    if book.schema is not before:
        stage.forget_lanes()
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


def write(stage: Stage, lanes: Lanes, index: int, fitted: Fitted) -> None:
    """Write fitted values of one agent (or of the environment, index 0) at the located row: values first, bits last."""
    version, slot, bits = lanes.version, lanes.slot(index), 0
    lanes.hold({i: v for i, v, _ in fitted}, {i: a.dtype.itemsize for i, _, a in fitted})
    for i, _, array in fitted:
        lanes.cells[i][slot, stage.offset] = array
        bits |= 1 << i
    if lanes.version != version:
        stage.forget_lanes()
    old = lanes.bits_of(slot, stage.offset)
    lanes.set_bits(slot, stage.offset, old | bits)
    stage.report.overwritten += (old & bits).bit_count()
    stage.fresh = False


def log_environment(stage: Stage, data: Mapping[str, Any]) -> None:
    """Log the environment's values at the located row; either all of them or none."""
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
        for item in items:
            number = book.number(item.name)
            variable = number[1] if number else book.series(item.name)
            if variable is not None and item.name not in arrays:
                arrays[item.name], converted = fit(item.value, variable, where)
                coerced += converted
    if book.schema is not before:
        stage.forget_lanes()
    for item in items:
        variable = book.series(item.name)
        if variable is not None:
            _check_series(stage, variable)
    numbers: Fitted = [(*found, arrays[i.name]) for i in items if (found := book.number(i.name)) is not None]
    if numbers:
        if stage.behind:
            _refuse_environment_backwards(stage)
        write(stage, stage.window.environment, 0, numbers)
    for item in items:
        variable = book.series(item.name)
        if variable is not None:
            _log_series(stage, variable, arrays[item.name])
    stage.report.coerced += coerced
    stage.fresh = False


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
    newest = stage.series.last_time(variable)
    if now < newest or (now == newest and not stage.series.is_pending(variable)):
        raise TimestepError(
            f"{variable.name!r} of the environment at step {stage.step} replaces or precedes one that is on its way to the disk. "
            "Log it once for each step, in order; if a new episode starts, call begin_episode() first."
        )


def _log_series(stage: Stage, variable: Variable, array: Array) -> None:
    if stage.series.log(variable, stage.time(), array):
        stage.report.overwritten += 1
    stage.send_series()
