"""The rows that are being filled: which window a timestep is in, and when a window leaves for the disk."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from simlab.errors import StorageError
from simlab.metadata import to_json
from simlab.record.agents import Agent, AgentRegistry
from simlab.record.book import SchemaBook
from simlab.record.durability import Durability
from simlab.record.pending import PendingSeries
from simlab.record.pool import WindowPool
from simlab.record.report import Report
from simlab.record.rows import RowClock, whole_step
from simlab.record.writer import Writer
from simlab.schema import Variable
from simlab.schema.keeping import schema_to_json, variables_to_json
from simlab.staging.committing import Committer
from simlab.staging.jobs import Job
from simlab.staging.lanes import Lanes
from simlab.staging.records import Lane
from simlab.staging.windows import Window
from simlab.storage.chunking import power_of_two_below
from simlab.storage.journal import Journal

MOST_ROWS: Final = 256
FEWEST_ROWS: Final = 8
WINDOW_BYTES: Final = 1 << 24
"""What one window should hold; wide rows make it shorter."""
LARGEST_WINDOW_BYTES: Final = 64 << 20
"""What it may hold to have `FEWEST_ROWS`; rows that are wider still have it to themselves."""
NOWHERE: Final = float("nan")
"""Where no row is located: no timestep equals it."""


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
    series : PendingSeries
        Rows of variables with a time axis of their own.
    """

    def __init__(
        self,
        path: Path,
        book: SchemaBook,
        report: Report,
        journal: Journal,
        committer: Committer,
        beat: Callable[[], bool],
        rule: Durability,
    ) -> None:
        self.clock = RowClock()
        self.book = book
        self.agents = AgentRegistry()
        self.report = report
        self.journal = journal
        self.committer = committer
        self._rule = rule
        book.on_new = self._tell_variables
        self._pool = WindowPool(journal)
        self.writer = Writer(path, committer, self._pool.give_back, beat, rule, journal)
        self.span: int | None = None
        self.newest = self._pool.new(MOST_ROWS)
        self.late: Window | None = None
        self.series = PendingSeries(journal)
        self.environment_last_row = -1
        self.last_ids: list[Any] | None = None
        self._ended: list[tuple[int, dict[str, Any]]] = []
        self._open_fields: dict[str, Any] = {}
        self._told_schema = book.schema
        self._owed: list[Job] = []
        self.window = self.newest
        self.step: float = NOWHERE
        self.offset, self.behind, self.fresh = 0, False, False

    # -- rows

    def locate(self, timestep: object) -> None:
        """Find the row of a timestep of the open episode, making it if it is newer than all.

        Raises
        ------
        TimestepError
            If it is no timestep, or would fall between rows that are there.
        """
        step = whole_step(timestep)
        if not self.clock.is_open:
            self.begin_episode({})
        self.fresh = step > self.clock.last_step
        if self.fresh:
            self.append(step)
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
        if self._rule.steps and not self.clock.rows % self._rule.steps:
            self.journal.sync()
        self.behind = False

    def withdraw(self) -> None:
        """Take the located row back if this call made it: its values were refused."""
        if self.fresh:
            self.clock.withdraw()
            self.newest.set_count(self.newest.count - 1)
            self.step, self.fresh = NOWHERE, False

    def make_room(self) -> None:
        """Send the window off if it is full."""
        window = self.newest
        if self.span is None and window.count and not window.count & (window.count - 1) and window.count >= self._fitting_rows():
            self.span = window.count
        if window.count == self._limit() or self._is_large():
            self.rotate()

    def has_room(self) -> bool:
        """Whether the next row goes into the same window."""
        count = self.newest.count
        if self._is_large():
            return False
        return count < self._limit() if self.span is not None else bool(count & (count - 1))

    def _limit(self) -> int:
        window = self.newest
        return window.capacity if self.span is None else self.span - window.first % self.span

    def _is_large(self) -> bool:
        """Whether the window leaves early: more, or larger, agents came than when its length was decided."""
        window = self.newest
        return window.count > 0 and window.count * window.row_bytes() >= LARGEST_WINDOW_BYTES

    def rotate(self) -> None:
        """Send the newest window off and go on in another one."""
        following = self._pool.lend(self.decided_span(), self.newest.first + self.newest.count, False, self.writer)
        full, self.newest = self.newest, following
        self.step = NOWHERE
        self._send(full, release=True)

    def _reopen(self, row: int) -> Window:
        """Return a window for values that come after their rows were sent off; they are merged with those on disk."""
        span = self.decided_span()
        first = row // span * span
        if self.late is not None and self.late.first == first:
            return self.late
        self.close_late()
        window = self.late = self._pool.lend(span, first, True, self.writer)
        # Which episode a row belongs to is all that is known here of rows before the open episode; nothing is logged in them.
        window.set_count(span)
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
        """Return the lane of a known agent in the located window, or None if the agent is new."""
        agent = self.agents.get(agent_id)
        if agent is None:
            return None
        variables = self.book.variables(agent.population)
        lanes = self.window.population(agent.population)
        lane = self._fresh_lane(lanes, agent.index, variables)
        self.window.by_id[agent_id] = lane
        return lane

    def join(self, agent_id: Any, population: str) -> Agent:
        """Make a new agent of a population."""
        agent = self.agents.add(agent_id, population)
        self.book.remember(agent.id, population)
        self.journal.append({"agent": self.agents.newest_unwritten})
        return agent

    def _tell_variables(self, population: str | None, variables: Iterable[Variable]) -> None:
        self.journal.append({"variables": variables_to_json(variables), "population": population})

    def environment_lane(self) -> Lane:
        """Return the lane of the environment's numbers in the located window."""
        lane = self.window.environment_lane
        if lane is None:
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

    def send_series(self) -> None:
        """Hand over the pending rows of every series if they are many bytes by now."""
        if not self.series.are_many:
            return
        job = self._job()
        job.rows = self.newest.first
        job.blocks = self.series.take()
        job.segment = self._cut()
        job.cost = sum(block.values.nbytes for block in job.blocks)
        self.writer.submit(job)

    def begin_episode(self, fields: dict[str, Any]) -> None:
        """Open the next episode."""
        self.clock.begin()
        self.report.episodes += 1
        self.step = NOWHERE
        self._open_fields = fields
        self._tell_open_episode()

    def _tell_open_episode(self) -> None:
        if self.clock.is_open:
            self.journal.append({"begin": self.clock.episode, "fields": to_json(self._open_fields, "the episode")})

    def _cut(self) -> int:
        """Begin a new segment of the journal's log: what the old one tells goes into the file, but for what is told again here."""
        segment = self.journal.cut()
        for episode, told in self._ended:
            self._tell_end(episode, told)
        self._tell_open_episode()
        return segment

    def _tell_end(self, episode: int, told: dict[str, Any]) -> None:
        self.journal.append({"end": episode, "fields": to_json(told, "the episode")})

    def end_episode(self, fields: dict[str, Any]) -> None:
        """Close the open episode."""
        self.close_late()
        length = self.clock.rows - self.clock.first_row
        told = {"start": self.clock.first_row, "length": length} | self._open_fields | fields
        self._tell_end(self.clock.episode, told)
        self.clock.end()
        self.step = NOWHERE
        self._open_fields = {}
        self._ended.append((self.clock.episode, told))
        if len(self._ended) >= MOST_ROWS:  # of length 0, or nearly: they fill no window
            self.flush()

    def attach(self, name: str, value: Any) -> None:
        """Write an attachment, and wait until it is in the file."""
        job = self._job(structure=False)
        job.rows = self.newest.first
        job.attachments.append((name, value))
        try:
            self.writer.submit(job)
            self.writer.drain()
        except StorageError:
            if self.writer.withdraw(job):
                self._owe(job)
            if job.attachments:  # else it is there, and only the commit that followed was refused
                raise

    # -- to the disk

    def _job(self, structure: bool = True) -> Job:
        job = Job(rows=self.clock.rows, span=1, sync=self._rule.sync)
        if structure:
            job.variables = {p: self.book.variables(p) for p in self.book.schema.population_names}
            job.environment, job.series = self.book.numbers, self.book.all_series
            job.span = self.decided_span()
            job.agents = self.agents.take_unwritten()
            if self._told_schema is not self.book.schema:
                self._told_schema = self.book.schema
                job.schema = schema_to_json(self._told_schema)
        return job

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
            job.blocks = self.series.take()
            job.ended, self._ended = self._ended, []
            job.segment = self._cut()
            owed, self._owed = self._owed, []
            for name in ("agents", "blocks", "ended"):
                setattr(job, name, [part for other in owed for part in getattr(other, name)] + getattr(job, name))
            job.schema = job.schema or next((other.schema for other in owed if other.schema), None)
        return job

    def _owe(self, job: Job) -> None:
        """Remember what a job that was taken back had with it; it goes with the next one, and its rows are still here."""
        self._owed.append(job)

    def _remember_last_rows(self, window: Window) -> None:
        row = window.environment.last_rows(window.count)[:1]
        if row and row[0] >= 0:
            self.environment_last_row = max(self.environment_last_row, window.first + row[0])
        for population, lanes in window.lanes.items():
            self.agents.remember_rows(population, lanes.agents, window.first, lanes.last_rows(window.count))

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
                self._owe(job)
            raise
