"""One logged value against its variable: infer the variable at first sight, make the value fit from then on."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from simlab.conventions import REWARDS
from simlab.errors import ValueMismatchError
from simlab.schema.casts import KIND_WORDS, LONGEST_TEXT, Array, cast, dtype_word, encode
from simlab.schema.intake import is_weak, take
from simlab.schema.variable import Variable

_EXACT = 2**53  # the integers up to here are float64s
Where = Callable[[], str]
"""Tells where a value came from, only when a message needs it: "of agent 'agent_3' at step 41"."""


def infer_variable(name: str, value: object, modality: str, where: Where, lead: int = 0) -> Variable:
    """Return the variable that a first value stands for.

    Numpy arrays, scalars and tensors keep their dtype. Python's ``bool``, ``int``, ``float`` and ``complex`` (and lists of them)
    become ``bool``, ``int64``, ``float64`` and ``complex128``, text is text, and dates count microseconds. One exception:
    Python integers among the rewards become ``float64``, since an environment that says 0 first may well say 0.5 later.

    Parameters
    ----------
    name : str
        Of the variable; nested names joined by dots.
    value : object
        What was logged for one agent at one step, or with `lead` for many.
    modality : str
        "observations", "actions", ... or "environment".
    where : callable
        Returns where the value came from.
    lead : int, optional
        Number of axes (agents, steps) before the variable's own. All entries along them count: ``[1, 2.5]`` is a float.

    Raises
    ------
    ValueMismatchError
        If a run cannot hold such a value, or there is no entry along the leading axes.
    SchemaError
        If the name is reserved.

    Examples
    --------
    >>> import numpy as np
    >>> infer_variable("speed", 3, "observations", str).dtype, infer_variable("reward", 0, "rewards", str).dtype
    (dtype('int64'), dtype('float64'))
    >>> infer_variable("vision", np.zeros((11, 11, 3), "uint8"), "observations", str).shape
    (11, 11, 3)
    >>> infer_variable("speed", [[1, 2], [3, 4.5]], "observations", str, lead=1)
    Variable(name='speed', shape=(2,), dtype=dtype('float64'), ...
    """

    def subject() -> str:
        return _subject(name, where)

    array = take(value, subject)
    if array.ndim < lead or 0 in array.shape[:lead]:
        advice = "Declare it in a schema, or pass an array."
        raise ValueMismatchError(f"{subject()} has no first entry to learn from: its shape is {array.shape}. {advice}")
    if 0 in array.shape:
        advice = "Leave it out until it has entries, or declare its shape."
        raise ValueMismatchError(f"{subject()} has shape {array.shape}, which holds nothing. {advice}")
    dtype = array.dtype
    if dtype.kind == "U":
        encode(array, subject)  # no variable may come of text that no file can hold
    if dtype.kind == "i" and modality == REWARDS and is_weak(value) and array.min() >= -_EXACT and array.max() <= _EXACT:
        dtype = np.dtype(np.float64)
    return Variable(name, array.shape[lead:], dtype, modality=modality)


def fit(value: object, variable: Variable, where: Where, lead: tuple[int, ...] = ()) -> tuple[Array, bool]:
    """Return the value as an array of exactly the variable's dtype and shape, and whether a numpy value was converted for it.

    Parameters
    ----------
    value : object
        One value, or with `lead` many: arrays with the agent or time axis first.
    variable : Variable
        What it must fit. Nothing is broadcast.
    where : callable
        Returns where the value came from.
    lead : tuple of int, optional
        Lengths of the axes before the variable's own.

    Returns
    -------
    ndarray of shape (*lead, *variable.shape)
        Of the variable's dtype, text as ``S<n>`` with UTF-8 bytes. It is the value itself where that fits already.
    bool
        Whether a numpy value was of another dtype. Python's numbers have no type of their own (NEP 50) and never count.

    Raises
    ------
    ValueMismatchError
        If the shape differs, or a value would not survive the conversion.

    Examples
    --------
    >>> import numpy as np
    >>> fit([1, 2], Variable("x", 2, "float32"), str)
    (array([1., 2.], dtype=float32), False)
    >>> fit(np.array([1, 2]), Variable("x", 2, "float32"), str)
    (array([1., 2.], dtype=float32), True)
    >>> fit(np.zeros((11, 11)), Variable("vision", (11, 11, 3)), lambda: "of agent 'a' at step 41")
    Traceback (most recent call last):
    simlab.errors.ValueMismatchError: 'vision' of agent 'a' at step 41 has shape (11, 11), but ... (11, 11, 3). Pass one value per channel.
    """
    dtype, shape = variable.dtype, lead + variable.shape
    kind = type(value)
    if kind is np.ndarray:
        if value.dtype == dtype and value.shape == shape and dtype.kind != "S":  # type: ignore[attr-defined]
            return value, False  # type: ignore[return-value]
    elif not isinstance(value, np.generic):
        quick = _quick(value, kind, dtype, shape)
        if quick is not None:
            return quick, False
    elif not shape:
        if value.dtype == dtype and dtype.kind != "S":
            return np.array(value), False
        # The item of a date that counts nanoseconds is an int, which it must not be taken for.
        number = value.item() if value.dtype.kind not in "Mm" else None
        quick = _quick(number, type(number), dtype, shape)
        if quick is not None:
            return quick, dtype.kind != "S"

    def subject() -> str:
        return _subject(variable.name, where)

    array = take(value, subject)
    if array.shape == (0,) and shape and shape[0] == 0:
        return np.empty(shape, "S1" if dtype.kind == "S" else dtype), False  # [] of no agents, or of no steps
    if (array.dtype.kind == "U") != (dtype.kind == "S"):
        raise ValueMismatchError(_text_or_number(array, variable, subject()))
    if array.shape != shape:
        raise ValueMismatchError(
            f"{subject()} has shape {array.shape}, but the schema says {shape}. {_shape_advice(array.shape, variable.shape, lead)}"
        )
    if array.dtype == dtype:
        return array, False
    coerced = dtype.kind != "S" and (kind is np.ndarray or not is_weak(value))
    return cast(array, dtype, subject), coerced


def _limits(char: str) -> tuple[int, int, float, float]:
    """Return what a Python int may be, and what a Python float may be, to go into a dtype unseen; NaN bounds let nothing in."""
    if char in "efd":
        info = np.finfo(char)
        exact = 2 ** (info.nmant + 1)
        # Infinity is in no range but float64's: the long way sorts it out.
        return -exact, exact, -math.inf if char == "d" else float(info.min), math.inf if char == "d" else float(info.max)
    whole = np.iinfo(char)
    return int(whole.min), int(whole.max), math.nan, math.nan


_LIMITS = {char: _limits(char) for char in "bBhHiIlLqQefd"}


def _quick(value: Any, kind: type, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array | None:
    """Convert Python's own numbers, text and flat lists of numbers of one type; None sends anything else the long way."""
    limits = _LIMITS.get(dtype.char)
    if limits is not None:
        if kind is float or kind is int:
            low, high = limits[2:] if kind is float else limits[:2]
            return np.array(value, dtype) if not shape and low <= value <= high else None
        if (kind is list or kind is tuple) and shape == (len(value),) and value:
            kinds = set(map(type, value))
            if kinds == {float} or kinds == {int}:
                low, high = limits[2:] if float in kinds else limits[:2]
                # max() passes over a NaN unless it comes first; then the comparison fails and the long way is taken.
                return np.array(value, dtype) if max(value) <= high and min(value) >= low else None
        return None
    if shape:
        return None
    if kind is bool and dtype.kind == "b":
        return np.array(value)
    if kind is str and dtype.kind == "S" and len(value) <= LONGEST_TEXT and value.isascii() and "\0" not in value:
        return np.array(value.encode())
    return None


def _subject(name: str, where: Where) -> str:
    return f"{name!r} {where()}".rstrip()


def _text_or_number(array: Array, variable: Variable, subject: str) -> str:
    given = f"text ({str(array.reshape(-1)[0])!r})" if array.dtype.kind == "U" and array.size else KIND_WORDS[array.dtype.kind]
    if variable.categories and array.dtype.kind == "U":
        known = ", ".join(f"{i} for {label!r}" for i, label in enumerate(variable.categories[:6]))
        advice = f"Pass the number of the category: {known}{', ...' if len(variable.categories) > 6 else ''}."
    else:
        advice = "Pass str(value), or declare the type it has." if variable.is_text else "Pass numbers, or declare dtype='str'."
        if variable.dtype.kind in "Mm":
            advice = "Pass numpy.datetime64(value)." if variable.dtype.kind == "M" else "Pass a timedelta."
    return f"{subject} is {given}, but the schema says {dtype_word(variable.dtype)}. {advice}"


def _shape_advice(given: tuple[int, ...], own: tuple[int, ...], lead: tuple[int, ...]) -> str:
    expected = lead + own
    if lead and given == own:
        return "Put the axis of the agents, or of the steps, first."
    if lead and len(given) == len(expected) and given[len(lead) :] == own:
        return f"Pass {lead[0]} of them along the first axis."
    if expected == ():
        if math.prod(given) == 1:
            return f"Pass value.item(), or declare shape={given}."
        return f"Pass a single number, or declare shape={given}."
    if given == () and expected == (1,):
        return "Pass [value], or declare shape=()."
    if given == expected[:-1]:
        return "Pass one value per channel."
    if given[1:] == expected:
        return "Pass the value of one agent at one step; log_step takes all agents at once, log_episode a whole trajectory."
    without_ones = tuple(n for n in given if n != 1)
    if without_ones == expected:
        return f"Drop the axes of length 1: value.reshape({expected})."
    if len(given) == len(expected) and sorted(given) == sorted(expected):
        return "Its axes are in another order: see numpy.transpose."
    if math.prod(given) == math.prod(expected):
        return f"Pass value.reshape({expected}), or declare shape={given}."
    return "Pass a value of the declared shape, or log it under a name of its own."
