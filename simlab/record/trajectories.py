"""Whole trajectories: arrays with the axis of time in front."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from simlab.errors import TimestepError
from simlab.record.acceptance import join, note_growth
from simlab.record.agents import whole_id
from simlab.record.calls import Fitted, distinct, fit_environment, fit_items, record
from simlab.record.groups import first_axis
from simlab.record.items import agent_items, environment_items
from simlab.record.rows import whole_step
from simlab.record.stage import Stage
from simlab.schema import Variable
from simlab.schema.values import fit
from simlab.staging.lanes import WORD

Array = np.ndarray[Any, np.dtype[Any]]


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
        self.length = first_axis(items, "time", where)
        agent = stage.agents.get(agent_id)
        population = agent.population if agent is not None else stage.book.population_for(whole_id(agent_id), items, lead=1)
        self.fitted: Fitted = []
        self.coerced = 0
        if self.length:
            self.fitted, self.coerced = fit_items(stage, population, items, where, (self.length,))
            self.agent = agent if agent is not None else join(stage, agent_id, population)

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
        self.length = first_axis(items, "time", where)
        before = stage.book.schema
        stage.book.add_environment_variables(items, where, lead=1)
        note_growth(stage, before)
        self.coerced = 0
        self.columns: list[tuple[str, Array]] = []
        for item in items:
            number = stage.book.number(item.name)
            variable = number[1] if number is not None else stage.book.series(item.name)
            assert isinstance(variable, Variable)
            array, converted = fit(item.value, variable, where, (self.length,))
            self.coerced += self.length if converted else 0
            self.columns.append((item.name, array))

    def at(self, i: int) -> dict[str, Any]:
        """Return the values of one step."""
        return {name: _text(array[i]) for name, array in self.columns} if i < self.length else {}


def _text(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    return np.char.decode(value, "utf-8") if isinstance(value, np.ndarray) and value.dtype.kind == "S" else value


class Trajectories:
    """An episode as a whole, all of which fits; `write` records it.

    Parameters
    ----------
    stage : Stage
        Where it goes. What is new is added to it, which can be taken back.
    agents : mapping
        Arrays with the time axis first for each agent, by id.
    environment : mapping or None
        The environment's.
    timesteps : iterable of int or None
        The steps; None stands for 0, 1, 2, ...

    Raises
    ------
    SimlabError
        If anything does not fit.
    """

    def __init__(
        self, stage: Stage, agents: Mapping[Any, Mapping[str, Any]], environment: Mapping[str, Any] | None, timesteps: Any
    ) -> None:
        self._parts = [Trajectory(stage, who, arrays) for who, arrays in agents.items()]
        self._world = EnvironmentTrajectory(stage, environment) if environment is not None else None
        lengths = [p.length for p in (*self._parts, self._world) if p is not None]
        self._steps = steps_of(timesteps, max(lengths, default=0))
        self._done = 0

    def write(self, stage: Stage) -> None:
        """Record it in the open, empty episode.

        Raises
        ------
        StorageError
            If there is more than fits in memory, and the disk refuses; `told` says how much was recorded.
        """
        steps = self._steps
        stage.report.coerced += sum(p.coerced for p in (*self._parts, self._world) if p is not None)
        while self._done < len(steps):
            done = self._done
            stage.append(steps[done])
            first, count = stage.offset, 1
            while done + count < len(steps) and stage.has_room():
                stage.append(steps[done + count])
                count += 1
            for part in self._parts:
                part.put(stage, done, first, count)
            if self._world is not None:
                for i in range(done, done + count):
                    stage.locate(steps[i])
                    record(stage, fit_environment(stage, self._world.at(i)))
            self._done += count

    def told(self, stage: Stage) -> str:
        """Say how much of it was recorded before the disk refused."""
        return (
            f"Of this trajectory the first {self._done} of {len(self._steps)} steps were recorded, as episode {stage.clock.episode}; "
            "log the rest as another once there is space."
        )


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
