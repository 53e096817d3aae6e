"""A schema as a dictionary, and as a JSON or YAML file."""

from __future__ import annotations

import json
import os
from collections.abc import Hashable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from simlab.conventions import AGENT_MODALITIES, ENVIRONMENT
from simlab.errors import MissingPackageError, RunNotFoundError, SchemaError, StorageError, did_you_mean
from simlab.schema.declarations import variables_of
from simlab.schema.schema import MAIN, Schema

_KEYS: Final = (*AGENT_MODALITIES, ENVIRONMENT, "populations", "agents", "extensible")
_YAML: Final = (".yaml", ".yml")


def as_schema(given: Schema | Mapping[str, Any] | str | os.PathLike[str] | None) -> Schema:
    """Return a schema from whatever stands for one.

    Parameters
    ----------
    given : Schema, mapping, path or None
        A schema, its dictionary or the file it is in. None is a schema without variables that takes what it is given.

    Raises
    ------
    SchemaError
        If it is something else, or a declaration in it does not fit.
    RunNotFoundError
        If there is no such file.

    Examples
    --------
    >>> as_schema(None), as_schema({"rewards": {"name": "reward"}})
    (<Schema: empty, extensible>, <Schema: reward>)
    """
    if given is None:
        return Schema(extensible=True)
    if isinstance(given, Schema):
        return given
    if isinstance(given, Mapping):
        return schema_from_dict(given)
    if isinstance(given, (str, os.PathLike)):
        return schema_from_file(given)
    raise SchemaError(f"The schema is a {type(given).__name__}; give a Schema, a dictionary, the path of a .json or .yaml file, or None.")


def schema_to_dict(schema: Schema) -> dict[str, Any]:
    """Return a schema as plain JSON values, without what is empty.

    Examples
    --------
    >>> from simlab.schema import Variable
    >>> schema_to_dict(Schema(rewards=Variable("reward"), extensible=True))
    {'rewards': [{'name': 'reward', 'dtype': 'float32'}], 'extensible': True}
    """
    out: dict[str, Any] = {}
    if schema.population_names == (MAIN,):
        out |= _agent_variables(schema, MAIN)
    else:
        out["populations"] = {name: _agent_variables(schema, name) for name in schema.population_names}
    if schema.environment:
        out[ENVIRONMENT] = [v.to_dict() for v in schema.environment]
    if schema.agents:
        out["agents"] = {name: [_id_to_json(i) for i in ids] for name, ids in schema.agents.items()}
    if schema.extensible:
        out["extensible"] = True
    return out


def schema_from_dict(declaration: Mapping[str, Any], source: str = "") -> Schema:
    """Return the schema that a dictionary declares, as `schema_to_dict` writes it or as a person would.

    Parameters
    ----------
    declaration : mapping
        Keys are the arguments of `Schema`. Variables are dictionaries with a name, lists of them, or a mapping of names to them.
    source : str, optional
        The file it comes from, for messages.

    Raises
    ------
    SchemaError
        If a key is unknown or a declaration does not fit; the message names the file and the path of keys.

    Examples
    --------
    >>> schema_from_dict({"observations": {"vision": {"shape": [11, 11, 3], "dtype": "uint8"}}, "rewards": {"name": "reward"}})
    <Schema: vision, reward>
    >>> schema_from_dict({"observation": []})
    Traceback (most recent call last):
    simlab.errors.SchemaError: A schema has no key 'observation'; it has ... Did you mean 'observations'?
    """
    try:
        return _schema(declaration, "")
    except SchemaError as error:
        if not source:
            raise
        raise SchemaError(f"{source}: {error}") from None


def schema_to_file(schema: Schema, path: str | os.PathLike[str]) -> None:
    """Write a schema to a ``.json``, ``.yaml`` or ``.yml`` file.

    Parameters
    ----------
    schema : Schema
        The schema.
    path : path_like
        Where to; "~" is the home folder. A file that is there is replaced.

    Raises
    ------
    SchemaError
        If the path has another ending.
    MissingPackageError
        If PyYAML is needed and not installed.
    RunNotFoundError
        If there is no such folder.
    """
    file = _schema_path(path)
    declaration = schema_to_dict(schema)
    if file.suffix.lower() in _YAML:
        text = _yaml("to write a schema as YAML").safe_dump(declaration, sort_keys=False, allow_unicode=True, default_flow_style=None)
    else:
        text = json.dumps(declaration, indent=2, ensure_ascii=False) + "\n"
    if not file.parent.is_dir():
        raise RunNotFoundError(f"There is no folder {str(file.parent)!r} to write {file.name!r} to. Make it first: mkdir -p {file.parent}")
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StorageError(f"The schema could not be written to {str(file)!r}: {error.strerror or error}.") from error


def schema_from_file(path: str | os.PathLike[str]) -> Schema:
    """Read a schema from a ``.json``, ``.yaml`` or ``.yml`` file.

    Parameters
    ----------
    path : path_like
        The file; "~" is the home folder.

    Raises
    ------
    RunNotFoundError
        If there is no such file.
    SchemaError
        If it is not JSON or YAML, or a declaration in it does not fit; the message names the file and the path of keys.
    MissingPackageError
        If PyYAML is needed and not installed.
    """
    file = _schema_path(path)
    try:
        text = file.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise RunNotFoundError(f"There is no schema file {str(file)!r}. Check the path; the working folder is {os.getcwd()!r}.") from None
    except UnicodeDecodeError as error:
        raise SchemaError(f"{file} is not text in UTF-8 ({error.reason} at byte {error.start}). Save it as UTF-8.") from None
    except OSError as error:
        raise StorageError(f"The schema file {str(file)!r} could not be read: {error.strerror or error}.") from error
    declaration = _parse_yaml(text, file) if file.suffix.lower() in _YAML else _parse_json(text, file)
    if not isinstance(declaration, Mapping):
        kind = "empty" if declaration is None else f"a {type(declaration).__name__}"
        raise SchemaError(f"{file} is {kind}; a schema is a mapping with keys such as observations, actions and rewards.")
    return schema_from_dict(declaration, str(file))


def _schema(declaration: object, place: str) -> Schema:
    if not isinstance(declaration, Mapping):
        raise SchemaError(f"{place or 'The schema'} is {declaration!r}; give a mapping with keys such as observations and rewards.")
    for key in declaration:
        if key not in _KEYS:
            what = f"{place}: a schema" if place else "A schema"
            raise SchemaError(f"{what} has no key {key!r}; it has {', '.join(_KEYS)}.{did_you_mean(str(key), _KEYS)}")
    dot = f"{place}." if place else ""
    given: dict[str, Any] = {}
    for modality in (*AGENT_MODALITIES, ENVIRONMENT):
        given[modality] = variables_of(declaration.get(modality), modality, dot + modality)
    populations = _mapping(declaration, "populations", dot)
    given["populations"] = {
        name: inner if isinstance(inner, Schema) else _schema(inner, f"{dot}populations.{name}") for name, inner in populations.items()
    }
    given["agents"] = {
        name: [_id_from_json(i) for i in ids] if isinstance(ids, (list, tuple)) else ids
        for name, ids in _mapping(declaration, "agents", dot).items()
    }
    extensible = declaration.get("extensible", False)
    if not isinstance(extensible, bool):
        raise SchemaError(f"{dot}extensible is {extensible!r}; give true or false.")
    return Schema(**given, extensible=extensible)


def _mapping(declaration: Mapping[str, Any], key: str, dot: str) -> Mapping[str, Any]:
    found = declaration.get(key)
    if not isinstance(found, (Mapping, type(None))):
        raise SchemaError(f"{dot}{key} is {found!r}; give a mapping of the populations' names.")
    return found or {}


def _agent_variables(schema: Schema, population: str) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for v in schema.variables(population):
        out.setdefault(v.modality, []).append(v.to_dict())
    return out


def _id_to_json(agent: Hashable) -> Any:
    if isinstance(agent, tuple):
        return [_id_to_json(part) for part in agent]
    if isinstance(agent, np.generic):
        agent = agent.item()
    if not isinstance(agent, (str, int, float, type(None))):
        raise SchemaError(
            f"agents= holds the id {agent!r}, a {type(agent).__name__}; a schema file holds ids that are text, numbers or tuples."
        )
    return agent


def _id_from_json(agent: Any) -> Any:
    return tuple(map(_id_from_json, agent)) if isinstance(agent, (list, tuple)) else agent


def _schema_path(path: str | os.PathLike[str]) -> Path:
    file = Path(path).expanduser()
    if file.suffix.lower() not in (".json", *_YAML):
        raise SchemaError(f"{file} has the ending {file.suffix!r}; a schema file is called .json, .yaml or .yml.")
    return file


def _parse_json(text: str, file: Path) -> Any:
    def unique(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for key, value in pairs:
            if key in out:
                raise SchemaError(f"{file} has the key {key!r} twice in one mapping. Remove or rename one.")
            out[key] = value
        return out

    try:
        return json.loads(text, object_pairs_hook=unique) if text.strip() else None
    except json.JSONDecodeError as error:
        raise SchemaError(f"{file} is not JSON: {error.msg} in line {error.lineno}, column {error.colno}.") from None
    except RecursionError:
        raise SchemaError(f"{file} is nested too deeply to be a schema.") from None


def _parse_yaml(text: str, file: Path) -> Any:
    yaml = _yaml(f"to read {file.name}")

    class Loader(yaml.SafeLoader):  # type: ignore[name-defined,misc]
        """Plain values only, and no key twice: YAML itself would keep the last."""

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            keys = [key.value for key, _ in node.value]
            for key in keys:
                if keys.count(key) > 1:
                    line = node.start_mark.line + 1
                    raise SchemaError(f"{file} has the key {key!r} twice in the mapping that starts in line {line}. Remove or rename one.")
            mapping: dict[Any, Any] = super().construct_mapping(node, deep)
            return mapping

    try:
        return yaml.load(text, Loader)  # a SafeLoader: nothing is executed
    except yaml.YAMLError as error:
        raise SchemaError(f"{file} is not YAML: {' '.join(str(error).split())}.") from None
    except RecursionError:
        raise SchemaError(f"{file} is nested too deeply to be a schema.") from None


def _yaml(purpose: str) -> Any:
    try:
        import yaml
    except ImportError:
        raise MissingPackageError("PyYAML", purpose, extra="yaml", conda="pyyaml") from None
    return yaml
