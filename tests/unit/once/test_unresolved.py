"""Finding what nobody knows: by the index, at a price that does not grow with what was done."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import perkey
from perkey import Once, OutcomeUnknown, Store
from perkey.errors import Forbidden
from perkey.flows.once import claims, listed, unresolved
from perkey.flows.once.model import Context, Held, Operation, Options, prepare
from perkey.store import receipts
from perkey.store.backends.memory import MemoryBackend
from perkey.store.keys import OPEN, RECEIPTS, Key
from perkey.store.record import Record
from tests.unit.manual_clock import ManualClock


class Counted(MemoryBackend):
    """Counts the records that are read."""

    records = 0

    def read(self, keys: Any) -> list[Record | None]:
        self.records += len(keys)
        return super().read(keys)

    def scan(self, prefix: str, after: str, limit: int) -> list[Record]:
        found = super().scan(prefix, after, limit)
        self.records += len(found)
        return found


class OneKey(Counted):
    """Commits one key at a time, as an object store does."""

    atomic_keys = 1


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=[Counted, OneKey])
def store(clock: ManualClock, request: pytest.FixtureRequest) -> Iterator[Store]:
    with Store(request.param(None, clock), clock=clock, strict=True) as opened:
        yield opened


def lost(runner: Once, key: str) -> None:
    def effect(context: Context) -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        runner.run(key, 1, effect, on_error="unknown")


def read_by(store: Store, runner: Once, **how: Any) -> tuple[list[str], int]:
    """(the keys that are unresolved, how many records it took to find them)."""
    before = store.backend.records
    found = [each.key for each in runner.unresolved(**how)]
    return found, store.backend.records - before


def test_only_what_is_open_is_read(store: Store) -> None:
    runner = Once(store)
    for n in range(300):
        runner.run(f"done/{n:03}", 1, lambda context: "done")
        if n % 100 == 0:
            lost(runner, f"lost/{n:03}")
    read_by(store, runner)
    found, records = read_by(store, runner)
    assert found == ["lost/000", "lost/100", "lost/200"]
    assert records < 12
    assert read_by(store, runner, thorough=True)[1] > 300


def test_what_is_resolved_is_listed_no_more(store: Store) -> None:
    runner = Once(store)
    for key in "abc":
        lost(runner, key)
    runner.resolve("a", value=1)
    runner.resolve("b", done=False)
    assert runner.run("c", 1, lambda context: 2, on_unknown="rerun").value == 2
    for _ in range(2):
        assert runner.unresolved() == []
    if store.backend.atomic_keys is None:
        assert entries(store) == []


def entries(store: Store) -> list[str]:
    slots = store.backend.scan(OPEN, "", 2000)
    return [
        listed.receipt(each).name
        for slot in slots
        if slot.key != listed.COMPLETE
        for each in listed.entries(slot.body)
    ]


def old_claim(store: Store, clock: ManualClock, key: str, state: str) -> None:
    """What a perkey without the index has left."""
    op = prepare("", "run", key, 1, Options(lease=30))
    op.apart = True
    op.token, op.entered = f"old-{key}", True
    store.run(claims.look(op, take_over=False))

    def forget_the_index(tx: Any) -> None:
        found = receipts.read(tx.record(op.record))
        assert found is not None
        extra = {name: value for name, value in found.extra.items() if name != "slot"}
        old = msgspec.structs.replace(found, state=state, extra=extra)
        tx.put_body(op.record, receipts.encoded(old))

    store.transact(op.record, forget_the_index)
    clock.elapsed += 31


@pytest.mark.parametrize("state", ["claimed", "unknown"])
def test_what_is_older_than_the_index_is_found_and_entered(
    store: Store, clock: ManualClock, state: str
) -> None:
    runner = Once(store)
    for n in range(50):
        runner.run(f"done/{n}", 1, lambda context: "done")
    old_claim(store, clock, "old", state)
    assert read_by(store, runner)[0] == ["old"]
    found, records = read_by(store, runner)
    assert (found, records < 10) == (["old"], True)
    runner.resolve("old", value="it was sent")
    assert runner.unresolved() == []
    assert runner.run("old", 1, lambda context: None).value == "it was sent"


def test_who_may_only_read_is_told_the_same(
    store: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not in the index yet, what is, and what has ended and still stands there."""
    runner = Once(store)
    old_claim(store, clock, "old", "claimed")
    lost(runner, "new")
    refused = []

    def forbidden(batch: Any) -> None:
        refused.append(batch)
        raise Forbidden

    def told(**how: Any) -> list[str]:
        before = store.backend.scan(OPEN, "", 2000)
        with monkeypatch.context() as patch:
            patch.setattr(store.backend, "apply", forbidden)
            found = sorted(each.key for each in runner.unresolved(**how))
        assert store.backend.scan(OPEN, "", 2000) == before
        return found

    assert told() == told(thorough=True) == ["new", "old"]
    assert len(runner.unresolved()) == 2
    refused.clear()
    assert told() == ["new", "old"]
    assert refused == [], "nothing is to be tidied up"
    runner.resolve("new", value=1)
    assert told() == ["old"]
    assert len(refused) == (store.backend.atomic_keys == 1)


def test_an_old_process_beside_new_ones_is_found_by_a_thorough_look(
    store: Store, clock: ManualClock
) -> None:
    runner = Once(store)
    assert runner.unresolved() == []
    old_claim(store, clock, "old", "claimed")
    assert runner.unresolved() == []
    assert [each.key for each in runner.unresolved(thorough=True)] == ["old"]
    assert [each.key for each in runner.unresolved()] == ["old"]


@pytest.mark.parametrize("state", ["claimed", "unknown"])
def test_an_old_claim_is_entered_by_whoever_runs_it_again(
    store: Store, clock: ManualClock, state: str
) -> None:
    runner = Once(store)
    runner.unresolved()
    old_claim(store, clock, "old", state)

    def effect(context: Context) -> None:
        assert entries(store) == [receipts.receipt_key("", "run", "old").name]
        raise TimeoutError

    with pytest.raises(TimeoutError):
        runner.run("old", 1, effect, on_unknown="rerun", on_error="unknown")
    assert [each.key for each in runner.unresolved()] == ["old"]


def test_a_claim_that_an_old_process_holds_can_be_ended_by_it(
    store: Store, clock: ManualClock
) -> None:
    """Entering it changes neither its token nor its lease."""
    old_claim(store, clock, "old", "claimed")
    clock.elapsed -= 31
    runner = Once(store)
    assert runner.unresolved() == []
    (record,) = store.backend.read([receipts.receipt_key("", "run", "old")])
    stored = receipts.read(record)
    assert stored is not None
    held = msgspec.convert(stored.extra, Held)
    assert (held.token, held.slot) == ("old-old", listed.home(Key(f"{RECEIPTS}1:-3:run3:old")))


def test_callers_one_after_the_other_share_a_slot_and_others_do_not(store: Store) -> None:
    runner = Once(store)
    for n in range(20):
        runner.run(f"k{n}", 1, lambda context: "done")
    assert len(store.backend.scan(OPEN, "", 99)) == 1
    together = threading.Barrier(4)

    def wait(context: Context) -> int:
        return together.wait(timeout=600)

    threads = [
        threading.Thread(target=runner.run, args=(f"t{n}", 1, wait), daemon=True) for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 2 <= len(store.backend.scan(OPEN, "", 99)) <= 4
    assert runner.unresolved() == []


def test_a_slot_with_many_entries_that_stay_is_left_alone(store: Store) -> None:
    runner = Once(store)
    for n in range(2 * listed.CROWDED):
        lost(runner, f"k{n:03}")
    sizes = [len(listed.entries(slot.body)) for slot in store.backend.scan(OPEN, "", 99)]
    assert max(sizes) == listed.CROWDED + 1
    assert sum(sizes) == len(runner.unresolved()) == 2 * listed.CROWDED
    assert len(runner.unresolved(limit=5)) == 5


def test_a_call_that_finds_an_answer_writes_nothing(store: Store) -> None:
    runner = Once(store)
    runner.run("k", 1, lambda context: "answer")
    before = {each.key: each.version for each in store.backend.scan("", "", 99)}
    assert runner.run("k", 1, lambda context: None).replayed
    assert {each.key: each.version for each in store.backend.scan("", "", 99)} == before
    lost(runner, "lost")
    with pytest.raises(OutcomeUnknown):
        runner.run("lost", 1, lambda context: None)


# ------------------------------------------------------------- entries that nobody takes out


def died_before_its_claim(store: Store, key: str) -> Operation:
    """A caller that was listed, where the index has commits of its own, and went no further."""
    op = prepare("", "run", key, None, Options())
    op.apart, op.slot, op.token = True, 7, f"token-{key}"
    store.run(listed.enter_apart(op))
    return op


def listed_keys(store: Store) -> list[Key]:
    (record,) = store.backend.read([listed.slot_key(7)])
    return [listed.receipt(each) for each in listed.entries(record.body if record else None)]


def test_an_entry_without_a_claim_goes_where_keys_are_committed_one_by_one(tmp_path: Path) -> None:
    with perkey.open(f"file://{tmp_path}/store") as store:
        once = Once(store)
        gone = [died_before_its_claim(store, key) for key in ("a", "b")]
        assert listed_keys(store) == [each.record for each in gone]
        assert once.unresolved() == []
        assert listed_keys(store) == []
        # It was free and is: what was moved on is only the receipt's version.
        assert once.run("a", None, lambda context: "ran").value == "ran"
        assert once.unresolved() == []


def test_who_may_not_write_is_told_the_same_and_leaves_it(tmp_path: Path) -> None:
    with perkey.open(f"file://{tmp_path}/store") as store:
        once = Once(store)
        once.unresolved()  # from now on the index is complete
        died_before_its_claim(store, "a")

        def forbidden(batch: Any) -> Any:
            raise Forbidden("read only")

        apply, store.backend.apply = store.backend.apply, forbidden  # type: ignore[method-assign]
        assert once.unresolved() == []
        store.backend.apply = apply  # type: ignore[method-assign]
        assert len(listed_keys(store)) == 1


def test_a_claim_that_is_passed_by_is_listed_again(tmp_path: Path) -> None:
    """Somebody looks between the entry and the claim: the claim is listed again, and then made."""
    with perkey.open(f"file://{tmp_path}/store") as store:
        once = Once(store)
        enter, looks = listed.enter_apart, iter([True, True])

        def entered(op: Operation) -> Any:
            yield from enter(op)
            if next(looks, False):
                yield from unresolved.unresolved(0, 10, apart=True, thorough=False)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(listed, "enter_apart", entered)

            def effect(context: Any) -> int:
                slots = store.backend.scan(OPEN, "", 9)
                return sum(len(listed.entries(each.body)) for each in slots if each.key[2] != "c")

            assert once.run("a", None, effect).value == 1
