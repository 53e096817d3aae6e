"""One variable of a run: its name, shape, type, and what a reader should know about it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import DTypeLike

from simlab.conventions import RESERVED_NAMES
from simlab.errors import SchemaError, did_you_mean
from simlab.schema.names import disk_name, is_kept

Kind = Literal["continuous", "image", "discrete", "boolean", "text", "time"]
KINDS: Final = ("continuous", "image", "discrete", "boolean", "text", "time")
INHERIT: Final = "inherit"
"""The compression of a variable that says nothing: the logger's own."""

_STORABLE_KINDS: Final = "biufcMm"
_MOST_AXES: Final = 28
"""HDF5 has 32; agents, time and the letters or parts of a value take some."""
TEXT: Final = np.dtype("S")
"""The dtype of a text variable: UTF-8 of any length. (In a schema it is written ``"str"``.)"""


@dataclass(frozen=True, slots=True)
class Variable:
    """Declare one variable.

    Parameters
    ----------
    name : str
        Unique in its run. Dots nest: ``"camera.rgb"``.
    shape : tuple of int, optional
        The shape of one value, for one agent and one step; ``()`` is a single number.
    dtype : dtype_like, optional
        The type of the value: boolean, integer, float, complex, ``datetime64``, ``timedelta64`` or ``str``.
    kind : {"continuous", "image", "discrete", "boolean", "text", "time"}, optional
        What it is, for those who look at it. Left out, it follows from dtype, shape and categories.
    dims : tuple of str, optional
        Names of the value's own dimensions, one for each axis. Left out: ``<name>_channel`` for one axis,
        ``<name>_y, <name>_x`` for two, and ``<name>_channel`` after them for a third. Variables may share a dimension by naming it.
    units : str, optional
        A UDUNITS string, "m s-1"; "1" for a plain number.
    long_name : str, optional
        One line for people; stands on axes of plots.
    channels : sequence of str, optional
        Labels of the last axis, in order.
    categories : sequence of str, optional
        Names of the values 0, 1, 2, ... of an integer variable.
    every : int, optional
        For the environment: logged every so many steps; it then has a time axis of its own.
    compression : str, int, None or "inherit", optional
        As for `HDF5Logger`; "inherit" is the logger's own.
    low, high : float, optional
        Bounds of valid values; stored as ``valid_min`` and ``valid_max``, never enforced.
    modality : str, optional
        Set by the schema that holds the variable.

    Raises
    ------
    SchemaError
        If a field does not fit, or two contradict each other.

    Examples
    --------
    >>> v = Variable("vision", shape=(11, 11, 3), dtype="uint8", channels=["walls", "food", "agents"])
    >>> v.kind, v.dims, v.row_bytes
    ('image', ('vision_y', 'vision_x', 'vision_channel'), 363)
    """

    name: str
    shape: tuple[int, ...] = ()
    dtype: Any = "float32"
    kind: Kind | None = None
    dims: tuple[str, ...] | None = None
    units: str = "1"
    long_name: str = ""
    channels: tuple[str, ...] | None = None
    categories: tuple[str, ...] | None = None
    every: int | None = None
    compression: str | int | None = INHERIT
    low: float | None = None
    high: float | None = None
    modality: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        self._check_name()
        self._set("shape", self._whole_shape(self.shape))
        self._set("dtype", storable_dtype(self.dtype, self.name))
        self._set("channels", self._labels("channels", self.channels))
        self._set("categories", self._labels("categories", self.categories))
        self._check_labels()
        if self.kind is None:
            self._set("kind", self._natural_kind())
        elif self.kind not in KINDS:
            raise SchemaError(f"{self.name!r} has kind {self.kind!r}; use one of {', '.join(KINDS)}.{did_you_mean(str(self.kind), KINDS)}")
        self._set("every", self._whole_every(self.every))
        for text in ("units", "long_name"):
            if not isinstance(getattr(self, text), str):
                raise SchemaError(f"{self.name!r} has {text}={getattr(self, text)!r}; give text.")
        if isinstance(self.compression, (bool, float)) or not isinstance(self.compression, (str, int, type(None))):
            raise SchemaError(f"{self.name!r} has compression={self.compression!r}; give a name, a level, None or {INHERIT!r}.")
        self._set("low", self._bound("low", self.low))
        self._set("high", self._bound("high", self.high))
        if self.low is not None and self.high is not None and self.low > self.high:
            raise SchemaError(f"{self.name!r} has low={self.low} above high={self.high}. Swap them.")
        self._set("dims", self._own_dims())

    def _set(self, key: str, value: object) -> None:
        object.__setattr__(self, key, value)

    def _check_name(self) -> None:
        if is_kept(disk_name(self.name)):
            raise SchemaError(
                f"A variable cannot be called {self.name!r}: the run keeps {self.name!r} for itself. "
                f"Choose another name, such as {self.name + '_value'!r}."
            )

    def _whole_shape(self, shape: object) -> tuple[int, ...]:
        axes = (shape,) if isinstance(shape, (int, np.integer)) else shape
        if isinstance(axes, (Sequence, np.ndarray)):
            sizes = tuple(axes)
            if len(sizes) > _MOST_AXES:
                raise SchemaError(f"{self.name!r} has {len(sizes)} axes; a file holds {_MOST_AXES} at most. Reshape it to fewer.")
            if all(isinstance(n, (int, np.integer)) and not isinstance(n, bool) and n > 0 for n in sizes):
                return tuple(int(n) for n in sizes)
        raise SchemaError(f"{self.name!r} has shape {shape!r}; give a tuple of whole numbers above zero, () for a single number.")

    def _whole_every(self, every: object) -> int | None:
        if every is None:
            return None
        if not isinstance(every, (int, np.integer)) or isinstance(every, bool) or every < 1:
            raise SchemaError(f"{self.name!r} has every={every!r}; give a whole number of steps, 1 or more.")
        return int(every)

    def _bound(self, which: str, bound: Any) -> float | None:
        if bound is None:
            return None
        bound = bound.item() if isinstance(bound, (np.generic, np.ndarray)) and bound.size == 1 else bound
        if isinstance(bound, bool) or not isinstance(bound, (int, float)) or not math.isfinite(bound):
            raise SchemaError(f"{self.name!r} has {which}={bound!r}; give a number, or None where there is no bound.")
        if self.dtype.kind not in "iuf":
            raise SchemaError(f"{self.name!r} has {which}={bound!r} but dtype {self.dtype}; bounds are for integers and floats.")
        if self.dtype.kind in "iu":
            info = np.iinfo(self.dtype)
            if bound != int(bound) or not info.min <= bound <= info.max:
                raise SchemaError(f"{self.name!r} has {which}={bound!r}, which {self.dtype} cannot hold. Give a whole number in its range.")
            return int(bound)
        return float(bound)

    def _labels(self, what: str, labels: object) -> tuple[str, ...] | None:
        if labels is None:
            return None
        if isinstance(labels, np.ndarray):
            labels = labels.tolist()
        if not isinstance(labels, Sequence) or isinstance(labels, str) or not labels or not all(isinstance(x, str) for x in labels):
            quote = ""
            if isinstance(labels, Sequence) and any(isinstance(x, bool) for x in labels):
                quote = " In YAML the words yes, no, on and off need quotes."
            raise SchemaError(f"{self.name!r} has {what}={labels!r}; give a list of text, one label each.{quote}")
        for label in labels:
            if not label or "\0" in label or not label.isprintable():
                raise SchemaError(f"{self.name!r} has {what} with the label {label!r}; a label is printable text of at least one letter.")
        if len(set(labels)) != len(labels):
            raise SchemaError(f"{self.name!r} has {what} with a label twice: {list(labels)!r}. Make them unique.")
        return tuple(str(x) for x in labels)

    def _check_labels(self) -> None:
        if self.channels is not None and (not self.shape or self.shape[-1] != len(self.channels)):
            raise SchemaError(
                f"{self.name!r} has {len(self.channels)} channel labels but shape {self.shape}. "
                "Give one label for each entry of the last axis."
            )
        if self.categories is not None:
            if self.dtype.kind not in "iu":
                raise SchemaError(
                    f"{self.name!r} has categories but dtype {self.dtype}; categories name whole numbers: use an integer dtype."
                )
            if len(self.categories) - 1 > np.iinfo(self.dtype).max:
                raise SchemaError(
                    f"{self.name!r} has {len(self.categories)} categories, more than {self.dtype} counts. Use a wider integer."
                )

    def _natural_kind(self) -> Kind:
        if self.dtype.kind in "SMmb":
            return {"S": "text", "M": "time", "m": "time", "b": "boolean"}[self.dtype.kind]  # type: ignore[return-value]
        if self.categories is not None:
            return "discrete"
        if len(self.shape) in (2, 3) and min(self.shape[:2]) > 1:
            return "image"
        return "discrete" if self.dtype.kind in "iu" and not self.shape else "continuous"

    def _natural_dims(self) -> tuple[str, ...]:
        stem = disk_name(self.name).replace(".", "_")
        suffixes = {0: (), 1: ("channel",), 2: ("y", "x"), 3: ("y", "x", "channel")}.get(
            len(self.shape), tuple(f"axis{i}" for i in range(len(self.shape)))
        )
        return tuple(f"{stem}_{suffix}" for suffix in suffixes)

    def _own_dims(self) -> tuple[str, ...]:
        if self.dims is None:
            return self._natural_dims()
        dims = tuple(self.dims) if isinstance(self.dims, Sequence) and not isinstance(self.dims, str) else ()
        if len(dims) != len(self.shape) or not all(isinstance(dim, str) for dim in dims) or len(set(dims)) != len(dims):
            raise SchemaError(f"{self.name!r} has shape {self.shape} and dims {self.dims!r}; give one name for each axis, all different.")
        for dim in dims:
            if not dim or "." in dim or disk_name(dim) != dim or dim in RESERVED_NAMES:
                kept = ", ".join(sorted(RESERVED_NAMES))
                raise SchemaError(f"{self.name!r} has a dimension called {dim!r}; use letters, digits and '_', and none of {kept}.")
        return dims

    @property
    def has_natural_dims(self) -> bool:
        """Whether its dimensions have the names that follow from its own, and so are its alone."""
        return self.dims == self._natural_dims()

    @property
    def is_text(self) -> bool:
        """Whether the values are text."""
        return bool(self.dtype.kind == "S")

    @property
    def row_bytes(self) -> int:
        """Bytes of one value in memory (of text: 1 for each entry)."""
        return math.prod(self.shape) * max(1, int(self.dtype.itemsize))

    @property
    def is_series(self) -> bool:
        """Whether, as a variable of the environment, it has a time axis of its own: arrays, and what is logged every so many steps."""
        return bool(self.shape or self.every)

    def with_modality(self, modality: str) -> Variable:
        """Return the same variable as part of a modality."""
        return replace(self, modality=modality)

    def to_dict(self) -> dict[str, Any]:
        """Return the declaration as plain JSON values, without what is left at its default.

        Examples
        --------
        >>> Variable("speed", units="m s-1").to_dict()
        {'name': 'speed', 'dtype': 'float32', 'units': 'm s-1'}
        """
        out: dict[str, Any] = {"name": self.name}
        natural = Variable(self.name, self.shape, self.dtype, channels=self.channels, categories=self.categories)
        for f in fields(self):
            value = getattr(self, f.name)
            if f.name == "dtype":
                out["dtype"] = "str" if self.is_text else str(value)
            elif f.name not in ("name", "modality") and value != getattr(natural, f.name):
                out[f.name] = list(value) if isinstance(value, tuple) else value
            elif f.name in ("shape", "channels", "categories") and value:
                out[f.name] = list(value)
        return out

    @classmethod
    def from_dict(cls, declaration: Mapping[str, Any]) -> Variable:
        """Make a variable from what `to_dict` returns.

        Parameters
        ----------
        declaration : mapping
            What `Variable` takes, by name.

        Raises
        ------
        SchemaError
            If a key is not known or a value does not fit.

        Examples
        --------
        >>> Variable.from_dict({"name": "speed", "units": "m s-1"}).units
        'm s-1'
        """
        if not isinstance(declaration, Mapping) or not isinstance(declaration.get("name"), str):
            raise SchemaError(f"A variable is declared by a mapping with a 'name', not by {declaration!r}.")
        known = [f.name for f in fields(cls) if f.name != "modality"]
        for key in declaration:
            if key not in known:
                advice = f"known are {', '.join(known)}.{did_you_mean(str(key), known)}"
                raise SchemaError(f"{declaration['name']!r} has a field {key!r}; {advice}")
        return cls(**declaration)


def storable_dtype(dtype: DTypeLike | None, name: str) -> np.dtype[Any]:
    """Return the native dtype in which a variable is logged.

    Parameters
    ----------
    dtype : dtype_like
        Any numpy type, a Python type, or "str" for text.
    name : str
        For the message.

    Raises
    ------
    SchemaError
        If a run cannot hold the type (objects, records).

    Examples
    --------
    >>> storable_dtype(">i4", "x"), storable_dtype(bool, "x"), storable_dtype(str, "x")
    (dtype('int32'), dtype('bool'), dtype('S'))
    """
    try:
        # numpy reads None as float64; here it is a forgotten value.
        given = np.dtype(dtype if dtype is not None else "none")
    except (TypeError, ValueError, SyntaxError):
        raise SchemaError(f"{name!r} has dtype {dtype!r}, which numpy does not know. Use a name such as 'float32' or 'int64'.") from None
    if given.kind in "US" or given.kind == "T":
        return TEXT
    if given.kind not in _STORABLE_KINDS or given.subdtype is not None or given.char == "G":
        advice = "Log numbers, booleans, text or dates; attach() takes nested data."
        raise SchemaError(f"{name!r} has dtype {given}, which a run cannot hold. {advice}")
    if given in (np.dtype("datetime64"), np.dtype("timedelta64")):
        raise SchemaError(f"{name!r} has dtype {given}, without a unit. Give it one: '{given}[us]'.")
    # numpy's own object for the type, not one that equals it: the logger compares by identity.
    return np.dtype(given.type) if given.kind in "biufc" else given.newbyteorder("=")
