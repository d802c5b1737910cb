"""Field transforms: they never conflict, make what is absent, and refuse what cannot be."""

from __future__ import annotations

import copy
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perkey import InvalidPatch, LimitExceeded
from perkey.flows.diff import ABSENT
from perkey.flows.patching import MAX_OPS
from perkey.flows.transforms import (
    append,
    append_unique,
    increment,
    remove_value,
    set_max,
    set_min,
    transform,
)
from perkey.store.codec import same

EXAMPLES: list[tuple[Any, list[Any], Any]] = [
    ({"n": 1}, [increment("/n")], {"n": 2}),
    ({"n": 1}, [increment("/n", -3)], {"n": -2}),
    ({"n": 1}, [increment("/n", 0.5)], {"n": 1.5}),
    ({}, [increment("/n", 2), increment("/n", 3)], {"n": 5}),
    ({}, [increment("/a/b/n")], {"a": {"b": {"n": 1}}}),
    ({"a": [{"n": 1}]}, [increment("/a/0/n")], {"a": [{"n": 2}]}),
    ([1, 2], [increment("/1", 5)], [1, 7]),
    (5, [increment("")], 6),
    (ABSENT, [increment("/n")], {"n": 1}),
    ({"n": 1}, [set_max("/n", 3), set_max("/n", 2)], {"n": 3}),
    ({"n": 1}, [set_min("/n", 3), set_min("/n", -2)], {"n": -2}),
    ({"n": 1}, [set_max("/n", 1.0), set_min("/n", 1.0)], {"n": 1}),
    ({}, [set_max("/a", 1), set_min("/b", "x")], {"a": 1, "b": "x"}),
    ({"t": "2030-01-02"}, [set_max("/t", "2030-01-10")], {"t": "2030-01-10"}),
    ({"l": [1]}, [append("/l", 1, 2)], {"l": [1, 1, 2]}),
    ({}, [append("/l"), append_unique("/m"), remove_value("/r")], {"l": [], "m": [], "r": []}),
    ({"l": [1]}, [append_unique("/l", 1, 1.0, True, 2, 2)], {"l": [1, 1.0, True, 2]}),
    ({"l": [{"a": 1, "b": 2}]}, [append_unique("/l", {"b": 2, "a": 1})], {"l": [{"a": 1, "b": 2}]}),
    ({"l": [1, 2, 1, True]}, [remove_value("/l", 1, 9)], {"l": [2, True]}),
    ({"l": [[1], {}]}, [remove_value("/l", {}), append("/l/0", 2)], {"l": [[1, 2]]}),
    ({"a~/b": 1}, [increment("/a~0~1b")], {"a~/b": 2}),
]


@pytest.mark.parametrize(("value", "operations", "expected"), EXAMPLES)
def test_transforms(value: Any, operations: list[Any], expected: Any) -> None:
    before = copy.deepcopy((value, operations))
    assert same(transform(value, operations), expected)
    assert (value, operations) == before


REFUSED: list[tuple[Any, Any, str]] = [
    ({"n": "1"}, increment("/n"), "expected a number, found a str"),
    ({"n": True}, increment("/n"), "expected a number, found a bool"),
    ({"n": None}, increment("/n"), "expected a number, found null"),
    ({"n": 1}, increment("/n", True), "expected a number, found a bool"),
    ({"n": 2**64 - 1}, increment("/n"), "expected a sum in"),
    ({"n": -(2**63)}, increment("/n", -1), "expected a sum in"),
    ({"n": 1.7e308}, increment("/n", 1.7e308), "expected a finite sum"),
    ({"n": 1}, increment("/n", float("nan")), "float nan"),
    ({"n": 1}, set_max("/n", "a"), "expected a number, found a str"),
    ({"n": "a"}, set_min("/n", 1), "expected a number, found a str"),
    ({}, set_max("/n", [1]), "expected a number, found a list"),  # type: ignore[arg-type]
    ({"l": {}}, append("/l", 1), "expected a list, found a dict"),
    ({"l": None}, append_unique("/l", 1), "expected a list, found null"),
    ({"l": 1}, remove_value("/l", 1), "expected a list, found an int"),
    ({"n": 1}, increment("/n/x"), "nothing can be put into an int"),
    ({"l": [1]}, increment("/l/1"), "expected an index below 1, found '1'"),
    ({"l": [1]}, increment("/l/-"), "expected an index below 1"),
    ({}, increment("n"), "JSON Pointer"),
    ({}, {"op": "increment", "path": "/n"}, "expected 'value'"),
    ({}, {"op": "append", "path": "/n", "value": 1}, "expected 'values'"),
    ({}, {"op": "append", "path": "/n", "values": 1}, "expected 'values' to be a list"),
    ({}, {"op": "decrement", "path": "/n"}, "one of increment, set_max"),
    ({}, {"op": "increment"}, "expected a path"),
    ({}, ["increment", "/n"], "expected an object"),
]


@pytest.mark.parametrize(("value", "operation", "message"), REFUSED)
def test_a_transform_that_does_not_apply(value: Any, operation: Any, message: str) -> None:
    before = copy.deepcopy(value)
    with pytest.raises(InvalidPatch, match=message) as refused:
        transform(value, [append("/fine", 1), operation])
    assert refused.value.at == 1
    assert value == before


def test_the_number_of_operations_has_a_limit() -> None:
    with pytest.raises(LimitExceeded, match=f"at most {MAX_OPS} operations"):
        transform({}, [increment("/n")] * (MAX_OPS + 1))


def test_nothing_is_shared_with_the_operations() -> None:
    item: list[int] = []
    result = transform({}, [append("/l", item)])
    result["l"][0].append(1)
    assert item == []


steps = st.sampled_from(
    [
        increment("/n"),
        increment("/n", 5),
        increment("/m/n", -2),
        set_max("/high", 3),
        set_max("/high", 7),
        set_min("/low", 2),
        set_min("/low", -2),
        remove_value("/kept", 1),
        remove_value("/kept", 2),
    ]
)


@given(st.lists(steps, min_size=2, max_size=4))
def test_the_order_of_commuting_transforms_does_not_matter(operations: list[Any]) -> None:
    start = {"n": 1, "kept": [1, 2, 3, 1]}
    results = [transform(start, list(order)) for order in permutations(operations)]
    assert all(same(result, results[0]) for result in results)


@given(st.lists(st.lists(st.integers(0, 5), max_size=3), max_size=4))
def test_unique_appends_keep_each_item_once_in_any_order(writes: list[list[int]]) -> None:
    for order in permutations(writes):
        value: Any = {}
        for items in order:
            value = transform(value, [append_unique("/l", *items)])
        assert sorted(value.get("l", [])) == sorted({item for items in writes for item in items})
