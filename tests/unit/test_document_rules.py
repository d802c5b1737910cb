"""Rules judge every write inside the commit; blame says who set what."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import perkey
from perkey import (
    AsyncDocuments,
    Conflict,
    ConflictExhausted,
    Documents,
    Gone,
    Limits,
    NotFound,
    Rejected,
    UsageError,
)
from perkey.documents import (
    Proposal,
    done_equals_outputs,
    increment,
    json_schema,
    no_removals_of_others,
)
from perkey.flows import lookback
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


def titled(old: Any, new: Any, author: str) -> None:
    if new is not None and not new.get("title"):
        raise Rejected(f"{author!r} gave no title")


def test_a_rule_judges_every_kind_of_write(docs: Documents, store: Store) -> None:
    heard: list[Any] = []
    store.observe(
        lambda each: heard.append(each) if isinstance(each, events.RuleRejected) else None
    )
    docs.rule("report", titled)
    docs.put("report", {"title": "Audit"}, create=True)
    for write in [
        lambda: docs.put("report", {}, overwrite=True, by="ann"),
        lambda: docs.put("report", {}, if_match=1, by="ann"),
        lambda: docs.put("report", {}, if_match=1, merge=True, by="ann"),
        lambda: docs.update("report", lambda value: {}, by="ann"),
        lambda: docs.patch("report", merge_patch={"title": None}, by="ann"),
        lambda: docs.put("report-2", {}, create=True, by="ann"),
    ]:
        with pytest.raises(Rejected, match="'ann' gave no title") as rejected:
            write()
        assert rejected.value.rule == "titled"
    assert heard[:5] == [events.RuleRejected("report", "ann", "titled")] * 5
    assert docs.get("report").version == 1
    docs.put("other", {}, create=True)
    docs.delete("report")
    assert store.statistics()["events"]["RuleRejected"] == 6


def test_a_rule_sees_what_is_really_written(docs: Documents) -> None:
    """After the merge, with the true head, its own copies, and who writes."""
    seen: list[tuple[Any, ...]] = []

    def watch(proposal: Proposal) -> None:
        told = (proposal.key, proposal.old, proposal.new, proposal.author, proposal.old_version)
        seen.append((*told, proposal.creates, proposal.deletes))
        if isinstance(proposal.new, dict):
            proposal.new.clear()

    docs.rule("", watch)
    docs.put("report", {"a": 1}, create=True, by="ann")
    docs.put("report", {"a": 1, "b": 2}, if_match=1, by="ben")
    merged = docs.put("report", {"a": 1, "c": 3}, if_match=1, merge=True, by="cy")
    docs.delete("report", by="dee")
    assert merged.value == {"a": 1, "b": 2, "c": 3}
    assert seen[0][3:] == ("ann", 0, True, False)
    proposals = [each for n, each in enumerate(seen) if each not in seen[:n]]
    assert [each[3] for each in proposals] == ["ann", "ben", "cy", "dee"]
    assert proposals[2][1] == {"a": 1, "b": 2}
    assert proposals[3][3:] == ("dee", 3, False, True)


def test_what_is_no_rule_is_refused(docs: Documents) -> None:
    for wrong in [lambda: None, lambda a, b: None, "text"]:
        with pytest.raises(UsageError):
            docs.rule("report", wrong)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="prefix as text"):
        docs.rule(None, titled)  # type: ignore[arg-type]
    docs.rule("report", lambda proposal: proposal.new == 1)  # type: ignore[arg-type, return-value]
    with pytest.raises(UsageError, match="to return None or to raise Rejected"):
        docs.put("report", 1, create=True)


def test_a_schema(docs: Documents) -> None:
    docs.rule("report", json_schema({"required": ["title"], "properties": {"n": {"minimum": 0}}}))
    docs.put("report", {"title": "Audit", "n": 0}, create=True)
    with pytest.raises(Rejected, match="does not fit the schema") as rejected:
        docs.patch("report", transforms=[increment("/n", -1)])
    assert rejected.value.rule == "json_schema"


def test_done_equals_outputs(docs: Documents) -> None:
    docs.rule("run", done_equals_outputs())
    docs.put("run", {"tasks": {"links": {"status": "open"}}}, create=True)
    with pytest.raises(Rejected) as rejected:
        docs.patch("run", merge_patch={"tasks": {"links": {"status": "done"}}})
    assert rejected.value.missing == ["/tasks/links/output"]
    docs.patch("run", merge_patch={"tasks": {"links": {"status": "done", "output": "x"}}})


def test_nobody_drops_what_another_added(docs: Documents) -> None:
    docs.rule("report", no_removals_of_others())
    docs.put("report", {"title": "Audit", "sections": {}}, create=True, by="boss")
    docs.update(
        "report", lambda v: {**v, "sections": {**v["sections"], "links": "ann's"}}, by="ann"
    )
    docs.update(
        "report", lambda v: {**v, "sections": {**v["sections"], "words": "ben's"}}, by="ben"
    )
    stale = {"title": "Audit", "sections": {"extra": "cy's"}}
    with pytest.raises(Rejected, match="'cy' would drop what others added") as rejected:
        docs.put("report", stale, overwrite=True, base=1, by="cy")
    assert rejected.value.dropped == [
        {"path": "/sections/links", "by": "ann", "version": 2},
        {"path": "/sections/words", "by": "ben", "version": 3},
    ]
    with pytest.raises(Rejected):
        docs.delete("report", by="cy")
    # Its own author may, and a merge keeps the others' work by itself.
    docs.patch("report", merge_patch={"sections": {"links": None}}, by="ann")
    merged = docs.put("report", stale, if_match=1, merge=True, by="cy")
    assert merged.value["sections"] == {"words": "ben's", "extra": "cy's"}


def test_blame_is_read_again_when_the_document_moved_on(docs: Documents, store: Store) -> None:
    """A version that came between reading the blame and the commit is not overlooked."""
    other = Documents(store)
    docs.rule("report", no_removals_of_others())
    docs.put("report", {"mine": 1}, create=True, by="cy")
    genuine = lookback.Blames.of
    came: list[str] = []

    def of(self: Any, name: Any) -> Any:
        found = yield from genuine(self, name)
        for by in ("ann", "ben"):
            if by not in came:
                came.append(by)
                other.patch("report", merge_patch={by: 1}, by=by)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lookback.Blames, "of", of)
        with pytest.raises(Rejected) as rejected:
            docs.put("report", {}, overwrite=True, by="cy")
    assert came == ["ann", "ben"]
    assert [each["by"] for each in rejected.value.dropped] == ["ann", "ben"]


def test_blame_that_never_catches_up_gives_up() -> None:
    with memory_store(ManualClock(), Limits(attempts=3)) as store:
        heard: list[Any] = []
        store.observe(
            lambda each: heard.append(each) if isinstance(each, events.Exhausted) else None
        )
        docs = Documents(store)
        docs.rule("report", no_removals_of_others())
        docs.put("report", {"n": 0, "mine": 1}, create=True, by="cy")
        genuine = lookback.Blames.of

        def of(self: Any, name: Any) -> Any:
            found = yield from genuine(self, name)
            for _ in range(2):
                store.transact("report", lambda tx: tx.__setitem__("report", bumped(tx["report"])))
            return found

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(lookback.Blames, "of", of)
            with pytest.raises(ConflictExhausted, match="each of 3 attempts"):
                docs.put("report", {}, overwrite=True, by="cy")
        assert heard == [events.Exhausted("report", "cy", 3)]
        assert docs.get("report").value["mine"] == 1


def bumped(value: dict[str, int]) -> dict[str, int]:
    return {**value, "n": value["n"] + 1}


# --------------------------------------------------------------------------------- blame


def test_blame_names_who_set_each_leaf(docs: Documents) -> None:
    docs.put("report", {"title": "Audit", "items": ["a"]}, create=True, by="boss")
    docs.patch("report", json_patch=[{"op": "add", "path": "/items/0", "value": "b"}], by="ann")
    docs.patch("report", merge_patch={"title": "The audit"}, by="ben")
    found = {path: (each.version, each.by) for path, each in docs.blame("report").items()}
    assert found == {"/title": (3, "ben"), "/items/0": (2, "ann"), "/items/1": (1, "boss")}
    docs.patch("report", merge_patch={"more": 1}, by="cy")
    assert str(docs.blame("report", "/more")["/more"]) == "version 4 by 'cy'"
    assert list(docs.blame("report", "/items")) == ["/items/0", "/items/1"]
    with pytest.raises(NotFound):
        docs.blame("report", "/nothing")
    with pytest.raises(UsageError):
        docs.blame("report", "no pointer")


def test_blame_of_nothing(docs: Documents) -> None:
    with pytest.raises(NotFound):
        docs.blame("report")
    docs.put("report", 1, create=True)
    docs.delete("report", by="ann")
    with pytest.raises(Gone, match="deleted by 'ann'"):
        docs.blame("report")


def test_blame_says_what_retention_took(docs: Documents) -> None:
    with memory_store(ManualClock(), Limits(keep_versions=2)) as store:
        docs = Documents(store)
        for number in range(4):
            docs.patch("report", transforms=[increment(f"/k{number}")], by=f"w{number}")
        found = docs.blame("report")
        assert str(found["/k0"]) == "at or before version 3"
        assert str(found["/k3"]) == "version 4 by 'w3'"


def test_only_a_few_blames_are_remembered(docs: Documents) -> None:
    for number in range(lookback.KEPT + 5):
        docs.put(f"report-{number}", {"a": number}, create=True)
        docs.blame(f"report-{number}")
    assert len(docs._book.blames.kept) == lookback.KEPT


def test_long_histories_are_read_in_pages(docs: Documents) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lookback, "PAGE", 3)
        for number in range(7):
            docs.patch("report", transforms=[increment(f"/k{number}")], by=f"w{number}")
        assert [each.by for each in docs.blame("report").values()] == [f"w{n}" for n in range(7)]


async def test_the_same_for_asyncio() -> None:
    async with async_memory_store(ManualClock()) as store:
        docs = AsyncDocuments(store)
        docs.rule("report", no_removals_of_others())
        await docs.put("report", {"a": 1}, create=True, by="ann")
        assert (await docs.blame("report"))["/a"].by == "ann"
        with pytest.raises(Rejected):
            await docs.put("report", {}, overwrite=True, by="ben")
        with pytest.raises(Conflict):
            await docs.put("report", {}, if_match=7, by="ben")
        await docs.put("report", {}, overwrite=True, by="ann")


@pytest.mark.parametrize("validator", [int, dict, str, type])
def test_a_validator_that_does_not_tell_its_arguments_is_refused_by_name(validator: Any) -> None:
    with memory_store(ManualClock()) as store:
        docs = Documents(store)
        with pytest.raises(UsageError, match="expected a validator of one argument"):
            docs.rule("x", validator)
        assert docs.put("x", 1, create=True).version == 1
