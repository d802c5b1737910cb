"""PostgreSQL's commits under every schedule of two processes on a fake server: its looks, its
guesses, and requests that are lost, come late, lose their reply, or are their sender's last.

The backend is the real one, down to the bytes of its parameters; below it a fake server locks rows
and refuses deadlocks as the real one does.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import psycopg
import pytest

from perkey.errors import OutcomeUnknown, StoreUnavailable
from perkey.store.backends import postgres as backend
from perkey.store.backends import postgres_commits as commits
from perkey.store.backends.postgres_wire import Ask
from perkey.store.evaluate import Batch
from perkey.store.keys import Key
from perkey.store.limits import Limits
from perkey.store.settle import settled
from perkey.store.transaction import Fn, Outcome, Transaction, Tx, declared
from perkey.testing import explore_threads, switch_point
from perkey.testing.certificate import Result
from tests.unit.manual_clock import ManualClock
from tests.unit.store.fake_postgres import FakedPostgres, FakeServer, Session

A, B = Key("d/a"), Key("d/b")
FINE, REQUEST_LOST, REPLY_LOST, LATE, DIES = range(5)

Plan = Sequence[Sequence[Transaction]]
"""The batches of one process, one after the other."""


class Dead(BaseException):
    """The process is no more."""


class Side:
    """One process: a connection, what it knows, and how its line behaves."""

    def __init__(self, world: World, plan: Plan, faults: Sequence[int]) -> None:
        self.world = world
        self.plan = plan
        self.faults = [*faults]
        self.told: list[Outcome] = []
        self.unsure: list[str] = []
        self.undone: list[str] = []
        self.backend = FakedPostgres(world.server, Limits(), world.clock, line=self.line)

    def line(self, session: Session, asks: Sequence[Ask]) -> Any:
        fault = self.faults.pop(0) if self.faults else FINE
        switch_point("asks")
        if fault == REQUEST_LOST:
            session.end()
        elif fault == LATE:
            self.world.late.append((session, asks))
        else:
            answers = session.run(asks)
            switch_point("hears")
            if fault == FINE:
                return answers
            session.end()
        if fault == DIES:
            raise Dead
        raise psycopg.OperationalError("the line is gone")

    def work(self) -> None:
        for transactions in self.plan:
            try:
                outcomes, interrupt = settled(
                    self.backend.apply, Batch(transactions), Limits(), self.world.clock
                )
            except OutcomeUnknown:
                self.unsure += [each.op for each in transactions]
                continue
            except StoreUnavailable:
                self.undone += [each.op for each in transactions]
                continue
            if interrupt is not None:
                raise interrupt
            self.told += outcomes


class World:
    """A server, two processes, and what is still on its way."""

    def __init__(self, plans: Callable[[], Sequence[Plan]], faults: Sequence[Sequence[int]]):
        self.clock = ManualClock()
        self.server = FakeServer()
        self.late: list[tuple[Session, Sequence[Ask]]] = []
        seed = FakedPostgres(self.server, Limits(), self.clock)
        seed.apply(Batch([adding("seed", A, B)]))
        self.sides = [Side(self, plan, each) for plan, each in zip(plans(), faults, strict=True)]

    def remembering(self) -> World:
        """Each process knows the heads, as after a commit of its own.  What holds a row arrives
        at the latest when somebody waits for the row."""
        self.server.blocked = self.no_wait
        for side in self.sides:
            side.backend._known.told(self.server.now)
            for key in (A, B):
                side.backend._known._heads[key] = self.server.rows[key]
        return self

    def arrive(self) -> None:
        """What was late arrives, at any time."""
        switch_point("the line")
        while self.late:
            self.serve(*self.late.pop(0))

    def serve(self, session: Session, asks: Sequence[Ask]) -> None:
        """The server does what it is asked, and then finds that nobody is there any more."""
        with suppress(psycopg.Error):
            session.run(asks)
        session.end()

    def no_wait(self, holder: Session) -> bool:
        """Where it is what has not arrived yet that keeps somebody waiting, it arrives."""
        mine = next((each for each in self.late if each[0] is holder), None)
        if mine is None:
            return False
        self.late.remove(mine)
        self.serve(*mine)
        return True

    def value(self, key: Key) -> int:
        return int(self.server.rows[key].body or b"0")

    def ops(self, key: Key) -> list[str]:
        return [each.op for each in self.server.kept if each.key == key]


def transaction(name: str, fn: Fn, *keys: Key) -> Transaction:
    return Transaction(declared(keys), fn, op=name)


def adding(name: str, *keys: Key) -> Transaction:
    def add(tx: Tx) -> int:
        for key in keys:
            tx.put_body(key, b"%d" % (int(tx.body(key) or b"0") + 1))
        return int(tx.body(keys[0]) or b"0")

    return transaction(name, add, *keys)


Faults = tuple[Sequence[int], Sequence[int]]
"""What becomes of the first requests of each process."""
NONE: list[Faults] = [((), ())]
LOST: list[Faults] = [
    ((REQUEST_LOST,), ()),
    ((REPLY_LOST,), (REPLY_LOST,)),
    ((REPLY_LOST, REPLY_LOST), ()),
    ((LATE,), ()),
    ((LATE, REPLY_LOST), ()),
]
ENDS: list[Faults] = [((DIES,), ()), ((), (DIES,)), ((REPLY_LOST, DIES), ())]


def explored(
    plans: Callable[[], Sequence[Plan]],
    check: Callable[[World], None],
    faults: Sequence[Faults] = NONE,
    preemptions: int = 1,
) -> Iterator[Result]:
    """Every schedule of two processes and the line between, for each of these faults."""
    for each in faults:
        callers: list[Any] = [lambda world, n=n: world.sides[n].work() for n in range(2)]
        if LATE in (*each[0], *each[1]):
            callers.append(World.arrive)
        yield explore_threads(
            lambda each=each: World(plans, each).remembering(),  # type: ignore[misc]
            callers,
            check=check,
            raises=(Dead,),
            preemptions=preemptions,
        )


def holds(results: Iterator[Result]) -> None:
    for result in results:
        result.assert_holds()


def found(results: Iterator[Result]) -> bool:
    return any(result.failure is not None for result in results)


# -------------------------------------------------------------------- each counts exactly once


def increments() -> Sequence[Plan]:
    return [[[adding("p1", A), adding("p2", A, B)]], [[adding("q1", A)], [adding("q2", B)]]]


def each_counted_once(world: World) -> None:
    world.arrive()
    ops = {key: world.ops(key) for key in (A, B)}
    for key, made in ops.items():
        assert len(made) == len(set(made)) == world.value(key) == world.server.rows[key].version
        versions = [each.version for each in world.server.kept if each.key == key]
        assert versions == [*range(1, len(made) + 1)]
    assert ("p2" in ops[A]) == ("p2" in ops[B]) == ("p1" in ops[A]), "a batch is one commit"
    for side in world.sides:
        assert [each.error for each in side.told] == [None] * len(side.told)
        names = [each.op for batch in side.plan for each in batch]
        acknowledged = {*names[: len(side.told)]} - {*side.unsure}
        if not side.unsure:
            assert acknowledged <= {*ops[A], *ops[B]}, "what was acknowledged is there"


def test_whatever_is_lost_or_late_each_change_counts_once() -> None:
    holds(explored(increments, each_counted_once, LOST))


def test_without_faults_every_schedule_with_two_preemptions() -> None:
    def all_landed(world: World) -> None:
        each_counted_once(world)
        assert {*world.ops(A), *world.ops(B)} == {"seed", "p1", "p2", "q1", "q2"}
        assert not any(side.unsure for side in world.sides)

    holds(explored(increments, all_landed, preemptions=2))


def test_whoever_dies_leaves_all_of_a_commit_or_nothing() -> None:
    holds(explored(increments, each_counted_once, ENDS))


def test_a_condition_that_is_not_compared_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Session, "_same", lambda self, *expected: True)
    assert found(explored(increments, each_counted_once))


def alone() -> Sequence[Plan]:
    return [[[adding("p1", A)], [adding("p2", A)]], [[adding("q1", A)], [adding("q2", B)]]]


def each_alone_counted_once(world: World) -> None:
    world.arrive()
    for key in (A, B):
        made = world.ops(key)
        assert len(made) == len(set(made)) == world.value(key) == world.server.rows[key].version
    for side in world.sides:
        assert [each.error for each in side.told] == [None] * len(side.told)
        if not side.unsure:
            names = [batch[0].op for batch in side.plan]
            assert {*names[: len(side.told)]} <= {*world.ops(A), *world.ops(B)}


def test_one_record_by_itself_counts_once_whatever_is_lost_or_late() -> None:
    holds(explored(alone, each_alone_counted_once, [*NONE, *LOST, *ENDS]))


def test_one_record_that_is_not_compared_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Session, "_is", lambda self, *expected: True)
    assert found(explored(alone, each_alone_counted_once))


def test_a_late_request_that_is_given_up_too_early_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before guesses a request that had not landed under the lock never would."""
    monkeypatch.setattr(backend, "may_land", lambda doubt, heads: False)
    assert found(explored(refusing_the_second_time, told_the_truth, [((LATE,), ())]))


# ------------------------------------------------------------------ an answer that is no write


def refusing_the_second_time() -> Sequence[Plan]:
    """A function that writes on its first run, and refuses whenever it runs again."""
    runs: list[int] = []

    def once(tx: Tx) -> int:
        runs.append(1)
        if len(runs) > 1:
            raise ValueError("not again")
        tx.put_body(A, b"2")
        return 2

    return [[[transaction("p1", once, A)]], [[adding("q1", B)]]]


def told_the_truth(world: World) -> None:
    world.arrive()
    (mine,) = world.sides[0].told or [None]
    if mine is not None:
        assert (mine.error is None) == ("p1" in world.ops(A)), "what is told is what happened"


def test_what_may_still_land_is_never_called_refused() -> None:
    holds(explored(refusing_the_second_time, told_the_truth, LOST[:1] + LOST[2:4]))


def reading() -> Sequence[Plan]:
    def look(tx: Tx) -> int:
        return int(tx.body(A) or b"0")

    return [[[adding("p1", A)]], [[transaction("q1", look, A)], [transaction("q2", look, A)]]]


def never_backwards(world: World) -> None:
    (mine,) = world.sides[0].told
    first, second = (each.result for each in world.sides[1].told)
    assert mine.result == 2
    assert (first, second) in [(1, 1), (1, 2), (2, 2)]


def test_what_is_only_read_is_looked_at() -> None:
    holds(explored(reading, never_backwards))


def test_a_guess_that_answers_by_itself_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody has the answer of a commit, and asks the process that does not know of it."""
    right = FakedPostgres._try

    def careless(self: Any, batch: Batch, heads: Any, now: int) -> Any:
        unit = batch.evaluate(dict(heads), now, self._find_op)
        return right(self, batch, heads, now) if unit.writes else unit.outcomes

    def after(world: World) -> None:
        (outcome,) = world.sides[1].backend.apply(Batch([reading()[1][0][0]]))
        assert outcome.result == world.value(A)

    holds(explored(reading, after))
    monkeypatch.setattr(FakedPostgres, "_try", careless)
    assert found(explored(reading, after))


# ---------------------------------------------------------------------------- what is not there

X, Y = Key("d/x"), Key("d/y")


def crossed() -> Sequence[Plan]:
    """Each makes its own key where the other one's is missing."""

    def making(name: str, mine: Key, other: Key) -> Transaction:
        def make(tx: Tx) -> bool:
            if tx.body(other) is None:
                tx.put_body(mine, b"1")
                return True
            return False

        made = transaction(name, make, mine, other)
        made.foreseen = name == "p1"  # one of them guesses that there is nothing
        return made

    return [[[making("p1", X, Y)]], [[making("q1", Y, X)]]]


def only_one(world: World) -> None:
    assert ({"d/x", "d/y"} & world.server.rows.keys()) in ({"d/x"}, {"d/y"})
    assert [side.told[0].result for side in world.sides].count(True) == 1


def test_what_was_found_missing_stays_missing_until_the_commit() -> None:
    holds(explored(crossed, only_one))


def test_an_absence_that_nobody_holds_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "_missing", lambda batch, unit, heads: [])
    assert found(explored(crossed, only_one))


# A statement finds what is there before it waits for a lock.  Who waits for a commit that moves
# one key and makes another has the first as it is then, and has not found the second.


def half(first: Key, second: Key) -> Fn:
    """Whether the two, which are only ever changed together, are as of different commits."""
    return lambda tx: int(tx.body(first) or b"0") != int(tx.body(second) or b"0") + 1


def watching() -> Sequence[Plan]:
    looking = [transaction("q1", half(A, X), A, X)]
    return [[[adding("p1", A, X)]], [looking]]


def watching_and_writing() -> Sequence[Plan]:
    return [watching()[0], [[adding("q0", B), *watching()[1][0]]]]


def refusing() -> Sequence[Plan]:
    def check(tx: Tx) -> None:
        if half(A, X)(tx):
            raise ValueError("this cannot be")

    return [watching()[0], [[transaction("q1", check, A, X)]]]


def saw_whole_commits(world: World) -> None:
    answer = world.sides[1].told[-1]
    assert (answer.result, answer.error) in [(False, None), (None, None)]


@pytest.mark.parametrize("plans", [watching, watching_and_writing, refusing])
def test_nobody_sees_half_of_a_commit(plans: Callable[[], Sequence[Plan]]) -> None:
    holds(explored(plans, saw_whole_commits))


@pytest.mark.parametrize(
    ("plans", "name", "careless"),
    [
        (watching, "look_again", lambda heads: None),
        (refusing, "look_again", lambda heads: None),
        (watching_and_writing, "_missing", lambda batch, unit, heads: []),
    ],
)
def test_who_goes_by_half_of_a_commit_is_caught(
    monkeypatch: pytest.MonkeyPatch,
    plans: Callable[[], Sequence[Plan]],
    name: str,
    careless: Any,
) -> None:
    monkeypatch.setattr(commits, name, careless)
    assert found(explored(plans, saw_whole_commits))


def coming_late(name: str, most: int = 100) -> Sequence[Plan]:
    """One that moves a key and makes another, and whose commit arrives after it was given up."""
    right = adding(name, A, X).fn

    def add(tx: Tx) -> Any:
        if int(tx.body(A) or b"0") >= most:
            raise ValueError("no more")
        return right(tx)

    return [[[transaction(name, add, A, X)]], [[adding("q1", B)]]]


COMES_LATE: list[Faults] = [((FINE, LATE), ()), ((FINE, LATE, REPLY_LOST), ())]


def landed_once(world: World) -> None:
    """And whoever was answered was told so."""
    world.arrive()
    for key in (A, X):
        assert world.ops(key).count("p1") <= 1
    for outcome in world.sides[0].told:
        assert outcome.error is None
        assert world.value(A) == 2


@pytest.mark.parametrize("most", [2, 100])
def test_what_lands_while_its_sender_looks_is_found(most: int) -> None:
    """The bug: half of it was seen, so it had not landed, and would not any more."""
    holds(explored(lambda: coming_late("p1", most), landed_once, COMES_LATE))


@pytest.mark.parametrize("most", [2, 100])
def test_going_by_half_of_what_was_sent_is_caught(
    monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(commits, "look_again", lambda heads: None)
    assert found(explored(lambda: coming_late("p1", most), landed_once, COMES_LATE))


# ------------------------------------------------------------------------- many, in some orders


@pytest.mark.parametrize("seed", range(40))
def test_many_batches_of_four_processes_over_bad_lines(seed: int) -> None:
    """One batch after the other, each request with a fate of its own, and late ones at any time."""
    drawn = random.Random(seed)
    world = World(lambda: [[]] * 4, [()] * 4)
    world.server.blocked = world.no_wait
    keys = [A, B, X, Y]
    for n in range(120):
        side = drawn.choice(world.sides)
        fates = (FINE, FINE, FINE, FINE, REQUEST_LOST, REPLY_LOST, LATE)
        side.faults = [drawn.choice(fates) for _ in range(3)]
        side.plan = [
            [adding(f"{n}.{k}", *drawn.sample(keys, drawn.randint(1, 3))) for k in range(2)]
        ]
        for each in side.plan[0]:
            each.foreseen = drawn.random() < 0.5
        side.work()
        if drawn.random() < 0.3:
            world.arrive()
    world.arrive()
    acknowledged = {outcome.writes[0].op for side in world.sides for outcome in side.told}
    landed = {each.op for each in world.server.kept}
    unsure = {op for side in world.sides for op in side.unsure}
    undone = {op for side in world.sides for op in side.undone}
    assert acknowledged <= landed <= acknowledged | unsure | {"seed"}
    assert not landed & undone, "nothing was done, it said"
    assert len(acknowledged) > 150
    for key in keys:
        made = world.ops(key)
        assert len(made) == len(set(made)) == world.value(key) == world.server.rows[key].version
    assert not world.server.holders, "no row stays locked"
