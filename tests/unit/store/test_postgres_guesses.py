"""What PostgreSQL's commits know without asking: one round trip where it is right, the truth where
it is not.  On a fake server; ``tests/backends`` runs the real one."""

from __future__ import annotations

import pytest

from perkey.errors import Conflict, LeaseLost
from perkey.store import receipts
from perkey.store.backends import postgres_commits as commits
from perkey.store.backends import postgres_known
from perkey.store.backends.postgres_arrays import byteas
from perkey.store.backends.postgres_known import AGE_S, ROOM, WARY, Known
from perkey.store.backends.postgres_trim import BY_AGE, BY_COUNT, trims
from perkey.store.evaluate import Batch, Unit
from perkey.store.fencing import LeaseState, lease_body
from perkey.store.keys import Key
from perkey.store.limits import Limits
from perkey.store.record import Record
from perkey.store.transaction import Fence, Fn, Outcome, Transaction, Tx, declared
from tests.unit.manual_clock import ManualClock
from tests.unit.store.fake_postgres import FakedPostgres, FakeServer, Session

A, B = Key("d/a"), Key("d/b")


class Rig:
    """A server and two processes."""

    def __init__(self, **limits: int) -> None:
        self.clock = ManualClock()
        self.server = FakeServer()
        self.mine, self.other = (
            FakedPostgres(self.server, Limits(**limits), self.clock)  # type: ignore[arg-type]
            for _ in range(2)
        )

    def doing(self, fn: Fn, *keys: Key) -> Transaction:
        return Transaction(declared(keys), fn, op=self.clock.token())

    def adding(self, *keys: Key) -> Transaction:
        def add(tx: Tx) -> int:
            for key in keys:
                tx.put_body(key, b"%d" % (int(tx.body(key) or b"0") + 1))
            return int(tx.body(keys[0]) or b"0")

        return self.doing(add, *keys)

    def trips(self, *transactions: Transaction, by: FakedPostgres | None = None) -> list[object]:
        """How many round trips, and the results."""
        process = by or self.mine
        before = process.link.trips
        outcomes = process.apply(Batch(list(transactions)))
        assert [each.error for each in outcomes] == [None] * len(outcomes)
        return [process.link.trips - before, *(each.result for each in outcomes)]


def test_what_this_process_wrote_last_takes_one_trip() -> None:
    rig = Rig()
    assert rig.trips(rig.adding(A, B)) == [2, 1]
    assert rig.trips(rig.adding(A)) == [1, 2]
    assert rig.trips(rig.adding(A, B), rig.adding(B)) == [1, 3, 3]
    assert [each.version for each in rig.server.kept] == [1, 1, 2, 3, 2, 3]


def test_one_key_that_is_not_known_makes_its_batch_look() -> None:
    rig = Rig()
    rig.trips(rig.adding(A))
    assert rig.trips(rig.adding(A), rig.adding(B)) == [2, 2, 1]
    assert rig.trips(rig.adding(A), rig.adding(B)) == [1, 3, 2]


def test_what_another_process_wrote_is_looked_at_for_a_while() -> None:
    rig = Rig()
    rig.trips(rig.adding(A))
    rig.trips(rig.adding(A), by=rig.other)
    assert rig.trips(rig.adding(A)) == [3, 3]
    counts = [rig.trips(rig.adding(A))[0] for _ in range(WARY + 1)]
    assert counts == [2] * WARY + [1]
    assert int(rig.server.rows[A].body or b"") == WARY + 4


def test_a_receipt_is_taken_to_be_new_and_found_where_it_is_not() -> None:
    rig = Rig()
    rig.trips(rig.adding(A))

    def paying() -> Transaction:
        paid = rig.adding(A)
        paid.claim = receipts.claim("", "pay", "order-1", {"amount": 1}, None)
        paid.keys = declared([A], paid.claim.key)
        return paid

    assert rig.trips(paying()) == [1, 2]
    assert rig.trips(paying()) == [1, 2], "what it knows of the receipt writes nothing: a look"
    rig.trips(rig.adding(A), by=rig.other)
    assert rig.trips(paying(), by=rig.other) == [2, 2], "one vain try, one look"
    assert rig.trips(paying(), by=rig.other) == [1, 2]
    assert int(rig.server.rows[A].body or b"") == 3


def test_what_refuses_or_only_reads_is_looked_at() -> None:
    rig = Rig()
    rig.trips(rig.adding(A))
    rig.trips(rig.adding(A), by=rig.other)

    def refuse(tx: Tx) -> int:
        if tx.body(A) == b"1":
            raise Conflict("it is old")
        return 7

    assert rig.trips(rig.doing(refuse, A)) == [1, 7]
    assert rig.trips(rig.doing(lambda tx: int(tx.body(A) or b"0"), A)) == [1, 2]


def test_what_is_only_read_is_compared_with_what_its_batch_writes() -> None:
    rig = Rig()
    rig.trips(rig.adding(A, B))
    rig.trips(rig.adding(A), by=rig.other)
    reading = rig.doing(lambda tx: int(tx.body(A) or b"0"), A)
    assert rig.trips(reading, rig.adding(B)) == [3, 2, 2]


def test_the_stores_time_goes_on_and_is_asked_for_when_it_is_old() -> None:
    rig = Rig()

    def stamp(tx: Tx) -> int:
        tx.put_body(A, b"1")
        return tx.now

    assert rig.trips(rig.doing(stamp, A)) == [2, 1000]
    rig.clock.elapsed += 2.5
    assert rig.trips(rig.doing(stamp, A)) == [1, 3500]
    rig.clock.elapsed += AGE_S + 0.1
    assert rig.trips(rig.doing(stamp, A)) == [2, 3500], "a store's time never goes back"


def fenced_writes(rig: Rig) -> list[Outcome]:
    """Writes under a lease that ends, by the server's time alone, before the last of them."""
    lease = Key("l/lease")
    state = lease_body(LeaseState("me", 1, rig.server.now + 5_000))
    rig.trips(rig.doing(lambda tx: tx.put_body(lease, state), lease))
    told = []
    for later in (0, 4_999, 1):
        rig.server.now += later
        fenced = rig.adding(A)
        fenced.fence = Fence(lease, 1)
        fenced.keys = declared([A], lease)
        told += rig.mine.apply(Batch([fenced]))
    return told


def test_a_lease_that_ends_by_the_servers_time_ends_a_guess(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The bug: it was looked at by a time carried on by a clock that stood still, or before a lock
    that was waited for longer than the lease lasted; and what it should have stopped landed."""
    told = fenced_writes(Rig())
    assert [each.result for each in told] == [1, 2, None]
    assert isinstance(told[-1].error, LeaseLost)
    monkeypatch.setattr(commits, "_held_until", lambda batch, unit, heads: 1 << 62)
    assert [each.result for each in fenced_writes(Rig())] == [1, 2, 3], "the bug is caught"


def test_one_record_over_the_one_head_goes_without_arrays() -> None:
    head = Record(A, 1, b"1", "me", 5, "before")
    record = Record(A, 2, None, "you", 6, "after", "before", 3, 1)
    lease = Record("l/a", 7, b"1")

    def statement(*writes: Record, heads: dict[Key, Record | None] | None = None) -> bytes:
        batch, found = Batch([]), {A: head} if heads is None else heads
        return commits.write_if(batch, Unit([*writes], []), found, b"9")[0][0]

    assert statement(record) == commits.WRITE_ONE
    assert statement(lease, heads={Key("l/a"): lease}) == commits.WRITE_ONE
    more = Record(A, 3, b"3")
    for general in (
        statement(record, more),
        statement(record, heads={A: head, B: head}),
        statement(record, heads={A: head, B: None}),
        statement(Record(A, 1, b"1"), heads={A: None}),
        statement(Record("e/1", 1, b"1"), heads={A: head}),
    ):
        assert general == commits.WRITE_IF


def test_one_record_over_a_locked_head_goes_without_arrays_too() -> None:
    head = Record(A, 1, b"1", "me", 5, "before")
    record = Record(A, 2, b"2", "you", 6, "after", "before", 3, 1)
    ((statement, parameters),) = commits.write(Batch([]), Unit([record], []), {A: head})
    assert statement == commits.WRITE_ONE
    assert parameters[9:] == [None, eight(1), b"before", b"\1"]
    both = commits.write(Batch([]), Unit([record], []), {A: head, B: head})
    assert both[0][0] == commits.WRITE


def test_a_locked_head_that_is_another_one_after_all_is_looked_at_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It cannot be; but what was not written is never called written."""
    rig = Rig()
    rig.trips(rig.adding(A))
    rig.trips(rig.adding(A), by=rig.other)
    right, found = Session._is, [False]
    monkeypatch.setattr(
        Session, "_is", lambda self, *head: found.pop() if found else right(self, *head)
    )
    assert rig.trips(rig.adding(A), by=rig.other) == [3, 3], "a vain try, and a look"
    found.append(False)
    rig.other._known._heads.clear()
    assert rig.trips(rig.adding(A), by=rig.other) == [4, 4], "a vain write, and all of it again"
    assert [each.version for each in rig.server.kept] == [1, 2, 3, 4]


def test_one_record_under_a_lease_is_compared_with_its_end() -> None:
    """One statement does not look at the time after it has waited for its row."""
    key = Key("l/lease")
    head = Record(key, 1, lease_body(LeaseState("me", 1, 5_000)), op="before")
    fenced = Transaction((key,), lambda tx: None)
    fenced.fence = Fence(key, 1)
    ((statement, parameters),) = commits.write_if(
        Batch([fenced]), unit(Record(key, 2, b"2")), {key: head}, b"9"
    )
    assert statement == commits.WRITE_IF
    assert parameters[-1] == (5_000).to_bytes(8, "big")


def test_one_record_tells_its_head_by_version_and_op() -> None:
    rig = Rig()
    rig.trips(rig.adding(A))
    assert rig.trips(rig.adding(A)) == [1, 2]
    other = Record(A, 2, b"40", op="theirs")
    rig.server.rows[A] = other
    assert rig.trips(rig.adding(A)) == [3, 41], "the version is the same, the write was another"


def versions_kept(rig: Rig) -> list[int]:
    return [each.version for each in rig.server.kept]


def test_what_is_over_the_limit_goes_in_the_same_trip() -> None:
    rig = Rig(keep_versions=2)
    assert [rig.trips(rig.adding(A))[0] for _ in range(4)] == [2, 1, 1, 1]
    assert versions_kept(rig) == [3, 4]
    assert rig.trips(*(rig.adding(A) for _ in range(3))) == [1, 5, 6, 7]
    assert versions_kept(rig) == [6, 7]


def test_a_wrong_guess_drops_no_more_than_the_truth_does() -> None:
    """The database was put back to a backup: what this process takes for version 8 is version 3."""
    rig = Rig(keep_versions=2)
    for _ in range(3):
        rig.trips(rig.adding(A))
    backup, kept = dict(rig.server.rows), [*rig.server.kept]
    for _ in range(5):
        rig.trips(rig.adding(A))
    rig.server.rows, rig.server.kept = backup, kept
    assert rig.trips(rig.adding(A)) == [3, 4]
    assert versions_kept(rig) == [3, 4]


def test_what_is_too_old_goes_in_the_same_trip_and_nothing_else() -> None:
    rig = Rig(keep_s=2)
    assert [rig.trips(rig.adding(A))[0] for _ in range(3)] == [2, 1, 1]
    assert versions_kept(rig) == [1, 2, 3]
    for result in (4, 5):
        rig.clock.elapsed += 1.5
        rig.server.now += 1_500
        assert rig.trips(rig.adding(A)) == [1, result]
    assert versions_kept(rig) == [4, 5]


def test_what_is_dropped_is_asked_for_only_where_something_may_be() -> None:
    young, over = Record(A, 2, b"1", at=7_000), Record(B, 3, b"1", at=9_000)
    lease = Record("l/a", 3, b"1")
    limits = Limits(keep_versions=2)
    assert trims(limits, [young, lease]) == []
    assert trims(limits, [young, over, lease]) == [(BY_COUNT, (byteas([b"d/b"]), eight(2)))]
    limits = Limits(keep_s=2)
    assert trims(limits, [lease]) == []
    assert trims(limits, [over, young, lease]) == [
        (BY_AGE, (byteas([b"d/a", b"d/b"]), eight(5_000)))
    ]


def eight(number: int) -> bytes:
    return number.to_bytes(8, "big")


# -------------------------------------------------------------------------- what is remembered


def unit(*records: Record) -> Unit:
    return Unit(list(records), [Outcome(writes=records)])


def known_of(*keys: Key, body: bytes = b"1") -> Known:
    known = Known(ManualClock())
    known.told(5)
    known.keep(dict.fromkeys(keys), unit(*(Record(key, 1, body, op="o") for key in keys)))
    return known


def asking(*keys: Key) -> Batch:
    return Batch([Transaction(declared(keys), lambda tx: None)])


def test_who_takes_heads_and_never_puts_them_back_leaves_them_unknown() -> None:
    known = known_of(A, B)
    assert known.take(asking(A)) is not None
    assert known.take(asking(A)) is None
    assert known.take(asking(B)) is not None


def test_a_look_that_lacks_one_head_forgets_the_others_too() -> None:
    known = known_of(A)
    assert known.take(asking(A, B)) is None
    assert known.take(asking(A)) is None


def test_what_is_remembered_is_bounded() -> None:
    """Whichever was not used for longest goes first, and the rest stays."""
    large = b"x" * (ROOM // 4)
    known = known_of(A, B, body=large)
    third = Key("d/c")
    known.keep({third: None}, unit(Record(third, 1, large, op="o")))
    heads, _ = known.take(asking(A)) or ({}, 0)
    known.keep(heads, unit(Record(A, 2, large, op="o")))
    fourth = Key("d/d")
    known.keep({fourth: None}, unit(Record(fourth, 1, large, op="o")))
    assert [*known._heads] == [third, A, fourth]
    huge = b"x" * ROOM
    known.keep({B: None}, unit(Record(B, 1, huge, op="o")))
    assert not known._heads
    assert known._room == ROOM


def test_what_goes_in_and_out_leaves_all_room() -> None:
    known = known_of(A, B)
    before = known._room
    for n in range(2, 50):
        heads, _ = known.take(asking(A, B)) or ({}, 0)
        assert known._room == ROOM
        known.keep(heads, unit(*(Record(key, n, b"1", op="o") for key in (A, B))))
        assert known._room == before
    known.keep({A: None}, unit(Record(A, 50, b"12", op="o")))
    assert known._room == before - 1, "whoever puts one over another counts it once"
    known.keep({}, unit(Record(A, 51, b"1", op="o"), Record(B, 51, b"1", op="o")))
    assert known._room == ROOM


def test_what_is_watched_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_known, "WARIEST", 2)
    known = known_of(A, B)
    for n in range(4):
        known.differed({Key(f"d/{n}"): None}, {Key(f"d/{n}"): Record(f"d/{n}", 1, b"1")})
    assert [*known._wary] == ["d/2", "d/3"]
    known.differed({A: Record(A, 1, b"1", op="o")}, {A: Record(A, 1, b"1", op="o")})
    assert A not in known._wary


def test_a_head_that_was_found_missing_is_not_remembered() -> None:
    known = known_of(A)
    known.keep({A: None}, Unit([], []))
    assert known.take(asking(A)) is None


# ------------------------------------------------------------------------------ what is written


def test_whose_answer_rests_on_what_is_missing_holds_its_place() -> None:
    one = Transaction((A, B), lambda tx: None)
    two = Transaction((Key("d/c"),), lambda tx: None)
    batch = Batch([one, two])
    write = Record(B, 1, b"1")
    heads = {A: None, B: None, Key("d/c"): None}
    assert commits._missing(batch, Unit([write], [Outcome(writes=(write,)), Outcome()]), heads) == [
        A
    ]
    assert commits._missing(batch, Unit([write], [Outcome(), Outcome()]), heads) == [A]
    alone = Batch([Transaction((A,), lambda tx: None), two])
    assert commits._missing(alone, Unit([write], [Outcome(), Outcome()]), heads) == []


def test_a_second_look_is_for_heads_of_which_some_are_missing() -> None:
    there = Record(A, 1, b"1")
    assert commits.look_again({A: there}) is None
    assert commits.look_again({A: None, B: None}) is None
    ask = commits.look_again({A: there, B: None})
    assert ask is not None
    assert ask == (commits.CAME, (byteas([b"d/b"]),))
