"""Configuration and attributes: what goes in comes out, as strictly valid JSON, or is refused by name."""

from __future__ import annotations

import argparse
import collections
import dataclasses
import datetime
import enum
import json
import math
import types
from pathlib import Path, PureWindowsPath
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from simlab.errors import MetadataError
from simlab.metadata import MAX_DEPTH, from_json, split_attributes, to_json


def again(value: object) -> Any:
    text = to_json(value, "config")
    # Strict: no NaN tokens, and UTF-8.
    json.loads(text, parse_constant=lambda token: pytest.fail(f"{token} is no JSON"))
    text.encode()
    return from_json(text)


def same(a: Any, b: Any) -> bool:
    """Equal, of one type, NaN equal to NaN."""
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, dict):
        return list(map(repr, a)) == list(map(repr, b)) and all(same(x, y) for x, y in zip(a.values(), b.values(), strict=True))
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, (float, complex, np.datetime64, np.timedelta64)):
        return repr(a) == repr(b)
    return bool(a == b)


class Colour(enum.Enum):
    RED = "red"
    POINT = (1, 2)


class Level(enum.IntEnum):
    LOW = 1


@dataclasses.dataclass
class Inner:
    rate: float = 0.5
    shape: tuple[int, ...] = (3, 4)


@dataclasses.dataclass
class Outer:
    inner: Inner = dataclasses.field(default_factory=Inner)
    colour: Colour = Colour.RED


def test_the_case_that_broke_others() -> None:
    config = {
        "lr": np.float32(0.1),
        "n": np.int64(3),
        "wind": None,
        "shape": (3,),
        "path": Path("x"),
        5: "five",
        "nan": float("nan"),
    }
    back = again(config)
    assert math.isnan(back.pop("nan"))
    del config["nan"]
    assert back == config
    assert isinstance(back["path"], Path)


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.complex_numbers()
    | st.text()
    | st.binary()
    | st.datetimes()
    | st.datetimes(timezones=st.just(datetime.UTC))
    | st.dates()
    | st.times()
    | st.timedeltas()
    | st.just("$type")
    | st.builds(Path, st.text(st.characters(exclude_characters="/\0", codec="utf-8"), min_size=1))
)
HASHABLE = st.recursive(
    SCALARS.filter(lambda x: x == x), lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3), max_leaves=4
)
KEYS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.tuples(st.integers(), st.text())


@given(
    st.recursive(
        SCALARS,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.tuples(inner, inner)
            | st.dictionaries(KEYS, inner, max_size=3)
            | st.dictionaries(st.sampled_from(["$type", "items", "value", "a.b"]), inner)
            | st.sets(HASHABLE, max_size=3)
        ),
        max_leaves=10,
    )
)
def test_everything_comes_back(value: object) -> None:
    back = again(value)
    assert same(back, value)


@given(
    hnp.arrays(
        hnp.integer_dtypes(endianness="?") | hnp.floating_dtypes(endianness="?") | hnp.complex_number_dtypes() | hnp.boolean_dtypes()
        | hnp.unicode_string_dtypes(endianness="=") | hnp.datetime64_dtypes() | hnp.timedelta64_dtypes(),
        hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=9),
    )
)  # fmt: skip
def test_arrays_come_back(value: np.ndarray[Any, np.dtype[Any]]) -> None:
    back = again({"a": value})["a"]
    if value.dtype.kind == "U":
        assert back.tolist() == value.tolist()
    else:
        assert same(back, value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.bool_(True), True),
        (np.uint64(2**64 - 1), 2**64 - 1),
        (np.float32(0.1), float(np.float32(0.1))),
        (np.complex64(1j), 1j),
        (np.str_("a"), "a"),
        (np.longdouble(1) / 3, np.longdouble(1) / 3),
        (np.datetime64("2020-01-01T00:00:00.000000001"), np.datetime64("2020-01-01T00:00:00.000000001")),
        (np.timedelta64(7, "M"), np.timedelta64(7, "M")),
        (Colour.RED, "red"),
        (Colour.POINT, (1, 2)),
        (Level.LOW, 1),
        (Outer(), {"inner": {"rate": 0.5, "shape": (3, 4)}, "colour": "red"}),
        (argparse.Namespace(a=1), {"a": 1}),
        (types.SimpleNamespace(a=(1,)), {"a": (1,)}),
        (collections.OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
        (types.MappingProxyType({"a": 1}), {"a": 1}),
        (collections.deque([1, 2]), [1, 2]),
        (range(0, 10, 3), range(0, 10, 3)),
        (bytearray(b"\x00\xff"), b"\x00\xff"),
        (PureWindowsPath("C:/a"), PureWindowsPath("C:/a")),
        ("\ud800 ü", "\ud800 ü"),
        ({Level.LOW: "low", Colour.RED: 0}, {1: "low", "red": 0}),
    ],
)
def test_kinds(value: object, expected: object) -> None:
    back = again(value)
    assert same(back, expected)


def test_text_of_variable_width() -> None:
    dtypes: Any = np.dtypes
    if not hasattr(dtypes, "StringDType"):
        pytest.skip("numpy before 2")
    assert again(np.array(["a", "ü"], dtypes.StringDType())).tolist() == ["a", "ü"]


def test_integers_of_any_size() -> None:
    assert again({"a": [10**5000], -(10**5000): 1}) == {"a": [10**5000], -(10**5000): 1}


def test_plain_json_stays_plain() -> None:
    config = {"a": [1, 2.5, None, True, "ü"], "b": {"c": {}}}
    assert to_json(config, "config") == json.dumps(config, ensure_ascii=False)
    assert from_json('{"$type": "from a later version", "x": [1]}') == {"$type": "from a later version", "x": [1]}


def test_one_object_twice_is_no_cycle() -> None:
    shared = [1]
    assert again({"a": shared, "b": [shared, shared]}) == {"a": [1], "b": [[1], [1]]}


def test_cycles_are_named() -> None:
    config: dict[str, Any] = {"a": {}}
    config["a"]["b"] = config["a"]
    with pytest.raises(MetadataError, match=r"^config\.a\.b refers back to config\.a; a cycle cannot be stored\."):
        to_json(config, "config")
    ring = [{"x y": 0}]
    ring[0]["x y"] = ring  # type: ignore[assignment]
    with pytest.raises(MetadataError, match=r"^config\[0\]\['x y'\] refers back to config;"):
        to_json(ring, "config")


def test_depth() -> None:
    deep: Any = 0
    for _ in range(MAX_DEPTH):
        deep = {1: (deep,)} if _ % 2 else [deep]
    with pytest.raises(MetadataError, match="levels deep"):
        to_json(deep, "config")
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(MetadataError, match="levels deep"):
        to_json(deep, "config")
    with pytest.raises(MetadataError, match="nested too deeply"):
        from_json("[" * 100_000 + "]" * 100_000)
    fits: Any = 0
    for _ in range(MAX_DEPTH):
        fits = [fits]
    assert again(fits) == fits


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            {"policy": {"net": [print]}},
            r"^config\.policy\.net\[0\] is a builtin_function_or_method, which cannot be stored\. Store its name",
        ),
        ({"cls": Outer}, r"^config\.cls is a type, which cannot be stored"),
        ({"a": np.array([object()])}, r"^config\.a is an array of dtype object"),
        ({"a": np.zeros(2, "i4,f4")}, r"^config\.a is an array of dtype"),
        ({"a": np.zeros(2, "i4,f4")[0]}, r"^config\.a is a numpy"),
        ({"a": np.ma.masked_array([1, 2], [0, 1])}, r"^config\.a is a masked array"),
        ({5: {frozenset({1}): object()}}, r"^config\[5\]\[frozenset\(\{1\}\)\] is a object"),
        ({Level.LOW: 0, Colour.RED: 1, "red": 2}, r"^config has two keys that are both stored as 'red'"),
        ((x for x in ()), r"^config is a generator"),
    ],
)
def test_refusals(value: object, message: str) -> None:
    with pytest.raises(MetadataError, match=message):
        to_json(value, "config")


def test_keys_that_would_not_come_back() -> None:
    @dataclasses.dataclass(frozen=True)
    class Key:
        x: int = 1

    with pytest.raises(MetadataError, match=r"^a key of config is a Key, which reads back as a dict"):
        to_json({Key(): 1}, "config")
    with pytest.raises(MetadataError, match=r"^an element of config\.s is a Key"):
        to_json({"s": {Key()}}, "config")


@pytest.mark.parametrize(
    "text",
    ["", "{", '{"a": 1', "{'a': 1}", "nonsense", '{"$type": "tuple"}', '{"$type": "tuple", "items": 3}',
     '{"$type": "dict", "items": [[1, 2, 3]]}',
     '{"$type": "dict", "items": [[[], 2]]}', '{"$type": "array", "dtype": "O", "shape": [1], "values": [1]}',
     '{"$type": "array", "dtype": "<f4", "shape": [3], "base64": "AAAA"}',
     '{"$type": "array", "dtype": "<f4", "shape": [1], "base64": "?"}',
     '{"$type": "array", "dtype": "nope", "shape": [1], "values": [1]}', '{"$type": "date", "value": "yesterday"}', "1" * 5000,
     '{"$type": "datetime64", "dtype": "O", "value": 1}'],
)  # fmt: skip
def test_broken_text(text: str) -> None:
    with pytest.raises(MetadataError):
        from_json(text)


# -- attributes


def test_attributes_are_native_or_json() -> None:
    given_ = {
        "title": "Foraging ü", "n": 3, "big": 2**63 - 1, "rate": 0.5, "f4": np.float32(1), "u8": np.uint64(2**64 - 1),
        "axes": np.arange(3), "nan": math.nan,
        "level": Level.LOW,
        "walls": np.True_, "yes": True, "none": None, "list": ["a"], "empty": [], "dict": {"a": (1,)}, "huge": 2**63,
        "one": np.arange(1), "two_d": np.eye(2),
        "bools": np.array([True, False]), "half": np.float16(1), "z": 1j,
        "when": datetime.datetime(2020, 1, 1), "nothing": "", "nul": "a\0b", "bad": "\ud800",
        "words": np.array(["a", "b"]), "colour": Colour.RED, "a.b-c": 1,
    }  # fmt: skip
    values, as_json = split_attributes(given_, "metadata")
    assert list(values) == list(given_)
    assert as_json == [
        "walls", "yes", "none", "list", "empty", "dict", "huge", "one", "two_d", "bools", "half",
        "z", "when", "nothing", "nul", "bad", "words",
    ]  # fmt: skip
    assert values["colour"] == "red"
    assert values["level"] == 1
    for name in as_json:
        assert isinstance(values[name], str)
        back = from_json(values[name])
        assert np.array_equal(back, given_[name]) if isinstance(given_[name], np.ndarray) else back == given_[name]
    as_json.remove("half")  # it reads back as a float, which is native
    # They come back as what they were, however often they go round.
    round_two, names_two = split_attributes({n: from_json(values[n]) for n in as_json}, "metadata")
    assert names_two == as_json
    assert round_two == {n: values[n] for n in as_json}


@pytest.mark.parametrize(
    "name",
    ["", "_FillValue", "a/b", " a", "a ", "a b", "1a", "config", "seed", "Conventions", "json_attributes", "CLASS", "ä" * 101, 5, None],
)
def test_attribute_names(name: Any) -> None:
    with pytest.raises(MetadataError, match=r"^metadata has an attribute called "):
        split_attributes({name: 1}, "metadata")


def test_attribute_errors_name_the_path() -> None:
    with pytest.raises(MetadataError, match=r"^metadata\.policy\.net is a function"):
        split_attributes({"policy": {"net": again}}, "metadata")
