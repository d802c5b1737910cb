"""What leases, boards and documents do on a store that commits one key at a time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from perkey import Board, Documents, LeaseLost, Leases, NotSupported, Rejected
from perkey.documents import no_removals_of_others
from perkey.store.backends.memory import MemoryBackend
from perkey.store.keys import Key
from perkey.store.transaction import Fence, Tx
from perkey.stores import Store
from tests.unit.manual_clock import ManualClock


class OneKey(MemoryBackend):
    """Commits one key at a time, as an object store does."""

    atomic_keys = 1


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> Iterator[Store]:
    with Store(OneKey(None, clock), clock=clock, strict=True) as store:
        yield store


def test_a_board_is_one_record(store: Store, clock: ManualClock) -> None:
    board = Board(store, "audit")
    board.create(["a", "b"])
    late = board.claim("w1", lease=30)
    assert late is not None
    clock.elapsed += 30
    assert board.work("w2", lambda claim: claim.task, lease=30) == 2
    with pytest.raises(LeaseLost):
        board.finish(late, "late")
    assert board.complete().completed


def test_what_needs_two_keys_is_refused_before_it_runs(store: Store) -> None:
    board = Board(store, "audit")
    board.create(["a"])
    claim = board.claim("w1", lease=30)
    assert claim is not None
    ran: list[Tx] = []
    with pytest.raises(NotSupported, match=r"at most 1 keys at once.*dynamodb://.*nats://"):
        board.finish(claim, 1, also=("report", ran.append))
    assert ran == []
    board.finish(claim, 1)
    with pytest.raises(NotSupported):
        board.complete(outputs={"a": ("report", "/a")})
    assert board.complete().completed


def test_the_key_itself_remembers_the_largest_token(store: Store, clock: ManualClock) -> None:
    """There the lease is read before the write; this is what stands when it moves in between."""
    docs, leases = Documents(store), Leases(store)
    first = leases.acquire("report", ttl=30)
    docs.put("report", 1, create=True, fence=first.fence)
    first.release()
    second = leases.acquire("report", ttl=30)
    docs.put("report", 2, overwrite=True, fence=second.fence)
    (record,) = store.backend.read([Key("d/report")])
    assert record is not None
    assert record.fence == second.token
    second.release()
    # A lease record that says what the late writer believes, as one read too early would.
    elsewhere = leases.acquire("elsewhere", ttl=30)
    late = Fence(Key("l/elsewhere"), elsewhere.token)
    assert elsewhere.token < second.token
    with pytest.raises(LeaseLost, match="already written under fencing token 2"):
        docs.put("report", 3, overwrite=True, fence=late)
    assert docs.get("report").value == 2


def test_documents_merge_and_obey_rules(store: Store) -> None:
    docs = Documents(store)
    docs.rule("report", no_removals_of_others())
    docs.put("report", {"a": 1}, create=True, by="ann")
    docs.put("report", {"a": 1, "b": 1}, if_match=1, merge=True, by="ben")
    docs.put("report", {"a": 1, "c": 1}, if_match=1, merge=True, by="cy")
    assert docs.update("report", lambda value: {**value, "d": 1}).value == dict.fromkeys("abcd", 1)
    with pytest.raises(Rejected):
        docs.put("report", {}, overwrite=True, by="dee")
