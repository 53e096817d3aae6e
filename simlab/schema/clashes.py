"""What two declarations may not both have: a name, a place in the file, or a dimension of two sizes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

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
    Places(populations, environment)


@dataclass(slots=True)
class _Scope:
    """What the variables of one population, or of the environment, take up."""

    stems: dict[str, Variable] = field(default_factory=dict)
    names: dict[str, Variable] = field(default_factory=dict)
    groups: dict[str, Variable] = field(default_factory=dict)
    """Names that a variable makes a group: "camera", because of "camera.rgb"."""
    derived: dict[str, Variable] = field(default_factory=dict)
    flat: dict[str, Variable] = field(default_factory=dict)
    """By modality, the variable that is called like it."""
    named: dict[str, Variable] = field(default_factory=dict)
    """By modality, the first variable with a name of its own."""


class Places:
    """The names and dimensions that are taken in a run. One more variable is looked up, not compared with each that is there.

    Parameters
    ----------
    populations, environment : mapping, sequence
        As for `check_clashes`.

    Raises
    ------
    SchemaError
        If two of them clash. What was added before the clash stays: the index is of no use then.
    """

    def __init__(self, populations: Mapping[str, Sequence[Variable]], environment: Sequence[Variable]) -> None:
        self._scopes: dict[str | None, _Scope] = {None: _Scope()}
        self._own_dims: dict[str, Variable] = {}
        self._named_dims: dict[str, Variable] = {}
        self._sizes: dict[str, tuple[int, Variable]] = {}
        self._labels: dict[str, Variable] = {}
        for population in populations:
            self._scopes[population] = _Scope()
        for population, variables in populations.items():
            self.add(variables, population)
        self.add(environment, None)

    def add(self, variables: Iterable[Variable], population: str | None) -> None:
        """Add variables to a population, which may be new, or with None to the environment.

        Raises
        ------
        SchemaError
            If one clashes with another.
        """
        scope = self._scopes.get(population)
        if scope is None:
            for v in (v for there in self._scopes.values() for v in there.stems.values()):
                _check_population(v, population or "")
            scope = self._scopes[population] = _Scope()
        visible = list(self._scopes.values()) if population is None else [scope, self._scopes[None]]
        for v in variables:
            self._check_names(v, visible)
            if population is not None:
                _check_modality_group(v, scope, population)
            for name in filter(None, self._scopes):
                _check_population(v, name)
            self._add_dimensions(v, population or "")

    def _check_names(self, v: Variable, visible: Sequence[_Scope]) -> None:
        """Check a variable's name and what derives from it against those that are there, and add it to the first of the scopes.

        "camera" is refused beside "camera.rgb": the first would be a variable, the second makes it a group.
        """
        stem, name, derived = _stem(v), disk_name(v.name), list(_derived(v))
        for scope in visible:
            if stem in scope.stems:
                other = scope.stems[stem]
                rule = "a variable's name is unique in its run"
                if other.name != v.name:
                    rule = "a variable's name, with '_' for what a file cannot hold and for '.', is unique in its run"
                raise SchemaError(f"{_place(other)} and {_place(v)} clash: {rule}. Rename one.")
            if name in scope.groups:
                _refuse_group(v, scope.groups[name], name)
            for parent in _parents(name):
                if parent in scope.names:
                    _refuse_group(scope.names[parent], v, parent)
            if stem in scope.derived:
                _refuse_derived(v, scope.derived[stem], stem)
            for taken in derived:
                if taken in scope.stems or taken == stem:
                    _refuse_derived(scope.stems.get(taken, v), v, taken)
        own = visible[0]
        own.stems[stem] = own.names[name] = v
        own.groups |= dict.fromkeys(_parents(name), v)
        own.derived |= dict.fromkeys(derived, v)

    def _add_dimensions(self, v: Variable, population: str) -> None:
        natural = v.has_natural_dims
        for dim, size in zip(v.dims or (), v.shape, strict=True):
            owner, user = (v, self._named_dims.get(dim)) if natural else (self._own_dims.get(dim), v)
            if owner is not None and user is not None:
                raise SchemaError(
                    f"{_place(user)} has a dimension called {dim!r}, which is what {_place(owner)} calls its own by default. "
                    "To share a dimension give both dims= with a name of its own."
                )
            (self._own_dims if natural else self._named_dims)[dim] = v
            key = f"{population}.{dim}" if population and natural else dim
            known, first = self._sizes.setdefault(key, (size, v))
            if known != size:
                raise SchemaError(
                    f"{_place(v)} gives the dimension {dim!r} the size {size}, but {_place(first)} gives it {known}. "
                    "Rename one of the two dimensions."
                )
        if v.channels and v.dims and not natural:
            other = self._labels.setdefault(v.dims[-1], v)
            if other.channels != v.channels:
                raise SchemaError(
                    f"{_place(v)} and {_place(other)} share the dimension {v.dims[-1]!r} but label its entries differently. "
                    "Give both the same channels=, or a dimension of its own to each."
                )


def _place(v: Variable) -> str:
    return f"{v.name!r} of {v.modality or AGENT}"


def _stem(v: Variable) -> str:
    return disk_name(v.name).replace(".", "_")


def _parents(name: str) -> Iterator[str]:
    parts = name.split(".")
    return (".".join(parts[:i]) for i in range(1, len(parts)))


def _refuse_group(value: Variable, below: Variable, name: str) -> NoReturn:
    raise SchemaError(f"{_place(value)} and {_place(below)} clash: one makes {name!r} a value, the other a group. Rename one.")


def _refuse_derived(v: Variable, other: Variable, name: str) -> NoReturn:
    raise SchemaError(
        f"{_place(v)} clashes with {_place(other)}, which has a dimension or labels called {name!r}. "
        "Rename the variable, or name the dimension in dims=."
    )


def _check_modality_group(v: Variable, scope: _Scope, population: str) -> None:
    """Refuse actions="actions" beside actions="message": `actions` would be a variable and the group of the other."""
    is_flat = FLAT_NAMES.get(v.name) == v.modality
    if is_flat and v.name == v.modality:
        scope.flat[v.modality] = v
    elif not is_flat:
        scope.named.setdefault(v.modality, v)
    if v.modality in scope.flat and v.modality in scope.named:
        flat, other = scope.flat[v.modality], scope.named[v.modality]
        raise SchemaError(
            f"{flat.name!r} cannot stand beside {other.name!r}{f' of {population}' if population else ''}: "
            f"where {v.modality} have names, none of them is {flat.name!r}. Call it {flat.name.rstrip('s')!r}."
        )


def _check_population(v: Variable, population: str) -> None:
    if _stem(v) in (population, population + ID_SUFFIX, population + KEY_SUFFIX) or v.name.startswith(population + "."):
        raise SchemaError(f"{_place(v)} clashes with the population {population!r}, whose agents have that name. Rename one of them.")


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
