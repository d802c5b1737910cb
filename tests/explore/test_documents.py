"""Every interleaving of a few writers of one document."""

from __future__ import annotations

from functools import partial
from itertools import permutations
from typing import Any

import pytest

from perkey import AsyncDocuments, Conflict, Rejected
from perkey.documents import no_removals_of_others
from perkey.flows import judging, merging, records
from perkey.flows.blame import Blame
from perkey.flows.documents import Book, Mutate, Write
from perkey.flows.merge import Merged
from perkey.testing import explore
from tests.explore.stepped import SteppedStore


async def counter() -> SteppedStore:
    store = SteppedStore()
    await AsyncDocuments(store).put("report", {"n": 0}, create=True)
    return store


def nothing_lost(store: SteppedStore) -> bool:
    return [each["n"] for each in store.versions("report")] == [0, 1, 2, 3]


async def blind(store: SteppedStore) -> None:
    docs = AsyncDocuments(store)
    read = await docs.get("report")
    await docs.put("report", {"n": read.value["n"] + 1}, overwrite=True)


async def update(store: SteppedStore) -> None:
    await AsyncDocuments(store).update("report", lambda value: {"n": value["n"] + 1})


async def conditional(store: SteppedStore) -> None:
    """The same by compare-and-swap, starting over when somebody was faster."""
    docs = AsyncDocuments(store)
    while True:
        read = await docs.get("report")
        try:
            await docs.put("report", {"n": read.value["n"] + 1}, if_match=read.version)
        except Conflict:
            continue
        return


def test_three_writers_lose_nothing() -> None:
    explore(counter, [update] * 3, check=nothing_lost, steps=["transact"]).assert_holds()
    explore(counter, [conditional] * 3, check=nothing_lost).assert_holds()


def test_three_blind_writers_lose_an_update_in_most_interleavings() -> None:
    kept: list[bool] = []
    explore(
        counter,
        [blind] * 3,
        outcome=lambda store: kept.append(nothing_lost(store)),
        prune="none",
        symmetric=False,
    )
    assert len(kept) == 1680  # 9! / (3! 3! 3!): each starts, reads, writes
    assert kept.count(True) == 168  # nine of ten lose


def test_an_update_that_reads_outside_the_commit_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def outside(self: Book, key: str, mutate: Mutate, write: Write, default: Any) -> Any:
        read = yield from records.get(key)
        return (yield from self.put(key, mutate(read.value), write, overwrite=True))

    monkeypatch.setattr(Book, "update", outside)
    explore(counter, [update] * 3, check=nothing_lost).assert_fails("check")


# ---------------------------------------------------------------------- whole documents


async def report() -> SteppedStore:
    store = SteppedStore()
    await AsyncDocuments(store).put("report", {"items": []}, create=True)
    return store


async def whole(name: str, store: SteppedStore) -> str:
    """Reads the document, thinks, and writes all of it back with its own additions."""
    docs = AsyncDocuments(store)
    read = await docs.get("report")
    value = {**read.value, name: 1, "items": [*read.value["items"], name]}
    await docs.put("report", value, if_match=read.version, merge=True, by=name)
    return name


WHOLE = [partial(whole, name) for name in "abc"]


def every_addition_is_there(store: SteppedStore) -> bool:
    value = store.value("report")
    items = value.pop("items")
    return value == {"a": 1, "b": 1, "c": 1} and tuple(items) in permutations("abc")


def test_merging_never_loses_an_accepted_addition() -> None:
    explore(report, WHOLE, check=every_addition_is_there, symmetric=False).assert_holds()


async def retitle(name: str, store: SteppedStore) -> str:
    """Changes one place that the others change too: one wins, the others are told."""
    docs = AsyncDocuments(store)
    read = await docs.get("report")
    try:
        await docs.put(
            "report", {**read.value, "title": name}, if_match=read.version, merge=True, by=name
        )
    except Conflict as conflict:
        return "told" if conflict.paths == ["/title"] else "misled"
    return name


def test_an_overlap_is_told_to_the_one_who_lost() -> None:
    def each_was_kept_or_told(store: SteppedStore, ended: Any) -> bool:
        titles = [each.get("title") for each in store.versions("report")][1:]
        return titles == [name for name in titles if name in ended.results] and len(titles) == sum(
            result != "told" for result in ended.results
        )

    callers = [partial(retitle, name) for name in "ab"]
    found = explore(report, callers, check=each_was_kept_or_told, symmetric=False)
    found.assert_holds()


def test_a_merge_that_takes_ours_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "merge", lambda base, ours, theirs: Merged(ours))
    explore(report, WHOLE, check=every_addition_is_there, symmetric=False).assert_fails("check")


def test_a_merge_outside_the_commit_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Merging with the head that was read earlier loses whoever came in between."""

    def early(self: Book, name: Any, value: Any, write: Write, if_match: int) -> Any:
        head = yield from records.get(name)
        base = yield from merging.ancestor(name, if_match, write.by)
        both = merging.merge(base.value, value, head.value).value
        return (yield from self.put(name.name, both, write, overwrite=True))

    monkeypatch.setattr(Book, "_merge", early)
    explore(report, WHOLE, check=every_addition_is_there, symmetric=False).assert_fails("check")


async def adds(store: SteppedStore) -> None:
    """Writes from the version that it read, unless the document is not that one any more."""
    docs = AsyncDocuments(store)
    read = await docs.get("report", None)
    if read is None:
        return
    try:
        value = {**read.value, "read": read.version}
        await docs.put("report", value, if_match=read.version, merge=True)
    except Conflict as conflict:
        named = conflict.details.get("deleted")
        store.notes.append(named is None or store.versions("report")[named - 1] is None)


async def starts_over(store: SteppedStore) -> None:
    """Deletes the document and makes another one under its key."""
    docs = AsyncDocuments(store)
    await docs.delete("report")
    await docs.put("report", {"new": True}, create=True)


async def adds_elsewhere(store: SteppedStore) -> None:
    """Moves the head on, so that others have to look again."""
    await AsyncDocuments(store).patch("report", merge_patch={"more": 1}, default={})


STARTING_OVER = [adds, starts_over, adds_elsewhere]


def no_write_reaches_over_a_deletion(store: SteppedStore) -> bool:
    values = store.versions("report")
    read = [
        (value["read"], version)
        for version, value in enumerate(values, 1)
        if value is not None and "read" in value
    ]
    return all(store.notes) and all(None not in values[base:made] for base, made in read)


def test_no_merge_reaches_over_a_deletion() -> None:
    explore(
        report, STARTING_OVER, check=no_write_reaches_over_a_deletion, raises=(Conflict,)
    ).assert_holds()


def test_a_merge_that_does_not_look_for_deletions_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(merging.Ancestor, "check", lambda self, head: None)
    explore(
        report, STARTING_OVER, check=no_write_reaches_over_a_deletion, raises=(Conflict,)
    ).assert_fails("check")


def test_a_merge_that_looks_for_deletions_outside_the_commit_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Between the look and the commit the document may be deleted and made again."""
    real = merging.ancestor

    def early(*args: Any) -> Any:
        found = yield from real(*args)
        yield from found.look()
        return found

    monkeypatch.setattr(merging, "ancestor", early)
    monkeypatch.setattr(merging.Ancestor, "check", lambda self, head: None)
    explore(
        report, STARTING_OVER, check=no_write_reaches_over_a_deletion, raises=(Conflict,)
    ).assert_fails("check")


# -------------------------------------------------------------------------------- rules


async def guarded(store: SteppedStore) -> AsyncDocuments:
    docs = AsyncDocuments(store)
    docs.rule("report", no_removals_of_others())
    return docs


async def claims(name: str, store: SteppedStore) -> None:
    """Puts its name to a place, so that nobody else may drop it."""
    docs = await guarded(store)
    await docs.patch("report", merge_patch={"place": name}, by=name)


async def clears(store: SteppedStore) -> bool:
    """Drops everything, as it may while all of it is its own."""
    docs = await guarded(store)
    try:
        await docs.put("report", {}, overwrite=True, by="c")
    except Rejected:
        return False
    return True


async def report_of_c() -> SteppedStore:
    store = SteppedStore()
    await AsyncDocuments(store).put("report", {"place": "c"}, create=True, by="c")
    return store


def no_claim_was_dropped(store: SteppedStore) -> bool:
    return store.value("report").get("place") in ("a", "b")


CLAIMS_AND_CLEARS = [partial(claims, "a"), partial(claims, "b"), clears]


def explored_claims() -> Any:
    return explore(report_of_c, CLAIMS_AND_CLEARS, check=no_claim_was_dropped, symmetric=False)


def test_a_rule_about_others_work_holds_in_every_interleaving() -> None:
    explored_claims().assert_holds()


def test_a_blame_that_is_not_the_heads_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def any_blame(blame: Blame | None, head: Any) -> Blame:
        if blame is None:
            raise judging.Moved
        return blame

    monkeypatch.setattr(judging, "_of_head", any_blame)
    explored_claims().assert_fails("check")
