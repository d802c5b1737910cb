"""Values come back from JSON as they went in, or are refused where the offender stands."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import math
from collections import OrderedDict, defaultdict, namedtuple
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perkey import InvalidValue, LimitExceeded, StoreCorrupt
from perkey.store import codec, unfit
from tests.unit.strategies import alike, json_values


def identical(a: Any, b: Any) -> bool:
    """Equality that knows types and the sign of zero; the oracle for ``same``."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(identical(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(identical, a, b))
    if isinstance(a, float):
        return a == b and math.copysign(1, a) == math.copysign(1, b)
    return bool(a == b)


@given(json_values)
def test_values_come_back_as_they_went_in(value: Any) -> None:
    assert identical(codec.decode(codec.encode(value)), value)


@given(alike, alike)
def test_same_is_equality_of_json(a: Any, b: Any) -> None:
    assert codec.same(a, b) is identical(a, b)
    assert codec.same(a, codec.decode(codec.encode(a)))


@pytest.mark.parametrize(
    ("a", "b"),
    [(True, 1), (False, 0), (1, 1.0), (0.0, -0.0), (None, False), ("1", 1), ([], {}), ("", None)],
)
def test_same_knows_python_s_look_alikes(a: Any, b: Any) -> None:
    for wrap in (lambda x: x, lambda x: [x], lambda x: {"k": [x]}):
        assert not codec.same(wrap(a), wrap(b))
        assert codec.same(wrap(a), wrap(a))


def test_same_ignores_the_order_of_keys() -> None:
    assert codec.same({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"d": 3, "c": 2}, "a": 1})


def test_order_of_keys_is_kept() -> None:
    assert list(codec.decode(codec.encode({"b": 1, "a": 2}))) == ["b", "a"]


@pytest.mark.parametrize(
    "number", [-(2**63), 2**63, 2**64 - 1, -0.0, 5e-324, 1.7976931348623157e308]
)
def test_numbers_at_the_edges_are_kept(number: float) -> None:
    assert identical(codec.decode(codec.encode([number])), [number])


class Colour(enum.Enum):
    RED = 1


class Name(enum.StrEnum):
    ANN = "ann"


class Level(enum.IntEnum):
    LOW = 1


@dataclasses.dataclass
class Point:
    x: int


class Row(msgspec.Struct):
    x: int


class Text(str):
    __slots__ = ()


class Number(int):
    pass


class Ratio(float):
    pass


class Items(list[Any]):
    pass


Pair = namedtuple("Pair", "a b")

STRANGERS = [
    (math.nan, "nan"),
    (math.inf, "inf"),
    (-math.inf, "-inf"),
    (2**64, "outside"),
    (-(2**63) - 1, "outside"),
    ("a\ud800b", r"U\+D800"),
    ((1, 2), "use a list"),
    (Pair(1, 2), "use a list"),
    (b"x", "base64"),
    (bytearray(b"x"), "base64"),
    (memoryview(b"x"), "base64"),
    ({1, 2}, "sorted list"),
    (frozenset(), "sorted list"),
    (datetime.datetime(2030, 1, 1), "isoformat"),
    (datetime.date(2030, 1, 1), "isoformat"),
    (datetime.time(1), "isoformat"),
    (datetime.timedelta(1), "seconds"),
    (Decimal("1.5"), "a string"),
    (Point(1), "asdict"),
    (Row(1), "to_builtins"),
    (Colour.RED, r"\.value"),
    (Name.ANN, r"\.value"),
    (Level.LOW, r"\.value"),
    (Text("x"), r"str\(value\)"),
    (Number(1), r"int\(value\)"),
    (Ratio(1), r"float\(value\)"),
    (Items(), r"list\(value\)"),
    (OrderedDict(a=1), r"dict\(value\)"),
    (defaultdict(list), r"dict\(value\)"),
    (UUID(int=1), "uuid.UUID"),
    (1 + 2j, "complex"),
    (object(), "None, bool, int"),
    (..., "ellipsis"),
]


@pytest.mark.parametrize(("stranger", "remedy"), STRANGERS, ids=lambda each: type(each).__name__)
def test_what_would_not_come_back_is_refused_where_it_stands(stranger: Any, remedy: str) -> None:
    with pytest.raises(InvalidValue, match=remedy) as refused:
        codec.encode(stranger)
    assert refused.value.path == ""
    value = {"ok": [1, {"deep": "x"}], "a/b~c": [{}, {"é": stranger}]}
    with pytest.raises(InvalidValue, match=remedy) as refused:
        codec.encode(value)
    assert refused.value.path == "/a~1b~0c/1/é"
    assert "/a~1b~0c/1/é" in str(refused.value)


@pytest.mark.parametrize("key", [1, 1.5, True, None, (1,), b"k", Name.ANN, Text("k"), Colour.RED])
def test_keys_are_plain_text(key: Any) -> None:
    with pytest.raises(InvalidValue, match="use a plain str") as refused:
        codec.encode([{"fine": 1, key: 2}])
    assert refused.value.path.startswith("/0/")


def test_two_keys_that_would_become_one_are_refused() -> None:
    with pytest.raises(InvalidValue):
        codec.encode({1: "a", "1": "a"})


def test_a_lone_surrogate_in_a_key_is_named_printably() -> None:
    with pytest.raises(InvalidValue, match=r"U\+DFFF") as refused:
        codec.encode({"a": {"b\udfff": 1}})
    assert refused.value.path == "/a/b\\udfff"
    assert str(refused.value).encode()


@given(json_values, st.sampled_from([math.nan, (1,), 2**64, "\udc00", {2: 2}, Name.ANN]))
def test_an_offender_is_found_wherever_it_stands(value: Any, stranger: Any) -> None:
    for holder in ([value, stranger], {"a": value, "b": [stranger]}):
        with pytest.raises(InvalidValue):
            codec.encode(holder)


@given(json_values)
def test_the_slow_walk_finds_no_offender_in_what_the_fast_road_takes(value: Any) -> None:
    assert unfit.offender(value) is None


def test_a_value_that_contains_itself_is_refused_at_that_place() -> None:
    value: dict[str, Any] = {"a": [1, {}]}
    value["a"][1]["self"] = value["a"]
    with pytest.raises(InvalidValue, match="contains itself") as refused:
        codec.encode(value)
    assert refused.value.path == "/a/1/self"


def test_the_same_list_twice_side_by_side_is_no_cycle() -> None:
    shared = [1]
    assert codec.encode({"a": shared, "b": shared}) == b'{"a":[1],"b":[1]}'


def chain(depth: int) -> Any:
    value: Any = "leaf"
    for level in range(depth):
        value = [value] if level % 2 else {"k": value}
    return value


def test_depth_has_a_limit() -> None:
    assert codec.decode(codec.encode(chain(codec.MAX_DEPTH))) == chain(codec.MAX_DEPTH)
    for depth in (codec.MAX_DEPTH + 1, 5_000, 200_000):
        with pytest.raises(InvalidValue, match=f"more than {codec.MAX_DEPTH} lists and dicts"):
            codec.encode(chain(depth))


def test_a_wide_value_with_many_brackets_is_not_deep() -> None:
    wide = {"rows": [[{}] for _ in range(1_000)], "text": "[" * 1_000 + "{" * 1_000}
    assert codec.decode(codec.encode(wide)) == wide


def test_brackets_in_text_do_not_hide_depth() -> None:
    value: Any = 1
    for _ in range(codec.MAX_DEPTH + 1):
        value = ["]", value, "["]
    with pytest.raises(InvalidValue, match="in each other"):
        codec.encode(value)


def test_size_has_a_limit_that_quotes_both_numbers() -> None:
    assert codec.encode("x" * 8, max_bytes=10) == b'"xxxxxxxx"'
    with pytest.raises(LimitExceeded, match=r"at most 10 bytes .* found 11") as refused:
        codec.encode("x" * 9, max_bytes=10)
    assert (refused.value.limit, refused.value.found) == (10, 11)


def test_an_endless_path_is_cut_in_the_message_only() -> None:
    with pytest.raises(InvalidValue) as refused:
        codec.encode({"k" * 100_000: math.nan})
    assert len(str(refused.value)) < 400
    assert len(refused.value.path) == 100_001


def test_a_value_that_cannot_be_compared_is_refused_not_crashed_on() -> None:
    class Rude:
        def __eq__(self, other: object) -> bool:
            raise ArithmeticError

        __hash__ = None  # type: ignore[assignment]

    with pytest.raises(InvalidValue, match="Rude"):
        codec.encode({"a": Rude()})


def test_a_damaged_body_is_the_store_s_fault() -> None:
    with pytest.raises(StoreCorrupt, match="not JSON"):
        codec.decode(b'{"a":')


@pytest.mark.parametrize(
    "text", ["", "{", "NaN", "1 2", '"\\ud800"', "1e999", "[" * 100_000, b"\xff"]
)
def test_json_from_outside_is_the_sender_s_fault(text: str) -> None:
    with pytest.raises(InvalidValue):
        codec.parse(text)


def test_json_from_outside_must_fit_too() -> None:
    assert codec.parse('{"a": [1, 2.0]}') == {"a": [1, 2.0]}
    with pytest.raises(InvalidValue, match="outside") as refused:
        codec.parse(b'{"a": 18446744073709551616}')
    assert refused.value.path == "/a"
    with pytest.raises(InvalidValue, match="in each other"):
        codec.parse("[" * 101 + "]" * 101)


TEXTS = st.one_of(
    json_values.map(msgspec.json.encode),
    json_values.map(lambda value: msgspec.json.format(msgspec.json.encode(value), indent=3)),
    st.sampled_from(["18446744073709551615", "-9223372036854775808", "-0.0", "1E5", '"\\u00e9\\/"',
                     '{"a": 1, "a": 2}', " [ ] ", "12345678901234567890123456789.5"])
    .map(str.encode),
)  # fmt: skip


@given(TEXTS)
def test_what_is_sent_is_kept_as_its_value_would_be(text: bytes) -> None:
    """The short way for parsed JSON gives what the long way for any value gives."""
    value = msgspec.json.decode(text)
    assert codec.compact(text) == codec.encode(value)
    assert identical(codec.parse(text), value)


@pytest.mark.parametrize(
    ("inner", "says"),
    [
        ("18446744073709551616", "integer outside"),
        ("-9223372036854775809", "integer outside"),
        ("[" * 101 + "]" * 101, "100"),
    ],
)
@pytest.mark.parametrize("padding", ["", "x" * 1000])
def test_what_is_sent_and_does_not_fit_is_refused_where_it_stands(
    inner: str, says: str, padding: str
) -> None:
    text = f'{{"pad": "{padding}", "a": [{inner}]}}'
    for read in (codec.compact, codec.parse):
        with pytest.raises(InvalidValue, match=says) as refused:
            read(text)
        assert refused.value.details["path"].startswith("/a/0")
