"""The one ``apply`` of all compare-and-swap stores, under every schedule of a few processes.

Redis, etcd, NATS, object stores and files share ``Optimistic``; what is shown here holds for
each of them whose port keeps its contract.  A process may lose replies, have its requests lost
or come late, fail to read, and crash between any two of its steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from perkey.store import evaluate
from perkey.store.backends import optimistic, turns
from perkey.store.keys import TURNS
from perkey.store.record import Record
from perkey.store.transaction import Transaction, declared
from perkey.testing import explore
from perkey.testing.certificate import Result
from tests.explore.processes_apart import A, B, Heads, World, adding, caller, each_once, world_of

Work = Sequence[Sequence[Transaction]]

ONE_KEY: Work = [[adding(0, 0, A, attempts=3)], [adding(1, 0, A, attempts=3)]]
SINGLE: dict[str, Any] = {"atomic_keys": 1, "commit_records": 1, "several_versions": False}
"""Files: one record a commit."""
OBJECT: dict[str, Any] = {"atomic_keys": 1}
"""Object stores: one key a commit, with as many versions as there are."""
ITEMS: dict[str, Any] = {"atomic_keys": 2, "commit_records": 2}
"""DynamoDB with less room: a commit takes some keys, and some records."""


def explored(
    work: Work,
    check: Callable[..., Any] = each_once,
    *,
    store: type[Heads] = Heads,
    settings: dict[str, Any] | None = None,
    **options: Any,
) -> Result:
    """Every schedule of these processes; ``options`` are those of ``explore``."""
    callers = [caller(number) for number in range(len(work))]
    setup = world_of(work, store, **(settings or {}))
    return explore(setup, callers, check=check, symmetric=False, seconds=200, **options)


# ------------------------------------------------------------------- exactly once, or refused


@pytest.mark.parametrize(
    ("work", "settings", "budgets"),
    [
        pytest.param(ONE_KEY, {}, {"lost_replies": 2}, id="two lost replies"),
        pytest.param(ONE_KEY, {}, {"failures": 1}, id="a request lost or late, a read that fails"),
        pytest.param(ONE_KEY, {}, {"lost_replies": 1, "crashes": 1}, id="a crash and a lost reply"),
        pytest.param(ONE_KEY, {}, {"lost_replies": 1, "failures": 1}, id="late, then lost"),
        pytest.param([[adding(n, 0, A, attempts=2)] for n in range(3)], {}, {}, id="three"),
        pytest.param(
            [[adding(0, 0, A, attempts=3), adding(0, 1, A, attempts=3)], *ONE_KEY[1:]],
            {},
            {"lost_replies": 1, "crashes": 1},
            id="two in one commit",
        ),
        pytest.param(
            [[adding(0, 0, A, B, attempts=3)], [adding(1, 0, B, A, attempts=3)]],
            {},
            {"lost_replies": 1, "crashes": 1},
            id="two keys",
        ),
        pytest.param(
            [[adding(0, 0, A, attempts=3), adding(0, 1, B, attempts=3)], *ONE_KEY[1:]],
            {},
            {"lost_replies": 1, "crashes": 1},
            id="one of two keys moves",
        ),
        pytest.param(
            [[adding(0, 0, A, attempts=3), adding(0, 1, B, attempts=3)], *ONE_KEY[1:]],
            SINGLE,
            {"lost_replies": 1, "crashes": 1},
            id="a batch in two commits",
        ),
        pytest.param(
            [[adding(0, 0, A, attempts=3), adding(0, 1, A, attempts=3)], *ONE_KEY[1:]],
            OBJECT,
            {"lost_replies": 1, "crashes": 1},
            id="two versions in one object",
        ),
        pytest.param(
            [[adding(0, 0, A, attempts=2), adding(0, 1, B, attempts=2)], *ONE_KEY[1:]],
            OBJECT,
            {"lost_replies": 1},
            id="two objects, one of which moves",
        ),
        pytest.param(
            [
                [adding(0, 0, A, B, attempts=2), adding(0, 1, A, attempts=2)],
                [adding(1, 0, B, attempts=2)],
            ],
            ITEMS,
            {"lost_replies": 1},
            id="more records than a commit takes",
        ),
        pytest.param(
            [[adding(0, 0, A, attempts=2), adding(0, 1, B)], [adding(1, 0, A, attempts=1)]],
            SINGLE,
            {"failures": 1},
            id="a batch in two commits, one late",
        ),
    ],
)
def test_every_answer_is_the_truth(
    work: Work, settings: dict[str, Any], budgets: dict[str, int]
) -> None:
    explored(work, settings=settings, steps=("look", "commit"), **budgets).assert_holds()


def test_many_at_random() -> None:
    """More processes, keys and faults than can be searched."""
    work = [
        [adding(n, 0, *((A, B)[: 1 + n % 2]), attempts=6), adding(n, 1, B), adding(n, 2, A)]
        for n in range(4)
    ]
    for settings in ({}, {"together": False}, {"commit_records": 2}, ITEMS):
        result = explored(
            work,
            settings=settings,
            mode="random",
            runs=60,
            seed=11,
            lost_replies=3,
            failures=2,
            crashes=1,
        )
        result.assert_nothing_found()


# ---------------------------------------------------------------------- what was only read


def off_duty(number: int) -> Transaction:
    """Goes off duty if somebody else stays on."""
    mine, others = (A, B) if number == 0 else (B, A)

    def leave(tx: Any) -> bool:
        if tx.get(others, 1):
            tx[mine] = 0
        return True

    return Transaction(declared([mine, others]), leave, "me", f"{number:016}-0", attempts=3)


def somebody_stays(world: World) -> None:
    values = [head is None or head.body != b"0" for head in world.store.look([A, B])]
    assert any(values), "both went off duty"


def test_a_key_that_was_only_read_counts() -> None:
    explored([[off_duty(0)], [off_duty(1)]], somebody_stays, lost_replies=1).assert_holds()


# ------------------------------------------------------------------------------------ turns

WRITES = 4
BUSY: Work = [[adding(0, 0, A)], [adding(1, n, A) for n in range(WRITES)]]
FAIR: dict[str, Any] = {"together": False, "patient": [1]}


def few_losses(world: World) -> None:
    """Two losses and a turn, then at most the one commit of whoever looked before the turn."""
    losses = world.processes[0].losses
    assert losses <= turns.LOSSES + 1, f"lost {losses} times in a row"
    assert len(world.store.made(A)) == 1 + WRITES


def test_who_lost_twice_is_let_through() -> None:
    explored(BUSY, few_losses, settings=FAIR, steps=("turn",)).assert_holds()


class Haunted(Heads):
    """Somebody took the turn on everything, and died."""

    def __init__(self) -> None:
        super().__init__()
        body = msgspec.json.encode(turns.Turn("nobody's", []))
        self.heads[TURNS] = Record(TURNS, 1, body, "", 0, "nobody's")


def test_a_turn_whose_owner_died_does_not_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "PATIENCE", 2)  # as many looks as show it, not more
    explored(ONE_KEY, store=Haunted, settings={"backoff_s": 0.002}).assert_holds()


# --------------------------------------------------------------------------------- planted


class Unconditional(Heads):
    """Planted: a store that accepts conditions and ignores them."""

    conditional = False


class OnlyWritten(Heads):
    """Planted: only what is written is compared."""

    compares_what_was_only_read = False


@pytest.mark.parametrize("settings", [{}, SINGLE, OBJECT, ITEMS])
def test_a_commit_without_its_condition_is_found(settings: dict[str, Any]) -> None:
    explored(ONE_KEY, store=Unconditional, settings=settings).assert_fails("check")


def test_a_commit_that_compares_only_what_it_writes_is_found() -> None:
    work = [[off_duty(0)], [off_duty(1)]]
    explored(work, somebody_stays, store=OnlyWritten).assert_fails("check")


@pytest.mark.parametrize("settings", [{}, SINGLE, OBJECT, ITEMS])
def test_a_retry_that_does_not_ask_for_its_op_is_found(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluate, "landed", lambda unit, heads, find_op: False)
    explored(ONE_KEY, settings=settings).assert_holds()  # without a lost reply nobody notices
    explored(ONE_KEY, settings=settings, lost_replies=1).assert_fails("check")


def test_a_doubt_that_is_dropped_too_early_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has not landed yet may still: as long as its key has not moved on."""
    monkeypatch.setattr(optimistic, "may_land", lambda doubt, heads: False)
    explored(ONE_KEY, lost_replies=1).assert_holds()  # only a late arrival shows it
    explored(ONE_KEY, failures=1).assert_fails("check")


def test_a_part_that_is_answered_before_its_commit_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    commit = optimistic._Run._commit

    def hasty(self: Any, part: Any, unit: Any, heads: Any) -> Any:
        if len(self._answers) > 1:
            self._answer(part, unit.outcomes)
        return commit(self, part, unit, heads)

    monkeypatch.setattr(optimistic._Run, "_commit", hasty)
    work = [[adding(0, 0, A), adding(0, 1, B)], *ONE_KEY[1:]]
    explored(work, settings=SINGLE).assert_fails("check")


def test_a_part_whose_failure_is_everybodys_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Any, part: Any, error: Exception) -> None:
        raise error

    monkeypatch.setattr(optimistic._Run, "_fail", fail)
    work = [[adding(0, 0, A), adding(0, 1, B)]]
    explored(work, settings=SINGLE, failures=1).assert_fails("check")


def test_a_turn_that_nobody_respects_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns.Turns, "blocks", lambda self, record, heads: False)
    explored(BUSY, few_losses, settings=FAIR).assert_fails("check")


def test_a_turn_that_lasts_for_ever_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "PATIENCE", 10**9)
    settings = {"backoff_s": 0.002}
    explored(ONE_KEY, store=Haunted, settings=settings, max_moves=300).assert_fails("endless")


# ------------------------------------------------------------------------- without a look


def foreseen(work: Work) -> Work:
    """The same work, tried without a look first.  The first batch of each process looks, so
    that it knows the store's time."""
    for transactions in work:
        for transaction in transactions:
            transaction.foreseen = True
    first = [Transaction((B,), lambda tx: None, "me", f"{n:016}-first") for n in range(len(work))]
    return [[one, *each] for one, each in zip(first, work, strict=True)]


def foreseen_once(world: World, ended: Any) -> None:
    """``each_once`` of those that write."""
    for process in world.processes:
        process.transactions = process.transactions[1:]
        process.outcomes = process.outcomes and process.outcomes[1:]
    each_once(world, ended)


TRIED: dict[str, Any] = {"together": False}


@pytest.mark.parametrize(
    ("work", "budgets"),
    [
        pytest.param(
            [[adding(0, 0, A), adding(0, 1, A)], [adding(1, 0, A, attempts=2)]],
            {"lost_replies": 1},
            id="a lost reply",
        ),
        pytest.param(
            [[adding(0, 0, A), adding(0, 1, A)], [adding(1, 0, A, attempts=2)]],
            {"crashes": 1},
            id="a crash",
        ),
        pytest.param([[adding(0, 0, A, B)], [adding(1, 0, A, B)]], {"failures": 1}, id="late"),
    ],
)
def test_a_try_without_a_look_is_the_truth_too(work: Work, budgets: dict[str, int]) -> None:
    explored(
        foreseen(work), foreseen_once, settings=TRIED, steps=("look", "commit"), **budgets
    ).assert_holds()


def test_answering_from_a_guess_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Taking for true what no commit has compared."""

    def answer(self: Any, part: Any, heads: Any, now: int) -> Any:
        part.guesses = False
        unit = part.batch.evaluate(dict(heads), now, self._port.find_op)
        self._port.commit({}, unit.writes)
        self._answer(part, unit.outcomes)
        return optimistic.LOST

    monkeypatch.setattr(optimistic._Run, "_try", answer)
    work = [[adding(0, 0, A)], [adding(1, 0, A)]]
    explored(foreseen(work), foreseen_once, settings=TRIED).assert_fails("check")
