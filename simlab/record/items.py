"""What the caller handed over, as a flat list of named values."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from typing import Any, Final, NamedTuple

from simlab.conventions import AGENT_MODALITIES, ENVIRONMENT, FLAT_NAMES, OBSERVATIONS
from simlab.errors import ValueMismatchError
from simlab.schema.names import free_name

Where = Callable[[], str]


class Item(NamedTuple):
    """One value with its name and what it is to the agent."""

    name: str
    value: Any
    modality: str
    nested: bool = False
    """Whether the caller put it below a modality's own name."""


GROUP_WORDS: Final = {m: m for m in AGENT_MODALITIES} | FLAT_NAMES | {"observation": OBSERVATIONS}
"""Keys below which a dictionary holds the variables of a modality."""


def agent_items(data: Mapping[str, Any], where: Where, known: Container[str] = ()) -> Iterator[Item]:
    """Yield the values of an agent's dictionary, flat or nested, without those that are None.

    Parameters
    ----------
    data : mapping
        What was logged.
    where : callable
        Says where, for messages.
    known : container of str
        Names of variables. A tuple of numbers is a vector, unless "<its name>.item_0" is one of them.

    Notes
    -----
    ``{"observations": {"vision": v}}`` and ``{"vision": v}`` both yield "vision", an observation; ``{"camera": {"rgb": v}}``
    yields "camera.rgb"; "rewards", "actions" and their like are what they say. A name that the run keeps for itself gets its
    modality in front: "agent" yields "observation.agent".
    """
    for key, value in _entries(data, where):
        modality = GROUP_WORDS.get(key, OBSERVATIONS)
        explicit = key in GROUP_WORDS
        value = _parts(value, "" if explicit else key, known)
        if isinstance(value, Mapping):
            yield from _nested(value, "" if explicit else key, modality, where, explicit, known)
        elif value is not None:
            yield Item(free_name(key, modality), value, modality)


def environment_items(data: Mapping[str, Any], where: Where) -> Iterator[Item]:
    """Yield the values of the environment's dictionary, nested names joined by dots, without those that are None."""
    yield from _nested(data, "", ENVIRONMENT, where, True, ())


def _nested(data: Mapping[str, Any], prefix: str, modality: str, where: Where, explicit: bool, known: Container[str]) -> Iterator[Item]:
    for key, value in _entries(data, where):
        name = f"{prefix}.{key}" if prefix else key
        value = _parts(value, name, known)
        if isinstance(value, Mapping):
            yield from _nested(value, name, modality, where, explicit, known)
        elif value is not None:
            yield Item(free_name(name, modality), value, modality, explicit)


def _parts(value: Any, name: str, known: Container[str]) -> Any:
    """Name the parts of a tuple that is no plain vector: what a Gymnasium Tuple space samples, as ``Schema.from_spaces`` names them."""
    declared = (f"{name}.item_0" if name else "item_0") in known
    if isinstance(value, tuple) and value and (declared or not all(_is_number(v) for v in value)):
        return {f"item_{i}": v for i, v in enumerate(value)}
    return value


def _is_number(value: object) -> bool:
    return isinstance(value, (bool, int, float, complex, str)) or getattr(value, "shape", None) == ()


def _entries(data: object, where: Where) -> Iterator[tuple[str, Any]]:
    if not isinstance(data, Mapping):
        raise ValueMismatchError(f"The data {where()} are {type(data).__name__} {_short(data)}; pass a dictionary of name: value.")
    for key, value in data.items():
        if not isinstance(key, str):
            raise ValueMismatchError(f"The data {where()} have the key {key!r} ({type(key).__name__}); names of variables are text.")
        yield key, value


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
