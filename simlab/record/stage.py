"""The rows that are being filled: which window a timestep is in, and when a window leaves for the disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from simlab.errors import StorageError
from simlab.record.agents import AgentRegistry
from simlab.record.book import SchemaBook
from simlab.record.dropping import Dropping
from simlab.record.durability import Durability
from simlab.record.open_episode import OpenEpisode
from simlab.record.pending import PendingSeries
from simlab.record.pool import MOST_ROWS, WindowPool
from simlab.record.report import Report
from simlab.record.rows import RowClock, whole_step
from simlab.record.window_length import WindowLength
from simlab.record.writer import Writer
from simlab.schema import Variable
from simlab.schema.keeping import schema_to_json
from simlab.staging.committing import Committer
from simlab.staging.jobs import Job
from simlab.staging.lanes import Lanes
from simlab.staging.records import Lane
from simlab.staging.windows import Window
from simlab.storage.journal import Journal

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
    fresh, opened : bool
        Whether the call that is under way made the located row, and opened the episode with it.
    grown_at : int
        Rows of the run when a variable came last. Lanes know all variables, and are not made while more come with every row.
    undo : list of callable
        What takes back the variables and agents that came with that call; see `simlab.record.acceptance`.
    news : list of dict
        What the journal is to be told of them before any value is recorded.
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
        self._pool = WindowPool(journal)
        self.writer = Writer(path, committer, self._pool.give_back, beat, rule, journal)
        self._length = WindowLength()
        self.newest = self._pool.new(MOST_ROWS)
        self.late: Window | None = None
        self.series = PendingSeries(journal)
        self.dropping = Dropping(frozenset(), book)
        self.environment_last_row = -1
        self.last_ids: list[Any] | None = None
        self.episodes = OpenEpisode(journal)
        self._told_schema = book.schema
        self._owed: list[Job] = []
        self.window = self.newest
        self.step: float = NOWHERE
        self.offset, self.behind, self.fresh, self.opened = 0, False, False, False
        self.grown_at = -MOST_ROWS
        self.undo: list[Callable[[], None]] = []
        self.news: list[dict[str, Any]] = []

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
                self._open_episode({})
                self.opened = True
            self._append(step)
            self.fresh = True
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
        self._append(step)

    def _append(self, step: int) -> None:
        self.offset = self.newest.add_row(self.clock.time_of(step), step, self.clock.episode)  # may be refused
        self.window = self.newest
        self.clock.append(step)
        if self._rule.steps and not self.clock.rows % self._rule.steps:
            self.writer.sync_journal()
        self.behind = False

    def make_room(self) -> None:
        """Send the window off if it is full."""
        if self._length.must_leave(self.newest):
            self.rotate()

    def has_room(self) -> bool:
        """Whether the next row goes into the same window."""
        return self._length.has_room(self.newest)

    def rotate(self) -> None:
        """Send the newest window off and go on in another one."""
        following = self._pool.lend(self.span, self.newest.first + self.newest.count, False, self.writer)
        try:
            segment = self._cut()
        except StorageError:
            self._pool.return_unused(following)
            raise
        full, self.newest = self.newest, following
        if self.writer.is_behind:
            self.report.dropped += self.dropping.lighten(full)
        self.step = NOWHERE
        self.writer.submit(self._job_of(full, True, segment))

    def _reopen(self, row: int) -> Window:
        """Return a window for values that come after their rows were sent off; they are merged with those on disk."""
        span = self.span
        first = row // span * span
        if self.late is not None and self.late.first == first:
            return self.late
        self.close_late()
        window = self._pool.lend(span, first, True, self.writer)
        try:
            window.set_count(span)
        except StorageError:
            self._pool.return_unused(window)
            raise
        # Which episode a row belongs to is all that is known here of rows before the open episode; nothing is logged in them.
        window.episode[:] = self.clock.episode
        self.late = window
        return window

    def close_late(self) -> None:
        """Send off the window of late values, if there is one."""
        if self.late is not None:
            late, self.late = self.late, None
            self.step = NOWHERE
            self.writer.submit(self._job_of(late, True, None))

    @property
    def span(self) -> int:
        """How many rows a window holds; it is decided if need be."""
        return self._length.decided(self.newest)

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

    def send_series(self) -> None:
        """Hand over the pending rows of every series if they are many bytes by now."""
        if not self.series.are_many or self._owed:  # what is owed ends in the log before these rows do: it goes first
            return
        try:
            segment = self._cut(ended_too=True)
        except StorageError as e:  # the row that came with this call is kept: the next call is told
            self.writer.failure = self.writer.failure or e
            return
        job = self._job()
        job.rows = self.newest.first
        job.blocks = self.series.take()
        job.segment = segment
        job.cost = sum(block.values.nbytes for block in job.blocks)
        self.writer.submit(job)

    def begin_episode(self, fields: dict[str, Any]) -> None:
        """Open the next episode."""
        self.journal.append(self.episodes.begun(self.clock.episode + 1, fields))
        self._open_episode(fields)
        self.news.clear()
        self.step = NOWHERE

    def _open_episode(self, fields: dict[str, Any]) -> None:
        self.clock.begin()
        self.report.episodes += 1
        self.news.append(self.episodes.begun(self.clock.episode, fields))

    def _cut(self, ended_too: bool = False) -> int:
        """Begin a new segment of the journal's log: what the old one tells goes into the file, but for what is told again here.

        To be called before anything is taken for a job: it may be refused.

        Raises
        ------
        StorageError
            If the journal has no room for it; nothing has changed then, and the old segment is kept.
        """
        segment = self.journal.cut()
        self.episodes.tell_again(self.clock.episode if self.clock.is_open else None, ended_too)
        return segment

    def end_episode(self, fields: dict[str, Any]) -> None:
        """Close the open episode."""
        self.close_late()
        self.episodes.end(self.clock.episode, self.clock.first_row, self.clock.rows - self.clock.first_row, fields)
        self.clock.end()
        self.step = NOWHERE

    def attach(self, name: str, value: Any) -> None:
        """Write an attachment, and wait until it is in the file."""
        job = self._job(structure=False)
        job.rows = self.newest.first
        job.attachments.append((name, value))
        try:
            self._submit(job)
        except StorageError:
            if job.attachments:  # else it is there, and only the commit that followed was refused
                raise

    # -- to the disk

    def _job(self, structure: bool = True) -> Job:
        job = Job(rows=self.clock.rows, span=1, sync=self._rule.sync)
        if structure:
            job.variables = {p: self.book.variables(p) for p in self.book.schema.population_names}
            job.environment, job.series = self.book.numbers, self.book.all_series
            job.span = self.span
            job.agents = self.agents.take_unwritten()
            if self._told_schema is not self.book.schema:
                self._told_schema = self.book.schema
                job.schema = schema_to_json(self._told_schema)
        return job

    def _job_of(self, window: Window, release: bool, segment: int | None) -> Job:
        """Return the job that writes a window, and with the newest one all that became known since the last."""
        self._remember_last_rows(window)
        job = self._job()
        job.window, job.release = window, release
        if window.late:
            job.rows = self.newest.first
        else:
            job.rows = window.first + window.count
            job.blocks = self.series.take()
            job.ended = self.episodes.take()
            job.segment = segment
            job.take_over(self._owed)
            self._owed = []
        return job

    def _remember_last_rows(self, window: Window) -> None:
        row = window.environment.last_rows(window.count)[:1]
        if row and row[0] >= 0:
            self.environment_last_row = max(self.environment_last_row, window.first + row[0])
        self.agents.remember_window(window)

    def finish(self) -> None:
        """Write everything, and count the newest rows as gone. If the disk refuses, it may be called again."""
        self._write_all(release=True)

    def flush(self) -> None:
        """Write everything that was logged, and wait until it is; the rows stay where they are and may be filled further."""
        self._write_all(release=False)

    def _write_all(self, release: bool) -> None:
        self.close_late()
        job = self._job_of(self.newest, release, self._cut())
        self.newest.flushed = True
        self._submit(job)

    def _submit(self, job: Job) -> None:
        """Hand over a job and wait until it is written; if the disk refuses, what it had with it goes with the next one."""
        try:
            self.writer.submit(job)
            self.writer.drain()
        except StorageError:
            if self.writer.withdraw(job):
                self._owed.append(job)  # its rows are still here
            raise
