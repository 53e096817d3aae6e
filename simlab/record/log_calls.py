"""The calls that log values: one agent, all of them, the environment, a whole trajectory; and the episodes they fall in."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import Any

from simlab.errors import InputError, StateError, StorageError, ValueMismatchError
from simlab.record.acceptance import accept, say_not_done, tell, withdraw
from simlab.record.agents import whole_id
from simlab.record.calls import EachAgent, fit_each, fit_environment, log_agent, record
from simlab.record.fields import Checked, EpisodeFields
from simlab.record.gate import Gate
from simlab.record.groups import FittedGroup, GroupBits, by_agent, fit_group, is_by_agent
from simlab.record.interrupts import Uninterrupted
from simlab.record.rows import whole_step
from simlab.record.stage import Stage
from simlab.record.trajectories import Trajectories
from simlab.staging.records import store


class LogCalls(Gate):
    """What a simulation calls while it runs; `HDF5Logger` adds the file."""

    def __init__(self) -> None:
        super().__init__()
        self._fields = EpisodeFields()

    # -- steps

    def log_agent_step(self, agent_id: Any, timestep: int, data: Mapping[str, Any]) -> None:
        """Log what one agent saw, did and got at one step.

        Parameters
        ----------
        agent_id : str, int or tuple
            Who. An agent appears with its first call and is absent from its last one on.
        timestep : int
            The step in the open episode, from 0. Steps may be left out; several calls may fill one step.
        data : dict
            Values by name, flat (``{"vision": v, "rewards": 1.0}``) or nested (``{"observations": {"vision": v}}``). None is not logged.
            The values are copied.

        Raises
        ------
        ValueMismatchError, SchemaError, AgentError, TimestepError
            If something does not fit; nothing of this call is recorded then.
        StateError
            After `finalize`.
        StorageError
            If earlier rows could not be written. They are kept; nothing of this call is recorded, so repeat it.
        """
        self._acquire()
        try:
            stage = self._stage
            if stage is None or stage.writer.failure is not None:
                stage = self._ready()
            self._calls = calls = self._calls + 1
            if calls == self._sample_at:
                self._time_one(stage, self.log_agent_step, agent_id, timestep, data)
                return
            # The short way, for a known agent at the newest row whose values all fit as they are; _log_agent is the long one.
            if timestep == stage.step and not stage.behind:
                lane = stage.window.by_id.get(agent_id)
                if lane is not None:
                    offset = stage.offset
                    words = lane.words
                    if not words[offset]:
                        bits = store(lane, data, offset)
                        if bits >= 0:
                            words[offset] = bits
                            return
            with Uninterrupted():
                self._log_agent(stage, agent_id, timestep, data)
        except ValueError:
            whole_step(timestep)  # an array cannot be compared with the step: says so
            raise
        except TypeError:
            whole_id(agent_id)  # what has no hash is no id: says so
            raise
        finally:
            self._release()

    @staticmethod
    def _log_agent(stage: Stage, agent_id: Any, timestep: int, data: Mapping[str, Any]) -> None:
        try:
            if timestep != stage.step:
                stage.locate(timestep)
            lane = stage.window.by_id.get(agent_id) or stage.lane(agent_id)
            if lane is not None and not stage.behind and not lane.words[stage.offset]:
                bits = store(lane, data, stage.offset)
                if bits >= 0:
                    tell(stage)
                    lane.words[stage.offset] = bits
                    stage.fresh = stage.opened = False
                    return
            log_agent(stage, agent_id, data)
        except BaseException as e:
            withdraw(stage, e)
            if isinstance(e, TypeError):
                stage.agents.get(agent_id)  # an id that cannot be one: says so
            raise

    def log_env_step(self, timestep: int, data: Mapping[str, Any]) -> None:
        """Log the environment at one step.

        Parameters
        ----------
        timestep : int
            The step in the open episode.
        data : dict
            Values by name. Numbers, truth values and text lie on the run's own time axis; arrays get one of their own, so that a
            snapshot every 20 steps costs a twentieth. A value that is logged again at its newest step replaces the one that was there,
            and is counted as overwritten; one at an older step is refused.

        Raises
        ------
        ValueMismatchError, SchemaError, TimestepError, StateError, StorageError
            As for `log_agent_step`.
        """
        with self._timed() as stage:
            self._log_environment(stage, whole_step(timestep), data)

    @staticmethod
    def _log_environment(stage: Stage, timestep: int, data: Mapping[str, Any]) -> None:
        try:
            if timestep != stage.step:
                stage.locate(timestep)
            record(stage, fit_environment(stage, data))
        except BaseException as e:
            withdraw(stage, e)
            raise

    def log_step(
        self,
        timestep: int,
        agents: Mapping[Any, Any] | None = None,
        agent_ids: Iterable[Any] | None = None,
        environment: Mapping[str, Any] | None = None,
    ) -> None:
        """Log one step of all agents at once.

        Parameters
        ----------
        timestep : int
            The step in the open episode.
        agents : dict, optional
            Either arrays by name with the agent axis first, as in ``{"observations": {"vision": v}}`` with ``v`` of shape
            ``(n_agents, 11, 11, 3)``; or a dictionary of values for each agent, by id; or, as PettingZoo
            hands them out, a dictionary by agent for each of observations, actions, rewards, ...
        agent_ids : iterable, optional
            Whose entries they are. May be left out once they are known: they are those of the last call, or else "agent_0", "agent_1", ...
            as long as there are no other agents.
        environment : dict, optional
            As for `log_env_step`.

        Raises
        ------
        ValueMismatchError, SchemaError, AgentError, TimestepError, StateError, StorageError
            As for `log_agent_step`.
        """
        with self._timed() as stage:
            if agents is not None and not isinstance(agents, Mapping):
                raise ValueMismatchError(f"agents={agents!r} is no dictionary. Pass arrays by name, or a dictionary for each agent.")
            timestep = whole_step(timestep)
            try:
                if timestep != stage.step:
                    stage.locate(timestep)
                # All of it is fitted before any of it is recorded.
                living = self._fit_agents(stage, agents, agent_ids) if agents is not None else None
                world = fit_environment(stage, environment) if environment is not None else None
                record(stage, living, world)  # a step at which nobody lives is a step
            except BaseException as e:
                withdraw(stage, e)
                raise

    @staticmethod
    def _fit_agents(stage: Stage, agents: Mapping[Any, Any], ids: Iterable[Any] | None) -> EachAgent | GroupBits | FittedGroup | None:
        if agents and ids is None:
            each = by_agent(stage, agents)
            if is_by_agent(stage, each):
                return fit_each(stage, each)
        return fit_group(stage, agents, ids)

    def log_episode(
        self,
        data: Mapping[str, Any] | None = None,
        *,
        agent_id: Any = "agent_0",
        agents: Mapping[Any, Mapping[str, Any]] | None = None,
        environment: Mapping[str, Any] | None = None,
        timesteps: Iterable[int] | None = None,
        seed: int | None = None,
        **fields: Any,
    ) -> None:
        """Log a whole trajectory as an episode of its own.

        Parameters
        ----------
        data : dict, optional
            Arrays of one agent, flat or nested, with the time axis first.
        agent_id : str, int or tuple, optional
            Whose they are.
        agents : dict, optional
            Instead of `data`: such a dictionary for each agent, by id; agents may live for differently many steps.
        environment : dict, optional
            Arrays of the environment with the time axis first.
        timesteps : sequence of int, optional
            The steps; 0, 1, 2, ... if left out.
        seed : int, optional
            The seed of the episode.
        **fields
            As for `end_episode`.

        Raises
        ------
        ValueMismatchError, SchemaError, AgentError, TimestepError, StateError, StorageError
            As for `log_agent_step`; nothing of the trajectory is recorded then. Only a disk that refuses in the middle of a trajectory
            too long for memory cuts it; the message says how much of it was recorded.
        """
        with self._timed() as stage:
            if (data is None) == (agents is None) and not (data is None and environment is not None):
                raise InputError("log_episode takes the arrays of one agent (data) or of several (agents=), not both and not neither.")
            checked = self._fields.checked(seed, fields)
            given = agents if agents is not None else ({agent_id: data} if data is not None else {})
            try:
                trajectory = Trajectories(stage, given, environment, timesteps)
                stage.make_room()  # may have to wait for the disk, which may refuse: nothing is recorded yet
                tell(stage)
                self._begin(stage, checked)
                accept(stage)
            except BaseException as e:
                withdraw(stage, e)
                raise
            try:
                trajectory.write(stage)
            except StorageError as e:
                with contextlib.suppress(StorageError):
                    self._end(stage, {})
                e.args = (f"{e} {trajectory.told(stage)}",)
                raise
            self._end(stage, {})

    # -- episodes

    def begin_episode(self, seed: int | None = None, **fields: Any) -> int:
        """Begin an episode; the one that is open ends.

        Parameters
        ----------
        seed : int, optional
            Its seed.
        **fields
            What is known of it: numbers, truth values, text. `end_episode` may add to them.

        Returns
        -------
        int
            Its number, from 0.

        Raises
        ------
        MetadataError
            If a field is none of these, or of another type than in the episodes before. (Whole numbers may turn into floats.)
        """
        with Uninterrupted(), self._lock:
            stage = self._ready()
            checked = self._fields.checked(seed, fields)
            try:
                self._begin(stage, checked)
            except StorageError as e:
                say_not_done(e)
                raise
            return stage.clock.episode

    def _begin(self, stage: Stage, fields: Checked) -> None:
        if stage.episodes.are_many:
            stage.flush()
        if stage.clock.is_open:
            self._end(stage, {})
        stage.begin_episode(self._fields.keep(fields))

    def end_episode(self, **fields: Any) -> None:
        """End the open episode.

        Parameters
        ----------
        **fields
            What came of it, such as ``outcome="starved"`` or ``terminated=True``: numbers, truth values, text.

        Raises
        ------
        MetadataError
            If a field is none of these, or of another type than in the episodes before. (Whole numbers may turn into floats.)
        StateError
            If no episode is open.
        """
        with Uninterrupted(), self._lock:
            stage = self._ready()
            if not stage.clock.is_open:
                raise StateError("No episode is open. begin_episode() opens one; so does the first step that is logged.")
            self._end(stage, self._fields.keep(self._fields.checked(None, fields)))

    def _end(self, stage: Stage, fields: dict[str, Any]) -> None:
        stage.end_episode(fields)
