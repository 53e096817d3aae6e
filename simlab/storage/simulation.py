"""One simulation in the file: its clock, its agents, its episodes, and the grids of variables on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import h5py
import numpy as np

from simlab.conventions import (
    AGENT,
    ATTR_EVERY,
    COMMITTED,
    COMPLETE,
    EPISODE,
    GROUP_AGENTS,
    GROUP_ATTACHMENTS,
    GROUP_ENVIRONMENT,
    GROUP_EPISODES,
    GROUP_REPORT,
    ID_SUFFIX,
    KEY_SUFFIX,
    STEP,
    TIME,
    TIME_SUFFIX,
)
from simlab.schema import Variable
from simlab.schema.names import disk_name
from simlab.storage.attachments import write_attachment
from simlab.storage.attributes import write_attribute, write_attributes
from simlab.storage.chunking import chunk_of_series
from simlab.storage.codec import Compression
from simlab.storage.episodes import EpisodeTable
from simlab.storage.netcdf import (
    CLOCK_CHUNK,
    count_groups,
    create_coordinate,
    create_group,
    create_text_column,
    create_variable,
    resize_dimension,
    write_text_rows,
)
from simlab.storage.structure import Column, Grid

Array = np.ndarray[Any, np.dtype[Any]]

REPORT_COUNTS: Final = ("rows", "agents", "episodes", "values", "bytes_raw", "bytes_stored", "overwritten", "coerced", "late", "dropped")
REPORT_SECONDS: Final = ("seconds_logging", "seconds_waiting", "seconds_open")


class SimulationStore:
    """The writer's side of one simulation.

    Parameters
    ----------
    group : h5py.Group
        A new, empty group.
    attributes : mapping
        Attributes that netCDF has words for.
    compression : Compression
        Of variables that do not choose their own.
    """

    def __init__(self, group: h5py.Group, attributes: Mapping[str, Any], compression: Compression) -> None:
        self.group = group
        self.compression = compression
        write_attributes(group, attributes)
        self.time = create_coordinate(group, TIME, "int64", axis="T", long_name="run clock", units="1")
        clock: dict[str, Any] = {"chunks": (CLOCK_CHUNK,), "compression": "gzip", "shuffle": True}
        self.step = create_variable(
            group, STEP, [self.time], "int32", attributes={"long_name": "timestep in its episode", "units": "1"}, **clock
        )
        self.episode = create_variable(
            group, EPISODE, [self.time], "int32", attributes={"long_name": "episode of the row", "units": "1"}, **clock
        )
        self.committed = self._scalar(group, COMMITTED, "int64", "rows that are complete on disk")
        self.complete = self._scalar(group, COMPLETE, "int8", "1 once the run was finalized")
        self.grids: dict[str, Grid] = {}
        self.environment: Grid | None = None
        self.series: dict[str, Column] = {}
        self.episodes = EpisodeTable(create_group(group, GROUP_EPISODES))
        report = create_group(group, GROUP_REPORT)
        self.report = {n: self._scalar(report, n, "int64", n.replace("_", " ")) for n in REPORT_COUNTS}
        self.report |= {n: self._scalar(report, n, "float64", n.replace("_", " "), units="s") for n in REPORT_SECONDS}

    @staticmethod
    def _scalar(group: h5py.Group, name: str, dtype: str, long_name: str, units: str = "1") -> h5py.Dataset:
        attributes = {"long_name": long_name, "units": units}
        return create_variable(group, name, [], dtype, data=np.zeros((), dtype), attributes=attributes)

    # -- structure

    def ensure_population(self, name: str, variables: Sequence[Variable], n_agents: int, window: int) -> Grid:
        """Return the grid of a population, with all its variables made and room for its agents."""
        grid = self.grids.get(name)
        if grid is None:
            agents = create_group(self.group, GROUP_AGENTS)
            home = create_group(agents, name) if name else self.group
            dim = name or AGENT
            # Each is made unless a try that the disk refused has made it already.
            scale = (
                home[dim] if dim in home else create_coordinate(home, dim, "int32", long_name="place of the agent in the file", units="1")
            )
            if dim + ID_SUFFIX not in home:
                create_text_column(home, dim + ID_SUFFIX, scale, long_name="name of the agent", cf_role="trajectory_id")
            grid = Grid(
                home if name else agents, self.group, [scale, self.time], f"{dim}{ID_SUFFIX} {STEP} {EPISODE}", f"{name}_" if name else ""
            )
            self.grids[name] = grid
        had = grid.axes[0].shape[0]
        if n_agents > had:
            grid.axes[0].resize((n_agents,))
            grid.axes[0][had:] = np.arange(had, n_agents, dtype=np.int32)
        grid.add(variables, self.compression, window)
        return grid

    def write_agents(self, population: str, first: int, labels: Sequence[str], keys: Sequence[str]) -> None:
        """Write the ids of agents ``first ...`` of a population.

        Parameters
        ----------
        labels : sequence of str
            One unique text for each agent.
        keys : sequence of str
            The ids as JSON where they are not text; empty where the label is the id.
        """
        scale = self.grids[population].axes[0]
        home, dim = scale.parent, population or AGENT
        write_text_rows(home[dim + ID_SUFFIX], first, labels)
        if dim + KEY_SUFFIX not in home and any(keys):
            create_text_column(home, dim + KEY_SUFFIX, scale, long_name="the agent's id as JSON, where it is not text")
            keys = [""] * first + list(keys)
            first = 0
        if dim + KEY_SUFFIX in home:
            write_text_rows(home[dim + KEY_SUFFIX], first, keys)

    def ensure_environment(self, variables: Sequence[Variable], window: int) -> Grid:
        """Return the grid of the environment's numbers, with all of them made."""
        if self.environment is None:
            group = create_group(self.group, GROUP_ENVIRONMENT)
            self.environment = Grid(group, self.group, [self.time], f"{STEP} {EPISODE}")
        self.environment.add(variables, self.compression, window)
        return self.environment

    def ensure_series(self, variable: Variable) -> Column:
        """Return the column of an environment variable that has a time axis of its own."""
        if variable.name not in self.series:
            environment = self.ensure_environment((), 1)
            *path, _ = disk_name(variable.name).split(".")
            group = create_group(environment.group, "/".join(path)) if path else environment.group
            dim = disk_name(variable.name).replace(".", "_") + TIME_SUFFIX
            told = {"long_name": f"run clock of {variable.name}", "units": "1", "axis": "T"}
            scale = group[dim] if dim in group else create_coordinate(group, dim, "int64", **told)
            rows = chunk_of_series(variable.row_bytes)
            own = SeriesGrid(environment.group, self.group, [scale], "", rows=rows)
            own.add([variable], self.compression, rows)
            column = own.columns[0]
            if variable.every:
                write_attribute(column.dataset, ATTR_EVERY, np.int32(variable.every))
            self.series[variable.name] = column
        return self.series[variable.name]

    # -- values

    def write_clock(self, row: int, time: Array, step: Array, episode: Array) -> None:
        """Write the clocks of rows ``row ...``."""
        end = row + len(time)
        for dataset, values in ((self.time, time), (self.step, step), (self.episode, episode)):
            if dataset.shape[0] < end:
                dataset.resize((end,))
            dataset[row:end] = values

    def write_series_time(self, column: Column, row: int, time: Array) -> None:
        """Write the run clock of a series' rows ``row ...`` and give the series their number."""
        scale = column.dataset.parent[disk_name(column.variable.name).replace(".", "_") + TIME_SUFFIX]
        end = row + len(time)
        resize_dimension(scale, end)
        scale[row:end] = time
        if column.dataset.shape[0] < end:
            column.dataset.resize((end, *column.dataset.shape[1:]))

    def resize(self, n_rows: int) -> None:
        """Give every variable on the run clock, and every variable of agents, its length."""
        for grid in self.grids.values():
            grid.resize((grid.axes[0].shape[0], n_rows))
        if self.environment is not None:
            self.environment.resize((n_rows,))

    def attach(self, name: str, value: Any) -> None:
        """Write an attachment; see `simlab.storage.attachments`."""
        group = create_group(self.group, GROUP_ATTACHMENTS)
        before = set(group)
        try:
            write_attachment(group, name, value)
        except OSError:
            for part in set(group) - before:  # half an attachment is none; it may be tried again
                del group[part]
            raise

    def stored_bytes(self) -> int:
        """Return the bytes of the chunks of all variables."""
        grids = [*self.grids.values(), *([self.environment] if self.environment is not None else [])]
        columns = [c for grid in grids for c in (*grid.columns, *(f.column for f in grid.fields))]
        return sum(c.dataset.id.get_storage_size() for c in (*columns, *self.series.values()))

    def write_report(self, report: Mapping[str, float]) -> None:
        """Write the counters of the logger; the groups are final now, and those without a variable get one."""
        for name, value in report.items():
            self.report[name][()] = value
        count_groups(self.group)
        above = self.group.parent
        while above != self.group.file:
            count_groups(above, deep=False)
            above = above.parent


class SeriesGrid(Grid):
    """The grid of one variable with a time axis of its own: no logged bits, for every row of it was logged."""

    def __init__(self, *args: Any, rows: int) -> None:
        super().__init__(*args)
        self.rows = rows

    def add(self, variables: Sequence[Variable], default: Compression, window: int) -> None:
        """Make the variable."""
        self.columns.append(self._column(variables[0], default, window))

    def _chunk(self, row_bytes: int, window: int) -> tuple[int, int]:
        return 0, self.rows
