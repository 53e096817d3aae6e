"""The schema of a run while it grows: which variable has which index, and what a name that is new becomes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from simlab.errors import SchemaError, ValueMismatchError, did_you_mean
from simlab.record.items import GROUP_WORDS, Item, Where
from simlab.schema import Schema, Variable
from simlab.schema.names import disk_name
from simlab.schema.values import fit, infer_variable


class SchemaBook:
    """The schema of a run that is being recorded.

    Attributes
    ----------
    schema : Schema
        As declared, with what was inferred since.
    """

    def __init__(self, schema: Schema | None) -> None:
        self.schema = schema if schema is not None else Schema(extensible=True)
        self._index: dict[str, dict[str, int]] = {}
        self._numbers: list[Variable] = []
        self._series: dict[str, Variable] = {}
        for population in self.schema.population_names:
            self._index[population] = {v.name: i for i, v in enumerate(self.schema.variables(population))}
        self._sort_environment(self.schema.environment)

    def _sort_environment(self, variables: Iterable[Variable]) -> None:
        for v in variables:
            if v.shape or v.every:
                self._series[v.name] = v
            else:
                self._numbers.append(v)

    # -- looking up

    def variables(self, population: str) -> tuple[Variable, ...]:
        """Return the variables of a population's agents; their places are their indices."""
        return self.schema.variables(population)

    @property
    def numbers(self) -> tuple[Variable, ...]:
        """Variables of the environment that live on the run clock."""
        return tuple(self._numbers)

    def number(self, name: str) -> tuple[int, Variable] | None:
        """Return index and variable of one of the environment's numbers, or None."""
        return next(((i, v) for i, v in enumerate(self._numbers) if v.name == name), None)

    def series(self, name: str) -> Variable | None:
        """Return the environment's variable of that name that has a time axis of its own, or None."""
        return self._series.get(name)

    @property
    def all_series(self) -> tuple[Variable, ...]:
        """Every variable of the environment that has a time axis of its own."""
        return tuple(self._series.values())

    def lookup(self, population: str, name: str) -> tuple[int, Variable] | None:
        """Return index and variable of an agent's variable, or None."""
        index = self._index.get(population, {}).get(name)
        return None if index is None else (index, self.schema.variables(population)[index])

    @property
    def names(self) -> set[str]:
        """Names of all variables of agents."""
        return {name for index in self._index.values() for name in index}

    def canonical(self, population: str, items: Sequence[Item]) -> list[Item]:
        """Return the items under their variables' names.

        ``{"observations": array}`` or ``{"reward": r}`` means the one variable of that modality, whatever a declared schema calls it.
        """
        if self.schema.extensible:
            return list(items)
        out = []
        for item in items:
            if item.name in GROUP_WORDS and not item.nested and self.lookup(population, item.name) is None:
                only = [v.name for v in self.variables(population) if v.modality == GROUP_WORDS[item.name]]
                if len(only) == 1:
                    item = item._replace(name=only[0])
            out.append(item)
        return out

    # -- growing

    def add_agent_variables(self, population: str, items: Sequence[Item], where: Where, lead: int = 0) -> None:
        """Make the names that are not known yet variables of a population.

        Parameters
        ----------
        items : sequence of Item
            What was logged.
        lead : int
            Leading axes of each value that are no part of the variable: agents, or time.

        Raises
        ------
        SchemaError
            If the schema was declared and does not take more, or a name clashes.
        """
        known = self._index.setdefault(population, {})
        new: dict[str, Variable] = {}
        for item in items:
            if item.name in known:
                declared = self.schema.variables(population)[known[item.name]]
                self._same_place(declared, item, where)
            elif item.name not in new:
                self._must_be_extensible(item.name, [v.name for v in self.schema.variables(population)], where)
                new[item.name] = self._infer(item, where, lead)
        if not new:
            return
        self.schema = self.schema.extended(new.values(), population)
        for name in new:
            known[name] = len(known)

    def add_environment_variables(self, items: Sequence[Item], where: Where, lead: int = 0) -> None:
        """Make the names that are not known yet variables of the environment; see `add_agent_variables`."""
        known = {v.name for v in self.schema.environment}
        new: dict[str, Variable] = {}
        for item in items:
            if item.name not in known and item.name not in new:
                self._must_be_extensible(item.name, known, where)
                new[item.name] = self._infer(item, where, lead)
        if new:
            self.schema = self.schema.extended(new.values(), None)
            self._sort_environment(new.values())

    @staticmethod
    def _infer(item: Item, where: Where, lead: int) -> Variable:
        value = item.value
        for _ in range(lead):
            if not hasattr(value, "__getitem__") or not len(value):
                raise ValueMismatchError(
                    f"{item.name!r} {where()} has no first entry to learn from: {value!r}. Declare it in a schema, or pass an array."
                )
            value = value[0]
        return infer_variable(item.name, value, item.modality, where)

    def _must_be_extensible(self, name: str, known: Iterable[str], where: Where) -> None:
        if not self.schema.extensible:
            raise SchemaError(
                f"{name!r} {where()} is not in the schema, which has {', '.join(map(repr, known)) or 'no such variables'}."
                f"{did_you_mean(name, known)} Declare it, or make the schema take new names: Schema(..., extensible=True)."
            )

    @staticmethod
    def _same_place(declared: Variable, item: Item, where: Where) -> None:
        # A flat name is what the schema says it is; only {"states": {"x": ...}} insists.
        if item.nested and declared.modality != item.modality:
            raise SchemaError(
                f"{item.name!r} {where()} is logged as one of {item.modality}, but is one of {declared.modality} already: "
                "a variable's name is unique in its run. Rename one."
            )

    # -- populations

    def population_for(self, agent_id: Any, items: Sequence[Item], lead: int = 0) -> str:
        """Return the population that a new agent joins.

        An agent that the schema lists belongs where it is listed. Otherwise the id's own word decides ("prey_3"), then which
        population's shapes its first values fit; without a declared schema, values that fit nobody found a population of their own.
        """
        names = self.schema.population_names
        for population, ids in self.schema.agents.items():
            if agent_id in ids:
                return population
        stem = stem_of(agent_id)
        if stem in names:
            return stem
        if len(names) == 1 and not self.schema.extensible:
            return names[0]
        fitting = [p for p in names if self._fits(p, items, lead)]
        if fitting:
            return fitting[0]
        if not self.schema.extensible:
            raise SchemaError(
                f"Agent {agent_id!r} fits none of the populations {', '.join(map(repr, names))}. "
                "Start its id with the population's name ('prey_3'), or list it: Schema(..., agents={'prey': [...]})."
            )
        return self._found_population(stem)

    def _fits(self, population: str, items: Sequence[Item], lead: int) -> bool:
        """Whether values contradict no variable of a population, and share one with it (or it has none yet)."""
        shared = 0
        for item in items:
            found = self.lookup(population, item.name)
            if found is None:
                continue
            variable = found[1]
            shape = getattr(item.value, "shape", None)
            if shape is None:
                try:
                    fit(item.value, variable, lambda: "", (len(item.value),) if lead else ())
                except (ValueMismatchError, TypeError):
                    return False
            elif tuple(shape[lead:]) != variable.shape:
                return False
            shared += 1
        return shared > 0 or not self.schema.variables(population)

    def _found_population(self, stem: str) -> str:
        name, n = stem, 2
        while name in self.schema.population_names or not name:
            name, n = f"{stem or 'population'}_{n}", n + 1
        self.schema = self.schema.extended((), name)
        self._index[name] = {}
        return name


def stem_of(agent_id: Any) -> str:
    """Return the word that an agent id starts with: the kind of agent, by the custom of PettingZoo.

    Examples
    --------
    >>> stem_of("prey_3"), stem_of(("wolf", 1)), stem_of(7)
    ('prey', 'wolf', '')
    """
    if isinstance(agent_id, tuple) and agent_id:
        return stem_of(agent_id[0])
    if not isinstance(agent_id, str):
        return ""
    stem = disk_name(agent_id.rstrip("0123456789").rstrip("_-. ") or "population").replace(".", "_")
    return stem
