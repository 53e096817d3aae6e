"""What a run holds: the variables of its agents, by modality and population, and of its environment."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from simlab.conventions import AGENT_MODALITIES, ENVIRONMENT, FLAT_NAMES, GROUP_AGENTS, RESERVED_NAMES
from simlab.errors import SchemaError, did_you_mean
from simlab.schema.clashes import Places, check_clashes
from simlab.schema.declarations import Declared, variables_of
from simlab.schema.names import disk_name
from simlab.schema.variable import Variable

if TYPE_CHECKING:
    import os

KEPT_NAMES = RESERVED_NAMES | {*AGENT_MODALITIES, *FLAT_NAMES, ENVIRONMENT, GROUP_AGENTS}
"""What no population can be called."""
MAIN = ""
"""The population of a run whose agents are all of one kind: its variables have plain names."""


class Schema:
    """Declare what a run holds.

    Parameters
    ----------
    observations, actions, rewards, states, terminations : Variable or sequence of Variable, optional
        What every agent logs. (The dictionaries of `Variable.to_dict` are taken as well, and a mapping of names to them.)
    environment : Variable or sequence of Variable, optional
        What the environment logs.
    populations : mapping of str to Schema, optional
        For agents of different kinds: a schema for each kind, by its name ("prey"). They take the place of the five above.
    agents : mapping of str to sequence, optional
        The ids of the agents that belong to each population, where they are known beforehand. An agent that is not
        listed joins the population whose name its id starts with ("prey_3"), or else the one that its first values fit.
    extensible : bool, optional
        Whether variables that are not declared may appear later. A schema that is inferred from what is logged is
        extensible; a declared one is not, so that a misspelt name is an error.

    Raises
    ------
    SchemaError
        If two variables share a name, a dimension has two sizes, or a declaration does not fit.

    Examples
    --------
    >>> schema = Schema(
    ...     observations=[Variable("vision", shape=(11, 11, 3), dtype="uint8")],
    ...     actions=Variable("actions", dtype="int8", categories=["left", "right"]),
    ...     rewards=Variable("rewards"),
    ... )
    >>> schema
    <Schema: vision, actions, rewards>
    >>> [v.modality for v in schema.variables()]
    ['observations', 'actions', 'rewards']
    """

    def __init__(
        self,
        *,
        observations: Declared | None = None,
        actions: Declared | None = None,
        rewards: Declared | None = None,
        states: Declared | None = None,
        terminations: Declared | None = None,
        environment: Declared | None = None,
        populations: Mapping[str, Schema | Mapping[str, Any]] | None = None,
        agents: Mapping[str, Sequence[Hashable]] | None = None,
        extensible: bool = False,
    ) -> None:
        given = dict(zip(AGENT_MODALITIES, (observations, actions, rewards, states, terminations), strict=True))
        self.extensible = bool(extensible)
        self.environment: tuple[Variable, ...] = tuple(variables_of(environment, ENVIRONMENT))
        self._populations: dict[str, tuple[Variable, ...]] = {}
        own = tuple(v for modality, declared in given.items() for v in variables_of(declared, modality))
        if populations:
            if own:
                raise SchemaError("Give populations=, or the variables of all agents (observations=, actions=, ...), not both.")
            for name, schema in populations.items():
                self._add_population(name, schema)
        else:
            self._populations[MAIN] = own
        self.agents: dict[str, tuple[Hashable, ...]] = {}
        for name, ids in (agents or {}).items():
            self._add_agents(name, ids)
        check_clashes(self._populations, self.environment)

    def _add_population(self, name: str, schema: Schema | Mapping[str, Any]) -> None:
        if not isinstance(name, str) or disk_name(name) != name or "." in name:
            raise SchemaError(f"A population cannot be called {name!r}: use letters, digits and '_'.")
        if name in KEPT_NAMES:
            raise SchemaError(f"A population cannot be called {name!r}: the run keeps that name for itself.")
        inner = schema if isinstance(schema, Schema) else Schema.from_dict(schema)
        if inner.population_names != (MAIN,) or inner.environment:
            raise SchemaError(f"The schema of population {name!r} may hold variables of agents only, no environment and no populations.")
        self._populations[name] = inner.variables()

    def _add_agents(self, population: str, ids: Sequence[Hashable]) -> None:
        if population not in self._populations:
            known = ", ".join(map(repr, self._populations))
            raise SchemaError(
                f"agents= names the population {population!r}; the schema has {known}.{did_you_mean(str(population), self._populations)}"
            )
        if isinstance(ids, str) or not isinstance(ids, Iterable):
            raise SchemaError(f"agents= gives population {population!r} the ids {ids!r}; give a list of ids.")
        members = tuple(ids)
        for other, theirs in self.agents.items():
            if shared := set(members) & set(theirs):
                raise SchemaError(
                    f"Agent {next(iter(shared))!r} is listed in the populations {other!r} and {population!r}; an agent belongs to one."
                )
        self.agents[population] = members

    @property
    def population_names(self) -> tuple[str, ...]:
        """Names of the populations; ``("",)`` where all agents are of one kind."""
        return tuple(self._populations)

    def variables(self, population: str = MAIN) -> tuple[Variable, ...]:
        """Return the variables of one population's agents, in order of declaration."""
        return self._populations.get(population, ())

    def extended(self, variables: Iterable[Variable], population: str | None = MAIN) -> Schema:
        """Return the schema with more variables, in one population or, with None, in the environment.

        Raises
        ------
        SchemaError
            If a name or dimension clashes with one that is there.
        """
        more = Schema.__new__(Schema)
        more.extensible, more.agents = self.extensible, self.agents
        more.environment, more._populations = self.environment, dict(self._populations)
        # What is taken goes along with the newest schema, so that one more variable costs the same however many there are.
        places = self.__dict__.pop("_places", None) or Places(self._populations, self.environment)
        variables = tuple(variables)
        if population is None:
            more.environment = (*self.environment, *variables)
        else:
            if population not in more._populations and population != MAIN:
                more._add_population(population, Schema())
            more._populations[population] = (*more._populations.get(population, ()), *variables)
        places.add(variables, population)
        more.__dict__["_places"] = places
        return more

    def cut(self, population: str | None, at: int) -> Schema:
        """Return the schema with only the first variables of one population or, with None, of the environment."""
        less = Schema.__new__(Schema)
        less.extensible, less.agents = self.extensible, self.agents
        less.environment, less._populations = self.environment, dict(self._populations)
        if population is None:
            less.environment = less.environment[:at]
        else:
            less._populations[population] = less._populations[population][:at]
        return less

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Schema):
            return NotImplemented
        return (self._populations, self.environment, self.agents, self.extensible) == (
            other._populations,
            other.environment,
            other.agents,
            other.extensible,
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        names = [f"{p}.{v.name}" if p else v.name for p, vs in self._populations.items() for v in vs]
        names += [v.name for v in self.environment]
        return f"<Schema: {', '.join(names) or 'empty'}{', extensible' if self.extensible else ''}>"

    # -- other ways in and out; each forwards to the room that does it

    def to_dict(self) -> dict[str, Any]:
        """Return the schema as plain JSON values; `from_dict` reads them back."""
        from simlab.schema.files import schema_to_dict

        return schema_to_dict(self)

    @classmethod
    def from_dict(cls, declaration: Mapping[str, Any]) -> Schema:
        """Make a schema from a dictionary, as `to_dict` writes it or as a person would.

        Parameters
        ----------
        declaration : mapping
            What `Schema` takes, by name; each variable as `Variable.from_dict` takes it.

        Raises
        ------
        SchemaError
            If a key is unknown or a declaration does not fit; the message says where.
        """
        from simlab.schema.files import schema_from_dict

        return schema_from_dict(declaration)

    def to_file(self, path: str | os.PathLike[str]) -> None:
        """Write the schema to a file.

        Parameters
        ----------
        path : str or path-like
            Its ending tells the kind of file: ``.json``, ``.yaml`` or ``.yml``.
        """
        from simlab.schema.files import schema_to_file

        schema_to_file(self, path)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Schema:
        """Read a schema from a file.

        Parameters
        ----------
        path : str or path-like
            A ``.json``, ``.yaml`` or ``.yml`` file.
        """
        from simlab.schema.files import schema_from_file

        return schema_from_file(path)

    @classmethod
    def from_spaces(cls, observation_space: Any, action_space: Any = None, **more: Any) -> Schema:
        """Make a schema from Gymnasium spaces.

        Parameters
        ----------
        observation_space, action_space : space
            Of one agent.
        **more
            ``rewards``, ``terminations``, ``states``, ``environment``, ``names`` and ``extensible``, as for
            `simlab.schema.spaces.schema_from_spaces`.
        """
        from simlab.schema.spaces import schema_from_spaces

        return schema_from_spaces(observation_space, action_space, **more)

    @classmethod
    def from_env(cls, env: Any, **more: Any) -> Schema:
        """Make a schema from a PettingZoo or Gymnasium environment.

        Parameters
        ----------
        env : environment
            Agents whose spaces differ become populations.
        **more
            As for `from_spaces`.
        """
        from simlab.schema.spaces import schema_from_env

        return schema_from_env(env, **more)
