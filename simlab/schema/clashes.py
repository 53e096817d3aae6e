"""What two declarations may not both have: a name, a place in the file, or a dimension of two sizes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from simlab.conventions import (
    AGENT,
    ENVIRONMENT,
    FLAT_NAMES,
    ID_SUFFIX,
    KEY_SUFFIX,
    LABEL_SUFFIX,
    STRLEN_SUFFIX,
    TIME_SUFFIX,
)
from simlab.errors import SchemaError
from simlab.schema.names import disk_name
from simlab.schema.variable import Variable


def check_clashes(populations: Mapping[str, Sequence[Variable]], environment: Sequence[Variable]) -> None:
    """Raise unless the variables of a run can lie in one file and in one Dataset.

    Parameters
    ----------
    populations : mapping of str to sequence of Variable
        The variables of the agents, by population; "" where all are of one kind.
    environment : sequence of Variable
        The variables of the environment.

    Raises
    ------
    SchemaError
        If two of them clash; the message names both.

    Examples
    --------
    >>> check_clashes({"": [Variable("a/b"), Variable("a_b")]}, [])
    Traceback (most recent call last):
    simlab.errors.SchemaError: 'a/b' of agent and 'a_b' of agent clash: a variable's name, with '_' for what a file cannot...
    """
    for population, variables in populations.items():
        members = (*variables, *environment)
        _check_names(members)
        _check_groups(members)
        _check_derived(members, populations)
        _check_modality_groups(variables, population)
    _check_dimensions(populations, environment)


def _place(v: Variable) -> str:
    return f"{v.name!r} of {v.modality or AGENT}"


def _stem(v: Variable) -> str:
    return disk_name(v.name).replace(".", "_")


def _check_names(variables: Iterable[Variable]) -> None:
    taken: dict[str, Variable] = {}
    for v in variables:
        other = taken.setdefault(_stem(v), v)
        if other is not v:
            rule = "a variable's name is unique in its run"
            if other.name != v.name:
                rule = "a variable's name, with '_' for what a file cannot hold and for '.', is unique in its run"
            raise SchemaError(f"{_place(other)} and {_place(v)} clash: {rule}. Rename one.")


def _check_groups(variables: Sequence[Variable]) -> None:
    """Refuse "camera" beside "camera.rgb": the first would be a variable, the second makes it a group."""
    by_name = {disk_name(v.name): v for v in variables}
    for name, v in by_name.items():
        for parent in _parents(name):
            if parent in by_name:
                raise SchemaError(
                    f"{_place(by_name[parent])} and {_place(v)} clash: one makes {parent!r} a value, the other a group. Rename one."
                )


def _parents(name: str) -> Iterator[str]:
    parts = name.split(".")
    return (".".join(parts[:i]) for i in range(1, len(parts)))


def _check_modality_groups(variables: Sequence[Variable], population: str) -> None:
    """Refuse actions="actions" beside actions="message": `actions` would be a variable and the group of the other."""
    for v in variables:
        if v.name != v.modality or FLAT_NAMES.get(v.name) != v.modality:
            continue
        for other in variables:
            if other.modality == v.modality and FLAT_NAMES.get(other.name) != v.modality:
                singular = v.name.rstrip("s")
                raise SchemaError(
                    f"{v.name!r} cannot stand beside {other.name!r}{f' of {population}' if population else ''}: "
                    f"where {v.modality} have names, none of them is {v.name!r}. Call it {singular!r}."
                )


def _derived(v: Variable) -> Iterator[str]:
    """Names that lie in the file because of a variable: its dimensions and their labels."""
    yield from v.dims or ()
    if v.channels and v.dims:
        yield v.dims[-1] + LABEL_SUFFIX
        yield v.dims[-1] + LABEL_SUFFIX + STRLEN_SUFFIX
    if v.is_text:
        yield _stem(v) + STRLEN_SUFFIX
    if v.dtype.kind == "c" or v.dtype.char == "g":
        yield f"{_stem(v)}_part"
    if v.modality == ENVIRONMENT and v.is_series:
        yield _stem(v) + TIME_SUFFIX


def _check_derived(variables: Sequence[Variable], populations: Mapping[str, object]) -> None:
    taken = {_stem(v): v for v in variables}
    for v in variables:
        for name in _derived(v):
            if name in taken:
                raise SchemaError(
                    f"{_place(taken[name])} clashes with {_place(v)}, which has a dimension or labels called {name!r}. "
                    "Rename the variable, or name the dimension in dims=."
                )
    for population in filter(None, populations):
        for v in variables:
            if _stem(v) in (population, population + ID_SUFFIX, population + KEY_SUFFIX) or v.name.startswith(population + "."):
                raise SchemaError(
                    f"{_place(v)} clashes with the population {population!r}, whose agents have that name. Rename one of them."
                )


def _check_dimensions(populations: Mapping[str, Sequence[Variable]], environment: Sequence[Variable]) -> None:
    owned: dict[str, Variable] = {}
    everywhere = [(population, v) for population, variables in populations.items() for v in variables]
    everywhere += [("", v) for v in environment]
    for _, v in everywhere:
        if v.has_natural_dims:
            owned |= dict.fromkeys(v.dims or (), v)
    sizes: dict[str, tuple[int, Variable]] = {}
    labels: dict[str, Variable] = {}
    for population, v in everywhere:
        for dim, size in zip(v.dims or (), v.shape, strict=True):
            if not v.has_natural_dims and dim in owned:
                raise SchemaError(
                    f"{_place(v)} has a dimension called {dim!r}, which is what {_place(owned[dim])} calls its own by default. "
                    "To share a dimension give both dims= with a name of its own."
                )
            key = f"{population}.{dim}" if population and v.has_natural_dims else dim
            known, first = sizes.setdefault(key, (size, v))
            if known != size:
                raise SchemaError(
                    f"{_place(v)} gives the dimension {dim!r} the size {size}, but {_place(first)} gives it {known}. "
                    "Rename one of the two dimensions."
                )
        if v.channels and v.dims and not v.has_natural_dims:
            other = labels.setdefault(v.dims[-1], v)
            if other.channels != v.channels:
                raise SchemaError(
                    f"{_place(v)} and {_place(other)} share the dimension {v.dims[-1]!r} but label its entries differently. "
                    "Give both the same channels=, or a dimension of its own to each."
                )
