"""JSON Patch and JSON Merge Patch: the RFCs' own examples, exact errors, no shared parts."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perkey import InvalidPatch, InvalidValue, LimitExceeded
from perkey.flows import patching
from perkey.flows.diff import ABSENT, diff
from perkey.flows.patching import equal, from_changes, json_patch, merge_patch
from perkey.store.codec import same
from tests.unit.strategies import alike, json_values

# RFC 6902, appendix A, with its section numbers; then places that it leaves to the reader.
APPLIES: dict[str, tuple[Any, list[dict[str, Any]], Any]] = {
    "A.1 add an object member": (
        {"foo": "bar"},
        [{"op": "add", "path": "/baz", "value": "qux"}],
        {"baz": "qux", "foo": "bar"},
    ),
    "A.2 add an array element": (
        {"foo": ["bar", "baz"]},
        [{"op": "add", "path": "/foo/1", "value": "qux"}],
        {"foo": ["bar", "qux", "baz"]},
    ),
    "A.3 remove an object member": (
        {"baz": "qux", "foo": "bar"},
        [{"op": "remove", "path": "/baz"}],
        {"foo": "bar"},
    ),
    "A.4 remove an array element": (
        {"foo": ["bar", "qux", "baz"]},
        [{"op": "remove", "path": "/foo/1"}],
        {"foo": ["bar", "baz"]},
    ),
    "A.5 replace a value": (
        {"baz": "qux", "foo": "bar"},
        [{"op": "replace", "path": "/baz", "value": "boo"}],
        {"baz": "boo", "foo": "bar"},
    ),
    "A.6 move a value": (
        {"foo": {"bar": "baz", "waldo": "fred"}, "qux": {"corge": "grault"}},
        [{"op": "move", "from": "/foo/waldo", "path": "/qux/thud"}],
        {"foo": {"bar": "baz"}, "qux": {"corge": "grault", "thud": "fred"}},
    ),
    "A.7 move an array element": (
        {"foo": ["all", "grass", "cows", "eat"]},
        [{"op": "move", "from": "/foo/1", "path": "/foo/3"}],
        {"foo": ["all", "cows", "eat", "grass"]},
    ),
    "A.8 test a value": (
        {"baz": "qux", "foo": ["a", 2, "c"]},
        [
            {"op": "test", "path": "/baz", "value": "qux"},
            {"op": "test", "path": "/foo/1", "value": 2},
        ],
        {"baz": "qux", "foo": ["a", 2, "c"]},
    ),
    "A.10 add a nested member object": (
        {"foo": "bar"},
        [{"op": "add", "path": "/child", "value": {"grandchild": {}}}],
        {"foo": "bar", "child": {"grandchild": {}}},
    ),
    "A.11 ignore unrecognised members": (
        {"foo": "bar"},
        [{"op": "add", "path": "/baz", "value": "qux", "xyz": 123}],
        {"foo": "bar", "baz": "qux"},
    ),
    "A.14 escape in a path": (
        {"/": 9, "~1": 10},
        [{"op": "test", "path": "/~01", "value": 10}],
        {"/": 9, "~1": 10},
    ),
    "A.16 add an array value": (
        {"foo": ["bar"]},
        [{"op": "add", "path": "/foo/-", "value": ["abc", "def"]}],
        {"foo": ["bar", ["abc", "def"]]},
    ),
    "add replaces a member": ({"a": 1}, [{"op": "add", "path": "/a", "value": None}], {"a": None}),
    "add at the end by index": ([1], [{"op": "add", "path": "/1", "value": 2}], [1, 2]),
    "add to the empty key": ({}, [{"op": "add", "path": "/", "value": 1}], {"": 1}),
    "add replaces everything": ({"a": 1}, [{"op": "add", "path": "", "value": [1]}], [1]),
    "replace everything": ({"a": 1}, [{"op": "replace", "path": "", "value": 2}], 2),
    "test with another number type": (
        {"a": 1},
        [{"op": "test", "path": "/a", "value": 1.0}],
        {"a": 1},
    ),
    "move onto itself": ({"a": 1}, [{"op": "move", "from": "/a", "path": "/a"}], {"a": 1}),
    "move out of its parent": (
        {"a": {"b": 1}},
        [{"op": "move", "from": "/a/b", "path": "/a"}],
        {"a": 1},
    ),
    "move to a sibling with the same beginning": (
        {"a": 1},
        [{"op": "move", "from": "/a", "path": "/ab"}],
        {"ab": 1},
    ),
    "copy into itself": (
        {"a": {"b": 1}},
        [{"op": "copy", "from": "/a", "path": "/a/c"}],
        {"a": {"b": 1, "c": {"b": 1}}},
    ),
    "an index as a key": ({"0": 1}, [{"op": "remove", "path": "/0"}], {}),
    "no operation": ({"a": 1}, [], {"a": 1}),
}


@pytest.mark.parametrize(("value", "patch", "expected"), APPLIES.values(), ids=APPLIES)
def test_json_patch(value: Any, patch: list[dict[str, Any]], expected: Any) -> None:
    before = copy.deepcopy((value, patch))
    assert same(json_patch(value, patch), expected)
    assert (value, patch) == before


REFUSED: dict[str, tuple[Any, Any, str]] = {
    "A.9 test fails": (
        {"baz": "qux"},
        {"op": "test", "path": "/baz", "value": "bar"},
        "another one",
    ),
    "A.12 add to a nonexistent target": (
        {"foo": "bar"},
        {"op": "add", "path": "/baz/bat", "value": "qux"},
        "nothing at '/baz'",
    ),
    "A.13 an operation that is none": (
        {"foo": "bar"},
        {"op": "delete", "path": "/foo"},
        "one of add, remove, replace, move, copy, test; found 'delete'",
    ),
    "A.15 compare a text with a number": (
        {"/": 9, "~1": 10},
        {"op": "test", "path": "/~01", "value": "10"},
        "another one",
    ),
    "true is not 1": ({"a": 1}, {"op": "test", "path": "/a", "value": True}, "another one"),
    "add behind the end": ([1], {"op": "add", "path": "/2", "value": 2}, "index from 0 to 1 or"),
    "a leading zero": ([1], {"op": "add", "path": "/00", "value": 2}, "index from 0 to 1"),
    "remove behind the end": ([1], {"op": "remove", "path": "/-"}, "nothing at '/-'"),
    "replace what is absent": ({}, {"op": "replace", "path": "/a", "value": 1}, "nothing at '/a'"),
    "remove what is absent": ({}, {"op": "remove", "path": "/a"}, "nothing at '/a'"),
    "remove everything": ({}, {"op": "remove", "path": ""}, "delete the document"),
    "test what is absent": ({}, {"op": "test", "path": "/a", "value": None}, "nothing at '/a'"),
    "put into a number": ({"a": 1}, {"op": "add", "path": "/a/b", "value": 1}, "put into an int"),
    "move into itself": (
        {"a": {"b": 1}},
        {"op": "move", "from": "/a", "path": "/a/b/c"},
        "moved into itself",
    ),
    "move everything": ({}, {"op": "move", "from": "", "path": "/a"}, "moved into itself"),
    "move what is absent": ({}, {"op": "move", "from": "/a", "path": "/a"}, "nothing at '/a'"),
    "copy what is absent": ({}, {"op": "copy", "from": "/a", "path": "/b"}, "nothing at '/a'"),
    "no from": ({}, {"op": "copy", "path": "/b"}, "'from' to be a JSON Pointer, found None"),
    "no value": ({}, {"op": "add", "path": "/a"}, "expected a 'value'"),
    "no path": ({}, {"op": "remove"}, "expected a path, found None"),
    "a path that is none": ({}, {"op": "add", "path": "a", "value": 1}, "JSON Pointer"),
    "no op": ({}, {"path": "/a"}, "found None"),
    "an op that is a list": ({}, {"op": [], "path": "/a"}, r"found \[\]"),
    "no object": ({}, "add", "expected an object, found a str"),
    "a value that is no JSON": ({}, {"op": "add", "path": "/a", "value": math.nan}, "float nan"),
}


@pytest.mark.parametrize(("value", "operation", "message"), REFUSED.values(), ids=REFUSED)
def test_a_patch_that_does_not_apply(value: Any, operation: Any, message: str) -> None:
    before = copy.deepcopy(value)
    harmless = {"op": "test", "path": "", "value": value}
    with pytest.raises(InvalidPatch, match=message) as refused:
        json_patch(value, [harmless, operation, {"op": "add", "path": "", "value": 1}])
    assert refused.value.at == 1
    assert "operation 1" in str(refused.value)
    assert value == before


def test_the_error_names_operation_and_path() -> None:
    with pytest.raises(InvalidPatch) as refused:
        json_patch({"a": {}}, [{"op": "remove", "path": "/a/b"}])
    assert (refused.value.at, refused.value.op, refused.value.path) == (0, "remove", "/a/b")
    assert str(refused.value) == (
        "operation 0 (remove '/a/b'): there is nothing at '/a/b': '/a' is a dict of 0 keys; "
        "nothing was changed"
    )


@pytest.mark.parametrize("patch", [{"op": "add"}, "[]", None, 3])
def test_a_patch_is_a_list(patch: Any) -> None:
    with pytest.raises(InvalidPatch, match="expected a list of operations"):
        json_patch({}, patch)


def test_a_patch_has_limits() -> None:
    step = {"op": "test", "path": "", "value": {}}
    assert json_patch({}, [step] * patching.MAX_OPS) == {}
    with pytest.raises(LimitExceeded, match="at most 10000 operations in a patch, found 10001"):
        json_patch({}, [step] * (patching.MAX_OPS + 1))


def test_a_short_patch_cannot_blow_a_value_up() -> None:
    double = {"op": "copy", "from": "/a", "path": "/a/-"}
    with pytest.raises(LimitExceeded, match=r"copy at most \d+ bytes, found at least \d+"):
        json_patch({"a": ["x" * 1_000]}, [double] * 40)


def test_nothing_is_shared_with_the_value_or_the_patch() -> None:
    value, item = {"a": {"b": []}}, {"c": []}
    patched = json_patch(
        value,
        [
            {"op": "add", "path": "/item", "value": item},
            {"op": "copy", "from": "/item", "path": "/again"},
        ],
    )
    patched["a"]["b"].append(1)
    patched["item"]["c"].append(1)
    assert value == {"a": {"b": []}}
    assert item == {"c": []}
    assert patched["again"] == {"c": []}


@given(alike, alike)
def test_a_diff_is_a_patch(old: Any, new: Any) -> None:
    assert same(json_patch(old, from_changes(diff(old, new))), new)


@given(json_values, json_values)
def test_a_diff_of_anything_is_a_patch(old: Any, new: Any) -> None:
    assert same(json_patch(old, from_changes(diff(old, new))), new)


@given(st.lists(alike, max_size=5), st.lists(alike, max_size=5))
def test_a_diff_of_lists_is_a_patch(old: list[Any], new: list[Any]) -> None:
    assert same(json_patch({"k": old}, from_changes(diff({"k": old}, {"k": new}))), {"k": new})


def test_a_diff_from_nothing_is_a_patch() -> None:
    assert from_changes(diff(ABSENT, {"a": 1})) == [{"op": "add", "path": "", "value": {"a": 1}}]


# RFC 7396, section 3 and appendix A.
MERGES: list[tuple[Any, Any, Any]] = [
    (
        {
            "title": "Goodbye!",
            "author": {"givenName": "John", "familyName": "Doe"},
            "tags": ["example", "sample"],
            "content": "This will be unchanged",
        },
        {
            "title": "Hello!",
            "phoneNumber": "+01-123-456-7890",
            "author": {"familyName": None},
            "tags": ["example"],
        },
        {
            "title": "Hello!",
            "author": {"givenName": "John"},
            "tags": ["example"],
            "content": "This will be unchanged",
            "phoneNumber": "+01-123-456-7890",
        },
    ),
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    (["a", "b"], ["c", "d"], ["c", "d"]),
    ({"a": "b"}, ["c"], ["c"]),
    ({"a": "foo"}, None, None),
    ({"a": "foo"}, "bar", "bar"),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    (ABSENT, {"a": {"b": None, "c": 1}}, {"a": {"c": 1}}),
]


@pytest.mark.parametrize(("value", "patch", "expected"), MERGES)
def test_merge_patch(value: Any, patch: Any, expected: Any) -> None:
    before = copy.deepcopy((value, patch))
    assert same(merge_patch(value, patch), expected)
    assert (value, patch) == before


@given(alike, alike)
def test_a_merge_patch_applied_twice_changes_nothing_more(value: Any, patch: Any) -> None:
    once = merge_patch(value, patch)
    assert same(merge_patch(once, patch), once)


def test_a_merge_patch_is_json_and_shares_nothing() -> None:
    with pytest.raises(InvalidValue):
        merge_patch({}, {"a": (1,)})
    value, patch = {"a": []}, {"b": []}
    merged = merge_patch(value, patch)
    merged["a"].append(1)
    merged["b"].append(1)
    assert (value, patch) == ({"a": []}, {"b": []})


@given(json_values)
def test_everything_equals_itself(value: Any) -> None:
    assert equal(value, copy.deepcopy(value))


@pytest.mark.parametrize(
    ("a", "b"),
    [(1, True), (0, False), (None, False), ([1], [1, 1]), ({"a": 1}, {"a": "1"}), ([], {})],
)
def test_what_a_test_operation_tells_apart(a: Any, b: Any) -> None:
    assert not equal(a, b)
    assert not equal([{"k": a}], [{"k": b}])
