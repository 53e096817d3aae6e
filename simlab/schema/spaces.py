"""Schemas from the spaces of Gymnasium and PettingZoo environments.

Spaces are told apart by the names of their classes, so that those of ``gymnasium`` and of the old ``gym`` both work and neither
is imported. What a space samples is what the logger takes: the sample of a ``Dict`` space is a nested dictionary, and the parts of
a ``Tuple`` space are called ``item_0``, ``item_1``, ...
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from simlab.conventions import ACTIONS, OBSERVATIONS
from simlab.errors import SchemaError, did_you_mean
from simlab.schema.declarations import Declared
from simlab.schema.names import free_name
from simlab.schema.schema import KEPT_NAMES, Schema
from simlab.schema.variable import Kind, Variable

Categories = Mapping[str, Sequence[str]]

_LONGEST_IMAGE_CHANNELS: Final = 4
_ADVICE: Final = {
    "Graph": "Pad the nodes and edges to fixed arrays and declare a Variable for each.",
    "Sequence": "Pad it to a fixed length and declare it: Variable(name, shape=(longest, ...)).",
    "OneOf": "Declare a Variable for each alternative and log the one that holds.",
}


def schema_from_spaces(
    observation_space: Any,
    action_space: Any = None,
    *,
    rewards: Declared | None = None,
    terminations: Declared | None = None,
    states: Declared | None = None,
    environment: Declared | None = None,
    names: Categories | None = None,
    extensible: bool = False,
) -> Schema:
    """Return the schema of agents that observe and act in the given spaces.

    Parameters
    ----------
    observation_space : space
        Of one agent. A single space becomes the variable "observation", a ``Dict`` one variable for each key (nested ones joined
        by dots), a ``Tuple`` "item_0", "item_1", ... A key that the run keeps for itself, such as "agent", becomes
        "observation.agent" (of actions "action.agent"); it is logged under its own name.
    action_space : space, optional
        Of one agent. A single space becomes the variable "actions", a ``Dict`` or ``Tuple`` as above.
    rewards : Variable or sequence of Variable, optional
        By default "rewards", a float64.
    terminations : Variable or sequence of Variable, optional
        By default the booleans "terminated" and "truncated".
    states, environment : Variable or sequence of Variable, optional
        What else is logged.
    names : mapping of str to sequence of str, optional
        Names of the values of discrete variables, ``{"actions": ["up", "down"]}``, or of the entries of the last axis of others.
    extensible : bool, optional
        Whether other variables may appear later.

    Raises
    ------
    SchemaError
        If a space has no fixed shape (Graph, Sequence, OneOf) or is not a space; the message says what to do.

    Examples
    --------
    >>> class Discrete:  # as in gymnasium.spaces
    ...     n, start, dtype = 2, 0, "int64"
    >>> schema_from_spaces(Discrete(), Discrete(), names={"actions": ["left", "right"]})
    <Schema: observation, actions, rewards, terminated, truncated>
    """
    variables = _agent_variables(observation_space, action_space)
    _check_names(variables, names)
    return Schema(**_arguments(variables, names, rewards, terminations, states), environment=environment, extensible=extensible)


def schema_from_env(
    env: Any,
    *,
    rewards: Declared | None = None,
    terminations: Declared | None = None,
    states: Declared | None = None,
    environment: Declared | None = None,
    names: Categories | None = None,
    extensible: bool = False,
) -> Schema:
    """Return the schema of a Gymnasium environment, or of a PettingZoo environment (AEC or parallel).

    PettingZoo agents whose spaces are all the same are of one kind. Where they differ, each group of agents with the same spaces
    becomes a population, called by what their ids have in common ("predator" of "predator_0", "predator_1").

    Parameters
    ----------
    env : environment
        Gymnasium's with `observation_space` and `action_space`, or PettingZoo's with `possible_agents` and functions of these names.
    rewards, terminations, states, environment, names, extensible
        As for `schema_from_spaces`; for every population.

    Raises
    ------
    SchemaError
        If it is neither, is a vector environment, or a space cannot be stored.

    Examples
    --------
    >>> class Box:  # as in gymnasium.spaces
    ...     shape, dtype = (3,), "float32"
    ...     low = high = None
    >>> class Env:
    ...     possible_agents = ["wolf_0", "wolf_1"]
    ...     def observation_space(self, agent): return Box()
    ...     def action_space(self, agent): return Box()
    >>> schema_from_env(Env())
    <Schema: observation, actions, rewards, terminated, truncated>
    """
    if hasattr(env, "num_envs"):
        raise SchemaError(
            f"{_kind(env)} is a vector environment. Use the spaces of one of its {env.num_envs}: "
            "Schema.from_spaces(env.single_observation_space, env.single_action_space)."
        )
    if not hasattr(env, "observation_space"):
        raise SchemaError(f"{_kind(env)} has no observation_space. Pass a Gymnasium or PettingZoo environment, or use Schema.from_spaces.")
    if callable(env.observation_space):
        kinds = _kinds_of_agents(env)
    else:
        kinds = [(_agent_variables(env.observation_space, getattr(env, "action_space", None)), [])]
    _check_names([v for variables, _ in kinds for v in variables], names)
    if len(kinds) == 1:
        return Schema(**_arguments(kinds[0][0], names, rewards, terminations, states), environment=environment, extensible=extensible)
    populations: dict[str, Schema] = {}
    agents: dict[str, list[Hashable]] = {}
    for name, (variables, members) in zip(_population_names([members for _, members in kinds]), kinds, strict=True):
        # A dimension that is named is shared by the whole run, and the pictures of two populations differ in size.
        own = [v if v.has_natural_dims else replace(v, dims=tuple(f"{name}_{dim}" for dim in v.dims or ())) for v in variables]
        populations[name] = Schema(**_arguments(own, names, rewards, terminations, states))
        agents[name] = members
    return Schema(populations=populations, agents=agents, environment=environment, extensible=extensible)


def _kinds_of_agents(env: Any) -> list[tuple[list[Variable], list[Hashable]]]:
    """Return the agents of a PettingZoo environment, those with equal spaces together, with the variables of their spaces."""
    agents = getattr(env, "possible_agents", None) or getattr(env, "agents", None)
    if not agents:
        raise SchemaError(f"{_kind(env)} names no agents: it has no possible_agents, and no agents yet. Call env.reset() first.")
    kinds: list[tuple[list[Variable], list[Hashable]]] = []
    for agent in agents:
        variables = _agent_variables(env.observation_space(agent), env.action_space(agent))
        for known, members in kinds:
            if known == variables:
                members.append(agent)
                break
        else:
            kinds.append((variables, [agent]))
    return kinds


def _arguments(
    variables: list[Variable], names: Categories | None, rewards: Declared | None, terminations: Declared | None, states: Declared | None
) -> dict[str, Any]:
    labelled = [_labelled(v, names[v.name]) if names and v.name in names else v for v in variables]
    return {
        "observations": [v for v in labelled if v.modality == OBSERVATIONS],
        "actions": [v for v in labelled if v.modality == ACTIONS],
        "rewards": Variable("rewards", dtype="float64") if rewards is None else rewards,
        "terminations": [Variable("terminated", dtype="bool"), Variable("truncated", dtype="bool")]
        if terminations is None
        else terminations,
        "states": states,
    }


# -- one space


def _agent_variables(observation_space: Any, action_space: Any) -> list[Variable]:
    observed = list(_variables(observation_space, "observation", OBSERVATIONS))
    acted = [] if action_space is None else list(_variables(action_space, ACTIONS, ACTIONS))
    if both := {v.name for v in observed} & {v.name for v in acted}:
        raise SchemaError(
            f"The observation space and the action space both have a part called {min(both)!r}; a variable's name is unique in its run. "
            "Make one of them a Dict space with names of its own, or declare the variables."
        )
    return observed + acted


def _variables(space: Any, name: str, modality: str, nested: bool = False) -> Iterator[Variable]:
    """Yield the variables of a space; `name` is what it is called where it is a single one."""
    kind = _kind(space)
    if kind == "Dict":
        parts = dict(space.spaces)
    elif kind == "Tuple":
        parts = {f"item_{i}": part for i, part in enumerate(space.spaces)}
    else:
        yield _variable(space, kind, free_name(name, modality), modality)
        return
    if not parts:
        raise SchemaError(f"The space of {name!r} is an empty {kind}, which samples nothing. Leave it out, or pass None.")
    for key, part in parts.items():
        if not isinstance(key, str):
            raise SchemaError(f"The Dict space of {name!r} has the key {key!r} ({type(key).__name__}); names of variables are text.")
        yield from _variables(part, f"{name}.{key}" if nested else key, modality, nested=True)


def _variable(space: Any, kind: str, name: str, modality: str) -> Variable:
    if kind == "Text":
        return Variable(name, dtype="str", modality=modality)
    if kind in ("Discrete", "MultiDiscrete", "MultiBinary"):
        shape = tuple(getattr(space, "shape", None) or ())
        first, last = _discrete_bounds(space, kind)
        return Variable(name, shape, space.dtype, kind="discrete", low=first, high=last, modality=modality)
    if kind == "Box" or (hasattr(space, "low") and hasattr(space, "high")):
        shape = tuple(space.shape)
        if 0 in shape:
            raise SchemaError(f"The space of {name!r} is a Box of shape {shape}, which holds nothing. Leave it out.")
        dtype = np.dtype(space.dtype)
        kind_of_value: Kind | None = "image" if _is_image(shape, dtype) else None
        dims = _image_dims(name, shape, dtype)
        low, high = _bound(space.low, dtype), _bound(space.high, dtype)
        return Variable(name, shape, dtype, kind=kind_of_value, dims=dims, low=low, high=high, modality=modality)
    if getattr(space, "shape", None) is not None and getattr(space, "dtype", None) is not None and kind not in _ADVICE:
        return Variable(name, tuple(space.shape), space.dtype, modality=modality)
    advice = _ADVICE.get(kind, "Declare what is logged with Variable(...), or let the logger infer it: HDF5Logger(path).")
    what = f"a {kind} space" if hasattr(space, "sample") else f"{kind}, which is no Gymnasium space"
    raise SchemaError(f"{name!r} is {what}: its values have no fixed shape and type. {advice}")


def _discrete_bounds(space: Any, kind: str) -> tuple[int | None, int | None]:
    if kind == "MultiBinary":
        return 0, 1
    first = np.asarray(getattr(space, "start", 0))
    last = first + np.asarray(space.n if kind == "Discrete" else space.nvec) - 1
    return _shared(first), _shared(last)


def _shared(values: Any) -> int | None:
    return int(values.max()) if (values == values.max()).all() else None


def _bound(bound: Any, dtype: np.dtype[Any]) -> float | None:
    """Return a bound that all entries share and that says more than the dtype does."""
    if bound is None or dtype.kind not in "iuf":
        return None
    values = np.asarray(bound)
    first = values.reshape(-1)[0].item()
    if not (values == first).all() or not np.isfinite(first):
        return None
    limits: Any = np.iinfo(dtype) if dtype.kind in "iu" else np.finfo(dtype)
    if dtype.itemsize > 1 and (first <= limits.min or first >= limits.max):
        return None
    return first  # type: ignore[no-any-return]


def _is_channel_first(shape: tuple[int, ...]) -> bool:
    return len(shape) == 3 and shape[0] <= _LONGEST_IMAGE_CHANNELS < min(shape[1:])


def _is_image(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bool:
    return dtype == np.uint8 and len(shape) == 3


def _image_dims(name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[str, ...] | None:
    """Name the axes of pictures whose channels come first, (3, 84, 84), by what they are."""
    if not (_is_image(shape, dtype) and _is_channel_first(shape)):
        return None
    y, x, channel = Variable(name, shape, dtype).dims or ()
    return channel, y, x


def _check_names(variables: Sequence[Variable], names: Categories | None) -> None:
    known = sorted({v.name for v in variables})
    for name in names or ():
        if name not in known:
            raise SchemaError(f"names= has {name!r}; the spaces have {', '.join(map(repr, known))}.{did_you_mean(str(name), known)}")


def _labelled(v: Variable, labels: Sequence[str]) -> Variable:
    if v.shape:
        return replace(v, channels=tuple(labels))
    count = None if v.high is None else int(v.high) + 1
    if v.low not in (None, 0):
        raise SchemaError(f"names= names the values of {v.name!r}, which start at {v.low}; only values that start at 0 have names.")
    if count is not None and v.kind == "discrete" and len(labels) != count:
        raise SchemaError(f"names= has {len(labels)} names for {v.name!r}, which has {count} values. Give one for each.")
    return replace(v, categories=tuple(labels))


def _kind(thing: Any) -> str:
    """Return the class name that says what a space is, of a subclass that of its base."""
    classes = [c for c in type(thing).__mro__ if c.__module__.partition(".")[0] in ("gymnasium", "gym")]
    return (classes or [type(thing)])[0].__name__


# -- populations


def _population_names(groups: Sequence[Sequence[Hashable]]) -> list[str]:
    """Return a name for each group of agents: what their ids begin with, where that tells the groups apart.

    Examples
    --------
    >>> _population_names([["wolf_0", "wolf_1"], ["sheep_0"]])
    ['wolf', 'sheep']
    >>> _population_names([["a_0", "a_1"], ["a_2"]])
    ['a_0', 'a_2']
    """
    names = [_common_prefix(group) for group in groups]
    if not all(names) or len(set(names)) < len(names):
        names = [re.sub(r"\W", "_", str(group[0])) for group in groups]
    if len(set(names)) < len(names) or not all(re.match(r"[^\W\d_]", name) for name in names):
        names = [f"kind_{i}" for i in range(len(groups))]
    # The agents of PettingZoo are often called "agent_0", and a run keeps the word "agent" for itself.
    return [f"{name}_kind" if name in KEPT_NAMES else name for name in names]


def _common_prefix(ids: Sequence[Hashable]) -> str:
    stems = {re.sub(r"\W", "_", re.sub(r"[\W_]*\d*$", "", agent)) if isinstance(agent, str) else "" for agent in ids}
    stem = stems.pop()
    return stem if not stems and re.match(r"[^\W\d]", stem) else ""
