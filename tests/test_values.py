"""One value against its variable: every value survives, or is refused by name."""

from __future__ import annotations

import datetime
import decimal
import enum
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from simlab.errors import SchemaError, ValueMismatchError
from simlab.schema import Variable
from simlab.schema.values import fit, infer_variable


def where() -> str:
    return "of agent 'agent_3' at step 41"


def fitted(value: object, dtype: Any, shape: Any = (), lead: tuple[int, ...] = ()) -> tuple[Any, bool]:
    variable = Variable("x", shape, dtype)
    array, coerced = fit(value, variable, where, lead)
    assert type(array) is np.ndarray
    assert array.shape == lead + variable.shape
    assert array.dtype.kind == "S" if variable.is_text else array.dtype == variable.dtype
    return array, coerced


def refusal(value: object, dtype: Any, shape: Any = (), lead: tuple[int, ...] = ()) -> str:
    with pytest.raises(ValueMismatchError) as caught:
        fit(value, Variable("x", shape, dtype), where, lead)
    message = str(caught.value)
    assert message.startswith("'x' of agent 'agent_3' at step 41")
    return message.removeprefix("'x' of agent 'agent_3' at step 41").lstrip(" ,")


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Word(enum.StrEnum):
    UP = "up"


# -- inference


@pytest.mark.parametrize(
    ("value", "dtype", "shape"),
    [
        (True, "bool", ()), (3, "int64", ()), (0.5, "float64", ()), (1j, "complex128", ()), ("up", "str", ()), ("", "str", ()),
        ([1, 2], "int64", (2,)), ((1, 2.5), "float64", (2,)), ([[True], [False]], "bool", (2, 1)), (["a", "bc"], "str", (2,)),
        (range(3), "int64", (3,)),
        (np.float16(1), "float16", ()), (np.arange(3, dtype=">i4"), "int32", (3,)), (np.longdouble(1), "longdouble", ()),
        (np.str_("a"), "str", ()), (np.array("a"), "str", ()), (np.zeros((2, 3), "complex64"), "complex64", (2, 3)),
        (2**63, "uint64", ()), ([2**63, 1], "uint64", (2,)),
        (Level.HIGH, "int64", ()), (Word.UP, "str", ()), ([Level.HIGH], "int64", (1,)), ([Word.UP], "str", (1,)),
        (datetime.datetime(2020, 1, 1), "datetime64[us]", ()), (datetime.date(2020, 1, 1), "datetime64[us]", ()),
        (datetime.timedelta(1), "timedelta64[us]", ()), ([datetime.date(2020, 1, 1)] * 2, "datetime64[us]", (2,)),
        (np.datetime64("2020", "ns"), "datetime64[ns]", ()),
        ([np.datetime64("2020", "D"), datetime.datetime(2020, 1, 1)], "datetime64[us]", (2,)),
        (np.ma.masked_array([1, 2], [0, 0]), "int64", (2,)), (memoryview(b"ab"), "uint8", (2,)),
    ],
)  # fmt: skip
def test_infer(value: object, dtype: str, shape: tuple[int, ...]) -> None:
    v = infer_variable("x", value, "observations", where)
    assert (v.dtype, v.shape, v.modality) == (Variable("x", dtype=dtype).dtype, shape, "observations")
    array, coerced = fit(value, v, where)
    assert array.shape == shape
    assert not coerced


def test_infer_rewards() -> None:
    def dtype(value: object) -> str:
        return str(infer_variable("reward", value, "rewards", where).dtype)

    assert dtype(0) == "float64"
    assert dtype([0, 1]) == "float64"
    assert dtype(np.int32(0)) == "int32"
    assert dtype(True) == "bool"
    assert dtype(2**53 + 1) == "int64"


@pytest.mark.parametrize(
    ("value", "lead", "dtype", "shape"),
    [
        ([1, 2.5], 1, "float64", ()),
        ([[1, 2], [3, 0.5]], 1, "float64", (2,)),
        ([[1, 2], [3, 0.5]], 2, "float64", ()),
        ([1, 2**63], 1, "uint64", ()),
        (["a", "bcd"], 1, "str", ()),
        (np.zeros((4, 3, 2), "f2"), 2, "float16", (2,)),
    ],
)
def test_infer_from_all_entries(value: object, lead: int, dtype: str, shape: tuple[int, ...]) -> None:
    v = infer_variable("x", value, "observations", where, lead)
    assert (v.dtype, v.shape) == (Variable("x", dtype=dtype).dtype, shape)
    fit(value, v, where, np.shape(value)[:lead])  # type: ignore[arg-type]
    assert infer_variable("reward", [0, 1], "rewards", where, 1).dtype == "float64"


@pytest.mark.parametrize(("value", "lead"), [(3, 1), ([], 1), ([1, 2], 2), (np.zeros((2, 0, 3)), 2)])
def test_infer_from_no_entry(value: object, lead: int) -> None:
    with pytest.raises(ValueMismatchError, match="has no first entry to learn from: its shape is"):
        infer_variable("x", value, "observations", where, lead)


def test_infer_takes_anything_with_an_array() -> None:
    class Tensor:
        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            return np.ones(3, "float32")

    class OnGpu:
        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            raise TypeError("can't convert cuda:0 device type tensor to numpy")

    assert infer_variable("x", Tensor(), "observations", where).shape == (3,)
    assert fit(Tensor(), Variable("x", 3, "float64"), where)[1]
    with pytest.raises(ValueMismatchError, match="is a OnGpu that numpy cannot read: can't convert cuda:0"):
        infer_variable("x", OnGpu(), "observations", where)


ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)
REFUSED: list[tuple[Any, str]] = [
    (None, "is None. Leave the variable out where it has no value."),
    ([True, None], "holds None at [1]. Pass a value of the same type there, NaN among floats"),
    ([[1.0, 2.0], [3.0, None]], "holds None at [1, 1]"),
    (["a", None], "holds None at [1]"),
    ([1, "a"], "holds 1 at [0]: int and str in one list make no array of one type"),
    ([[1, 2], [3]], "is ragged: its parts differ in length. Pad them to one length"),
    ([1, [2]], "is ragged"),
    (ENDLESS, "is a list that numpy cannot read"),
    (np.array([None, 1]), "is an array of objects. Give it a type"),
    (np.array([1, 2], object), "is an array of objects"),
    (np.zeros(2, "i4,f4"), "is a record with the fields f0, f1. Log each field"),
    (np.zeros((0, 3)), "has shape (0, 3), which holds nothing. Leave it out"),
    ([], "has shape (0,), which holds nothing"),
    (np.ma.masked_array([1, 2], [0, 1]), "is a masked array with masked entries. Fill them first"),
    (Colour.RED, "is Colour.RED, a member of an enum. Pass value.value"),
    ([Colour.RED], "[0], is Colour.RED, a member of an enum"),
    (b"a", "is bytes. Decode them"),
    ([b"a", "b"], "[0], is bytes. Decode them"),
    (np.array([b"a"]), "is bytes. Decode them"),
    ("a\0", "holds text with a NUL character"),
    (["a", "b\0"], "holds text with a NUL character"),
    (np.array(["a\0b"]), "holds text with a NUL character"),
    ("\ud800", "half of a surrogate pair"),
    (["a", "\ud800"], "half of a surrogate pair"),
    (decimal.Decimal(1), "is Decimal('1'), of type Decimal. A run holds numbers"),
    ([decimal.Decimal(1)], "holds Decimal('1') at [0]"),
    ({"a": 1}, "is a dict, which has no order or no shape"),
    ({1, 2}, "is a set"),
    ((x for x in "ab"), "is a generator"),
    (object, "is <class 'object'>, of type type"),
    ([2**63, -1], "holds integers from -1 to 9223372036854775808, beyond every integer type"),
    ([2**64], "holds 18446744073709551616, beyond every integer type"),
    ([0.5, 2**53 + 1], "holds 9007199254740993 at [1] among floats, which cannot hold it exactly"),
    (np.timedelta64(3), "has dtype timedelta64, without a unit"),
    (datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC), "a time with a zone, which a run cannot hold. Pass it in UTC without one"),
    (np.clongdouble(1), "which a run cannot hold. Pass value.astype('complex128')"),
]


@pytest.mark.parametrize(("value", "message"), REFUSED, ids=range(len(REFUSED)))
def test_refused_at_first_sight_and_later(value: object, message: str) -> None:
    with pytest.raises(ValueMismatchError) as caught:
        infer_variable("x", value, "observations", where)
    assert str(caught.value).startswith("'x' of agent 'agent_3' at step 41")
    assert message in str(caught.value)
    for dtype in ("float64", "str", "int64"):
        refusal(value, dtype)


def test_an_enormous_integer() -> None:
    assert "an integer of 100001 bits" in refusal(2**100_000, "int64")


def test_reserved_names() -> None:
    with pytest.raises(SchemaError, match="the run keeps 'time' for itself"):
        infer_variable("time", 1, "observations", where)


# -- shape


@pytest.mark.parametrize(
    ("given", "declared", "lead", "advice"),
    [
        ((11, 11), (11, 11, 3), (), "Pass one value per channel."),
        ((), (1,), (), "Pass [value], or declare shape=()."),
        ((), (4,), (), "Pass one value per channel."),
        ((1,), (), (), "Pass value.item(), or declare shape=(1,)."),
        ((3,), (), (), "Pass a single number, or declare shape=(3,)."),
        ((5, 2), (2,), (), "Pass the value of one agent at one step; log_step takes all agents at once, log_episode a whole trajectory."),
        ((5, 2), (2,), (4,), "Pass 4 of them along the first axis."),
        ((2,), (2,), (4,), "Put the axis of the agents, or of the steps, first."),
        ((3, 11, 11), (11, 11, 3), (), "Its axes are in another order: see numpy.transpose."),
        ((11, 1, 11), (11, 11), (), "Drop the axes of length 1: value.reshape((11, 11))."),
        ((6,), (2, 3), (), "Pass value.reshape((2, 3)), or declare shape=(6,)."),
        ((7,), (2, 3), (), "Pass a value of the declared shape, or log it under a name of its own."),
    ],
)
def test_wrong_shape(given: tuple[int, ...], declared: tuple[int, ...], lead: tuple[int, ...], advice: str) -> None:
    expected = f"has shape {given}, but the schema says {lead + declared}. {advice}"
    for dtype in ("float64", "float32", "int8"):
        assert refusal(np.zeros(given), dtype, declared, lead) == expected
        assert refusal(np.zeros(given).tolist(), dtype, declared, lead) == expected


def test_the_message_of_the_design() -> None:
    with pytest.raises(ValueMismatchError) as caught:
        fit(np.zeros((11, 11)), Variable("vision", (11, 11, 3)), where)
    assert str(caught.value) == (
        "'vision' of agent 'agent_3' at step 41 has shape (11, 11), but the schema says (11, 11, 3). Pass one value per channel."
    )


def test_nothing_of_nobody() -> None:
    assert fitted([], "float32", (2,), (0,))[0].shape == (0, 2)
    assert fitted([], "str", (), (0,))[0].shape == (0,)
    assert fitted(np.zeros((0, 2)), "float32", (2,), (0,))[0].shape == (0, 2)


# -- type


def test_no_copy_where_it_fits() -> None:
    value = np.arange(12, dtype="float32").reshape(3, 4)[:, ::2]
    array, coerced = fitted(value, "float32", (3, 2))
    assert array is value
    assert not coerced
    assert np.shares_memory(fitted(np.asarray(value).view(np.ma.MaskedArray), "float32", (3, 2))[0], value)


@pytest.mark.parametrize(
    ("value", "dtype", "coerced"),
    [
        (0.5, "float32", False), (3, "float32", False), (3.0, "int8", False), (True, "int8", False), (1, "bool", False),
        (Level.HIGH, "int8", False),
        ([0.5, 1], "float32", False), ([1, 2], "int8", False), ([1.0, 2.0], "int8", False), ((1, 2), "float16", False),
        ([[0.5, 1.0]], "float32", False), (["a"], "str", False), ("a", "str", False), (np.str_("a"), "str", False),
        (np.float64(0.5), "float32", True), (np.int64(3), "int8", True), (np.bool_(True), "int8", True),
        (np.float32(0.5), "float32", False),
        (np.arange(3), "float32", True), ([np.float64(0.5), 1.0], "float32", True), (np.arange(3), "int64", False),
        (np.arange(3, dtype=">i8"), "int64", False), (np.array(["a"]), "str", False),
        (datetime.datetime(2020, 1, 1), "datetime64[ns]", False),
        (np.datetime64("2020", "D"), "datetime64[ns]", True),
    ],
)  # fmt: skip
def test_coerced_counts_numpy_values_only(value: Any, dtype: str, coerced: bool) -> None:
    assert fitted(value, dtype, np.shape(value))[1] is coerced


EXACT = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64", "longdouble"]


def survives(number: Any, dtype: np.dtype[Any]) -> bool:
    """Say, with Python's exact integers, whether a number may go into a dtype."""
    number = number.item() if not isinstance(number, np.longdouble) else number
    if dtype.kind == "b":
        return bool(number in (0, 1))
    if dtype.kind in "iu":
        if isinstance(number, (bool, int)):
            return bool(np.iinfo(dtype).min <= number <= np.iinfo(dtype).max)
        whole = bool(np.isfinite(number)) and number == np.floor(number)
        return bool(whole and np.iinfo(dtype).min <= int(number) <= np.iinfo(dtype).max)
    with np.errstate(all="ignore"):
        if isinstance(number, int):
            return bool(np.isfinite(dtype.type(number))) and int(dtype.type(number)) == number
        return bool(not np.isfinite(number) or np.isfinite(dtype.type(number)))


@settings(max_examples=500)
@given(st.data(), st.sampled_from(EXACT), st.sampled_from(EXACT))
def test_every_number_survives_or_is_refused(data: st.DataObject, source: str, target: str) -> None:
    of, to = np.dtype(source), np.dtype(target)
    edges = [2**k + d for k in (0, 7, 8, 11, 15, 16, 24, 31, 32, 53, 63) for d in (-1, 0, 1)]
    elements: Any = None
    if of.kind in "iu":
        low, high = int(np.iinfo(of).min), int(np.iinfo(of).max)
        elements = st.integers(low, high) | st.sampled_from([e for e in (*edges, *(-e for e in edges)) if low <= e <= high])
    elif of.kind == "f" and of.itemsize <= 8:
        small = st.integers(-300, 300).map(float) | st.sampled_from([float(of.type(e)) for e in edges if e < 60000 or of.itemsize > 2])
        elements = hnp.from_dtype(of) | small
    value = data.draw(hnp.arrays(of, st.sampled_from([(), (1,), (3,), (2, 2)]), elements=elements))
    good = all(survives(x, to) for x in value.reshape(-1)[...])
    for given_value in (value, value[()], value.tolist() if of.char != "g" else value):
        if not good:
            refusal(given_value, to, value.shape)
            continue
        array, _ = fitted(given_value, to, value.shape)
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(array, value.astype(to))
        if to.kind in "biu":
            assert [int(x) for x in array.reshape(-1)] == [int(x) for x in value.reshape(-1)]


@pytest.mark.parametrize(
    ("value", "dtype", "message"),
    [
        (math.nan, "int32", "holds nan, but the schema says int32, which has neither NaN nor infinity. Leave the value out"),
        ([1.0, math.inf], "int32", "holds inf at [1], but the schema says int32"),
        (0.5, "int32", "holds 0.5, but the schema says int32. Round it first, or declare a float dtype."),
        (300, "uint8", "holds 300, but the schema says uint8, which holds 0 to 255. Declare a wider dtype."),
        (np.int64(-1), "uint64", "holds -1, but the schema says uint64, which holds 0 to 18446744073709551615."),
        (2**53 + 1, "float64", "holds 9007199254740993, but the schema says float64, which cannot hold it exactly."),
        (1e300, "float32", "holds 1e+300, but the schema says float32, which ends at 3.4028"),
        ([math.nan, 1e300], "float32", "holds 1e+300 at [1]"),
        (2, "bool", "holds 2, but the schema says bool. Pass True or False (0 or 1), or declare a number."),
        (1j, "float32", "holds complex numbers (1j), but the schema says float32. Pass value.real, or declare a complex dtype."),
        ("up", "float32", "is text ('up'), but the schema says float32. Pass numbers, or declare dtype='str'."),
        (0.5, "str", "is floats, but the schema says str. Pass str(value), or declare the type it has."),
        (5, "datetime64[s]", "holds integers (5), but the schema says datetime64[s]. Pass a datetime or a numpy.datetime64."),
        ("2020", "datetime64[s]", "is text ('2020'), but the schema says datetime64[s]. Pass numpy.datetime64(value)."),
        (datetime.timedelta(1), "datetime64[s]", "holds durations"),
        (datetime.timedelta(microseconds=1), "timedelta64[s]", "Declare a unit that holds both, such as timedelta64[us]."),
        (np.datetime64("3000", "Y"), "datetime64[ns]", "Declare a unit that holds both"),
        (np.timedelta64(1, "Y"), "timedelta64[D]", "Declare a unit that holds both"),
        (np.datetime64("2020"), "int64", "holds dates (2020), but the schema says int64."),
        (np.datetime64(5, "ns"), "int64", "holds dates"),
        (np.timedelta64(5, "ns"), "float32", "holds durations (5 nanoseconds)"),
    ],
)
def test_refused_types(value: Any, dtype: str, message: str) -> None:
    assert message in refusal(value, dtype, np.shape(value))


def test_text_into_categories() -> None:
    with pytest.raises(ValueMismatchError, match=r"is text \('up'\).*Pass the number of the category: 0 for 'up', 1 for 'down'\."):
        fit("up", Variable("x", dtype="int8", categories=["up", "down"]), where)


@pytest.mark.parametrize("value", ["", "up", "größer", "日本 🐺", "a" * 1000, " trail "])
def test_text(value: str) -> None:
    for given_value in (value, np.str_(value), np.array(value)):
        array, _ = fitted(given_value, "str")
        assert array[()].decode() == value
    array, _ = fitted([value, "x"], "str", (2,))
    assert [x.decode() for x in array] == [value, "x"]
    array, _ = fitted([value, "x"], "str", (), (2,))
    assert array.shape == (2,)


@given(st.lists(st.text(st.characters(exclude_characters="\0", codec="utf-8")), min_size=1, max_size=4))
def test_any_text(values: list[str]) -> None:
    array, _ = fitted(values, "str", (len(values),))
    assert [x.decode() for x in array] == values


def test_text_of_variable_width() -> None:
    dtypes: Any = np.dtypes
    if not hasattr(dtypes, "StringDType"):
        pytest.skip("numpy before 2")
    array, coerced = fitted(np.array(["a", "größer"], dtypes.StringDType()), "str", (2,))
    assert [x.decode() for x in array] == ["a", "größer"]
    assert not coerced


@given(
    hnp.arrays(hnp.datetime64_dtypes(max_period="s", min_period="us") | hnp.timedelta64_dtypes(max_period="s", min_period="us"), 3),
    st.sampled_from(["s", "ms", "us", "ns"]),
)
def test_dates_change_their_unit_only_without_loss(value: Any, unit: str) -> None:
    target = np.dtype(f"{value.dtype.kind}8[{unit}]")
    old, new = (10 ** {"s": 9, "ms": 6, "us": 3, "ns": 0}[u] for u in (np.datetime_data(value.dtype)[0], unit))
    counts = [None if np.isnat(x) else int(x.astype("int64")) * old for x in value]
    if all(c is None or (c % new == 0 and abs(c // new) < 2**63) for c in counts):
        array, _ = fitted(value, target, 3)
        assert [None if np.isnat(x) else int(x.astype("int64")) * new for x in array] == counts
    else:
        refusal(value, target, 3)


def test_complex() -> None:
    assert fitted([1, 2.5, 1j], "complex64", 3)[0].tolist() == [1, 2.5, 1j]
    assert fitted(np.array([1, 2]), "complex128", 2)[1]
    assert "ends at" in refusal(complex(0, 1e300), "complex64")
    assert "exactly" in refusal(2**53 + 1, "complex128")
