"""One simulation in the file: its clock, its agents, its episodes, and the grids of variables on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import h5py
import numpy as np

from simlab.conventions import (
    AGENT,
    ATTR_EVERY,
    ATTR_SCHEMA,
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
from simlab.storage.cells import write_entries, write_scalar
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
from simlab.storage.structure import Column, Examples, Grid
from simlab.storage.writable import WritableFile

Array = np.ndarray[Any, np.dtype[Any]]

_OVERHEAD: Final = 1 << 14
"""Bytes that a commit may add to the file for each variable, beside its chunks."""
REPORT_COUNTS: Final = ("rows", "agents", "episodes", "values", "bytes_raw", "bytes_stored", "overwritten", "coerced", "late", "dropped")
REPORT_SECONDS: Final = ("seconds_logging", "seconds_waiting", "seconds_open")


class SimulationStore:
    """The writer's side of one simulation.

    Parameters
    ----------
    file : WritableFile
        The file.
    path : str
        The simulation's group, "/" first. Where it is not there, it is made.
    compression : Compression
        Of variables that do not choose their own.
    attributes : mapping, optional
        Attributes that netCDF has words for, of a new simulation.
    """

    def __init__(self, file: WritableFile, path: str, compression: Compression, attributes: Mapping[str, Any] | None = None) -> None:
        self.file = file
        self.path = path
        self.compression = compression
        if not file.has(f"{path}/{COMMITTED}"):
            with file.structure() as handle:
                self._make(create_group(handle, path), attributes or {})
        self.forget()

    def _make(self, group: h5py.Group, attributes: Mapping[str, Any]) -> None:
        write_attributes(group, attributes)
        time = create_coordinate(group, TIME, "int64", axis="T", long_name="run clock", units="1")
        clock: dict[str, Any] = {"chunks": (CLOCK_CHUNK,), "compression": "gzip", "shuffle": True}
        for name, text in ((STEP, "timestep in its episode"), (EPISODE, "episode of the row")):
            create_variable(group, name, [time], "int32", attributes={"long_name": text, "units": "1"}, **clock)
        self._scalar(group, COMMITTED, "int64", "rows that are complete on disk")
        self._scalar(group, COMPLETE, "int8", "1 once the run was finalized")
        create_group(group, GROUP_EPISODES)
        report = create_group(group, GROUP_REPORT)
        for name in REPORT_COUNTS:
            self._scalar(report, name, "int64", name.replace("_", " "))
        for name in REPORT_SECONDS:
            self._scalar(report, name, "float64", name.replace("_", " "), units="s")

    @staticmethod
    def _scalar(group: h5py.Group, name: str, dtype: str, long_name: str, units: str = "1") -> None:
        attributes = {"long_name": long_name, "units": units}
        create_variable(group, name, [], dtype, data=np.zeros((), dtype), attributes=attributes)

    def forget(self) -> None:
        """Forget what was found in the file: a change to it was taken back."""
        self.grids: dict[str, Grid] = {}
        self.environment: Grid | None = None
        self.series: dict[str, Column] = {}
        self.episodes = EpisodeTable(self.file, f"{self.path}/{GROUP_EPISODES}")

    @property
    def rows(self) -> int:
        """Rows that are complete in the file."""
        return int(self.dataset(COMMITTED)[()])

    @staticmethod
    def schema_text(group: h5py.Group) -> str:
        """Return the schema that a simulation keeps, as JSON; "" where it keeps none."""
        text = group.attrs.get(ATTR_SCHEMA, "")
        return text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)

    def agents_of(self, population: str) -> int:
        """Return how many agents of a population are in the file."""
        return self.agents_below(self.file.group(self.path), population)

    @staticmethod
    def agents_below(group: h5py.Group, population: str) -> int:
        """Return how many agents of a population a simulation's group has."""
        path = f"{GROUP_AGENTS}/{population}/{population}" if population else AGENT
        return int(group[path].shape[0]) if path in group else 0

    def episode_of_row(self, row: int) -> int:
        """Return the episode of a row."""
        return int(self.dataset(EPISODE)[row])

    def first_row_of(self, episode: int, rows: int) -> int:
        """Return the first row of the newest episode; `rows` where it has none."""
        return int(np.searchsorted(self.dataset(EPISODE)[:rows], episode))

    def dataset(self, name: str) -> h5py.Dataset:
        """Return a dataset of the simulation."""
        return self.file.dataset(f"{self.path}/{name}")

    # -- structure

    def ensure_population(self, name: str, variables: Sequence[Variable], n_agents: int, window: int, examples: Examples) -> Grid:
        """Return the grid of a population, with all its variables made, for values like the examples, and room for its agents."""
        grid = self.grids.get(name)
        if grid is None:
            agents = f"{self.path}/{GROUP_AGENTS}"
            home, dim = (f"{agents}/{name}", name) if name else (self.path, AGENT)
            if not (self.file.has(f"{home}/{dim}") and self.file.has(agents)):
                with self.file.structure() as handle:
                    create_group(handle, agents)
                    group = create_group(handle, home)
                    scale = create_coordinate(group, dim, "int32", long_name="place of the agent in the file", units="1")
                    create_text_column(group, dim + ID_SUFFIX, scale, long_name="name of the agent", cf_role="trajectory_id")
            grid = Grid(
                self.file, home if name else agents, self.path, [f"{home}/{dim}", f"{self.path}/{TIME}"],
                f"{dim}{ID_SUFFIX} {STEP} {EPISODE}", f"{name}_" if name else "",
            )  # fmt: skip
            self.grids[name] = grid
        scale = self.file.dataset(grid.axes[0])
        had = scale.shape[0]
        if n_agents > had:
            scale.resize((n_agents,))
            scale[had:] = np.arange(had, n_agents, dtype=np.int32)
        grid.add(variables, self.compression, window, examples)
        return grid

    def ensure_keys(self, population: str) -> None:
        """Make the column for ids that are no text."""
        home, dim = self.grids[population].axes[0].rsplit("/", 1)
        if not self.file.has(home + "/" + dim + KEY_SUFFIX):
            with self.file.structure():
                scale = self.file.dataset(f"{home}/{dim}")
                create_text_column(self.file.group(home), dim + KEY_SUFFIX, scale, long_name="the agent's id as JSON, where it is not text")

    def write_agents(self, population: str, first: int, labels: Sequence[str], keys: Sequence[str]) -> None:
        """Write the ids of agents ``first ...`` of a population.

        Parameters
        ----------
        labels : sequence of str
            One unique text for each agent.
        keys : sequence of str
            The ids as JSON where they are not text; empty where the label is the id.
        """
        if any(keys):
            self.ensure_keys(population)
        axis = self.grids[population].axes[0]
        write_text_rows(self.file.dataset(axis + ID_SUFFIX), first, labels)
        if self.file.has(axis + KEY_SUFFIX):
            column = self.file.dataset(axis + KEY_SUFFIX)
            if column.shape[0] < first:
                column.resize((first, column.shape[1]))
            write_text_rows(column, first, keys)

    def ensure_environment(self, variables: Sequence[Variable], window: int, examples: Examples) -> Grid:
        """Return the grid of the environment's numbers, with all of them made."""
        if self.environment is None:
            path = f"{self.path}/{GROUP_ENVIRONMENT}"
            if not self.file.has(path):
                with self.file.structure() as handle:
                    create_group(handle, path)
            self.environment = Grid(self.file, path, self.path, [f"{self.path}/{TIME}"], f"{STEP} {EPISODE}")
        self.environment.add(variables, self.compression, window, examples)
        return self.environment

    def ensure_series(self, variable: Variable, example: Array | None = None) -> Column:
        """Return the column of an environment variable that has a time axis of its own."""
        if variable.name not in self.series:
            environment = self.ensure_environment((), 1, lambda _: None)
            scale = self._series_scale(variable)
            if not self.file.has(scale):
                with self.file.structure() as handle:
                    group = create_group(handle, scale.rsplit("/", 1)[0])
                    told = {"long_name": f"run clock of {variable.name}", "units": "1", "axis": "T"}
                    create_coordinate(group, scale.rsplit("/", 1)[1], "int64", **told)
            rows = chunk_of_series(variable.row_bytes)
            own = SeriesGrid(self.file, environment.group, self.path, [scale], "", rows=rows)
            with self.file.changing():
                own.add([variable], self.compression, rows, lambda _: example)
                column = own.columns[0]
                if variable.every and ATTR_EVERY not in column.dataset.attrs:
                    with self.file.structure():
                        write_attribute(column.dataset, ATTR_EVERY, np.int32(variable.every))
            self.series[variable.name] = column
        return self.series[variable.name]

    def ensure_series_clock(self, variable: Variable) -> h5py.Dataset:
        """Return the time axis of a variable that has one of its own."""
        self.ensure_series(variable)
        return self.file.dataset(self._series_scale(variable))

    def _series_scale(self, variable: Variable) -> str:
        *path, _ = disk_name(variable.name).split(".")
        dim = disk_name(variable.name).replace(".", "_") + TIME_SUFFIX
        return "/".join([f"{self.path}/{GROUP_ENVIRONMENT}", *path, dim])

    def keep_schema(self, text: str) -> None:
        """Keep the schema of the run, as JSON: what goes on with the run, or repairs it, has to know it."""
        with self.file.structure():
            write_attribute(self.file.group(self.path), ATTR_SCHEMA, text)

    # -- values

    def write_clock(self, row: int, time: Array, step: Array, episode: Array) -> None:
        """Write the clocks of rows ``row ...``."""
        for name, values in ((TIME, time), (STEP, step), (EPISODE, episode)):
            write_entries(self.dataset(name), row, values)

    def write_series_time(self, column: Column, row: int, time: Array) -> None:
        """Write the run clock of a series' rows ``row ...`` and give the series their number."""
        scale = self.file.dataset(self._series_scale(column.variable))
        end = row + len(time)
        resize_dimension(scale, end)
        scale[row:end] = time
        if column.dataset.shape[0] < end:
            column.dataset.resize((end, *column.dataset.shape[1:]))

    def resize(self, n_rows: int) -> None:
        """Give every variable on the run clock, and every variable of agents, its length."""
        for grid in self.grids.values():
            grid.resize((grid.n_agents, n_rows))
        if self.environment is not None:
            self.environment.resize((n_rows,))

    def attach(self, name: str, value: Any) -> None:
        """Write an attachment; see `simlab.storage.attachments`."""
        with self.file.structure() as handle:
            write_attachment(create_group(handle, f"{self.path}/{GROUP_ATTACHMENTS}"), name, value)

    def make_room(self) -> None:
        """Have the system keep room for what a commit writes beside chunks: indices, headers, clocks.

        Raises
        ------
        OSError
            If there is none.
        """
        columns = sum(len(grid.columns) + len(grid.fields) for grid in self.grids.values()) + len(self.series) + 16
        self.file.make_room(columns * _OVERHEAD)

    def stored_bytes(self) -> int:
        """Return the bytes of the chunks of all variables."""
        grids = [*self.grids.values(), *([self.environment] if self.environment is not None else [])]
        columns = [c for grid in grids for c in (*grid.columns, *(f.column for f in grid.fields))]
        return sum(c.dataset.id.get_storage_size() for c in (*columns, *self.series.values()))

    def commit(self, rows: int, report: Mapping[str, float]) -> None:
        """Vouch for rows: everything that was written reaches the system first, then the number of rows that are complete."""
        self.file.flush()
        for name, value in report.items():
            write_scalar(self.dataset(f"{GROUP_REPORT}/{name}"), value)
        write_scalar(self.dataset(COMMITTED), rows)
        self.file.flush()

    def finish(self, report: Mapping[str, float]) -> None:
        """Write the counters of the logger and mark the simulation as complete.

        Its groups are final, and those that hold groups only get a variable.
        """
        with self.file.structure():
            group = self.file.group(self.path)
            count_groups(group)
            above = group.parent
            while above != group.file:
                count_groups(above, deep=False)
                above = above.parent
        for name, value in report.items():
            write_scalar(self.dataset(f"{GROUP_REPORT}/{name}"), value)
        write_scalar(self.dataset(COMPLETE), 1)
        self.file.flush()


class SeriesGrid(Grid):
    """The grid of one variable with a time axis of its own: no logged bits, for every row of it was logged."""

    def __init__(self, *args: Any, rows: int) -> None:
        super().__init__(*args)
        self.rows = rows

    def add(self, variables: Sequence[Variable], default: Compression, window: int, examples: Examples) -> None:
        """Make the variable."""
        self.columns.append(self._column(variables[0], default, window, examples))

    def _chunk(self, row_bytes: int, window: int) -> tuple[int, int]:
        return 0, self.rows
