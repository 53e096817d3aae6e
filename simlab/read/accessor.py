"""``ds.sim``: what a Dataset of a run knows about agents, episodes and steps. Each method forwards to the room that does it."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable
from typing import Any

import xarray as xr

from simlab.conventions import ATTR_CONFIG, OBSERVATIONS
from simlab.errors import InputError, StateError
from simlab.read.beside import attached, attached_names, report_of
from simlab.read.episodes import episode_table, select_episode, select_times, table_from_rows
from simlab.read.flatten import decoded_attributes, with_netcdf_names
from simlab.read.gaps import tell
from simlab.read.origin import Agents, Origin, origin_of
from simlab.read.pictures import Pictures
from simlab.read.selecting import agent_groups, modalities, presence, select_agents, variables_of
from simlab.read.snapshots import latest
from simlab.read.transitions import transitions
from simlab.storage.grids import RunContents


@xr.register_dataset_accessor("sim")  # type: ignore[no-untyped-call]
class SimulationAccessor(Pictures):
    """What is special about the Dataset of a run; reached as ``ds.sim``.

    It works on any part of a run too: ``ds.sel(agent="agent_3").sim.episode(2)``.

    Parameters
    ----------
    ds : Dataset
        What `simlab.open_run` returned, or a part of it.
    """

    def __init__(self, ds: xr.Dataset) -> None:
        self._ds = ds
        self._known: RunContents | None = None

    def refresh(self) -> xr.Dataset:
        """Return the whole run as it is now: of one that is being recorded, with the rows that came since.

        This Dataset stays as it is, and open.
        """
        origin = self._file()
        from simlab.read.runs import open_run

        return open_run(origin.source.path, origin.simulation, population=origin.population)

    # -- who and what

    @property
    def agents(self) -> list[Hashable]:
        """The ids of the agents, as they were given: text, whole numbers or tuples."""
        return [agent_id for group in self._groups() for agent_id in group.ids]

    @property
    def modalities(self) -> list[str]:
        """What there are variables of: observations, actions, rewards, states, terminations, environment."""
        return modalities(self._ds)

    def variables(self, modality: str | Iterable[str] | None = None) -> list[str]:
        """Return the names of the variables, of one modality or of several.

        Raises
        ------
        NotInRunError
            If there is no such modality.
        """
        return variables_of(self._ds, modality)

    def present(self, name: str) -> xr.DataArray:
        """Return where a variable was logged.

        Parameters
        ----------
        name : str
            A variable of agents, of the environment, or a field of episodes.

        Returns
        -------
        DataArray of bool
            On (agent, time), (time) or (episode); read when it is used.

        Raises
        ------
        NotInRunError
            If there is no such variable.
        """
        return presence(self._ds, name, self._contents(), self._origin())

    # -- parts

    @property
    def episodes(self) -> xr.Dataset:
        """The table of episodes: all that was recorded of each; ``complete`` is False for one that was not ended."""
        contents = self._contents()
        if contents is None:
            return table_from_rows(self._ds)
        gaps: list[str] = []
        table = episode_table(contents, gaps)
        tell(contents.source.path, gaps)
        return table

    def episode(self, number: int) -> xr.Dataset:
        """Return the rows of one episode.

        Parameters
        ----------
        number : int
            Its number; -1 is the last one.

        Raises
        ------
        NotInRunError
            If there is no such episode.
        """
        return select_episode(self._ds, number, self.episodes)

    def agent(self, agent_id: Hashable) -> xr.Dataset:
        """Return what one agent logged, and the environment.

        Parameters
        ----------
        agent_id : str, int or tuple
            Its id, or its label on the axis.

        Raises
        ------
        AgentError
            If there is no such agent.
        """
        if isinstance(agent_id, list):
            agent_id = tuple(agent_id)  # an id that is a tuple may be given as a list
        return select_agents(self._ds, agent_id, self._groups())

    def load(
        self,
        agent_id: Any = None,
        modality: str | Iterable[str] | None = None,
        start: float | None = None,
        end: float | None = None,
        episode: int | None = None,
    ) -> xr.Dataset:
        """Load a part of the run into memory.

        Parameters
        ----------
        agent_id : id or list of ids, optional
            A list keeps the agent axis; left out, all agents.
        modality : str or list of str, optional
            "observations", "actions", "rewards", "states", "terminations", "environment"; left out, all of them.
        start, end : float, optional
            Times of the run clock (``ds.time``), from `start` up to, but not including, `end`.
        episode : int, optional
            Of one episode only.

        Raises
        ------
        AgentError, NotInRunError
            If there is no such agent, modality or episode.

        Examples
        --------
        >>> import os.path, tempfile
        >>> from simlab.demo import record_demo
        >>> path = os.path.join(tempfile.mkdtemp(), "run.h5")
        >>> report = record_demo(path, episodes=2, steps=30)
        >>> import simlab
        >>> with simlab.open_run(path) as ds:
        ...     print(ds.sim.load(agent_id=["agent_1", "agent_2"], modality="actions", start=0, end=50).sizes)
        Frozen({'agent': 2, 'time': 50})
        """
        part = self._ds[variables_of(self._ds, modality)]
        if episode is not None:
            part = select_episode(part, episode, self.episodes)
        part = select_times(part, start, end)
        if agent_id is not None:
            part = select_agents(part, agent_id, self._groups())
        return part.load()

    def load_observations(self, agent_id: Any, start: float | None = None, end: float | None = None) -> xr.Dataset:
        """Load the observations of an agent.

        Parameters
        ----------
        agent_id : id or list of ids
            A list keeps the agent axis.
        start, end : float, optional
            Times of the run clock (``ds.time``), from `start` up to, but not including, `end`.

        Raises
        ------
        AgentError
            If there is no such agent.
        """
        return self.load(agent_id, OBSERVATIONS, start, end)

    def snapshot(self, name: str, time: float | None = None) -> xr.DataArray:
        """Return the latest value of an environment variable at or before a time.

        Parameters
        ----------
        name : str
            A variable that is logged now and then.
        time : float, optional
            On the run clock; left out, the last one.

        Raises
        ------
        NotInRunError
            If there is no such variable, or nothing was logged that early.
        """
        known = self._contents() is not None
        return latest(self._ds, name, time, [g.dim for g in self._groups()], self.present if known else None)

    def transitions(self, agent_id: Any = None, observation: str | Iterable[str] | None = None) -> xr.Dataset:
        """Return transitions, aligned within each episode and loaded; see `simlab.read.transitions` for the convention.

        Parameters
        ----------
        agent_id : id or list of ids, optional
            Left out, all agents, one after the other.
        observation : str or list of str, optional
            Which observations; left out, all of them.

        Returns
        -------
        Dataset
            Along ``transition``: observation, action, reward, next_observation, terminated, truncated, has_next; where there are
            several of a kind, "observation.vision" and so on. Coordinates agent, time, step, episode.

        Raises
        ------
        AgentError, NotInRunError
            If there is no such agent or observation.
        """
        ds, groups = self._ds, self._groups()
        if agent_id is not None:
            ds = select_agents(ds, agent_id if isinstance(agent_id, list) else [agent_id], groups)
        dims = [g.dim for g in groups if g.dim in ds.dims]
        if len(dims) != 1:
            single = [g.dim for g in groups if g.dim in ds.coords]
            if len(dims) or len(single) != 1:
                there = " and ".join(dims) or "none"
                raise InputError(f"transitions() takes agents of one kind; here are {there}. Give agent_id=, or use open_run(population=).")
            ds, dims = ds.expand_dims(single, axis=0), single
        return transitions(ds, dims[0], ds.sim.present, self.episodes, observation)

    # -- what was stored beside

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes of the simulation as they were given, those included that netCDF has no word for."""
        contents = self._contents()
        return decoded_attributes(self._ds.attrs if contents is None else contents.file_attrs | contents.attrs)

    @property
    def config(self) -> Any:
        """The configuration that the run was given; None where it was given none."""
        return self.attributes.get(ATTR_CONFIG)

    @property
    def attachments(self) -> list[str]:
        """The names of what was attached."""
        return list(attached_names(self._file()))

    def attachment(self, name: str) -> Any:
        """Return what was attached under a name: nested dictionaries of arrays, text and numbers.

        Raises
        ------
        NotInRunError
            If nothing was attached under it.
        FormatError, StorageError
            If it is damaged. Of a dictionary, what can be read is returned, and a warning tells the rest.
        """
        return attached(self._file(), name)

    @property
    def report(self) -> dict[str, Any]:
        """What the logger counted: rows, bytes raw and stored, overwritten, coerced and late values, seconds."""
        return report_of(self._file())

    def to_netcdf(self, path: str | os.PathLike[str] | None = None, **options: Any) -> Any:
        """Write the Dataset to a netCDF file, as ``ds.to_netcdf`` does, under names that netCDF takes.

        In netCDF "/" parts groups, so ``ds.to_netcdf`` refuses a variable called "arm/left". Here it becomes ``arm_left``, and its
        attribute ``original_name`` keeps the name that was given; so do other names that netCDF refuses.

        Parameters
        ----------
        path : str or path-like, optional
            Where to write.
        **options
            As for `xarray.Dataset.to_netcdf`.

        Examples
        --------
        >>> import os.path, tempfile, simlab
        >>> folder = tempfile.mkdtemp()
        >>> with simlab.HDF5Logger(os.path.join(folder, "run.h5")) as log:
        ...     log.log_agent_step("a", 0, {"arm/left": 1.0})
        >>> with simlab.open_run(os.path.join(folder, "run.h5")) as ds:
        ...     ds.sim.to_netcdf(os.path.join(folder, "run.nc"))
        >>> import xarray as xr
        >>> with xr.open_dataset(os.path.join(folder, "run.nc")) as ds:
        ...     print(list(ds.data_vars), ds["arm_left"].attrs["original_name"])
        ['arm_left'] arm/left
        """
        return with_netcdf_names(self._ds).to_netcdf(path, **options)

    # -- where it comes from

    def _origin(self) -> Origin | None:
        return origin_of(self._ds)

    def _file(self) -> Origin:
        origin = self._origin()
        if origin is None:
            raise StateError("The Dataset does not know its run file any more. Open the run with open_run.")
        return origin

    def _contents(self) -> RunContents | None:
        origin = self._origin()
        if self._known is None and origin is not None:
            self._known = origin.contents()
        return self._known

    def _groups(self) -> list[Agents]:
        return agent_groups(self._ds, self._contents(), self._origin())
