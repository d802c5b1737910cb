"""Scenarios in one function, and the decorators that make tests of them."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from perkey.errors import UsageError
from perkey.testing import (
    Ended,
    ExplorationFailed,
    Sequencer,
    explore,
    explore_threads,
    session,
    step,
)


class Bank:
    """``deposit`` is right; ``careless`` loses updates."""

    def __init__(self) -> None:
        self.balance = 0
        self.lock = asyncio.Lock()

    async def deposit(self, amount: int = 1) -> None:
        async with self.lock:
            await self.careless(amount)

    async def careless(self, amount: int = 1) -> None:
        seen = self.balance
        await step("save")
        self.balance = seen + amount


class Account:
    """The same for threads."""

    def __init__(self) -> None:
        self.balance = 0
        self.lock = threading.Lock()

    def deposit(self) -> None:
        with self.lock:
            self.balance += 1

    def careless(self) -> None:
        with self.lock:
            seen = self.balance
        with self.lock:
            self.balance = seen + 1


SEEN: list[list[bool]] = []


def deposits() -> Iterator[Any]:
    bank = Bank()
    yield [bank.deposit] * 3
    assert bank.balance == 3


def lost() -> Iterator[Any]:
    bank = Bank()
    yield [bank.careless] * 2
    assert bank.balance == 2


# ------------------------------------------------------------ explore(scenario)


def test_a_scenario_holds_or_fails_and_its_failure_can_be_replayed() -> None:
    assert explore(deposits).assert_holds().callers == ["deposit#1", "deposit#2", "deposit#3"]
    failure = explore(lost).assert_fails("check")
    assert "assert 1 == 2" in failure.message
    assert "seen = self.balance" in failure.story
    again = explore(lost, replay=failure.replay)
    assert again.assert_fails("check").story == failure.story


def test_equal_callers_are_explored_once() -> None:
    def apart() -> Iterator[Any]:
        bank = Bank()
        yield [functools.partial(bank.deposit, 1) for _ in range(3)]
        assert bank.balance == 3

    def shared() -> Iterator[Any]:
        bank = Bank()
        yield [functools.partial(bank.deposit, 1)] * 3
        assert bank.balance == 3

    alike, different = explore(shared).assert_holds(), explore(apart).assert_holds()
    assert alike.callers == different.callers == ["deposit#1", "deposit#2", "deposit#3"]
    assert alike.states < different.states
    assert alike.states == explore(deposits).states


def test_the_check_is_sent_how_the_callers_ended() -> None:
    SEEN.clear()

    def some_fail() -> Iterator[Any]:
        bank = Bank()
        ended: Ended = yield [bank.deposit] * 2
        SEEN.append(ended.failed)
        assert bank.balance == ended.failed.count(False)

    explore(some_fail, failures=2).assert_holds()
    assert [False, False] in SEEN
    assert [True, True] in SEEN


def test_an_async_scenario_awaits_before_and_after_its_yield() -> None:
    async def scenario() -> AsyncIterator[Any]:
        bank = Bank()
        await bank.deposit(10)
        yield [bank.deposit, bank.careless]
        async with bank.lock:
            assert bank.balance == 12

    failure = explore(scenario).assert_fails("check")
    assert failure.message.startswith("assert 11 == 12")


def test_a_scenario_of_threads_and_its_twins_begin_in_one_order() -> None:
    def right(alike: bool) -> Iterator[Any]:
        account = Account()
        others = account.deposit if alike else lambda: account.deposit()
        yield [account.deposit, account.deposit, others]
        assert account.balance == 3

    def wrong() -> Iterator[Any]:
        account = Account()
        yield [account.careless] * 2
        assert account.balance == 2

    alike = explore_threads(functools.partial(right, True)).assert_holds()
    apart = explore_threads(functools.partial(right, False)).assert_holds()
    assert alike.schedules < apart.schedules
    failure = explore_threads(wrong).assert_fails("check")
    assert explore_threads(wrong, replay=failure.replay).assert_fails().story == failure.story


def test_twins_can_be_told_apart() -> None:
    once = explore_threads(Account, [Account.deposit] * 3).assert_holds()
    each = explore_threads(Account, [Account.deposit] * 3, symmetric=False).assert_holds()
    assert each.schedules > 2 * once.schedules


@pytest.mark.parametrize(
    ("yielded", "message"),
    [
        (lambda: iter(()), "came to its end"),
        (lambda: iter([3]), "a list of callers, found 3"),
        (lambda: iter([[3]]), r"found \[3\]"),
    ],
)
def test_what_is_yielded_must_be_callers(
    yielded: Callable[[], Iterator[Any]], message: str
) -> None:
    def scenario() -> Iterator[Any]:
        yield from yielded()

    async def awaits() -> AsyncIterator[Any]:
        for each in yielded():
            yield each

    for wrong in (scenario, awaits):
        with pytest.raises(UsageError, match=message):
            explore(wrong)
    with pytest.raises(UsageError, match=message):
        explore_threads(scenario)


def test_a_second_yield_fails_the_check() -> None:
    def twice() -> Iterator[Any]:
        bank = Bank()
        yield [bank.deposit]
        yield [bank.deposit]

    async def awaits() -> AsyncIterator[Any]:
        for each in twice():
            yield each

    for wrong in (twice, awaits):
        assert "found a second yield" in explore(wrong).assert_fails("check").message


def test_the_number_of_callers_is_the_same_in_every_run() -> None:
    counts = iter([2, 2, 3])

    def scenario() -> Iterator[Any]:
        yield [Bank().deposit] * next(counts)

    with pytest.raises(UsageError, match="expected 2 callers in every run, found 3"):
        explore(scenario)


def test_a_caller_of_the_wrong_colour_is_refused() -> None:
    def threads() -> Iterator[Any]:
        yield [Account().deposit]

    def tasks() -> Iterator[Any]:
        yield [Bank().deposit]

    async def awaits() -> AsyncIterator[Any]:
        yield [Account().deposit]

    with pytest.raises(UsageError, match="there is explore_threads"):
        explore(threads)
    assert "there is explore" in explore_threads(tasks).assert_fails("raised").message
    with pytest.raises(UsageError, match="no loop to await on"):
        explore_threads(awaits)


def test_a_scenario_checks_by_itself() -> None:
    with pytest.raises(UsageError, match="check="):
        explore(deposits, check=lambda: True)
    with pytest.raises(UsageError, match="that yields its callers"):
        explore_threads(lost, check=lambda state: True)
    with pytest.raises(UsageError, match="that yields its callers"):
        explore_threads(Account)


# ------------------------------------------------------------ the decorators


def test_a_decorated_scenario_is_an_ordinary_function() -> None:
    assert explore()(deposits)() is None
    with pytest.raises(ExplorationFailed, match="assert 1 == 2") as caught:
        explore()(lost)()
    assert caught.value.result is not None
    assert caught.value.result.failure is not None


def test_a_plain_async_def_is_explored_whole() -> None:
    async def whole(callers: int) -> None:
        bank = Bank()
        await asyncio.gather(*(bank.careless() for _ in range(callers)))
        assert bank.balance == callers

    explore()(whole)(1)
    with pytest.raises(ExplorationFailed, match="assert 1 == 2"):
        explore()(whole)(2)


def test_a_planted_bug_is_expected_to_be_found() -> None:
    explore(expect="fails")(lost)()
    explore(expect="check")(lost)()
    with pytest.raises(ExplorationFailed, match="expected a failing schedule"):
        explore(expect="deadlock")(lost)()
    with pytest.raises(ExplorationFailed, match="expected a failing schedule"):
        explore(expect="fails")(deposits)()
    with pytest.raises(UsageError, match="found 'maybe'"):
        explore(expect="maybe")


def test_a_search_that_was_cut_off_is_no_pass_and_a_sample_is_one() -> None:
    with pytest.raises(ExplorationFailed, match="incomplete"):
        explore(limit=2)(deposits)()
    explore(mode="random", runs=5)(deposits)()
    with pytest.raises(ExplorationFailed, match="assert 1 == 2"):
        explore(mode="random", runs=50)(lost)()


def test_what_has_nothing_to_explore_is_refused() -> None:
    def plain() -> None: ...

    async def awaits() -> None: ...

    with pytest.raises(UsageError, match="expected plain to yield"):
        explore()(plain)
    with pytest.raises(UsageError, match="expected awaits to yield"):
        explore_threads()(awaits)


def test_a_runner_can_ask_for_one_schedule_and_sees_every_result() -> None:
    seen: list[Any] = []
    tokens = session.REPLAY.set("0 1*2 0"), session.RESULTS.set(seen)
    try:
        with pytest.raises(ExplorationFailed, match="assert 1 == 2"):
            explore(failures=1)(lost)()
        session.REPLAY.set("0*2 1*2 2*2")
        explore()(deposits)()
        explore_threads(Account, [Account.deposit] * 2)
    finally:
        session.REPLAY.reset(tokens[0])
        session.RESULTS.reset(tokens[1])
    assert [result.mode for result in seen] == ["replay", "replay", "all"]


def test_fixtures_that_wear_out_come_anew_for_every_schedule() -> None:
    order = Sequencer()
    session.ANEW[order] = Sequencer

    def scenario(order: Sequencer, kept: list[Any]) -> Iterator[Any]:
        bank = Bank()

        async def second() -> None:
            async with order(1):
                await bank.careless()

        async def first() -> None:
            async with order(0):
                await bank.careless()

        yield [second, first]
        assert bank.balance == 2

    explore()(scenario)(order=order, kept=[])
    assert session.anew([1]) == [1]
    assert session.anew(order) is not order


@pytest.mark.parametrize("text", ["what", "", "0 x", "t1.x"])
def test_a_replay_that_is_none_is_refused(text: str) -> None:
    if text:
        with pytest.raises(UsageError, match="as a story gives it"):
            explore(lost, replay=text)
    with pytest.raises(UsageError, match="as a story gives it"):
        explore_threads(Account, [Account.deposit], replay=text)
