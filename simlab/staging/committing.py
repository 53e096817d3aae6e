"""One job into the file: structure first, then chunks, then the number of rows that are complete."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from simlab.schema import Variable
from simlab.staging.encoders import Encoders, Encoding
from simlab.staging.jobs import Block, Job
from simlab.staging.returns import RETURN_FIELDS, Returns, Sums, returns_on_disk, reward_index, sums_of
from simlab.staging.sealing import Chunk, Tally, chunks_of_lanes
from simlab.staging.windows import Window
from simlab.storage.journal import Journal
from simlab.storage.simulation import SimulationStore
from simlab.storage.structure import Examples

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(slots=True)
class _Begun:
    """A job whose chunks are being encoded, and what that counts and keeps."""

    job: Job
    encoding: Encoding
    tally: Tally
    tails: dict[str, Array]


class Committer:
    """Writes jobs into one simulation.

    Parameters
    ----------
    store : SimulationStore
        The simulation.
    encoders : Encoders
        Who encodes.
    journal : Journal
        What may be forgotten of it is.
    report : callable, optional
        Returns the counters that go into the file with every commit.
    returns : bool, optional
        Whether the returns of episodes are summed.

    Attributes
    ----------
    tally : Tally
        What the rows that left held.
    committed : int
        Rows that are complete in the file.
    """

    def __init__(
        self,
        store: SimulationStore,
        encoders: Encoders,
        journal: Journal,
        report: Callable[[], Mapping[str, float]] = dict,
        returns: bool = True,
    ) -> None:
        self._store, self._encoders, self._journal, self._report = store, encoders, journal, report
        self.tally = Tally()
        self.committed = store.rows
        self._sums_returns = returns
        self._returns = Returns()
        self._by_disk: set[int] = set()
        self._ended = -1
        self._tails: dict[str, Array] = {}
        self._clocks: list[tuple[int, Array, Array, Array]] = []
        self._begun: _Begun | None = None

    def distrust(self, episode: int) -> None:
        """Sum the returns of an episode from the file when it ends: not all of its rows went by here, or some came late."""
        self._by_disk.add(episode)

    def keep_clock(self, job: Job) -> None:
        """Keep the clock of rows whose values are given up: it has to rise all the same."""
        window = job.window
        if window is not None and not window.late:
            n = window.count
            self._clocks.append((window.first, window.time[:n].copy(), window.step[:n].copy(), window.episode[:n].copy()))

    def write(self, job: Job, following: Callable[[], Job | None] = lambda: None) -> None:
        """Write a job. Doing it twice leaves the same values, so a job that failed halfway is simply done again.

        Parameters
        ----------
        job : Job
            The job.
        following : callable, optional
            Returns the job that is written next, if it is there by then: encoders begin with it early.

        Raises
        ------
        OSError, RuntimeError
            If the disk, or HDF5, refuses.
        """
        store, window = self._store, job.window
        self._prepare(job)
        store.make_room()
        begun, self._begun = self._begun, None
        if begun is None or begun.job is not job:
            begun = self._begin(job)  # meanwhile, what is there to write besides
        tally, tails = begun.tally, begun.tails
        for clock in self._clocks:
            store.write_clock(*clock)
        if window is not None and not window.late:
            n = window.count
            store.write_clock(window.first, window.time[:n], window.step[:n], window.episode[:n])
        store.resize(job.rows)
        added: Sums = {}
        begun.encoding.write(lambda: self._look_ahead(following()))
        if window is not None and window.count:
            if window.late:
                self._by_disk.update(np.unique(window.episode[: window.count]).tolist())
            else:
                added = sums_of(window, job.variables)
        for episode, fields in job.ended:
            store.episodes.write(episode, fields | self._returns_of(episode, fields, added, job.variables))
        self.committed = max(self.committed, job.rows)
        store.commit(self.committed, self._told(job, tally))
        self._tails |= tails
        self._clocks.clear()
        self._count(job, tally, added)
        if job.sync:
            store.file.sync()
        if window is not None and job.release:
            window.retire()
        if job.segment is not None:
            self._journal.forget(job.segment)

    def _begin(self, job: Job) -> _Begun:
        """Begin to encode a job whose structure is there."""
        tally, tails = Tally(), dict[str, Array]()
        return _Begun(job, self._encoders.begin(self._chunks(job, tally, tails)), tally, tails)

    def _look_ahead(self, job: Job | None) -> None:
        """Begin to encode the next job, if all it needs is there: new chunks of numbers, of variables and agents that the file knows."""
        if job is None or job.window is None or job.window.late or job.agents or job.blocks or job.attachments or job.schema is not None:
            return
        grids = [(self._store.grids.get(name), variables) for name, variables in job.variables.items() if variables]
        grids += [(self._store.environment, job.environment)] if job.environment else []
        if all(g is not None and len(g.columns) == len(vs) and g.begins_at(job.window.first) for g, vs in grids) and not any(
            v.is_text for _, vs in grids for v in vs
        ):
            with contextlib.suppress(Exception):  # whatever it is, it is this job's own, and comes again when it is written
                self._begun = self._begin(job)

    def _told(self, job: Job, tally: Tally) -> dict[str, float]:
        """Return the counters with what a job adds, which is in the file with them."""
        told = dict(self._report())
        if told:
            leaves = job.window is None or job.release
            told["values"] += sum(len(b.values) - b.again for b in job.blocks) + (tally.values if leaves else 0)
            told["bytes_raw"] += sum(b.values[int(b.again) :].nbytes for b in job.blocks) + (tally.bytes_raw if leaves else 0)
        return told

    def _prepare(self, job: Job) -> None:
        """Make what structure there is to make, in one step, and write who is new."""
        store = self._store
        counts: dict[str, int] = {}
        for population, index, _, _ in job.agents:
            counts[population] = max(counts.get(population, 0), index + 1)
        try:
            with store.file.changing():
                for population, variables in job.variables.items():
                    examples = _examples(job.window, population)
                    store.ensure_population(population, variables, counts.get(population, 0), job.span, examples)
                if job.environment:
                    store.ensure_environment(job.environment, job.span, _examples(job.window, None))
                rows = {block.variable.name: block.values for block in job.blocks}
                for variable in job.series:
                    store.ensure_series(variable, rows.get(variable.name))
                self._write_agents(job)
                rewarded = any(reward_index(variables) is not None for variables in job.variables.values())
                for _, fields in job.ended:
                    store.episodes.prepare(fields | (dict.fromkeys(RETURN_FIELDS, 0.0) if rewarded else {}))
                for name, value in job.attachments:
                    store.attach(name, value)
                if job.schema is not None:
                    store.keep_schema(job.schema)
        except BaseException:
            store.forget()
            raise
        job.attachments.clear()
        job.schema = None

    def _write_agents(self, job: Job) -> None:
        by_population: dict[str, list[tuple[int, str, str]]] = {}
        for population, index, label, key in job.agents:
            by_population.setdefault(population, []).append((index, label, key))
        for population, members in by_population.items():
            # Places follow each other, but where only some agents are staged: beside a live file, or in a journal that lost some.
            starts = [i for i, m in enumerate(members) if not i or m[0] != members[i - 1][0] + 1]
            for start, stop in zip(starts, [*starts[1:], len(members)], strict=True):
                part = members[start:stop]
                self._store.write_agents(population, part[0][0], [m[1] for m in part], [m[2] for m in part])

    def _returns_of(
        self, episode: int, fields: dict[str, Any], added: Sums, variables: Mapping[str, tuple[Variable, ...]]
    ) -> dict[str, float]:
        """Return the statistics of an ended episode's returns."""
        if not self._sums_returns:
            return {}
        if episode in self._by_disk:
            return returns_on_disk(self._store.grids, variables, fields["start"], fields["length"])
        return self._returns.statistics(episode, added)

    def _count(self, job: Job, tally: Tally, added: Sums) -> None:
        """Take over what a job that was written counted; rows that stay staged are counted when they leave."""
        for episode, _ in job.ended:
            self._returns.forget(episode)
            self._by_disk.discard(episode)
            self._ended = max(self._ended, episode)
        for block in job.blocks:
            self.tally.values += len(block.values) - block.again
            self.tally.bytes_raw += block.values[int(block.again) :].nbytes
        if job.window is None or job.release:
            self._returns.keep({episode: sums for episode, sums in added.items() if episode > self._ended})
            self.tally.add(tally)

    def _chunks(self, job: Job, tally: Tally, tails: dict[str, Array]) -> Iterator[Chunk]:
        if job.window is not None and job.window.count:
            yield from self._window_chunks(job.window, tally)
        for block in job.blocks:
            yield from self._series_chunks(block, tails)

    def _window_chunks(self, window: Window, tally: Tally) -> Iterator[Chunk]:
        for name, lanes in window.lanes.items():
            if lanes.agents:
                yield from chunks_of_lanes(self._store.grids[name], lanes, window, tally)
        if self._store.environment is not None:
            yield from chunks_of_lanes(self._store.environment, window.environment, window, tally)

    def _series_chunks(self, block: Block, tails: dict[str, Array]) -> Iterator[Chunk]:
        """Yield the chunks that rows of a series fill, the last one perhaps in part; its rows are kept for the next time."""
        column = self._store.ensure_series(block.variable)
        start = block.first // column.rows * column.rows
        name = block.variable.name
        values = block.values
        if start < block.first:
            kept = tails.get(name, self._tails.get(name))
            if kept is None:
                kept = column.type.from_disk(np.asarray(column.dataset[start : block.first]))
                kept = np.char.encode(kept, "utf-8") if block.variable.is_text else kept
            kept = kept[: block.first - start]
            missing = block.first - start - len(kept)  # where the file is one of staged rows only, or lost some
            values = np.concatenate([kept, np.zeros((missing, *values.shape[1:]), values.dtype), values])
        self._store.write_series_time(column, block.first, block.time)
        for row in range(0, len(values), column.rows):
            yield Chunk(column, (start + row,), values[row : row + column.rows], None, replaces=True)
        tail = len(values) % column.rows or column.rows
        tails[name] = values[len(values) - tail :]


def _examples(window: Window | None, population: str | None) -> Examples:
    """Return what gives some values of a population's, or the environment's, variable: the staged ones."""
    if window is None:
        return lambda _: None
    lanes = window.environment if population is None else window.lanes.get(population)
    return lambda index: lanes.examples(index, window.count) if lanes is not None else None
