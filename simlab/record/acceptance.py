"""What comes with a call that may be refused: kept once all of it fits, taken back otherwise.

A call first fits all of its values, and only then records any. What fitting adds to the run (variables, agents, the row, the episode)
is noted here. Nothing in memory is laid out for a variable before it is accepted.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from simlab.errors import StorageError
from simlab.record.agents import Agent
from simlab.record.stage import NOWHERE, Stage
from simlab.schema import Schema, Variable
from simlab.schema.keeping import variables_to_json


def join(stage: Stage, agent_id: Hashable, population: str) -> Agent:
    """Make a new agent of a population."""
    agent = stage.agents.add(agent_id, population)
    stage.undo.append(lambda: stage.agents.take_back(agent))
    stage.news.append({"agent": stage.agents.newest_unwritten})
    if stage.book.remember(agent.id, population):
        stage.undo.append(lambda: stage.book.forget(agent.id))
    return agent


def note_growth(stage: Stage, before: Schema) -> None:
    """Note that variables may have come to what the schema was before; lanes are made anew then."""
    if stage.book.schema is not before:
        stage.forget_lanes()
        stage.grown_at = stage.clock.rows
        stage.undo.append(lambda: stage.book.go_back(before))
        stage.news += _growth(before, stage.book.schema)


def _growth(before: Schema, now: Schema) -> list[dict[str, Any]]:
    """Return what the journal is told of new variables, each list with the place of its first."""
    grown = [(name, before.variables(name), now.variables(name)) for name in now.population_names]
    lists: list[tuple[str | None, tuple[Variable, ...], tuple[Variable, ...]]] = [*grown, (None, before.environment, now.environment)]
    return [
        {"variables": variables_to_json(new[len(old) :]), "population": name, "at": len(old)}
        for name, old, new in lists
        if len(new) > len(old)
    ]


def tell(stage: Stage) -> None:
    """Tell the journal what is new with the call that is under way: all of it fits, and none of it is recorded yet.

    Raises
    ------
    StorageError
        If the journal cannot grow.
    """
    if stage.news:
        for event in stage.news:
            stage.journal.append(event)
        stage.news.clear()


def accept(stage: Stage) -> None:
    """Keep what came with the call that is under way: all of it fits."""
    stage.fresh = stage.opened = False
    stage.undo.clear()


def withdraw(stage: Stage, error: BaseException | None = None) -> None:
    """Take back what came with the call: its agents, its variables, the located row and the episode if it made them.

    If `error` is the disk's, it says nothing of this call yet; it is made to.
    """
    stage.news.clear()
    if stage.undo:
        while stage.undo:
            stage.undo.pop()()
        stage.forget_lanes()
    if stage.fresh:
        stage.clock.withdraw()
        stage.newest.set_count(stage.newest.count - 1)
        stage.step, stage.fresh = NOWHERE, False
    if stage.opened:
        stage.clock.withdraw_episode()
        stage.report.episodes -= 1
        stage.opened = False
    if isinstance(error, StorageError):
        say_not_done(error)


def say_not_done(error: StorageError) -> None:
    """Add to what the disk refused what has become of the call that is told so: nothing."""
    error.args = (f"{error} This call did nothing: repeat it.",)
