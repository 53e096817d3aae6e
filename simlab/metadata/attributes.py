"""Attributes of a run: what netCDF holds as it is, and JSON text for the rest."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from simlab import conventions
from simlab.errors import MetadataError
from simlab.metadata.encoding import is_utf8, member, to_json

_RESERVED_ATTRIBUTES: Final = frozenset(
    {
        conventions.ATTR_CONVENTIONS,
        conventions.ATTR_FORMAT,
        conventions.ATTR_SEED,
        conventions.ATTR_CONFIG,
        conventions.ATTR_DATE,
        conventions.ATTR_ENVIRONMENT_TYPE,
        conventions.ATTR_STEP_DURATION,
        conventions.ATTR_JSON_ATTRIBUTES,
        conventions.ATTR_SCHEMA,
        *("CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST"),  # HDF5's own
    }
)
_ATTRIBUTE_NAME: Final = re.compile(r"[^\W\d_][\w+\-.@]*")
_NATIVE_KINDS: Final = ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8")


def split_attributes(mapping: Mapping[str, object], where: str) -> tuple[dict[str, Any], list[str]]:
    """Return attributes as values that netCDF holds, and the names of those whose text is JSON.

    Text, numbers and 1-D arrays of two numbers or more stay what they are. Everything else (booleans, None, lists, dates,
    dictionaries, integers beyond 64 bits, arrays of one entry) becomes JSON text.

    Parameters
    ----------
    mapping : mapping of str to object
        The attributes.
    where : str
        Their name in messages: "metadata".

    Raises
    ------
    MetadataError
        If a name cannot be used or a value cannot be stored.

    Examples
    --------
    >>> split_attributes({"title": "Foraging", "walls": True, "size": 3}, "metadata")
    ({'title': 'Foraging', 'walls': 'true', 'size': 3}, ['walls'])
    """
    out: dict[str, Any] = {}
    as_json: list[str] = []
    for name, value in mapping.items():
        _check_attribute_name(name, where)
        if isinstance(value, enum.Enum):
            value = value.value
        if _is_native(value):
            out[name] = value
        else:
            out[name] = to_json(value, member(where, name))
            as_json.append(name)
    return out, as_json


def _check_attribute_name(name: object, where: str) -> None:
    if not isinstance(name, str):
        kind = type(name).__name__
        raise MetadataError(f"{where} has an attribute called {name!r} ({kind}); names must be text. Use config= for other keys.")
    if name in _RESERVED_ATTRIBUTES:
        raise MetadataError(f"{where} has an attribute called {name!r}, which the run keeps for itself. Choose another name.")
    if not _ATTRIBUTE_NAME.fullmatch(name) or len(name.encode()) > 200:
        raise MetadataError(
            f"{where} has an attribute called {name!r}; a name starts with a letter, goes on with letters, digits and '_', "
            "and has at most 200 bytes. Choose another one, or use config= for any keys."
        )


def _is_native(value: object) -> bool:
    if isinstance(value, str):
        return bool(value) and "\0" not in value and is_utf8(value)
    if isinstance(value, np.generic):
        return value.dtype.str[1:] in _NATIVE_KINDS
    if isinstance(value, (bool, int)):
        return not isinstance(value, bool) and -(2**63) <= value < 2**63
    if isinstance(value, float):
        return True
    return type(value) is np.ndarray and value.ndim == 1 and value.size > 1 and value.dtype.str[1:] in _NATIVE_KINDS
