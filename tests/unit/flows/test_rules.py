"""Rules: what they refuse, what they name, and what they let pass."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perkey import MissingExtra, Rejected, UsageError
from perkey.flows.blame import Blame, blame
from perkey.flows.diff import ABSENT
from perkey.flows.merge import merge
from perkey.flows.rules import (
    Proposal,
    as_rule,
    done_equals_outputs,
    json_schema,
    no_removals_of_others,
)
from tests.unit.strategies import alike, few


def proposal(
    new: Any, history: list[tuple[str, Any]] | None = None, author: str = "me", first: int = 1
) -> Proposal:
    """A write on top of a history of (author, value)."""
    versions = [(first + at, by, value) for at, (by, value) in enumerate(history or [])]
    found = blame(versions)
    return Proposal("report", found.value, new, author, found.version, lambda: found)


def never() -> Blame:
    raise AssertionError("this rule needs no blame here")


# ----------------------------------------------------------------------------- both forms


def test_the_simple_form_gets_old_new_and_author() -> None:
    seen: list[Any] = []
    as_rule(lambda old, new, author: seen.append((old, new, author)))(
        proposal({"a": 2}, [("ann", {"a": 1})])
    )
    as_rule(lambda old, new, author: seen.append((old, new, author)))(proposal({"a": 1}))
    as_rule(lambda old, new, author: seen.append((old, new, author)))(
        proposal(ABSENT, [("ann", 1)])
    )
    assert seen == [({"a": 1}, {"a": 2}, "me"), (None, {"a": 1}, "me"), (1, None, "me")]


def test_the_full_form_gets_the_proposal() -> None:
    seen: list[Proposal] = []
    made = proposal(1)
    as_rule(seen.append)(made)
    assert seen == [made]
    assert (made.creates, made.deletes) == (True, False)
    gone = proposal(ABSENT, [("ann", 1)])
    assert (gone.creates, gone.deletes) == (False, True)


class Checker:
    def __call__(self, old: Any, new: Any, author: str, strict: bool = True) -> None:
        if strict and new is None:
            raise Rejected("no deletions")

    def method(self, made: Proposal) -> None:
        assert made.author == "me"


def test_methods_partials_and_callable_objects_are_validators() -> None:
    def four(limit: int, old: Any, new: Any, author: str) -> None:
        if new > limit:
            raise Rejected("too much")

    for validator in (Checker(), Checker().method, functools.partial(four, 5)):
        as_rule(validator)(proposal(3))
    with pytest.raises(Rejected, match="too much"):
        as_rule(functools.partial(four, 5))(proposal(6))
    with pytest.raises(Rejected, match="no deletions"):
        as_rule(Checker())(proposal(ABSENT, [("ann", 1)]))


async def later(made: Proposal) -> None:
    raise Rejected


def stepwise(made: Proposal) -> Any:
    yield made


@pytest.mark.parametrize(
    "validator",
    [
        lambda: None,
        lambda a, b: None,
        lambda a, b, c, d: None,
        lambda a, *, k: None,
        later,
        stepwise,
        3,
    ],
)
def test_what_is_no_validator_is_refused_at_once(validator: Any) -> None:
    with pytest.raises(UsageError, match="expected a"):
        as_rule(validator)


@pytest.mark.parametrize("answer", [False, True, "no", []])
def test_an_answer_is_no_verdict(answer: Any) -> None:
    with pytest.raises(UsageError, match="return None or to raise Rejected"):
        as_rule(lambda made: answer)(proposal(1))


def test_a_hidden_coroutine_is_refused_and_closed() -> None:
    """That it is closed shows in this: an unawaited one is a warning, and warnings fail."""
    with pytest.raises(UsageError, match="found a coroutine"):
        as_rule(lambda made: later(made))(proposal(1))


def test_a_validator_s_own_exception_is_left_alone() -> None:
    def rule(old: Any, new: Any, author: str) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        as_rule(rule)(proposal(1))


# ---------------------------------------------------------------------------- JSON Schema

SCHEMA = {
    "type": "object",
    "required": ["title"],
    "properties": {"title": {"type": "string"}, "n": {"type": "integer", "maximum": 9}},
}


def test_a_schema_names_each_misfit_with_its_path() -> None:
    rule = json_schema(SCHEMA)
    rule(proposal({"title": "x", "n": 9}))
    with pytest.raises(Rejected, match="does not fit the schema") as refused:
        rule(proposal({"n": 10}))
    assert [error["path"] for error in refused.value.errors] == ["", "/n"]
    assert "'title' is a required property" in str(refused.value)
    assert "10 is greater than the maximum of 9" in str(refused.value)


def test_a_schema_lets_deletions_pass() -> None:
    json_schema(SCHEMA)(proposal(ABSENT, [("ann", {"title": "x"})]))


def test_true_is_no_integer_for_a_schema() -> None:
    with pytest.raises(Rejected):
        json_schema(SCHEMA)(proposal({"title": "x", "n": True}))


def test_a_message_stays_short_whatever_the_value() -> None:
    with pytest.raises(Rejected) as refused:
        json_schema({"items": {"type": "integer"}})(proposal(["x" * 10_000] * 500))
    assert len(str(refused.value)) < 4_000
    assert "and 90 more" in str(refused.value)
    assert len(refused.value.errors) == 100


def test_a_schema_is_checked_and_copied_when_it_is_given() -> None:
    with pytest.raises(UsageError, match="expected a JSON Schema"):
        json_schema({"type": "strange"})
    mine: dict[str, Any] = {"type": "object"}
    rule = json_schema(mine)
    mine["type"] = "array"
    rule(proposal({}))


def test_a_schema_resolves_references_inside_itself_and_fetches_nothing() -> None:
    local = {"$defs": {"n": {"type": "integer"}}, "properties": {"n": {"$ref": "#/$defs/n"}}}
    with pytest.raises(Rejected):
        json_schema(local)(proposal({"n": "x"}))
    for address in ("https://example.invalid/schema", "file:///etc/hostname", "other.json"):
        with pytest.raises(UsageError, match="hold all it refers to"):
            json_schema({"$ref": address})(proposal({}))


def test_the_schema_says_its_draft() -> None:
    draft4 = {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "maximum": 3,
        "exclusiveMaximum": True,
    }
    with pytest.raises(Rejected):
        json_schema(draft4)(proposal(3))


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    with pytest.raises(MissingExtra, match=r"pip install 'perkey\[schema\]'") as refused:
        json_schema({})
    assert refused.value.extra == "schema"


# ------------------------------------------------------------- no removals of others' work

HISTORY = [
    ("ann", {"title": "t", "sections": {"words": {"n": 1}}, "log": ["a"]}),
    ("ben", {"title": "t", "sections": {"words": {"n": 1}, "links": {"n": 2}}, "log": ["a", "b"]}),
    (
        "me",
        {
            "title": "t",
            "sections": {"words": {"n": 1, "mine": 3}, "links": {"n": 2}},
            "log": ["a", "b", "c"],
        },
    ),
]
HEAD: dict[str, Any] = HISTORY[-1][1]

ALLOWED: dict[str, Any] = {
    "nothing": HEAD,
    "an addition": {**HEAD, "more": 1},
    "an edit of another's scalar": {**HEAD, "title": "better"},
    "an edit inside another's section": {
        **HEAD,
        "sections": {"words": {"n": 9, "mine": 3}, "links": {"n": 2}},
    },
    "my own path": {**HEAD, "sections": {"words": {"n": 1}, "links": {"n": 2}}},
    "my own item": {**HEAD, "log": ["a", "b"]},
    "my own item replaced": {**HEAD, "log": ["a", "b", "d"]},
    "a new order": {**HEAD, "log": ["c", "b", "a"]},
}


@pytest.mark.parametrize("new", ALLOWED.values(), ids=ALLOWED)
def test_what_is_no_removal_of_others(new: Any) -> None:
    no_removals_of_others()(proposal(new, HISTORY))


DROPPED: dict[str, tuple[Any, list[tuple[str, str, int]]]] = {
    "a section": (
        {**HEAD, "sections": {"words": {"n": 1, "mine": 3}}},
        [("/sections/links", "ben", 2)],
    ),
    "mine and others'": (
        {**HEAD, "sections": {}},
        [("/sections/words/n", "ann", 1), ("/sections/links", "ben", 2)],
    ),
    "an item": ({**HEAD, "log": ["a", "c"]}, [("/log/1", "ben", 2)]),
    "an item that gave way": ({**HEAD, "log": ["a", "x", "c"]}, [("/log/1", "ben", 2)]),
    "a dict that became a text": (
        {**HEAD, "sections": "see elsewhere"},
        [("/sections/words/n", "ann", 1), ("/sections/links", "ben", 2)],
    ),
    "a scalar that went": (
        {key: HEAD[key] for key in ("sections", "log")},
        [("/title", "ann", 1)],
    ),
    "one of two equal items": ({**HEAD, "log": ["b", "c"]}, [("/log/0", "ann", 1)]),
    "the document": (
        ABSENT,
        [
            ("/title", "ann", 1),
            ("/sections/words/n", "ann", 1),
            ("/sections/links", "ben", 2),
            ("/log/0", "ann", 1),
            ("/log/1", "ben", 2),
        ],
    ),
}


@pytest.mark.parametrize(("new", "dropped"), DROPPED.values(), ids=DROPPED)
def test_exactly_what_would_be_dropped_is_named(
    new: Any, dropped: list[tuple[str, str, int]]
) -> None:
    with pytest.raises(Rejected, match="'me' would drop what others added") as refused:
        no_removals_of_others()(proposal(new, HISTORY))
    assert [(d["path"], d["by"], d["version"]) for d in refused.value.dropped] == dropped
    path, by, version = dropped[0]
    assert f"'{path}', set in version {version} by '{by}'" in str(refused.value)


def test_a_blind_write_of_the_whole_document_is_refused() -> None:
    mine = {"sections": {"mine": 1}}
    with pytest.raises(Rejected) as refused:
        no_removals_of_others()(proposal(mine, [("ann", {"sections": {"hers": 1}})]))
    assert [each["path"] for each in refused.value.dropped] == ["/sections/hers"]


def test_things_of_an_unknown_author_are_kept_unless_told_otherwise() -> None:
    late = proposal({"b": 2}, [("me", {"a": 1}), ("me", {"a": 1, "b": 2})], first=5)
    with pytest.raises(Rejected, match="'/a', set in at or before version 5") as refused:
        no_removals_of_others()(late)
    assert refused.value.dropped == [{"path": "/a", "by": None, "version": 5}]
    no_removals_of_others(unknown="allow")(late)


def test_blame_is_only_asked_for_when_something_goes() -> None:
    no_removals_of_others()(Proposal("k", {"a": 1}, {"a": 2, "b": 3}, "me", 1, never))
    no_removals_of_others()(Proposal("k", ABSENT, {"a": 2}, "me", 0, never))


def test_a_long_list_of_offences_is_cut_in_the_message_only() -> None:
    theirs = {f"k{at}": at for at in range(50)}
    history = [("ann", {}), *[("ann", dict(list(theirs.items())[:n])) for n in range(1, 51)]]
    with pytest.raises(Rejected, match="and 40 more") as refused:
        no_removals_of_others()(proposal({}, history))
    assert len(refused.value.dropped) == 50


@given(alike, alike)
def test_whoever_wrote_it_all_may_do_anything(old: Any, new: Any) -> None:
    no_removals_of_others()(proposal(new, [("me", old)]))


sections = st.dictionaries(
    st.sampled_from("abcd"), st.dictionaries(st.sampled_from("xy"), few, max_size=2), max_size=4
)


@given(sections, sections, sections)
def test_a_merge_of_additions_is_never_refused(base: Any, ours: Any, theirs: Any) -> None:
    """Who only adds and is merged drops nothing of the head."""
    head = {**theirs, **base}
    merged = merge(base, {**ours, **base}, head)
    if not merged.overlaps:
        no_removals_of_others()(proposal(merged.value, [("ann", base), ("ben", head)]))


# ----------------------------------------------------------------------- done equals outputs


def refused_by(rule: Callable[[Proposal], None], new: Any) -> list[str]:
    with pytest.raises(Rejected, match="say they are done and have no output") as refused:
        rule(proposal(new))
    missing: list[str] = refused.value.missing
    return missing


@pytest.mark.parametrize("empty", [None, "", [], {}])
def test_a_done_task_without_output_is_refused(empty: Any) -> None:
    rule = done_equals_outputs()
    new = {
        "tasks": {
            "links": {"status": "done", "output": empty},
            "words": {"status": "done", "output": 0},
            "todo": {"status": "open"},
            "gone": {"status": "done"},
        }
    }
    assert refused_by(rule, new) == ["/tasks/links/output", "/tasks/gone/output"]


def test_tasks_may_be_a_list_with_fields_of_other_names() -> None:
    rule = done_equals_outputs("/run/steps", status="finished", done=True, output="result")
    good = {"finished": True, "result": {"n": 1}}
    rule(proposal({"run": {"steps": [good, {"finished": False}, {"finished": 1}]}}))
    assert refused_by(rule, {"run": {"steps": [good, {"finished": True}]}}) == [
        "/run/steps/1/result"
    ]


def test_outputs_may_stand_elsewhere_under_the_task_s_name() -> None:
    rule = done_equals_outputs(outputs="/sections")
    tasks = {"a": {"status": "done"}, "b/c": {"status": "done"}, "d": {"status": "open"}}
    rule(proposal({"tasks": tasks, "sections": {"a": "text", "b/c": "text"}}))
    assert refused_by(rule, {"tasks": tasks, "sections": {"a": "text"}}) == ["/sections/b~1c"]
    assert refused_by(rule, {"tasks": tasks}) == ["/sections/a", "/sections/b~1c"]
    listed = [{"name": "a", "status": "done"}, {"status": "done"}]
    assert refused_by(rule, {"tasks": listed, "sections": {"a": 1}}) == ["/sections/1"]


@pytest.mark.parametrize(
    "new", [{}, {"tasks": None}, {"tasks": ["done", None]}, [], "done", ABSENT]
)
def test_a_document_without_tasks_passes(new: Any) -> None:
    done_equals_outputs()(proposal(new, [("ann", {})]))


def test_a_bad_pointer_is_refused_when_the_rule_is_made() -> None:
    for bad in ({"tasks": "tasks"}, {"outputs": "outputs"}):
        with pytest.raises(UsageError, match="JSON Pointer"):
            done_equals_outputs(**bad)
