"""From JSON text to the value; nothing is ever evaluated or imported."""

from __future__ import annotations

import base64
import datetime
import json
from collections.abc import Callable
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import Any, Final

import numpy as np

from simlab.errors import MetadataError

TAG: Final = "$type"
ARRAY_KINDS: Final = "biufcMmU"


def from_json(text: str) -> Any:
    """Return the value that `to_json` stored.

    Parameters
    ----------
    text : str
        Its text, or any other JSON.

    Raises
    ------
    MetadataError
        If the text is not JSON, or a tagged value in it is broken.

    Examples
    --------
    >>> from_json('{"a": [1, {"$type": "complex", "value": [0.0, 1.0]}]}')
    {'a': [1, 1j]}
    """
    try:
        return json.loads(text, object_hook=_from_tagged)
    except RecursionError:
        raise MetadataError(f"The JSON text {shorten(text)} is nested too deeply to be read.") from None
    except (ValueError, TypeError) as error:
        if isinstance(error, MetadataError):
            raise
        raise MetadataError(
            f"The text {shorten(text)} is not JSON: {error}. It was changed, or cut short, after it was written."
        ) from error


def _from_tagged(found: dict[str, Any]) -> Any:
    decode = _DECODERS.get(found[TAG]) if isinstance(found.get(TAG), str) else None
    if decode is None:
        return found  # plain, or a kind that a later version knows
    try:
        return decode(found)
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise MetadataError(f"A stored {found[TAG]} is broken: {shorten(str(found))} ({type(error).__name__}: {error}).") from error


def _to_array(found: dict[str, Any]) -> Any:
    dtype, shape = np.dtype(found["dtype"]), tuple(found["shape"])
    if dtype.kind not in ARRAY_KINDS:
        raise ValueError(f"no array of dtype {dtype} is ever stored")
    if "values" in found:
        return np.array(found["values"], dtype).reshape(shape)
    return np.frombuffer(base64.b64decode(found["base64"], validate=True), dtype).reshape(shape).copy()


def _to_path(found: dict[str, Any]) -> PurePath:
    flavour = PureWindowsPath if found["flavour"] == "windows" else PurePosixPath
    return Path(found["value"]) if issubclass(type(Path()), flavour) else flavour(found["value"])


_DECODERS: Final[dict[str, Callable[[dict[str, Any]], Any]]] = {
    "array": _to_array,
    "bytes": lambda d: base64.b64decode(d["base64"], validate=True),
    "complex": lambda d: complex(*d["value"]),
    "date": lambda d: datetime.date.fromisoformat(d["value"]),
    "datetime": lambda d: datetime.datetime.fromisoformat(d["value"]),
    "datetime64": lambda d: np.array(d["value"], "int64").view(d["dtype"])[()],
    "dict": lambda d: {key: value for key, value in d["items"]},  # noqa: C416 - a wrong length of a pair must be an error
    "float": lambda d: float(d["value"]),
    "frozenset": lambda d: frozenset(d["items"]),
    "int": lambda d: int(d["value"], 16),
    "longdouble": lambda d: np.longdouble(d["value"]),
    "path": _to_path,
    "range": lambda d: range(*d["value"]),
    "set": lambda d: set(d["items"]),
    "time": lambda d: datetime.time.fromisoformat(d["value"]),
    "timedelta": lambda d: datetime.timedelta(d["days"], d["seconds"], d["microseconds"]),
    "timedelta64": lambda d: np.array(d["value"], "int64").view(d["dtype"])[()],
    "tuple": lambda d: tuple(d["items"]),
}


def shorten(text: object) -> str:
    """Return text that is short enough for a message."""
    shown = text if isinstance(text, str) else repr(text)
    return shown if len(shown) <= 80 else f"{shown[:77]}..."
