"""The rows that are being filled: which window a timestep is in, and when a window leaves for the disk."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from simlab.errors import StorageError
from simlab.record.agents import AgentRegistry
from simlab.record.book import SchemaBook
from simlab.record.jobs import Block, Job, Series
from simlab.record.lanes import Lanes
from simlab.record.records import Lane
from simlab.record.report import Report
from simlab.record.rows import RowClock, whole_step
from simlab.record.staging import Window
from simlab.record.writer import Writer
from simlab.schema import Variable
from simlab.storage.chunking import power_of_two_below
from simlab.storage.runfile import RunFile
from simlab.storage.simulation import SimulationStore

Array = np.ndarray[Any, np.dtype[Any]]

MOST_ROWS: Final = 256
FEWEST_ROWS: Final = 8
WINDOW_BYTES: Final = 1 << 24
"""What one window should hold; wide rows make it shorter."""
LARGEST_WINDOW_BYTES: Final = 64 << 20
"""What it may hold to have `FEWEST_ROWS`; rows that are wider still have it to themselves."""
NOWHERE: Final = float("nan")
"""Where no row is located: no timestep equals it."""
WINDOWS: Final = 3
"""One being filled, one on its way to the disk, one that waits, or was reopened for values that came late."""


class Stage:
    """What a logger fills.

    Attributes
    ----------
    clock : RowClock
        Rows and episodes.
    book : SchemaBook
        Variables.
    agents : AgentRegistry
        Agents.
    window : Window
        Where the located row lies.
    step, offset : int
        The located timestep, and its row in the window. Step `NOWHERE` means that none is located.
    behind : bool
        Whether the located row is not the newest one of the run.
    last_ids : list or None
        Ids of the agents that logged together last.
    series_bytes : int
        Bytes of pending rows of variables with a time axis of their own.
    fresh, opened : bool
        Whether the call that is under way made the located row, and opened the episode with it.
    grown_at : int
        Rows of the run when a variable came last. Lanes know all variables, and are not made while more come with every row.
    undo : list of callable
        What takes back the variables and agents that came with that call; see `simlab.record.acceptance`.
    """

    SERIES_BYTES: Final = 8 << 20
    """Pending rows of series are handed over from this size on."""

    def __init__(self, file: RunFile, store: SimulationStore, book: SchemaBook, report: Report) -> None:
        self.clock = RowClock()
        self.book = book
        self.agents = AgentRegistry()
        self.report = report
        self.writer = Writer(file, store, self._give_back)
        self._free: deque[Window] = deque()
        self._windows = 1
        self.span: int | None = None
        self.newest = Window(MOST_ROWS, 1)
        self.late: Window | None = None
        self._series: dict[str, Series] = {}
        self.series_bytes = 0
        self.environment_last_row = -1
        self.last_ids: list[Any] | None = None
        self._ended: list[tuple[int, dict[str, Any]]] = []
        self._attachments: list[tuple[str, Any]] = []
        self._owed: list[Job] = []
        self.window = self.newest
        self.step: float = NOWHERE
        self.offset, self.behind, self.fresh = 0, False, False
        self.opened = False
        self.grown_at = -MOST_ROWS
        self.undo: list[Callable[[], None]] = []

    # -- rows

    def locate(self, timestep: object) -> None:
        """Find the row of a timestep of the open episode, making it if it is newer than all.

        Raises
        ------
        TimestepError
            If it is no timestep, or would fall between rows that are there.
        """
        step = whole_step(timestep)
        opens = not self.clock.is_open
        if opens or step > self.clock.last_step:
            self.make_room()  # may have to wait for the disk, which may refuse: nothing is changed before
            if opens:
                self.clock.begin()
                self.report.episodes += 1
            self.append(step)
            self.fresh, self.opened = True, opens
        else:
            row = self.clock.must_find(step)
            self.window = self.newest if row >= self.newest.first else self._reopen(row)
            self.offset = row - self.window.first
            self.behind = row != self.clock.rows - 1
        self.step = step

    def time(self) -> int:
        """Return the run clock of the located row."""
        return self.clock.time_of(int(self.step))

    def append(self, step: int) -> None:
        """Make the row of a newer step."""
        self.make_room()
        self.window = self.newest
        self.clock.append(step)
        self.offset = self.newest.add_row(self.clock.time_of(step), step, self.clock.episode)
        self.behind = False

    def make_room(self) -> None:
        """Send the window off if it is full."""
        window = self.newest
        if self.span is None and window.count and not window.count & (window.count - 1) and window.count >= self._fitting_rows():
            self.span = window.count
        if window.count == (self.span or window.capacity):
            self.rotate()

    def has_room(self) -> bool:
        """Whether the next row goes into the same window."""
        window = self.newest
        if self.span is not None:
            return window.count < self.span
        return bool(window.count & (window.count - 1))

    def rotate(self) -> None:
        """Send the newest window off and go on in another one."""
        following = self._another(self.newest.first + self.newest.count)
        full, self.newest = self.newest, following
        self.step = NOWHERE
        self._send(full, release=True)

    def _another(self, first: int, late: bool = False) -> Window:
        if not self._free and self._windows >= WINDOWS:
            self.writer.wait_for(lambda: bool(self._free) or self._windows < WINDOWS)
        if self._free:
            window = self._free.popleft()
        else:
            span = self.decided_span()
            window = Window(span, span)
            self._windows += 1
        window.reset(first, late)
        return window

    def _give_back(self, window: Window) -> None:
        """Take a window that was written; called by the writer's thread."""
        if window.capacity == self.span:
            self._free.append(window)
        else:
            self._windows -= 1

    def _reopen(self, row: int) -> Window:
        """Return a window for values that come after their rows were sent off; they are merged with those on disk."""
        span = self.decided_span()
        first = row // span * span
        if self.late is not None and self.late.first == first:
            return self.late
        self.close_late()
        window = self.late = self._another(first, late=True)
        # Which episode a row belongs to is all that is known here of rows before the open episode; nothing is logged in them.
        window.count = span
        window.episode[:] = self.clock.episode
        return window

    def close_late(self) -> None:
        """Send off the window of late values, if there is one."""
        if self.late is not None:
            late, self.late = self.late, None
            self.step = NOWHERE
            self._send(late, release=True)

    def decided_span(self) -> int:
        """Return how many rows a window holds, deciding it if need be."""
        if self.span is None:
            needed = 1 << max(0, self.newest.count - 1).bit_length()
            self.span = max(needed, self._fitting_rows())
        return self.span

    def _fitting_rows(self) -> int:
        """Return how many rows of the agents seen so far a window should hold."""
        row_bytes = max(1, self.newest.row_bytes())
        rows = power_of_two_below(WINDOW_BYTES / row_bytes)
        if rows < FEWEST_ROWS:
            rows = min(FEWEST_ROWS, power_of_two_below(LARGEST_WINDOW_BYTES / row_bytes))
        return min(rows, MOST_ROWS)

    # -- agents

    def lane(self, agent_id: Any) -> Lane | None:
        """Return the lane of a known agent in the located window, or None if the agent or a variable is new."""
        agent = self.agents.get(agent_id)
        if agent is None or self.clock.rows - self.grown_at < 2:
            return None
        variables = self.book.variables(agent.population)
        lanes = self.window.population(agent.population)
        lane = self._fresh_lane(lanes, agent.index, variables)
        self.window.by_id[agent_id] = lane
        return lane

    def environment_lane(self) -> Lane | None:
        """Return the lane of the environment's numbers in the located window, or None if a variable is new."""
        lane = self.window.environment_lane
        if lane is None and self.clock.rows - self.grown_at >= 2:
            lane = self.window.environment_lane = self._fresh_lane(self.window.environment, 0, self.book.numbers)
        return lane

    def _fresh_lane(self, lanes: Lanes, index: int, variables: tuple[Variable, ...]) -> Lane:
        version = lanes.version
        lane = lanes.lane(index, variables)
        if lanes.version != version:
            self.forget_lanes()
        return lane

    def forget_lanes(self) -> None:
        """Throw away every lane: arrays moved, or there are new variables."""
        for window in (self.newest, self.late):
            if window is not None:
                window.forget_lanes()

    # -- series, episodes, attachments

    def series(self, variable: Variable) -> Series:
        """Return the pending rows of a variable with a time axis of its own."""
        return self._series.setdefault(variable.name, Series(variable))

    def send_series(self) -> None:
        """Hand over the pending rows of every series: they are many bytes by now."""
        job = self._job()
        job.rows = self.newest.first
        job.blocks = self._take_series()
        job.cost = sum(block.values.nbytes for block in job.blocks)
        self.writer.submit(job)

    def _take_series(self) -> list[Block]:
        self.series_bytes = 0
        return [block for series in self._series.values() if (block := series.take()) is not None]

    def end_episode(self, fields: dict[str, Any]) -> None:
        """Close the open episode."""
        self.close_late()
        self.clock.end()
        self.step = NOWHERE
        length = self.clock.rows - self.clock.first_row
        self._ended.append((self.clock.episode, {"start": self.clock.first_row, "length": length} | fields))

    def flush_ended(self) -> None:
        """Write the episodes that ended if they are many: of length 0, or nearly, they fill no window."""
        if len(self._ended) >= MOST_ROWS:
            self.flush()

    def attach(self, name: str, value: Any) -> None:
        """Have an attachment written with the next rows."""
        self._attachments.append((name, value))

    # -- to the disk

    def _job(self) -> Job:
        return Job(
            variables={p: self.book.variables(p) for p in self.book.schema.population_names},
            environment=self.book.numbers,
            series=self.book.all_series,
            rows=self.clock.rows,
            span=self.decided_span(),
            agents=self.agents.take_unwritten(),
        )

    def _send(self, window: Window, release: bool) -> None:
        self.writer.submit(self._job_of(window, release))

    def _job_of(self, window: Window, release: bool) -> Job:
        """Return the job that writes a window, and with the newest one all that became known since the last."""
        self._remember_last_rows(window)
        job = self._job()
        job.window, job.release = window, release
        if window.late:
            job.rows = self.newest.first
        else:
            job.rows = window.first + window.count
            job.blocks = self._take_series()
            job.ended, self._ended = self._ended, []
            job.attachments, self._attachments = self._attachments, []
            owed, self._owed = self._owed, []
            for name in ("agents", "blocks", "ended", "attachments"):
                setattr(job, name, [part for other in owed for part in getattr(other, name)] + getattr(job, name))
        return job

    def _remember_last_rows(self, window: Window) -> None:
        logged_rows = np.flatnonzero(window.environment.words[0][0, : window.count]) if window.environment.agents else np.empty(0)
        if logged_rows.size:
            self.environment_last_row = max(self.environment_last_row, window.first + int(logged_rows[-1]))
        for population, lanes in window.lanes.items():
            if not lanes.agents or not window.count:
                continue
            members = self.agents.members(population)
            logged = lanes.words[0][: len(lanes.agents), : window.count] != 0
            for word in lanes.words[1:]:
                logged |= word[: len(lanes.agents), : window.count] != 0
            last = window.first + window.count - 1 - np.argmax(logged[:, ::-1], axis=1)
            for index, row, any_ in zip(lanes.agents, last.tolist(), logged.any(axis=1).tolist(), strict=True):
                if any_ and row > members[index].last_row:
                    members[index].last_row = row

    def finish(self) -> None:
        """Write everything, and count the newest rows as gone. If the disk refuses, it may be called again."""
        self._write_all(release=True)

    def flush(self) -> None:
        """Write everything that was logged, and wait until it is; the rows stay where they are and may be filled further."""
        self._write_all(release=False)

    def _write_all(self, release: bool) -> None:
        self.close_late()
        job = self._job_of(self.newest, release)
        self.newest.flushed = True
        try:
            self.writer.submit(job)
            self.writer.drain()
        except StorageError:
            if self.writer.withdraw(job):
                self._owed.append(job)  # its rows are still here, and go with the next job
            raise
