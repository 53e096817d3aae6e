"""From whatever a simulation passes (numbers, lists, tensors, text, dates) to a numpy array that means the same, or a refusal."""

from __future__ import annotations

import datetime
import enum
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

import numpy as np

from simlab.errors import ValueMismatchError
from simlab.schema.casts import NUL_REFUSED, Array, Subject

_HOLDS = "A run holds numbers, booleans, text and dates; attach() takes nested data."
_EXACT_INT = 2**53


def take(value: object, subject: Subject) -> Array:
    """Return the value as a base-class array in native byte order, of a dtype that a run can hold (text as ``U``).

    Parameters
    ----------
    value : object
        A number, text, date, array, tensor, or list of them.
    subject : callable
        Returns what a message begins with.

    Raises
    ------
    ValueMismatchError
        If it is ragged, masked, bytes, holds None or objects, or would lose a digit.

    Examples
    --------
    >>> take([1, 2], lambda: "'x'"), take("up", lambda: "'x'")
    (array([1, 2]), array('up', dtype='<U2'))
    """
    if isinstance(value, np.ndarray):
        return _native(value, subject)
    value = _plain(value, subject)
    if isinstance(value, str):
        if "\0" in value:
            raise ValueMismatchError(f"{subject()} {NUL_REFUSED}")
        return np.array(value) if value else np.array("", "U1")
    if isinstance(value, int) and not isinstance(value, bool):
        return _integers([value], subject).reshape(())
    if isinstance(value, (Set, Mapping, Iterator)):
        advice = f"Pass a list or an array. {_HOLDS}"
        raise ValueMismatchError(f"{subject()} is a {type(value).__name__}, which has no order or no shape. {advice}")
    try:
        # numpy gives Python integers the platform's own type, which is int32 on some.
        array = np.asarray(value)
    except (ValueError, TypeError, RuntimeError, OverflowError) as error:
        if "inhomogeneous" in str(error):
            advice = "Pad them to one length, or use one variable for each."
            raise ValueMismatchError(f"{subject()} is ragged: its parts differ in length. {advice}") from error
        raise ValueMismatchError(f"{subject()} is a {type(value).__name__} that numpy cannot read: {error}") from error
    if isinstance(value, Sequence) and array.dtype.kind not in "biu":
        array = _from_leaves(array, value, subject)
    return _native(array, subject)


def is_weak(value: object) -> bool:
    """Say whether the value's type is Python's and not numpy's: it then takes the type of the variable without ado.

    Examples
    --------
    >>> import numpy as np
    >>> is_weak(0.5), is_weak([1, 2]), is_weak(np.float64(0.5)), is_weak([np.float64(0.5)])
    (True, True, False, False)
    """
    if isinstance(value, np.generic):
        return False
    if isinstance(value, (list, tuple)):
        return all(map(is_weak, value))
    return isinstance(value, (bool, int, float, complex, str, datetime.date, datetime.timedelta, range))


def _plain(value: object, subject: Subject) -> object:
    """Turn enum members and dates into what they stand for; refuse what is plainly wrong."""
    if isinstance(value, (bool, float, np.generic, list, tuple)):
        return value
    if isinstance(value, enum.Enum):
        if isinstance(value, (int, float, str)):
            return value.value
        raise ValueMismatchError(
            f"{subject()} is {value}, a member of an enum. Pass value.value, or make it an IntEnum and declare categories=[...]."
        )
    if isinstance(value, (bytes, bytearray)):
        raise ValueMismatchError(f"{subject()} is bytes. Decode them, value.decode(), or pass numbers: np.frombuffer(value, 'uint8').")
    if value is None:
        raise ValueMismatchError(f"{subject()} is None. Leave the variable out where it has no value.")
    if isinstance(value, (datetime.date, datetime.timedelta)) or hasattr(value, "to_datetime64"):
        return _moment(value, subject)
    return value


def _moment(value: Any, subject: Subject) -> np.generic:
    if getattr(value, "tzinfo", None) is not None:
        raise ValueMismatchError(
            f"{subject()} is {value}, a time with a zone, which a run cannot hold. "
            "Pass it in UTC without one: value.astimezone(datetime.timezone.utc).replace(tzinfo=None)."
        )
    for exact in ("to_datetime64", "to_timedelta64"):  # pandas counts nanoseconds
        if hasattr(value, exact):
            moment: np.generic = getattr(value, exact)()
            return moment
    return np.timedelta64(value, "us") if isinstance(value, datetime.timedelta) else np.datetime64(value, "us")


def _leaves(value: Any, depth: int, index: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], Any]]:
    if depth == 0:
        yield index, value
        return
    for i, part in enumerate(value):
        yield from _leaves(part, depth - 1, (*index, i))


def _from_leaves(array: Array, value: Any, subject: Subject) -> Array:
    """Look at what numpy made of a list: it turns numbers into text, and long integers into floats, without a word."""
    kind = array.dtype.kind
    if kind == "f" and not (np.abs(array) >= _EXACT_INT).any():
        return array
    if kind not in "fOUS":
        return array
    leaves = [(index, leaf[()] if isinstance(leaf, np.ndarray) and not leaf.ndim else leaf) for index, leaf in _leaves(value, array.ndim)]
    for index, leaf in leaves:
        if leaf is None:
            raise ValueMismatchError(
                f"{subject()} holds None at {list(index)}. Pass a value of the same type there, NaN among floats; "
                "or leave the whole variable out where it has no value."
            )
    plain = [_plain(leaf, lambda: f"{subject()}, {list(index)},") for index, leaf in leaves]  # noqa: B023
    if plain and all(isinstance(leaf, (int, np.integer)) and not isinstance(leaf, bool) for leaf in plain):
        return _integers(plain, subject).reshape(array.shape)
    if kind == "f":
        for index, leaf in leaves:
            if isinstance(leaf, (int, np.integer)) and int(float(leaf)) != leaf:
                place = f"at {list(index)} among floats"
                raise ValueMismatchError(f"{subject()} holds {leaf} {place}, which cannot hold it exactly. Pass integers only.")
        return array
    text = [str(leaf) for leaf in plain if isinstance(leaf, str)]
    if text and len(text) == len(plain):
        if any("\0" in leaf for leaf in text):
            raise ValueMismatchError(f"{subject()} {NUL_REFUSED}")
        return np.array(text).reshape(array.shape)
    for moments in (np.datetime64, np.timedelta64):
        if all(isinstance(leaf, moments) for leaf in plain):
            return np.array(plain).reshape(array.shape)
    odd = next((i for i, leaf in enumerate(plain) if not isinstance(leaf, (bool, int, float, complex, str, np.generic))), 0)
    kinds = " and ".join(sorted({type(leaf).__name__ for leaf in plain}))
    place = f"{_short(plain[odd])} at {list(leaves[odd][0])}"
    raise ValueMismatchError(f"{subject()} holds {place}: {kinds} in one list make no array of one type. {_HOLDS}")


def _integers(values: list[Any], subject: Subject) -> Array:
    low, high = int(min(values)), int(max(values))
    if low >= -(2**63) and high < 2**63:
        return np.array(values, np.int64)
    if low >= 0 and high < 2**64:
        return np.array(values, np.uint64)
    given = _digits(low) if low == high else f"integers from {_digits(low)} to {_digits(high)}"
    raise ValueMismatchError(f"{subject()} holds {given}, beyond every integer type. Pass floats, or text.")


def _digits(number: int) -> str:
    return str(number) if number.bit_length() <= 200 else f"an integer of {number.bit_length()} bits"


def _native(array: Array, subject: Subject) -> Array:
    if isinstance(array, np.ma.MaskedArray) and np.ma.is_masked(array):
        advice = "Fill them first, value.filled(np.nan), or log the mask as a variable."
        raise ValueMismatchError(f"{subject()} is a masked array with masked entries. {advice}")
    array = np.asarray(array)
    dtype = array.dtype
    if dtype.kind in "biufcMm" and dtype.char != "G":
        if dtype.kind in "Mm" and np.datetime_data(dtype)[0] == "generic":
            raise ValueMismatchError(f"{subject()} has dtype {dtype}, without a unit. Give it one: np.timedelta64(5, 's').")
        return array if dtype.isnative else array.astype(dtype.newbyteorder("="))
    if dtype.kind == "U":
        return array.astype("U1") if not dtype.itemsize else array
    if dtype.kind == "T":
        return take(array.tolist(), subject)
    if dtype.kind == "S":
        raise ValueMismatchError(f"{subject()} is bytes. Decode them: np.char.decode(value, 'utf-8').")
    if dtype.names:
        fields = ", ".join(dtype.names)
        raise ValueMismatchError(f"{subject()} is a record with the fields {fields}. Log each field as a variable of its own.")
    if dtype.char == "G":
        raise ValueMismatchError(f"{subject()} has dtype {dtype}, which a run cannot hold. Pass value.astype('complex128').")
    if dtype.kind == "O" and not array.ndim:
        raise ValueMismatchError(f"{subject()} is {_short(array[()])}, of type {type(array[()]).__name__}. {_HOLDS}")
    kind = "objects" if dtype.kind == "O" else str(dtype)
    advice = f"Give it a type, np.asarray(value, 'float64') or np.asarray(value, str). {_HOLDS}"
    raise ValueMismatchError(f"{subject()} is an array of {kind}. {advice}")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
