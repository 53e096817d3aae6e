"""Conversions from one dtype to another in which every value survives; what would not is refused by name.

The one loss that is allowed is the rounding of a float to a shorter float, as numpy does it on assignment.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NoReturn

import numpy as np

from simlab.errors import ValueMismatchError

Array = np.ndarray[Any, np.dtype[Any]]
Subject = Callable[[], str]
"""What the value belongs to, for messages: "'vision' of agent 'agent_3' at step 41"."""

KIND_WORDS = {
    "b": "booleans", "i": "integers", "u": "integers", "f": "floats", "c": "complex numbers",
    "M": "dates", "m": "durations", "U": "text", "S": "text",
}  # fmt: skip
_ADVICE = {
    "b": "Pass True or False.",
    "i": "Pass a whole number.",
    "u": "Pass a whole number, 0 or above.",
    "f": "Pass a number.",
    "c": "Pass a number.",
    "M": "Pass a datetime or a numpy.datetime64.",
    "m": "Pass a timedelta or a numpy.timedelta64.",
    "S": "Pass str(value), or declare the type it has.",
}


def dtype_word(dtype: np.dtype[Any]) -> str:
    """Return a dtype as a schema spells it: "float32", "str"."""
    return "str" if dtype.kind in "SU" else str(dtype)


def cast(values: Array, dtype: np.dtype[Any], subject: Subject) -> Array:
    """Return the values in another dtype, each of them unchanged (floats rounded to the shorter float).

    Parameters
    ----------
    values : ndarray
        Of a dtype that a run can hold, in native byte order; text as ``U``.
    dtype : dtype
        The variable's; text as ``S``, which comes back as ``S<n>`` with UTF-8 bytes.
    subject : callable
        Returns what the message begins with.

    Raises
    ------
    ValueMismatchError
        If a value would not survive.

    Examples
    --------
    >>> import numpy as np
    >>> cast(np.array([1.0, 2.0]), np.dtype("int8"), lambda: "'x'")
    array([1, 2], dtype=int8)
    """
    if values.dtype == dtype:
        return values
    source, target = values.dtype.kind, dtype.kind
    if target == "S" and source == "U":
        return encode(values, subject)
    if target in "Mm" and source == target:
        return _to_unit(values, dtype, subject)
    numbers = source in "biufc" and target in "biufc"
    if not numbers or (source == "c" and target != "c"):
        _wrong_kind(values, dtype, subject)
    if source == "b" or not values.size:
        return values.astype(dtype)
    if target == "b":
        return _to_bool(values, subject)
    if target in "iu":
        return _to_integer(values, dtype, subject)
    return _to_float(values, dtype, subject)


LONGEST_TEXT: Final = 1 << 16
"""Bytes of one text. All agents of a kind are given room for the longest, so that one long text is paid for many times."""


def encode(values: Array, subject: Subject) -> Array:
    r"""Return an array of text as UTF-8 bytes, dtype ``S<n>``.

    Raises
    ------
    ValueMismatchError
        If the text holds a NUL character or half of a surrogate pair, which no file can hold as text.

    Examples
    --------
    >>> import numpy as np
    >>> encode(np.array(["up", "größer"]), lambda: "'x'")
    array([b'up', b'gr\xc3\xb6\xc3\x9fer'], dtype='|S8')
    """
    try:
        encoded = np.asarray(np.char.encode(values, "utf-8"))
    except UnicodeEncodeError as error:
        raise ValueMismatchError(f"{subject()} {surrogate(error)}") from None
    if not encoded.itemsize:
        return encoded.astype("S1")
    if encoded.itemsize > LONGEST_TEXT:
        raise ValueMismatchError(
            f"{subject()} is text of {encoded.itemsize:,} bytes; a step holds texts of up to {LONGEST_TEXT:,}. "
            "Split it over steps or variables, or keep it with attach()."
        )
    # numpy pads with NUL, so only a NUL before another character can be seen here; `take` looks at each str.
    letters = np.ascontiguousarray(encoded).reshape(-1).view(np.uint8).reshape(-1, encoded.itemsize)
    if ((letters[:, :-1] == 0) & (letters[:, 1:] != 0)).any():
        raise ValueMismatchError(f"{subject()} {NUL_REFUSED}")
    return encoded


NUL_REFUSED = "holds text with a NUL character, which ends text in a file. Replace it, or log the bytes as uint8 numbers."


def surrogate(error: UnicodeEncodeError) -> str:
    """Return the refusal of text that is not Unicode."""
    letter = error.object[error.start : error.start + 1]
    replaced = "value.encode('utf-8', 'replace').decode()"
    return f"holds text with {letter!r} in it, half of a surrogate pair, which is no character. Replace it: {replaced}."


def _wrong_kind(values: Array, dtype: np.dtype[Any], subject: Subject) -> NoReturn:
    example = f" ({values.reshape(-1)[0]!s})" if values.size else ""
    advice = "Pass value.real, or declare a complex dtype." if values.dtype.kind == "c" and dtype.kind in "biuf" else _ADVICE[dtype.kind]
    given = f"{KIND_WORDS[values.dtype.kind]}{example}"
    raise ValueMismatchError(f"{subject()} holds {given}, but the schema says {dtype_word(dtype)}. {advice}")


def _refuse(values: Array, bad: Array, because: str, subject: Subject) -> NoReturn:
    index = tuple(int(i) for i in np.argwhere(bad)[0])
    place = f" at [{', '.join(map(str, index))}]" if index else ""
    raise ValueMismatchError(f"{subject()} holds {values[index]!s}{place}, {because}")


def _to_bool(values: Array, subject: Subject) -> Array:
    bad = (values != 0) & (values != 1)
    if bad.any():
        _refuse(values, bad, "but the schema says bool. Pass True or False (0 or 1), or declare a number.", subject)
    return values.astype(np.bool_)


def _to_integer(values: Array, dtype: np.dtype[Any], subject: Subject) -> Array:
    info = np.iinfo(dtype)
    wider = f"but the schema says {dtype}, which holds {info.min} to {info.max}. Declare a wider dtype."
    if values.dtype.kind in "iu":
        if not np.can_cast(values.dtype, dtype, "safe"):
            low, high = max(info.min, np.iinfo(values.dtype).min), min(info.max, np.iinfo(values.dtype).max)
            bad = (values < values.dtype.type(low)) | (values > values.dtype.type(high))
            if bad.any():
                _refuse(values, bad, wider, subject)
        return values.astype(dtype)
    # float16 does not reach the bounds of most integers; longdouble keeps its own precision.
    exact = values.astype(np.float64) if values.dtype.itemsize < 8 else values
    bad = ~np.isfinite(exact)
    if bad.any():
        advice = "Leave the value out where there is none, or declare a float dtype."
        _refuse(values, bad, f"but the schema says {dtype}, which has neither NaN nor infinity. {advice}", subject)
    # Both bounds are powers of two (or 0), hence exact in any float.
    bad = (exact < float(info.min)) | (exact >= 2.0 ** (info.bits - (dtype.kind == "i")))
    if bad.any():
        _refuse(values, bad, wider, subject)
    bad = exact != np.trunc(exact)
    if bad.any():
        _refuse(values, bad, f"but the schema says {dtype}. Round it first, or declare a float dtype.", subject)
    return values.astype(dtype)


def _to_float(values: Array, dtype: np.dtype[Any], subject: Subject) -> Array:
    if values.dtype.kind in "iu":
        bad = ~_integers_fit(values, np.finfo(dtype).nmant + 1)
        if bad.any():
            advice = "Declare an integer dtype or a longer float."
            _refuse(values, bad, f"but the schema says {dtype}, which cannot hold it exactly. {advice}", subject)
    elif values.dtype.itemsize * (1 + (dtype.kind == "c" and values.dtype.kind == "f")) <= dtype.itemsize:
        return values.astype(dtype)  # a longer float
    with np.errstate(over="ignore", invalid="ignore"):
        out = values.astype(dtype)
    finite = np.isfinite(out)
    if not finite.all():
        bad = ~finite & np.isfinite(values)
        if bad.any():
            _refuse(values, bad, f"but the schema says {dtype}, which ends at {np.finfo(dtype).max}. Declare a longer float.", subject)
    return out


def _integers_fit(values: Array, digits: int) -> Array:
    """Say which integers have at most so many binary digits between their first and last one."""
    if values.dtype.itemsize * 8 - (values.dtype.kind == "i") <= digits:
        return np.ones(values.shape, bool)
    wide = np.atleast_1d(values).astype(np.uint64 if values.dtype.kind == "u" else np.int64)
    # In two's complement -x is ~x + 1, which is right for the lowest int64 too.
    size = wide if wide.dtype.kind == "u" else np.where(wide < 0, ~wide.view(np.uint64) + np.uint64(1), wide.view(np.uint64))
    last = size & (~size + np.uint64(1))
    return np.asarray(size // np.maximum(last, np.uint64(1)) <= np.uint64(2**digits)).reshape(values.shape)


def _to_unit(values: Array, dtype: np.dtype[Any], subject: Subject) -> Array:
    advice = f"but the schema says {dtype}. Declare a unit that holds both, such as {values.dtype}."
    if np.can_cast(values.dtype, dtype, "same_kind"):
        try:
            out = values.astype(dtype)
            # A value that runs over the end of int64 comes back as another one.
            bad = (out.astype(values.dtype) != values) & ~np.isnat(values)
        except OverflowError:
            bad = ~np.isnat(values)
        if not bad.any():
            return out
    else:
        bad = np.ones(values.shape, bool)
    _refuse(values, bad, advice, subject)
