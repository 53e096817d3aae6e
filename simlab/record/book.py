"""The schema of a run while it grows: which variable has which index, and what a name that is new becomes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from simlab.errors import SchemaError, did_you_mean
from simlab.record.items import GROUP_WORDS, Item, Where
from simlab.schema import Schema, Variable
from simlab.schema.names import disk_name
from simlab.schema.schema import KEPT_NAMES
from simlab.schema.values import infer_variable


class SchemaBook:
    """The schema of a run that is being recorded.

    Attributes
    ----------
    schema : Schema
        As declared, with what was inferred since.
    names, roots : set of str
        Names of all variables of agents, and the first parts of those with dots.
    numbers : tuple of Variable
        Variables of the environment that live on the run clock.
    all_series : tuple of Variable
        Every variable of the environment that has a time axis of its own.
    """

    def __init__(self, schema: Schema | None) -> None:
        self._stems: dict[str, str] = {}
        self.go_back(schema if schema is not None else Schema(extensible=True))

    def go_back(self, schema: Schema) -> None:
        """Take the schema as it was before a call that is refused."""
        self.schema = schema
        self._index: dict[str, dict[str, int]] = {}
        self.names: set[str] = set()
        self.roots: set[str] = set()
        self.numbers: tuple[Variable, ...] = ()
        self.all_series: tuple[Variable, ...] = ()
        self._numbers: dict[str, tuple[int, Variable]] = {}
        self._series: dict[str, Variable] = {}
        for population in schema.population_names:
            self._enter(schema.variables(population), population)
        self._enter_environment(schema.environment)

    def _enter(self, variables: Iterable[Variable], population: str) -> None:
        index = self._index.setdefault(population, {})
        for v in variables:
            index[v.name] = len(index)
            self.names.add(v.name)
            self.roots.add(v.name.split(".")[0])

    def _enter_environment(self, variables: Iterable[Variable]) -> None:
        for v in variables:
            if v.is_series:
                self._series[v.name] = v
                self.all_series += (v,)
            else:
                self._numbers[v.name] = len(self._numbers), v
                self.numbers += (v,)

    # -- looking up

    def variables(self, population: str) -> tuple[Variable, ...]:
        """Return the variables of a population's agents; their places are their indices."""
        return self.schema.variables(population)

    def number(self, name: str) -> tuple[int, Variable] | None:
        """Return index and variable of one of the environment's numbers, or None."""
        return self._numbers.get(name)

    def series(self, name: str) -> Variable | None:
        """Return the environment's variable of that name that has a time axis of its own, or None."""
        return self._series.get(name)

    def lookup(self, population: str, name: str) -> tuple[int, Variable] | None:
        """Return index and variable of an agent's variable, or None."""
        index = self._index.get(population, {}).get(name)
        return None if index is None else (index, self.schema.variables(population)[index])

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
        known = self._index.get(population, {})
        declared = self.schema.variables(population)
        new: dict[str, Variable] = {}
        for item in items:
            if item.name in known:
                self._same_place(declared[known[item.name]], item, where)
            elif item.name not in new:
                self._must_be_extensible(item.name, declared, where)
                new[item.name] = infer_variable(item.name, item.value, item.modality, where, lead)
        if new:
            self.schema = self.schema.extended(new.values(), population)
            self._enter(new.values(), population)

    def add_environment_variables(self, items: Sequence[Item], where: Where, lead: int = 0) -> None:
        """Make the names that are not known yet variables of the environment; see `add_agent_variables`."""
        new: dict[str, Variable] = {}
        for item in items:
            if item.name not in self._numbers and item.name not in self._series and item.name not in new:
                self._must_be_extensible(item.name, self.schema.environment, where)
                new[item.name] = infer_variable(item.name, item.value, item.modality, where, lead)
        if new:
            self.schema = self.schema.extended(new.values(), None)
            self._enter_environment(new.values())

    def _must_be_extensible(self, name: str, declared: Iterable[Variable], where: Where) -> None:
        if not self.schema.extensible:
            known = [v.name for v in declared]
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
        """Return the population that a new agent joins; it is founded with its first variable.

        An agent that the schema lists belongs where it is listed. Otherwise the id's own word decides: it names the population
        ("prey_3"), or other agents with that word are in one already. Only then do the shapes of the first values: an agent joins the
        first population that they do not contradict, and without a declared schema founds one of its own where there is none.
        """
        names = self.schema.population_names
        for population, ids in self.schema.agents.items():
            if agent_id in ids:
                return population
        stem = stem_of(agent_id)
        if stem and stem in names:
            return stem
        if len(names) == 1 and not self.schema.extensible:
            return names[0]
        if stem and stem in self._stems:
            return self._stems[stem]
        fitting = next((p for p in names if self._fits(p, items, lead)), None)
        if fitting is None and not self.schema.extensible:
            raise SchemaError(
                f"Agent {agent_id!r} fits none of the populations {', '.join(map(repr, names))}. "
                "Start its id with the population's name ('prey_3'), or list it: Schema(..., agents={'prey': [...]})."
            )
        return self._new_name(stem) if fitting is None else fitting

    def remember(self, agent_id: Any, population: str) -> bool:
        """Note that an agent joined a population: others whose ids have the same word follow it. Say whether it is the first of them."""
        stem = stem_of(agent_id)
        is_first = stem not in self._stems
        self._stems.setdefault(stem, population)
        return is_first

    def forget(self, agent_id: Any) -> None:
        """Forget an agent that was the first with its word."""
        del self._stems[stem_of(agent_id)]

    def _fits(self, population: str, items: Sequence[Item], lead: int) -> bool:
        """Whether the shapes of values contradict no variable of a population; in a declared one they have to be its variables."""
        for item in items:
            found = self.lookup(population, item.name)
            if found is None:
                if not self.schema.extensible and item.name not in GROUP_WORDS:
                    return False
                continue
            try:
                shape = np.shape(item.value)
            except ValueError:
                continue  # ragged: an error of its own, where it is logged
            if shape[lead:] != found[1].shape:
                return False
        return True

    def _new_name(self, stem: str) -> str:
        name = stem or "population"
        if name in KEPT_NAMES:
            name += "_kind"
        candidate, n = name, 2
        while candidate in self.schema.population_names:
            candidate, n = f"{name}_{n}", n + 1
        return candidate


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
