"""Documents: one condition a write, mutate inside the commit, every version kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import perkey
from perkey import (
    AsyncDocuments,
    Change,
    ConditionRequired,
    Conflict,
    Documents,
    Gone,
    LeaseLost,
    Leases,
    Limits,
    NotFound,
    Synced,
    UsageError,
)
from perkey.observe import events
from perkey.stores import Store
from tests.unit.manual_clock import ManualClock, async_memory_store, memory_store


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
    return Documents(store)


@pytest.fixture
def heard(store: Store) -> list[Any]:
    """Every event but the plain commits."""
    found: list[Any] = []
    store.observe(lambda each: None if isinstance(each, events.Committed) else found.append(each))
    return found


def test_each_write_is_a_version_with_its_author(docs: Documents) -> None:
    first = docs.put("report", {"a": 1}, create=True, by="ann")
    second = docs.update("report", lambda value: {**value, "b": 2}, by="ben")
    third = docs.put("report", {"c": 3}, if_match=2, by="cy")
    assert [first.version, second.version, third.version] == [1, 2, 3]
    assert third.etag == '"3"'
    assert docs.get("report") == third
    kept = docs.history("report")
    assert kept == [first, second, third]
    assert [(each.by, each.value) for each in kept] == [
        ("ann", {"a": 1}),
        ("ben", {"a": 1, "b": 2}),
        ("cy", {"c": 3}),
    ]
    assert docs.at("report", 2) == second
    assert docs.history("report", after=1, limit=1) == [second]


def test_a_write_names_exactly_one_condition(docs: Documents) -> None:
    for wrong in [{}, {"create": True, "overwrite": True}, {"if_match": 1, "create": True}]:
        with pytest.raises(ConditionRequired):
            docs.put("report", 1, **wrong)  # type: ignore[arg-type]
    assert docs.get("report", None) is None


def test_a_stale_write_is_refused_and_counted(
    docs: Documents, store: Store, heard: list[Any]
) -> None:
    docs.put("report", 1, create=True, by="ann")
    docs.put("report", 2, if_match=1, by="ben")
    with pytest.raises(Conflict, match="found version 2 by 'ben'") as refused:
        docs.put("report", 9, if_match=1, by="ann")
    assert (refused.value.expected, refused.value.found, refused.value.by) == (1, 2, "ben")
    assert heard == [events.Conflicted("report", "ann", 1, 2)]
    assert store.statistics()["conflict_rate"] == {"(none)": 1 / 3}


def test_an_overwrite_whose_base_was_not_the_head_is_counted_as_such(
    docs: Documents, heard: list[Any]
) -> None:
    docs.put("report", 1, create=True)
    docs.put("report", 2, overwrite=True, base=1)
    assert heard == []
    stale = docs.put("report", 3, overwrite=True, base=1, by="ann")
    assert (stale.version, stale.base) == (3, 1)
    assert heard == [events.StaleOverwrite("report", "ann", 1, 2)]


def test_delete_leaves_a_tombstone_so_no_stale_write_follows(docs: Documents) -> None:
    docs.put("report", 1, create=True)
    with pytest.raises(Conflict):
        docs.delete("report", if_match=2)
    gone = docs.delete("report", if_match=1, by="ben")
    assert (gone.version, gone.deleted) == (2, True)
    with pytest.raises(Gone, match="deleted by 'ben' in version 2"):
        docs.get("report")
    for stale in [1, 2]:
        with pytest.raises(Conflict, match="deleted by 'ben'"):
            docs.put("report", 9, if_match=stale)
    assert docs.put("report", 2, create=True).version == 3
    with pytest.raises(Conflict):
        docs.put("report", 9, if_match=1)
    assert [each.deleted for each in docs.history("report")] == [False, True, False]


def test_mutate_gets_a_copy_and_must_return_the_new_value(docs: Documents) -> None:
    docs.put("report", {"items": [1]}, create=True)

    def in_place(value: Any) -> None:
        value["items"].append(2)

    with pytest.raises(UsageError, match="returned None; nothing was written"):
        docs.update("report", in_place)
    assert docs.get("report").value == {"items": [1]}
    assert docs.get("report").version == 1


def test_what_mutate_raises_reaches_its_caller_and_writes_nothing(docs: Documents) -> None:
    docs.put("report", 1, create=True)
    error = ZeroDivisionError("mine")

    def fail(value: Any) -> Any:
        raise error

    with pytest.raises(ZeroDivisionError) as raised:
        docs.update("report", fail)
    assert raised.value is error
    assert len(docs.history("report")) == 1


def test_mutate_is_no_coroutine(docs: Documents) -> None:
    docs.put("report", 1, create=True)

    async def ask_a_model(value: Any) -> Any:
        return value

    with pytest.raises(UsageError, match="must not wait for anything"):
        docs.update("report", ask_a_model)


def test_update_of_nothing_needs_a_default(docs: Documents) -> None:
    with pytest.raises(NotFound, match="nothing at 'report'"):
        docs.update("report", lambda value: value)
    default: dict[str, int] = {}

    def count(value: dict[str, int]) -> dict[str, int]:
        value["n"] = value.get("n", 0) + 1
        return value

    assert docs.update("report", count, default=default).value == {"n": 1}
    assert docs.update("report", count, default=default).value == {"n": 2}
    assert default == {}
    docs.delete("report")
    with pytest.raises(Gone):
        docs.update("report", count)
    assert docs.update("report", count, default=default).version == 4


def test_a_fenced_write_needs_the_lease(store: Store, docs: Documents) -> None:
    lease = Leases(store).acquire("report", ttl=30)
    docs.put("report", 1, create=True, fence=lease.fence)
    docs.update("report", lambda value: value + 1, fence=lease.fence)
    lease.release()
    for late in [
        lambda: docs.put("report", 9, overwrite=True, fence=lease.fence),
        lambda: docs.update("report", lambda value: 9, fence=lease.fence),
        lambda: docs.delete("report", fence=lease.fence),
    ]:
        with pytest.raises(LeaseLost):
            late()
    assert docs.get("report").value == 2


def test_at_tells_dropped_from_never_written() -> None:
    with memory_store(ManualClock(), Limits(keep_versions=2)) as store:
        docs = Documents(store)
        for number in range(1, 5):
            docs.put("report", number, overwrite=True)
        assert [each.version for each in docs.history("report")] == [3, 4]
        with pytest.raises(
            Gone, match=r"version 2 .* dropped by retention; the oldest one kept is 3"
        ):
            docs.at("report", 2)
        with pytest.raises(NotFound, match="no version 5; its last one is 4"):
            docs.at("report", 5)
        with pytest.raises(NotFound, match="no version 1; its last one is 0"):
            docs.at("nothing", 1)
        with pytest.raises(UsageError, match="version as a whole number from 1 up"):
            docs.at("report", 0)


def test_watch_sees_every_version_then_live(docs: Documents) -> None:
    docs.put("a/1", 1, create=True)
    docs.put("b/1", 1, create=True)
    docs.delete("a/1")
    with docs.watch("a/", after="") as watch:
        seen = [watch.next(0), watch.next(0), watch.next(0)]
        docs.put("a/2", 2, create=True)
        seen.append(watch.next(0))
    kinds = [each.document.version if isinstance(each, Change) else each for each in seen]
    assert kinds[0:2] == [1, 2]
    assert isinstance(kinds[2], Synced)
    assert isinstance(seen[1], Change)
    assert seen[1].document.deleted
    assert isinstance(seen[3], Change)
    assert seen[3].document.key == "a/2"


async def test_the_same_for_asyncio() -> None:
    async with async_memory_store(ManualClock()) as store:
        docs = AsyncDocuments(store)
        await docs.put("report", {"n": 0}, create=True, by="ann")
        done = await docs.update("report", lambda value: {"n": value["n"] + 1}, by="ben")
        assert done.value == (await docs.get("report")).value == {"n": 1}
        assert (await docs.at("report", 1)).by == "ann"
        with pytest.raises(Conflict):
            await docs.put("report", 9, if_match=1)
        assert (await docs.delete("report", if_match=2)).deleted
        assert [each.version for each in await docs.history("report")] == [1, 2, 3]
        async with docs.watch("report", after="") as watch:
            first = await watch.next(0)
        assert isinstance(first, Change)
