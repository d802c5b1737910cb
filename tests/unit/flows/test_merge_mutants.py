"""Planted mutants: each way in which a merge could lose a change is caught by a property."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import Phase, given, settings

from perkey.flows import merge as module
from tests.unit.flows import test_merge as properties
from tests.unit.strategies import few

honest = module._merged


def keeps_only_theirs_items(ours: Any, theirs: Any, moved: Any) -> list[Any]:
    return []


def keeps_only_their_keys(base: Any, ours: Any, theirs: Any, path: Any, overlaps: Any) -> Any:
    return {
        key: honest(base.get(key, module.ABSENT), ours.get(key, item), item, path, overlaps)
        for key, item in theirs.items()
    }


def swallows_overlaps(
    base: Any, ours: Any, theirs: Any, path: Any, overlaps: Any, whole: bool = False
) -> Any:
    return honest(base, ours, theirs, path, [], whole)


def takes_true_for_one(a: Any, b: Any) -> bool:
    return bool(a == b)


ALONE = properties.test_one_side_alone_is_taken_as_it_is, [few] * 2
DICTS = properties.test_no_change_in_dicts_is_lost_or_made_up, [properties.dicts] * 3
APPENDS = (
    properties.test_two_writers_append_to_one_list,
    [properties.tagged(name) for name in ("base", "ours", "theirs")],
)

MUTANTS: dict[str, tuple[str, Callable[..., Any], Any]] = {
    "our items are dropped": ("_only_ours", keeps_only_theirs_items, APPENDS),
    "our keys are dropped": ("_merged_dicts", keeps_only_their_keys, DICTS),
    "overlaps are swallowed": ("_merged", swallows_overlaps, DICTS),
    "true is 1": ("same", takes_true_for_one, ALONE),
}


@pytest.mark.parametrize(("name", "mutant", "found_by"), MUTANTS.values(), ids=MUTANTS)
def test_a_mutant_is_caught(
    name: str, mutant: Callable[..., Any], found_by: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = unshrunk(*found_by)
    check()
    monkeypatch.setattr(module, name, mutant)
    with pytest.raises(AssertionError):
        check()


def unshrunk(check: Any, drawn: list[Any]) -> Callable[[], None]:
    """The property with the same draws each time, stopping at the first failure."""
    again = settings(
        phases=[Phase.generate],
        max_examples=150,
        derandomize=True,
        database=None,
        deadline=None,
        report_multiple_bugs=False,
    )
    found: Callable[[], None] = again(given(*drawn)(check.hypothesis.inner_test))
    return found


def test_keeping_both_moves_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_moved", lambda base, us, them: Counter())
    with pytest.raises(AssertionError):
        properties.test_merges(*properties.MERGES["both move one item"])
