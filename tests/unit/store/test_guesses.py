"""What is tried without a look: one request where the guess is right, the truth where it is not."""

from __future__ import annotations

import pytest

from perkey.store.backends import guesses
from perkey.store.keys import Key
from perkey.store.transaction import Fence, Transaction, Tx, declared
from tests.unit.store.ports import MemoryPort, Rig, kinds

A, B = Key("d/a"), Key("d/b")


def told(rig: Rig) -> Rig:
    """The store has told its time once."""
    rig.run(rig.doing(lambda tx: None, Key("d/else")))
    rig.port.looks = 0
    return rig


def foreseen(transaction: Transaction) -> Transaction:
    transaction.foreseen = True
    return transaction


def test_new_keys_and_what_was_written_last_take_no_look() -> None:
    rig = told(Rig())
    for expected in (1, 2, 3):
        (outcome,) = rig.run(foreseen(rig.adding(A, B)))
        assert (outcome.result, outcome.attempts) == (expected, 1)
    assert rig.port.looks == 0
    assert [len(commit) for commit in rig.port.log] == [2, 2, 2]


def test_what_others_wrote_is_looked_at_after_one_vain_commit() -> None:
    rig = told(Rig())
    rig.run(foreseen(rig.adding(A)))
    rig.port.write(A)
    (outcome,) = rig.run(foreseen(rig.adding(A)))
    assert (outcome.result, outcome.attempts, rig.port.looks) == (102, 1, 1)
    assert rig.clock.slept == []


def test_a_key_that_is_not_new_is_looked_at() -> None:
    rig = told(Rig())
    rig.port.write(A)
    (outcome,) = rig.run(foreseen(rig.adding(A)))
    assert (outcome.result, rig.port.looks) == (101, 1)


def test_a_guess_alone_answers_nobody() -> None:
    """What writes nothing, or refuses, is not compared by a commit."""
    rig = told(Rig())
    rig.port.write(A)

    def read(tx: Tx) -> object:
        return tx.get(A)

    def refuse(tx: Tx) -> None:
        if A not in tx:
            raise ValueError("there is nothing")

    outcomes = rig.run(foreseen(rig.doing(read, A)))
    outcomes += rig.run(foreseen(rig.doing(refuse, A)))
    assert (kinds(outcomes), outcomes[0].result) == (["ok", "ok"], 100)


def test_what_is_only_read_is_compared_by_the_commit_of_another() -> None:
    rig = told(Rig())
    rig.port.write(A)
    outcomes = rig.run(foreseen(rig.doing(lambda tx: tx.get(A), A)), foreseen(rig.adding(B)))
    assert [each.result for each in outcomes] == [100, 1]


@pytest.mark.parametrize("why", ["not foreseen", "a fence", "time unknown", "too long ago", "port"])
def test_the_rest_looks(why: str) -> None:
    port = MemoryPort()
    port.guesses = why != "port"
    rig = Rig(port) if why == "time unknown" else told(Rig(port))
    if why == "too long ago":
        rig.clock.elapsed += guesses.AGE_S + 1
    asked = rig.adding(A) if why == "not foreseen" else foreseen(rig.adding(A))
    if why == "a fence":
        lease = Key("l/lease")
        asked.fence, asked.keys = Fence(lease, 1), declared([A], lease)
    rig.run(asked)
    assert rig.port.looks >= 1


def test_the_stores_time_goes_on_between_looks() -> None:
    rig = told(Rig())
    rig.clock.elapsed += 2.5
    rig.run(foreseen(rig.doing(lambda tx: tx.put_body(A, b"%d" % tx.now), A)))
    assert (rig.port.value(A), rig.port.looks) == (3500, 0)


def test_a_lost_reply_is_asked_after_and_not_guessed_at() -> None:
    rig = told(Rig())
    rig.port.faults += [rig.port.lose_reply]
    (outcome,) = rig.run(foreseen(rig.adding(A)))
    assert (outcome.result, rig.port.value(A), rig.port.looks) == (1, 1, 1)


def test_what_is_remembered_is_bounded() -> None:
    rig = told(Rig())
    for n in range(guesses.REMEMBERED + 50):
        rig.run(foreseen(rig.adding(Key(f"d/{n}"))))
    assert rig.port.looks == 0
    assert len(rig.optimistic._guesses._heads) == guesses.REMEMBERED
    rig.run(foreseen(rig.adding(Key("d/0"))))
    assert (rig.port.value(Key("d/0")), rig.port.looks) == (2, 1)


def test_long_values_are_not_remembered() -> None:
    rig = told(Rig())
    body = b'"' + b"x" * guesses.LONGEST + b'"'
    rig.run(foreseen(rig.doing(lambda tx: tx.put_body(A, body), A)))
    assert A not in rig.optimistic._guesses._heads


def test_other_commits_keep_what_is_remembered_true() -> None:
    rig = told(Rig())
    rig.run(foreseen(rig.adding(A)))
    rig.run(rig.adding(A))
    looks = rig.port.looks
    (outcome,) = rig.run(foreseen(rig.adding(A)))
    assert (outcome.result, rig.port.looks) == (3, looks)
