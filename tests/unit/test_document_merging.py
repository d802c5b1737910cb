"""Whole-document writes from an old version: disjoint edits are all kept, overlaps named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import perkey
from perkey import AsyncDocuments, ConditionRequired, Conflict, Documents, LeaseLost, Leases, Limits
from perkey.documents import append_unique, increment
from perkey.errors import Gone, InvalidPatch, NotFound, UsageError
from perkey.flows import merging, steps
from perkey.observe import events
from perkey.store.keys import Key
from perkey.store.record import Record
from perkey.stores import Store
from tests.unit.manual_clock import ManualClock, async_memory_store, memory_store

REPORT = {"title": "Audit", "words": 0, "items": ["a"], "deep": {"x": 1, "y": 1}}


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "memory":
        made = memory_store(ManualClock())
    else:
        made = perkey.open(f"sqlite:///{tmp_path}/documents.db")
    with made as store:
        yield store


@pytest.fixture
def docs(store: Store) -> Documents:
    docs = Documents(store)
    docs.put("report", REPORT, create=True, by="boss")
    return docs


def heard(store: Store, kind: type) -> list[Any]:
    found: list[Any] = []
    store.observe(lambda each: found.append(each) if isinstance(each, kind) else None)
    return found


def test_disjoint_edits_of_whole_documents_are_all_kept(docs: Documents, store: Store) -> None:
    told = heard(store, events.Merged)
    docs.put("report", {**REPORT, "words": 9}, if_match=1, merge=True, by="ann")
    docs.put("report", {**REPORT, "links": []}, if_match=1, merge=True, by="ben")
    last = docs.put("report", {**REPORT, "deep": {"x": 1, "y": 2}}, if_match=1, merge=True, by="cy")
    assert last.value == {**REPORT, "words": 9, "links": [], "deep": {"x": 1, "y": 2}}
    assert (last.version, last.base) == (4, 3)
    assert told == [events.Merged("report", "ben", 1, 2), events.Merged("report", "cy", 1, 3)]


def test_two_that_append_to_one_list_keep_both_items(docs: Documents) -> None:
    for by in ("ann", "ben"):
        docs.put("report", {**REPORT, "items": ["a", by]}, if_match=1, merge=True, by=by)
    assert docs.get("report").value["items"] == ["a", "ann", "ben"]


def test_an_overlap_names_paths_authors_and_both_values(docs: Documents, store: Store) -> None:
    told = heard(store, events.Conflicted)
    docs.put("report", {**REPORT, "words": 5}, if_match=1, by="ann")
    docs.put("report", {**REPORT, "words": 5, "deep": {"x": 7, "y": 1}}, if_match=2, by="ben")
    docs.update("report", lambda value: {**value, "title": "The audit"}, by="dee")
    mine = {**REPORT, "words": 6, "deep": {"y": 1}}
    with pytest.raises(Conflict) as refused:
        docs.put("report", mine, if_match=1, merge=True, by="cy")
    conflict = refused.value
    assert sorted(conflict.paths) == ["/deep/x", "/words"]
    assert conflict.authors == ["ann", "ben"]
    assert (conflict.expected, conflict.found) == (1, 4)
    assert sorted(conflict.overlaps, key=lambda each: str(each["path"])) == [
        {"path": "/deep/x", "base": 1, "theirs": 7, "by": "ben", "version": 3},
        {"path": "/words", "base": 0, "ours": 6, "theirs": 5, "by": "ann", "version": 2},
    ]
    assert "/words (there 5 by 'ann' in version 2, here 6)" in str(conflict)
    assert "/deep/x (there 7 by 'ben' in version 3, here removed)" in str(conflict)
    assert told == [events.Conflicted("report", "cy", 1, 4)]
    assert docs.get("report").version == 4


def test_the_latest_author_of_an_overlap_is_named(docs: Documents) -> None:
    for number, by in enumerate(["ann", "ben", "ann"], 1):
        docs.put("report", {**REPORT, "words": number}, overwrite=True, by=by)
    with pytest.raises(Conflict, match="there 3 by 'ann' in version 4, here 9"):
        docs.put("report", {**REPORT, "words": 9}, if_match=1, merge=True)


def test_long_values_are_cut_in_the_message_only(docs: Documents) -> None:
    docs.put("report", {**REPORT, "title": "x" * 1000}, if_match=1, by="ann")
    with pytest.raises(Conflict) as refused:
        docs.put("report", {**REPORT, "title": "y" * 1000}, if_match=1, merge=True)
    assert len(str(refused.value)) < 500
    assert refused.value.overlaps[0]["theirs"] == "x" * 1000


def test_the_same_change_by_both_is_no_overlap(docs: Documents) -> None:
    for _ in range(2):
        docs.put("report", {**REPORT, "words": 5}, if_match=1, merge=True)
    assert docs.get("report").version == 3


def test_a_base_that_retention_dropped_is_refused_not_guessed() -> None:
    with memory_store(ManualClock(), Limits(keep_versions=2)) as store:
        told = heard(store, events.Conflicted)
        docs = Documents(store)
        for number in range(3):
            docs.put("report", {"n": number}, overwrite=True)
        with pytest.raises(Conflict, match="retention dropped it, the oldest one kept is 2"):
            docs.put("report", {"n": 0, "mine": 1}, if_match=1, merge=True, by="ann")
        assert told == [events.Conflicted("report", "ann", 1, 2)]
        merged = docs.put("report", {"n": 1, "mine": 1}, if_match=2, merge=True)
        assert merged.value == {"n": 2, "mine": 1}


def test_nothing_is_merged_into_what_is_not_there(docs: Documents) -> None:
    with pytest.raises(Conflict, match="expected 'report' at version 9, found version 1"):
        docs.put("report", {}, if_match=9, merge=True)
    docs.delete("report", by="ben")
    for version in (1, 2):
        with pytest.raises(Conflict, match="found it deleted by 'ben' in version 2"):
            docs.put("report", {**REPORT, "words": 5}, if_match=version, merge=True)
    with pytest.raises(Conflict, match="found nothing"):
        docs.put("other", {}, if_match=1, merge=True)
    for wrong in [{"create": True}, {"overwrite": True}, {}]:
        with pytest.raises(ConditionRequired):
            docs.put("report", {}, merge=True, **wrong)  # type: ignore[arg-type]


def test_a_merge_across_a_delete_is_refused(docs: Documents, store: Store) -> None:
    docs.delete("report", by="ben")
    docs.put("report", {"title": "Audit", "words": 0}, create=True, by="cy")
    told = heard(store, events.Conflicted)
    with pytest.raises(Conflict) as refused:
        docs.put("report", {**REPORT, "words": 5}, if_match=1, merge=True, by="ann")
    assert str(refused.value) == (
        "'report' was deleted by 'ben' in version 2, after version 1 that this write was made "
        "from, and is at version 3 now; read it again and redo the change"
    )
    assert refused.value.details == {
        "key": "report", "expected": 1, "found": 3, "by": "ben", "deleted": 2
    }  # fmt: skip
    assert told == [events.Conflicted("report", "ann", 1, 3)]
    # From what was created after it, merging goes on as ever.
    docs.put("report", {"title": "Audit", "words": 7}, if_match=3)
    kept = docs.put("report", {"title": "Mine", "words": 0}, if_match=3, merge=True)
    assert kept.value == {"title": "Mine", "words": 7}


@pytest.mark.parametrize("later", [0, 1, 14, 15, 16, 17, 30, 99, 100, 101, 230])
def test_a_delete_is_found_however_much_came_after_it(docs: Documents, later: int) -> None:
    """By the head's own memory while that reaches back, then in history, page by page."""
    docs.update("report", lambda value: {**value, "words": 1})
    docs.delete("report", by="ben")
    docs.put("report", {"n": 0, "title": "x"}, create=True)
    for n in range(later):
        docs.patch("report", merge_patch={"n": n + 1})
    for base in (1, 2):
        with pytest.raises(Conflict, match="was deleted by 'ben' in version 3, after version"):
            docs.put("report", {**REPORT, "mine": 1}, if_match=base, merge=True)
    merged = docs.put("report", {"n": 0, "title": "x", "mine": 1}, if_match=4, merge=True)
    assert merged.value == {"n": later, "title": "x", "mine": 1}


def test_a_delete_whose_history_was_dropped_is_not_guessed() -> None:
    with memory_store(ManualClock(), Limits(keep_versions=2)) as store:
        docs = Documents(store)
        docs.put("report", {"n": 0}, create=True)
        docs.delete("report")
        docs.put("report", {"n": 1}, create=True)
        docs.put("report", {"n": 2}, if_match=3)
        with pytest.raises(Conflict, match=r"version 1 .* retention dropped it, the oldest .* 3"):
            docs.put("report", {"n": 0, "mine": 1}, if_match=1, merge=True)
        assert docs.put("report", {"n": 1, "a": 1}, if_match=3, merge=True).value == {
            "n": 2, "a": 1
        }  # fmt: skip


def test_versions_that_retention_drops_while_they_are_read_are_not_guessed() -> None:
    """The base was there; when its successors are read, the first of them is gone."""
    look = merging.Ancestor(Key("d/report"), 3, "ann", {}, 3).look()
    assert look.send(None) == steps.History(Key("d/report"), 3, merging.PAGE)
    emitted = look.send([Record("d/report", 5, b"1")])
    assert emitted == steps.Emit(events.Conflicted("report", "ann", 3, 5))
    with pytest.raises(Conflict, match="version 3 of 'report' cannot be merged from: retention"):
        look.send(None)


def test_a_merge_carries_its_fence(docs: Documents, store: Store) -> None:
    lease = Leases(store).acquire("report", ttl=60)
    docs.put("report", {**REPORT, "words": 1}, if_match=1, merge=True, fence=lease.fence)
    lease.release()
    with pytest.raises(LeaseLost):
        docs.put("report", {**REPORT, "title": "x"}, if_match=1, merge=True, fence=lease.fence)


# ------------------------------------------------------------------------------- patches


def test_each_kind_of_patch(docs: Documents) -> None:
    first = docs.patch(
        "report", json_patch=[{"op": "add", "path": "/items/-", "value": "b"}], by="ann"
    )
    assert (first.value["items"], first.by) == (["a", "b"], "ann")
    second = docs.patch("report", merge_patch={"title": None, "deep": {"x": 2}})
    assert "title" not in second.value
    assert second.value["deep"] == {"x": 2, "y": 1}
    third = docs.patch("report", transforms=[increment("/words", 3), append_unique("/items", "a")])
    assert (third.value["words"], third.value["items"]) == (3, ["a", "b"])
    assert docs.patch("report", merge_patch=None).value is None


def test_a_patch_is_one_of_three(docs: Documents) -> None:
    for wrong in [{}, {"json_patch": [], "merge_patch": {}}, {"transforms": [], "json_patch": []}]:
        with pytest.raises(UsageError, match="exactly one of json_patch"):
            docs.patch("report", **wrong)  # type: ignore[arg-type]


def test_a_patch_that_does_not_apply_changes_nothing(docs: Documents) -> None:
    operations = [
        {"op": "replace", "path": "/words", "value": 5},
        {"op": "test", "path": "/title", "value": "Other"},
    ]
    with pytest.raises(InvalidPatch, match="operation 1"):
        docs.patch("report", json_patch=operations)
    assert docs.get("report").version == 1
    with pytest.raises(Conflict):
        docs.patch("report", merge_patch={"words": 1}, if_match=2)


def test_a_patch_of_nothing(docs: Documents) -> None:
    with pytest.raises(NotFound):
        docs.patch("other", merge_patch={"a": 1})
    with pytest.raises(NotFound):
        docs.patch("other", json_patch=[])
    assert docs.patch("other", merge_patch={"a": 1}, default={}).value == {"a": 1}
    # Transforms make what is absent, the document too: they depend on nothing.
    assert docs.patch("third", transforms=[increment("/runs")]).value == {"runs": 1}
    docs.delete("third")
    assert docs.patch("third", transforms=[increment("/runs")]).version == 3


# --------------------------------------------------------------------------------- diffs


def test_what_changed_between_two_versions(docs: Documents) -> None:
    docs.patch("report", merge_patch={"words": 5, "title": None})
    docs.delete("report")
    changes = docs.diff("report", 1, 2)
    assert [(each.kind, each.path) for each in changes] == [
        ("remove", ("title",)),
        ("replace", ("words",)),
    ]
    assert [each.kind for each in docs.diff("report", 0, 1)] == ["add"]
    assert [each.kind for each in docs.diff("report", 2, 3)] == ["remove"]
    assert docs.diff("report", 2, 2) == []
    with pytest.raises(NotFound):
        docs.diff("report", 1, 4)


def test_a_diff_from_a_dropped_version_says_so() -> None:
    with memory_store(ManualClock(), Limits(keep_versions=1)) as store:
        docs = Documents(store)
        for number in range(2):
            docs.put("report", number, overwrite=True)
        with pytest.raises(Gone):
            docs.diff("report", 1, 2)


async def test_the_same_for_asyncio() -> None:
    async with async_memory_store(ManualClock()) as store:
        docs = AsyncDocuments(store)
        await docs.put("report", REPORT, create=True)
        await docs.put("report", {**REPORT, "words": 5}, if_match=1)
        await docs.put("report", {**REPORT, "title": "x"}, if_match=1, merge=True)
        assert (await docs.get("report")).value == {**REPORT, "words": 5, "title": "x"}
        with pytest.raises(Conflict, match="/words"):
            await docs.put("report", {**REPORT, "words": 6}, if_match=1, merge=True)
        await docs.patch("report", transforms=[increment("/words")])
        assert [each.path for each in await docs.diff("report", 3, 4)] == [("words",)]
