"""A schema as a run keeps it: as text, every variable in its place, for who goes on with the run or repairs it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from simlab.errors import SchemaError
from simlab.metadata import from_json, to_json
from simlab.schema.schema import Schema
from simlab.schema.variable import Variable


def variables_to_json(variables: Iterable[Variable]) -> str:
    """Return variables as JSON text, in their order.

    Examples
    --------
    >>> variables_from_json(variables_to_json([Variable("speed", units="m s-1")]))[0].units
    'm s-1'
    """
    return to_json([[v.modality, v.to_dict()] for v in variables], "the schema")


def variables_from_json(text: str) -> list[Variable]:
    """Return what `variables_to_json` wrote.

    Raises
    ------
    SchemaError
        If it is something else.
    """
    return _variables(from_json(text))


def _variables(told: Any) -> list[Variable]:
    try:
        return [Variable.from_dict(declaration).with_modality(modality) for modality, declaration in told]
    except (TypeError, ValueError) as e:
        raise SchemaError(f"The schema that the run keeps is damaged: {e}") from e


def schema_to_json(schema: Schema) -> str:
    """Return a schema as JSON text, every variable in its place.

    Examples
    --------
    >>> schema = Schema(rewards=Variable("reward"), observations=Variable("vision", (3, 3)))
    >>> schema_from_json(schema_to_json(schema)) == schema
    True
    """
    return to_json(
        {
            "populations": {name: [[v.modality, v.to_dict()] for v in schema.variables(name)] for name in schema.population_names},
            "environment": [[v.modality, v.to_dict()] for v in schema.environment],
            "agents": [[name, list(ids)] for name, ids in schema.agents.items()],
            "extensible": schema.extensible,
        },
        "the schema",
    )


def schema_from_json(text: str) -> Schema:
    """Return what `schema_to_json` wrote.

    Raises
    ------
    SchemaError
        If it is something else.
    """
    told = from_json(text)
    if not isinstance(told, dict) or not {"populations", "environment", "agents", "extensible"} <= set(told):
        raise SchemaError("The schema that the run keeps is damaged: it is no declaration.")
    schema = Schema(extensible=bool(told["extensible"]))
    for name, variables in told["populations"].items():
        schema = schema.extended(_variables(variables), name)
    schema._populations = {name: schema.variables(name) for name in told["populations"]}
    schema = schema.extended(_variables(told["environment"]), None)
    schema.agents = {name: tuple(_id(i) for i in ids) for name, ids in told["agents"]}
    return schema


def _id(value: Any) -> Any:
    return tuple(map(_id, value)) if isinstance(value, list) else value
