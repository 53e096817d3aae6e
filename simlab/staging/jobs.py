"""What goes to the disk together: a window of rows, and what became known with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from simlab.schema import Variable
from simlab.staging.windows import Window

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(slots=True)
class Block:
    """Rows of a variable with a time axis of its own."""

    variable: Variable
    first: int
    time: Array
    values: Array
    again: bool = False
    """Whether the first row replaces one that was handed over before."""


class Series:
    """Rows of an environment variable with a time axis of its own that are not handed over yet."""

    __slots__ = ("again", "last_time", "rows", "start", "time", "values", "variable")

    def __init__(self, variable: Variable) -> None:
        self.variable = variable
        self.start = 0
        self.time: list[int] = []
        self.values: list[Array] = []
        self.last_time = -1
        self.again = False

    def take(self) -> Block | None:
        """Return the pending rows as one block."""
        if not self.time:
            return None
        block = Block(self.variable, self.start, np.array(self.time, np.int64), np.stack(self.values), self.again)
        self.start += len(self.time)
        self.time, self.values, self.again = [], [], False
        return block


@dataclass(slots=True)
class Job:
    """What belongs on disk together.

    Attributes
    ----------
    window : Window or None
        Staged rows; goes back to the free ones afterwards where `release` says so.
    variables : dict of str to tuple of Variable
        The populations' variables when the rows were staged.
    environment : tuple of Variable
        The environment's numbers.
    series : tuple of Variable
        The environment's variables that have a time axis of their own.
    agents : list
        Agents that are new: population, place, label, key.
    blocks : list of Block
        Rows of series.
    ended : list
        Episodes that ended and whose rows are all among those on disk by now: number and fields.
    attachments : list
        Name and value.
    rows, span : int
        Rows of the run with this job, and rows of a window.
    schema : str or None
        The schema as JSON, where it has changed.
    segment : int or None
        The segment of the journal whose events are in the file with this job.
    sync : bool
        Whether the commit has to reach the disk itself.
    """

    rows: int
    span: int
    variables: Mapping[str, tuple[Variable, ...]] = field(default_factory=dict)
    environment: tuple[Variable, ...] = ()
    series: tuple[Variable, ...] = ()
    window: Window | None = None
    release: bool = False
    agents: list[tuple[str, int, str, str]] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    ended: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    attachments: list[tuple[str, Any]] = field(default_factory=list)
    schema: str | None = None
    segment: int | None = None
    sync: bool = False
    cost: int = 0

    def take_over(self, owed: Sequence[Job]) -> None:
        """Take what jobs that were given up had with them, but for their rows, before what is here."""
        self.agents = [agent for other in owed for agent in other.agents] + self.agents
        self.blocks = [block for other in owed for block in other.blocks] + self.blocks
        self.ended = [episode for other in owed for episode in other.ended] + self.ended
        self.schema = self.schema or next((other.schema for other in owed if other.schema), None)

    def values(self) -> int:
        """Count the values that it holds."""
        lanes = [] if self.window is None or not self.release else [*self.window.lanes.values(), self.window.environment]
        return sum(len(block.values) for block in self.blocks) + sum(
            int(np.bitwise_count(word[: len(each.agents)]).sum()) for each in lanes for word in each.words
        )
