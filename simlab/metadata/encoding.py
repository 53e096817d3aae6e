"""From a value to JSON text."""

from __future__ import annotations

import argparse
import base64
import dataclasses
import datetime
import enum
import json
import math
import types
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from pathlib import PurePath, PureWindowsPath
from typing import Any, Final

import numpy as np

from simlab.errors import MetadataError
from simlab.metadata.decoding import ARRAY_KINDS, TAG, from_json, shorten

MAX_DEPTH: Final = 100
"""Levels of nesting that are stored; beyond it a reader in any language may run out of stack."""

_MAX_PLAIN_BITS: Final = 10_000  # Python reads no decimal number of more than 4,300 digits
_READABLE_ENTRIES: Final = 256  # longer arrays are stored as base64


def to_json(value: object, where: str) -> str:
    """Return a value as strictly valid JSON text, from which `from_json` makes an equal one.

    Stored are dictionaries with any plain keys, lists, tuples, sets, text, bytes, numbers of any size, NaN and infinity, None,
    dates and durations, paths, numpy arrays and scalars. Enum members are stored as their value, dataclasses and namespaces as
    dictionaries.

    Parameters
    ----------
    value : object
        What to store.
    where : str
        Its name in messages: "config".

    Raises
    ------
    MetadataError
        If it holds itself, is nested too deeply, or holds an object that cannot be stored; the message names the path to it.

    Examples
    --------
    >>> to_json({"lr": 0.1, "shape": (3,), "name": None}, "config")
    '{"lr": 0.1, "shape": {"$type": "tuple", "items": [3]}, "name": null}'
    >>> from_json(to_json({5: {1, 2}, "nan": [float("inf")]}, "config"))
    {5: {1, 2}, 'nan': [inf]}
    >>> to_json({"policy": {"activation": print}}, "config")
    Traceback (most recent call last):
    simlab.errors.MetadataError: config.policy.activation is a builtin_function_or_method, which ...
    """
    try:
        plain = _plain(value, where, {})
        text = json.dumps(plain, ensure_ascii=False, allow_nan=False)
        # Half of a surrogate pair is no UTF-8; escaped it passes.
        return text if text.isascii() or is_utf8(text) else json.dumps(plain, allow_nan=False)
    except RecursionError:
        raise MetadataError(f"{where} is nested too deeply to be stored. Flatten it.") from None


def _plain(value: Any, path: str, above: dict[int, str]) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, enum.Enum):
        return _plain(value.value, path, above)
    if isinstance(value, np.generic):
        return _from_scalar(value, path)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        number = int(value)
        return number if number.bit_length() <= _MAX_PLAIN_BITS else {TAG: "int", "value": hex(number)}
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {TAG: "float", "value": str(float(value))}
    if id(value) in above:
        raise MetadataError(f"{path} refers back to {above[id(value)]}; a cycle cannot be stored. Leave one of the two out.")
    if len(above) >= MAX_DEPTH:
        raise MetadataError(f"{path[:200]}... is nested more than {MAX_DEPTH} levels deep, too deep to be stored. Flatten it.")
    above[id(value)] = path
    try:
        return _from_object(value, path, above)
    finally:
        del above[id(value)]


def _from_object(value: Any, path: str, above: dict[int, str]) -> Any:
    if isinstance(value, Mapping):
        return _from_items(value.items(), path, above)
    if isinstance(value, (list, tuple, deque)):
        items = [_plain(item, f"{path}[{i}]", above) for i, item in enumerate(value)]
        return {TAG: "tuple", "items": items} if isinstance(value, tuple) else items
    if isinstance(value, AbstractSet):
        items = [_hashable(item, f"an element of {path}", above)[0] for item in value]
        return {TAG: "set" if not isinstance(value, frozenset) else "frozenset", "items": sorted(items, key=json.dumps)}
    for kinds, encode in _ENCODERS:
        if isinstance(value, kinds):
            return encode(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _from_items([(f.name, getattr(value, f.name)) for f in dataclasses.fields(value)], path, above)
    if isinstance(value, (argparse.Namespace, types.SimpleNamespace)):
        return _from_items(vars(value).items(), path, above)
    if isinstance(value, np.ndarray) or (hasattr(value, "__array__") and not isinstance(value, type)):
        try:
            array = np.asanyarray(value)
        except (TypeError, ValueError, RuntimeError) as error:  # a tensor on a GPU, or one that keeps gradients
            raise MetadataError(f"{path} is a {type(value).__name__} that numpy cannot read: {error}") from error
        return _from_array(array, path)
    advice = "Store its name or str(value), a dictionary of its settings, or leave it out."
    raise MetadataError(f"{path} is a {type(value).__name__}, which cannot be stored. {advice}")


def _from_items(items: Iterable[tuple[Any, Any]], path: str, above: dict[int, str]) -> dict[str, Any]:
    pairs: list[tuple[Any, Any]] = []
    seen: set[Any] = set()
    for key, value in items:
        stored, known = _hashable(key, f"a key of {path}", above)
        if known in seen:
            raise MetadataError(f"{path} has two keys that are both stored as {known!r}. Rename one of them.")
        seen.add(known)
        pairs.append((stored, _plain(value, member(path, key), above)))
    if TAG not in seen and all(isinstance(key, str) for key, _ in pairs):
        return dict(pairs)
    return {TAG: "dict", "items": [list(pair) for pair in pairs]}


def _hashable(value: Any, path: str, above: dict[int, str]) -> tuple[Any, Any]:
    """Return what is stored of a key or an element of a set, and what it will be when it is read."""
    stored = _plain(value, path, above)
    if isinstance(stored, str):
        return stored, stored
    known = from_json(json.dumps(stored))
    try:
        hash(known)
    except TypeError:
        raise MetadataError(
            f"{path} is a {type(value).__name__}, which reads back as a {type(known).__name__}; use text or numbers."
        ) from None
    return stored, known


def _from_scalar(value: Any, path: str) -> Any:
    kind = value.dtype.kind
    if kind in "Mm":
        return {
            TAG: "datetime64" if kind == "M" else "timedelta64",
            "dtype": value.dtype.str[1:],
            "value": int(value.astype("int64")),
            "text": str(value),
        }
    if kind == "f" and value.dtype.char == "g":
        return {TAG: "longdouble", "value": str(value)}
    if kind == "V" or value.dtype.char == "G":
        raise MetadataError(f"{path} is a numpy {value.dtype}, which cannot be stored. Store its parts.")
    return _plain(value.item(), path, {})


def _from_array(array: Any, path: str) -> dict[str, Any]:
    if np.ma.is_masked(array):
        raise MetadataError(f"{path} is a masked array with masked entries. Store value.filled(...), and the mask beside it.")
    array = np.asarray(array)
    if array.dtype.kind == "T" and all(isinstance(text, str) for text in array.reshape(-1).tolist()):
        array = np.array(array.reshape(-1).tolist(), dtype="U").reshape(array.shape)
    kind = array.dtype.kind
    if kind not in ARRAY_KINDS:
        raise MetadataError(f"{path} is an array of dtype {array.dtype}, which cannot be stored. Store numbers, text, or value.tolist().")
    out = {TAG: "array", "dtype": array.dtype.str, "shape": list(array.shape)}
    readable = kind in "biuU" or (kind == "f" and array.dtype.char != "g" and bool(np.isfinite(array).all()))
    if readable and array.size <= _READABLE_ENTRIES:
        return out | {"values": array.reshape(-1).tolist()}
    return out | {"base64": base64.b64encode(array.tobytes()).decode()}


def _from_path(path: PurePath) -> dict[str, str]:
    return {TAG: "path", "value": str(path), "flavour": "windows" if isinstance(path, PureWindowsPath) else "posix"}


def _from_datetime(moment: datetime.datetime) -> dict[str, Any]:
    if hasattr(moment, "to_datetime64") and moment.tzinfo is None:  # pandas counts nanoseconds
        out: dict[str, Any] = _from_scalar(moment.to_datetime64(), "")
        return out
    return {TAG: "datetime", "value": datetime.datetime.isoformat(moment)}


def _from_timedelta(span: datetime.timedelta) -> dict[str, Any]:
    if hasattr(span, "to_timedelta64"):
        out: dict[str, Any] = _from_scalar(span.to_timedelta64(), "")
        return out
    return {TAG: "timedelta", "days": span.days, "seconds": span.seconds, "microseconds": span.microseconds}


_ENCODERS: Final[list[tuple[Any, Callable[[Any], dict[str, Any]]]]] = [
    (complex, lambda z: {TAG: "complex", "value": [_plain(z.real, "", {}), _plain(z.imag, "", {})]}),
    ((bytes, bytearray, memoryview), lambda b: {TAG: "bytes", "base64": base64.b64encode(b).decode()}),
    (PurePath, _from_path),
    (datetime.datetime, _from_datetime),
    (datetime.date, lambda d: {TAG: "date", "value": d.isoformat()}),
    (datetime.time, lambda t: {TAG: "time", "value": t.isoformat()}),
    (datetime.timedelta, _from_timedelta),
    (range, lambda r: {TAG: "range", "value": [r.start, r.stop, r.step]}),
]


def member(path: str, key: object) -> str:
    """Return the path to an entry, for messages: ``config.a``, ``config[5]``."""
    if isinstance(key, str) and key.isidentifier():
        return f"{path}.{key}"
    if isinstance(key, int) and key.bit_length() > _MAX_PLAIN_BITS:
        return f"{path}[...]"
    return f"{path}[{shorten(repr(key))}]"


def is_utf8(text: str) -> bool:
    """Say whether UTF-8 can hold the text: half of a surrogate pair it cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
