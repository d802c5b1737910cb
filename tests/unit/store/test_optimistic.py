"""The shared apply of stores that can only compare and swap."""

from __future__ import annotations

import itertools
import random

import pytest

from perkey.errors import (
    ConflictExhausted,
    LeaseLost,
    OutcomeUnknown,
    StoreUnavailable,
    Timeout,
)
from perkey.store.evaluate import Batch
from perkey.store.fencing import LeaseState, lease_body
from perkey.store.keys import Key
from perkey.store.record import Record
from perkey.store.transaction import Fence, Transaction, Tx, declared
from tests.unit.store.ports import MemoryPort, Rig, kinds

A, B, C, D = (Key(f"d/{name}") for name in "abcd")
LEASE = Key("l/lease")


# ------------------------------------------------------------------------------ one commit


def test_a_batch_shares_one_commit() -> None:
    rig = Rig()
    outcomes = rig.run(rig.adding(A), rig.adding(A, B), rig.adding(B))
    assert [each.result for each in outcomes] == [1, 2, 2]
    assert [[(e.key, e.version) for e in commit] for commit in rig.port.log] == [
        [(A, 1), (A, 2), (B, 1), (B, 2)]
    ]
    assert [each.attempts for each in outcomes] == [1, 1, 1]


def test_what_writes_nothing_commits_nothing() -> None:
    rig = Rig()
    assert [each.result for each in rig.run(rig.doing(lambda tx: "seen", A))] == ["seen"]
    assert rig.port.log == []


def test_a_commit_compares_keys_that_were_only_read() -> None:
    """Write skew: what was read decides what is written, so it must not have moved."""
    rig = Rig()
    rig.port.faults.append(rig.port.overtaken(A))

    def copy(tx: Tx) -> None:
        tx[B] = tx.get(A, 0)

    (outcome,) = rig.run(rig.doing(copy, A, B))
    assert (rig.port.value(B), outcome.attempts) == (100, 2)


def test_a_functions_error_is_its_own() -> None:
    rig = Rig()

    def fail(tx: Tx) -> None:
        tx[A] = "never"
        raise ValueError("mine")

    outcomes = rig.run(rig.adding(A), rig.doing(fail, A), rig.adding(A))
    assert kinds(outcomes) == ["ok", "ValueError", "ok"]
    assert rig.port.value(A) == 2


# ---------------------------------------------------------------------------- how it is cut


@pytest.mark.parametrize(
    ("port", "commits"),
    [
        (MemoryPort(2), [[A, B], [C, D]]),
        (MemoryPort(3), [[A, B, C], [D]]),
        (MemoryPort(None, 1), [[A], [B], [C], [D]]),
        (MemoryPort(1), [[A], [B], [C], [D]]),
    ],
)
def test_parts_keep_to_the_stores_limits(port: MemoryPort, commits: list[list[Key]]) -> None:
    rig = Rig(port)
    rig.run(*map(rig.adding, (A, B, C, D)))
    assert [[each.key for each in commit] for commit in port.log] == commits


def test_versions_of_one_key_go_together_where_the_store_can() -> None:
    together, single = Rig(MemoryPort(1)), Rig(MemoryPort(1, several_versions=False))
    for rig in (together, single):
        outcomes = rig.run(rig.adding(A), rig.adding(B), rig.adding(A), rig.adding(A))
        assert [each.result for each in outcomes] == [1, 1, 2, 3]
    assert [len(commit) for commit in together.port.log] == [3, 1]
    assert [len(commit) for commit in single.port.log] == [1, 1, 1, 1]


def test_too_long_for_one_commit_is_halved_until_it_fits() -> None:
    rig = Rig(MemoryPort(commit_bytes=8))
    short = [rig.doing(lambda tx, k=key: tx.put_body(k, b"1234"), key) for key in (A, B, C)]
    long = rig.doing(lambda tx: tx.put_body(D, b"123456789"), D)
    outcomes = rig.run(short[0], short[1], long, short[2])
    assert kinds(outcomes) == ["ok", "ok", "LimitExceeded", "ok"]
    assert [[each.key for each in commit] for commit in rig.port.log] == [[A, B], [C]]


def test_appended_records_count_as_keys() -> None:
    rig = Rig(MemoryPort(1))

    def post(tx: Tx) -> None:
        tx[A] = 1
        tx.append(Key("e/1"), b"1")

    outcomes = rig.run(rig.doing(post, A), rig.adding(B))
    assert kinds(outcomes) == ["NotSupported", "ok"]
    assert A not in rig.port.heads


def test_on_single_keys_a_lease_is_read_but_not_compared() -> None:
    rig = Rig(MemoryPort(1))
    held = Record(LEASE, 1, lease_body(LeaseState("me", 7, 2_000)))
    rig.port.heads[LEASE] = held
    rig.port.faults.append(rig.port.overtaken())

    def fenced(token: int) -> Transaction:
        keys = declared([A], LEASE)
        return Transaction(keys, lambda tx: tx.put_body(A, b"1"), fence=Fence(LEASE, token))

    assert kinds(rig.run(fenced(7), fenced(6))) == ["ok", "LeaseLost"]
    assert rig.port.heads[A].fence == 7
    rig.port.heads[LEASE] = Record(LEASE, 2, lease_body(LeaseState("late", 6, 2_000)))
    with pytest.raises(LeaseLost):
        raise rig.run(fenced(6))[0].error or AssertionError


# ------------------------------------------------------------------------------- conflicts


def test_a_conflict_is_tried_again_on_the_new_head() -> None:
    rig = Rig()
    rig.port.faults.extend([rig.port.overtaken(A)] * 3)
    (outcome,) = rig.run(rig.adding(A))
    assert (outcome.result, outcome.attempts) == (301, 4)
    assert rig.clock.slept == sorted(rig.clock.slept)  # each pause longer than the one before


def test_whoever_met_no_conflict_goes_on_at_once() -> None:
    rig = Rig()
    rig.port.faults.append(rig.port.overtaken(B))
    outcomes = rig.run(rig.adding(A), rig.adding(B), rig.adding(B, C), rig.adding(D))
    assert [each.attempts for each in outcomes] == [1, 2, 2, 1]
    mine = [[e.key for e in commit] for commit in rig.port.log if commit[0].by == "me"]
    assert mine == [[A, D], [B, B, C]]


def test_attempts_end() -> None:
    rig = Rig()
    rig.port.faults.extend([rig.port.overtaken(A)] * 9)
    patient = rig.adding(A, attempts=5)
    outcomes = rig.run(rig.adding(A, attempts=3), patient, rig.adding(B))
    assert kinds(outcomes) == ["ConflictExhausted", "ConflictExhausted", "ok"]
    assert [each.attempts for each in outcomes] == [3, 5, 1]
    assert isinstance(outcomes[0].error, ConflictExhausted)
    assert (outcomes[0].error.key, outcomes[0].error.attempts) == ("a", 3)
    assert "me" not in {
        record.by for commit in rig.port.log for record in commit if record.key == A
    }


def test_without_a_number_of_attempts_the_time_decides() -> None:
    """A crowd on one key costs time, not an error: six losses in a row are no reason to stop."""
    rig = Rig(attempts=1)
    rig.port.faults.extend([rig.port.overtaken(A)] * 30)
    (outcome,) = rig.run(rig.adding(A))
    assert (outcome.result, outcome.attempts) == (3001, 31)
    assert max(rig.clock.slept) <= 32 * rig.limits.backoff_s


def test_whose_time_is_up_gives_up_and_the_others_go_on() -> None:
    rig = Rig()
    rig.port.faults.extend([rig.port.overtaken(A)] * 20)
    hasty, patient = rig.adding(A), rig.adding(A)
    hasty.deadline, patient.deadline = rig.clock.monotonic() + 0.02, rig.clock.monotonic() + 3600
    outcomes = rig.run(hasty, patient)
    assert kinds(outcomes) == ["Timeout", "ok"]
    assert "met a newer version until the time was up" in str(outcomes[0].error)
    assert 0 < outcomes[0].attempts < outcomes[1].attempts == 21
    assert outcomes[1].result == 2001  # the hasty one added nothing


# ---------------------------------------------------------------------------- lost replies


@pytest.mark.parametrize("fault", ["lose_reply", "lose_request", "arrive_late"])
@pytest.mark.parametrize("atomic", [None, 1])
def test_a_lost_reply_is_neither_lost_nor_doubled(fault: str, atomic: int | None) -> None:
    rig = Rig(MemoryPort(atomic))
    rig.port.faults.append(getattr(rig.port, fault))
    outcomes = rig.run(rig.adding(A), rig.adding(A), rig.adding(B))
    assert [each.result for each in outcomes] == [1, 2, 1]
    for land in rig.port.late:
        assert not land()
    assert (rig.port.value(A), rig.port.value(B)) == (2, 1)


def test_a_request_that_lands_between_the_look_and_the_second_commit() -> None:
    rig = Rig()
    rig.port.faults.append(rig.port.arrive_late)
    rig.port.before_commit = lambda: [land() for land in rig.port.late] and None
    (outcome,) = rig.run(rig.adding(A))
    assert (outcome.result, rig.port.value(A)) == (1, 1)


def test_one_parts_lost_reply_never_applies_another_again() -> None:
    rig = Rig(MemoryPort(1))
    rig.port.faults.extend([rig.port.fine, rig.port.lose_reply, rig.port.fine])
    outcomes = rig.run(*map(rig.adding, (A, B, C)))
    assert kinds(outcomes) == ["ok"] * 3
    assert [rig.port.value(key) for key in (A, B, C)] == [1, 1, 1]


def test_what_may_still_land_is_unknown_when_it_is_not_written_again() -> None:
    """It was refused the second time, by time alone; the first request may yet arrive."""
    rig = Rig()
    rig.port.faults.append(rig.port.arrive_late)
    calls = itertools.count()

    def only_at_first(tx: Tx) -> None:
        if next(calls) == 0:
            tx[A] = 1

    with pytest.raises(OutcomeUnknown):
        rig.run(rig.doing(only_at_first, A))


def test_what_can_land_no_more_is_decided_again() -> None:
    rig = Rig()
    rig.port.faults.append(rig.port.arrive_late)
    rig.clock.on_sleep = lambda: None

    def create(tx: Tx) -> str:
        if A in tx:
            return "theirs"
        tx[A] = 1
        rig.port.before_commit = lambda: rig.port.write(A)
        return "mine"

    (outcome,) = rig.run(rig.doing(create, A))
    assert outcome.result == "theirs"
    assert not rig.port.late[0]()


def test_no_trace_left_is_unknown_for_those_concerned() -> None:
    rig = Rig(MemoryPort(1))

    def forget(land: object) -> bool:
        land()  # type: ignore[operator]
        for n in range(40):
            rig.port.write(A, f"o{n:020}")
        rig.port.log.clear()
        raise StoreUnavailable

    rig.port.faults.append(forget)
    first = rig.adding(A)
    outcomes = rig.run(first, rig.adding(B))
    assert kinds(outcomes) == ["OutcomeUnknown", "ok"]
    assert outcomes[0].error.op == first.op  # type: ignore[union-attr]
    rig.port.faults.append(forget)
    with pytest.raises(OutcomeUnknown):
        rig.run(rig.adding(A))


def test_what_was_never_sent_has_failed_plainly() -> None:
    rig = Rig(MemoryPort(1))
    rig.port.faults.extend([rig.port.fine, rig.port.never_send])
    outcomes = rig.run(*map(rig.adding, (A, B, C)))
    assert kinds(outcomes) == ["ok", "NothingDone", "StoreUnavailable"]
    assert list(rig.port.heads) == [A]


def test_doubts_from_outside_are_shared_out() -> None:
    """A whole batch in doubt, handed back in: each part asks after its own share."""
    rig = Rig(MemoryPort(1))
    transactions = [rig.adding(A), rig.adding(B), rig.adding(A)]
    batch = Batch(transactions)
    unit = batch.evaluate({A: None, B: None}, 0, rig.port.find_op)
    batch.doubts.append(unit)
    rig.port.heads[B] = unit.writes[1]
    outcomes = rig.optimistic.apply(batch)
    assert [each.result for each in outcomes] == [1, 1, 2]
    assert [[each.key for each in commit] for commit in rig.port.log] == [[A, A]]


# ------------------------------------------------------------------------------ interrupts


@pytest.mark.parametrize("fault", ["interrupt_after", "interrupt_before"])
def test_an_interrupt_waits_until_everybody_is_told(fault: str) -> None:
    rig = Rig(MemoryPort(1))
    rig.port.faults.extend([rig.port.fine, getattr(rig.port, fault)])
    outcomes = rig.run(*map(rig.adding, (A, B, C)))
    assert kinds(outcomes) == ["ok"] * 3
    assert [rig.port.value(key) for key in (A, B, C)] == [1, 1, 1]
    assert isinstance(rig.interrupt, KeyboardInterrupt)


def test_an_interrupt_before_anything_was_sent_goes_through() -> None:
    rig = Rig(MemoryPort(1))

    def strike(tx: Tx) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rig.run(rig.doing(strike, A), rig.adding(B))
    assert rig.port.log == []


def test_an_error_does_not_swallow_an_interrupt() -> None:
    rig = Rig()
    rig.port.faults.extend([rig.port.interrupt_after])

    def gone(land: object) -> bool:
        raise AssertionError("not applied again")

    rig.port.faults.append(gone)
    assert kinds(rig.run(rig.adding(A))) == ["ok"]
    assert isinstance(rig.interrupt, KeyboardInterrupt)


# ----------------------------------------------------------------------------------- turns


def test_whoever_lost_twice_gets_a_turn() -> None:
    rig = Rig()
    rig.port.faults.extend([rig.port.overtaken(A)] * 2)
    rig.run(rig.adding(A))
    assert Key("q/turn") in rig.port.heads
    assert [commit[0].key for commit in rig.port.log if commit[0].by != "other"] == ["q/turn", A]


def test_others_hold_back_until_the_turn_is_used() -> None:
    port = MemoryPort()
    starving, busy = Rig(port), Rig(port)
    port.faults.extend([port.overtaken(A)] * 2)
    taken = port.before_commit

    def interfere() -> None:
        """The other process comes in right after the turn was written."""
        if Key("q/turn") in port.heads and not busy.clock.slept:
            port.before_commit = taken
            busy.clock.on_sleep = starving_commits
            assert busy.run(busy.adding(A))[0].result == 202

    def starving_commits() -> None:
        if port.heads[A].version == 2:
            port.write(A, port.heads[Key("q/turn")].op)

    port.before_commit = interfere
    starving.run(starving.adding(A))
    assert busy.clock.slept


def test_a_turn_on_other_keys_holds_nobody_up() -> None:
    port = MemoryPort()
    starving, busy = Rig(port), Rig(port)
    port.faults.extend([port.overtaken(A)] * 2)
    starving.run(starving.adding(A))
    port.heads[A] = Record(A, 9, b"1", op="another")
    busy.run(busy.adding(B))
    assert busy.clock.slept == []


def test_a_turn_that_is_not_used_runs_out() -> None:
    port = MemoryPort()
    dead, busy = Rig(port), Rig(port)
    port.faults.extend([port.overtaken(A)] * 2)
    dead.run(dead.adding(A))
    port.heads[A] = Record(A, 9, b"1", op="another")
    busy.run(busy.adding(A))
    assert 0 < sum(busy.clock.slept) <= 0.1
    before = len(busy.clock.slept)
    busy.run(busy.adding(A))
    assert len(busy.clock.slept) == before


def test_waiting_for_a_turn_ends_at_the_deadline() -> None:
    port = MemoryPort()
    dead, busy = Rig(port), Rig(port, backoff_s=60)
    port.faults.extend([port.overtaken(A)] * 2)
    dead.run(dead.adding(A))
    port.heads[A] = Record(A, 9, b"1", op="another")
    batch = Batch([busy.adding(A)], deadline=busy.clock.monotonic() + 0.5)
    with pytest.raises(Timeout):
        busy.optimistic.apply(batch)


# --------------------------------------------------------------------------------- at random


@pytest.mark.parametrize("seed", range(60))
def test_random_faults_lose_and_double_nothing(seed: int) -> None:
    chance = random.Random(seed)
    atomic = chance.choice([None, 1, 2, 4])
    several = chance.random() < 0.5
    rig = Rig(MemoryPort(atomic, chance.choice([None, 3]), several_versions=several), attempts=50)
    port = rig.port
    faults = [port.fine, port.lose_reply, port.lose_request, port.arrive_late, port.overtaken(A)]
    faults += [port.interrupt_after, port.interrupt_before, port.overtaken(B, C)]
    expected = dict.fromkeys((A, B, C, D), 0)
    for _ in range(30):
        port.faults.extend(chance.choices(faults, k=chance.randrange(4)))
        width = min(atomic or 3, 3)
        picks = [chance.sample([A, B, C, D], chance.randint(1, width)) for _ in range(3)]
        try:
            outcomes = rig.run(*(rig.adding(*keys) for keys in picks))
        except KeyboardInterrupt:  # before anything was done
            continue
        assert kinds(outcomes) == ["ok"] * 3
        for key in itertools.chain(*picks):
            expected[key] += 1
        for land in port.late:
            assert not land()
        port.faults.clear()
    found = {key: port.value(key) % 100 for key in expected}
    assert found == {key: count % 100 for key, count in expected.items()}
