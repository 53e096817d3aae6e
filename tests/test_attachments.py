"""What is attached to a run comes back as it was, every kind of value, alone and nested."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import simlab
from simlab.errors import MetadataError

SCALARS = {
    "true": True,
    "false": False,
    "int": -3,
    "largest": 2**63 - 1,
    "huge": 2**80,
    "float": 0.1,
    "complex": 1 + 2j,
    "text": "größe",
    "empty text": "",
    "with NUL": "a\0b",
    "bytes": b"\0\xff",
    "none": None,
    "list": [1, "a", None, [True]],
    "tuple": (1, 2),
    "date": datetime.date(2026, 1, 2),
}
NUMPY_SCALARS = [
    np.bool_(True), np.int8(-3), np.uint64(2**64 - 1), np.float16(0.5), np.float32(0.1), np.float64(0.1), np.complex64(1 + 2j),
    np.complex128(3j), np.longdouble(1) / 3, np.datetime64("2026-01-02T03:04:05", "s"), np.datetime64("NaT", "ns"),
    np.datetime64("2026-01", "M"), np.timedelta64(5, "m"), np.timedelta64(7, "ns"),
]  # fmt: skip
DTYPES = [
    "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64", "longdouble",
    "complex64", "complex128", "datetime64[s]", "datetime64[ns]", "datetime64[M]", "timedelta64[m]", "timedelta64[25us]", ">i4", ">f8",
]  # fmt: skip


def back(folder: Path, value: Any) -> Any:
    """Attach a value to a run alone and deep inside another one, and return what is read of both."""
    path = folder / "run.h5"
    with simlab.HDF5Logger(path) as log:
        log.log_agent_step("a", 0, {"rewards": 1.0})
        log.attach("it", value)
        log.attach("nested", {"one": {"two": value, "x": 1}})
    with simlab.open_run(path) as ds:
        return ds.sim.attachment("it"), ds.sim.attachment("nested")["one"]["two"]


@pytest.mark.parametrize("value", SCALARS.values(), ids=SCALARS)
def test_python_values(tmp_path: Path, value: Any) -> None:
    for got in back(tmp_path, value):
        assert got == value
        assert type(got) is type(value)


@pytest.mark.parametrize("value", NUMPY_SCALARS, ids=lambda v: f"{v.dtype}-{v}")
@pytest.mark.parametrize("make", [lambda v: v, np.array], ids=["scalar", "0-d"])
def test_numpy_scalars(tmp_path: Path, value: Any, make: Any) -> None:
    """Dates and durations keep their unit; numbers are Python's where Python has them."""
    for got in back(tmp_path, make(value)):
        assert np.ndim(got) == 0
        assert not isinstance(got, np.ndarray)
        assert got == value or (np.isnat(got) and np.isnat(value))
        if value.dtype.kind in "Mm":
            assert got.dtype == value.dtype
        else:
            assert type(got) is type(value.item())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1,), (5,), (1, 1), (2, 3), (0,), (3, 0), (200, 200)], ids=str)
def test_arrays(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    given = np.arange(np.prod(shape)).reshape(shape).astype("int64").astype(dtype)
    given = given.T if given.ndim == 2 and given.size else given  # not contiguous
    for got in back(tmp_path, given):
        assert got.dtype == given.dtype.newbyteorder("=")
        np.testing.assert_array_equal(got, given)
        assert got.shape == given.shape


@pytest.mark.parametrize("value", [np.array(["a", "größe"]), np.array("0-d")], ids=["text", "0-d"])
def test_arrays_of_text(tmp_path: Path, value: Any) -> None:
    for got in back(tmp_path, value):
        assert got.dtype == value.dtype
        np.testing.assert_array_equal(got, value)


def test_dictionaries(tmp_path: Path) -> None:
    value = {"a/b": {"a_b": 1, "a/b": 2, "a.b": 3}, "empty": {}, "größe": "x", " ": None, "2nd": True}
    assert back(tmp_path, value) == (value, value)


def test_a_private_copy(tmp_path: Path) -> None:
    given = np.zeros(3)
    with simlab.HDF5Logger(tmp_path / "run.h5") as log:
        log.log_agent_step("a", 0, {"rewards": 1.0})
        log.attach("it", {"x": given})
        given[:] = 1
    with simlab.open_run(tmp_path / "run.h5") as ds:
        assert ds.sim.attachment("it")["x"].tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("\ud800", "attachment 'it' holds half of a surrogate pair"),
        ({"a": {"b": "x\udfff"}}, r"attachment 'it'\.a\.b holds half of a surrogate pair"),
        ({"a": {"\ud800": 1}}, r"The key '\\ud800' of attachment 'it'\.a holds half"),
        ({"": 1}, "has the key ''"),
        ({3: 1}, "has the key 3"),
        ({"x": object()}, "cannot be stored"),
        (np.array([b"a"]), "an array of dtype"),
    ],
    ids=["text", "nested text", "key", "empty key", "number as key", "object", "array of bytes"],
)
def test_what_cannot_be_attached_is_refused_at_the_call(tmp_path: Path, value: Any, message: str) -> None:
    with simlab.HDF5Logger(tmp_path / "run.h5") as log:
        log.log_agent_step("a", 0, {"rewards": 1.0})
        with pytest.raises(MetadataError, match=message) as caught:
            log.attach("it", value)
        str(caught.value).encode()
        log.attach("it", 1)
    with simlab.open_run(tmp_path / "run.h5") as ds:
        assert ds.sim.attachment("it") == 1
