"""Declarations of variables as people write them: objects, dictionaries, lists of them, and mappings of names to them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from simlab.conventions import ENVIRONMENT
from simlab.errors import SchemaError
from simlab.schema.variable import Variable

Declared = Variable | Mapping[str, Any] | Iterable[Variable | Mapping[str, Any]]

_EXAMPLE = "{'speed': {'dtype': 'float32', 'units': 'm s-1'}}"


def variables_of(declared: Declared | None, modality: str, place: str = "") -> list[Variable]:
    """Return the variables of one modality.

    Parameters
    ----------
    declared : Variable, mapping or iterable of them, optional
        A variable, its dictionary, a list of both, or a mapping of names to either.
    modality : str
        What the variables become part of.
    place : str, optional
        Where the declaration stands, for messages; the modality by default.

    Raises
    ------
    SchemaError
        If a declaration does not fit; the message starts with its place.

    Examples
    --------
    >>> [v.name for v in variables_of({"speed": {"units": "m s-1"}, "age": None}, "states")]
    ['speed', 'age']
    >>> variables_of([{"name": "speed"}, {"name": "age", "dtype": "int33"}], "states")
    Traceback (most recent call last):
    simlab.errors.SchemaError: states[1]: 'age' has dtype 'int33', which numpy does not know. Use a name such as 'float32' or 'int64'.
    """
    place = place or modality
    out = []
    for where, item in _entries(declared, place):
        v = item if isinstance(item, Variable) else _from_dict(item, where)
        if v.every is not None and modality != ENVIRONMENT:
            raise SchemaError(
                f"{where}: {v.name!r} has every={v.every}, which is for variables of the environment; agents log when they like."
            )
        out.append(v.with_modality(modality))
    return out


def _from_dict(item: object, where: str) -> Variable:
    if not isinstance(item, Mapping):
        raise SchemaError(f"{where} is {item!r}; give a Variable or a dictionary such as {{'name': 'speed', 'dtype': 'float32'}}.")
    try:
        return Variable.from_dict(item)
    except SchemaError as error:
        raise SchemaError(f"{where}: {error}") from None


def _entries(declared: Any, place: str) -> Iterator[tuple[str, Any]]:
    if declared is None:
        return
    if isinstance(declared, Variable):
        yield place, declared
    elif isinstance(declared, Mapping):
        # A variable may well be called "name": only text is the name of a single declaration.
        if isinstance(declared.get("name"), str):
            yield place, declared
        else:
            for name, item in declared.items():
                yield f"{place}.{name}", _named(name, item, place)
    elif isinstance(declared, Iterable) and not isinstance(declared, (str, bytes)):
        for i, item in enumerate(declared):
            yield f"{place}[{i}]", item
    else:
        raise SchemaError(f"{place} is {declared!r}; give a Variable, a list of them, or a mapping such as {_EXAMPLE}.")


def _named(name: object, declaration: object, place: str) -> Variable | dict[str, Any]:
    if isinstance(declaration, Variable):
        if declaration.name != name:
            raise SchemaError(f"{place}.{name} is a variable called {declaration.name!r}; give it one name.")
        return declaration
    if not isinstance(name, str) or not isinstance(declaration, (Mapping, type(None))):
        raise SchemaError(f"{place} maps {name!r} to {declaration!r}; map names to declarations: {_EXAMPLE}.")
    given = dict(declaration or {})
    if given.setdefault("name", name) != name:
        raise SchemaError(f"{place}.{name} is a declaration with the name {given['name']!r}; give it one name.")
    return given
