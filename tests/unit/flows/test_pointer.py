"""JSON Pointer: the examples of RFC 6901, round trips, and errors that say what is missing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perkey import NotFound, UsageError
from perkey.flows import pointer
from tests.unit.strategies import text

# RFC 6901, section 5.
DOCUMENT = {
    "foo": ["bar", "baz"],
    "": 0,
    "a/b": 1,
    "c%d": 2,
    "e^f": 3,
    "g|h": 4,
    "i\\j": 5,
    'k"l': 6,
    " ": 7,
    "m~n": 8,
}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("", DOCUMENT),
        ("/foo", ["bar", "baz"]),
        ("/foo/0", "bar"),
        ("/", 0),
        ("/a~1b", 1),
        ("/c%d", 2),
        ("/e^f", 3),
        ("/g|h", 4),
        ("/i\\j", 5),
        ('/k"l', 6),
        ("/ ", 7),
        ("/m~0n", 8),
    ],
)
def test_the_examples_of_the_rfc(path: str, value: object) -> None:
    assert pointer.get(DOCUMENT, path) == value
    assert pointer.format(pointer.parse(path)) == path


@given(st.lists(text).map(tuple))
def test_parse_undoes_format(path: tuple[str, ...]) -> None:
    assert pointer.parse(pointer.format(path)) == path


def test_escapes_are_undone_in_the_right_order() -> None:
    assert pointer.parse("/~01") == ("~1",)


def test_indexes_are_formatted_as_digits() -> None:
    assert pointer.format(("a", 0, "0")) == "/a/0/0"


@pytest.mark.parametrize("path", ["a", "a/b", "/a~", "/~2", "/a~~0", 3, None, b"/a"])
def test_what_is_no_pointer_is_refused(path: object) -> None:
    with pytest.raises(UsageError, match=r"JSON Pointer|'~'"):
        pointer.parse(path)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "token", ["00", "01", "-1", "+1", "1.0", " 1", "1e0", "²", "-", "", "2", "9" * 50, -1, 2]
)
def test_what_is_no_index_of_a_list_of_two(token: str | int) -> None:
    assert pointer.index(token, 2) is None
    with pytest.raises(NotFound):
        pointer.get([1, 2], (token,))


@pytest.mark.parametrize(("token", "place"), [("0", 0), ("1", 1), (1, 1)])
def test_indexes_of_a_list_of_two(token: str | int, place: int) -> None:
    assert pointer.index(token, 2) == place


def test_a_key_that_looks_like_an_index_is_a_key() -> None:
    assert pointer.get({"0": {"01": "x"}}, "/0/01") == "x"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/a/x", "nothing at '/a/x': '/a' is a list of 2 items"),
        ("/b", "nothing at '/b': the value itself is a dict of 3 keys"),
        ("/c/d", "nothing at '/c/d': '/c' is a str"),
        ("/n/0", "nothing at '/n/0': '/n' is null"),
    ],
)
def test_the_error_says_what_is_missing(path: str, message: str) -> None:
    with pytest.raises(NotFound) as refused:
        pointer.get({"a": [1, 2], "c": "text", "n": None}, path)
    assert message in str(refused.value)
    assert refused.value.path == path


def test_a_null_is_something() -> None:
    assert pointer.get({"n": None}, "/n") is None


def test_a_secret_is_not_in_the_message() -> None:
    with pytest.raises(NotFound) as refused:
        pointer.get({"token": "s3cret"}, "/token/x")
    assert "s3cret" not in str(refused.value)
