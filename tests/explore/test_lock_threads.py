"""Every schedule of threads on the wait structure, with a switch at each step on its tables.

Finer than the switch points of perkey itself: here every single operation on the claims and
on the queues is one, so the protocol does not lean on what CPython happens to do in one piece.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from perkey import Timeout
from perkey.locks import KeyedLocks, Sections
from perkey.testing import explore_threads, switch_point


class Stepped(dict[Any, Any]):
    """A dict each of whose operations is atomic, with a switch point before it."""

    def setdefault(self, key: Any, default: Any = None) -> Any:
        switch_point()
        return super().setdefault(key, default)

    def get(self, key: Any, default: Any = None) -> Any:
        switch_point()
        return super().get(key, default)

    def pop(self, key: Any, *default: Any) -> Any:
        switch_point()
        return super().pop(key, *default)

    def __len__(self) -> int:
        switch_point()
        return super().__len__()

    def __contains__(self, key: object) -> bool:
        switch_point()
        return super().__contains__(key)

    def __setitem__(self, key: Any, value: Any) -> None:
        switch_point()
        super().__setitem__(key, value)

    def __delitem__(self, key: Any) -> None:
        switch_point()
        super().__delitem__(key)


class Room:
    def __init__(self, locks: Any) -> None:
        self.locks = locks
        table = locks._table
        table.claims, table.queues = Stepped(), Stepped()
        locks._restart()
        self.inside = self.overlaps = self.visits = 0

    def work(self) -> None:
        self.inside += 1
        self.overlaps += self.inside > 1
        switch_point("work")
        self.inside -= 1
        self.visits += 1

    def visit(self) -> None:
        with self.locks("k"):
            self.work()

    def visit_twice(self) -> None:
        self.visit()
        self.visit()

    def hasty(self) -> None:
        with contextlib.suppress(Timeout), self.locks("k", 0.0):
            self.work()

    def failing(self) -> None:
        with contextlib.suppress(ZeroDivisionError), self.locks("k"):
            self.work()
            raise ZeroDivisionError

    def trying(self) -> None:
        guard = self.locks.try_acquire("k")
        if guard is not None:
            with guard:
                self.work()

    def clean(self) -> bool:
        table = self.locks._table
        return self.overlaps == 0 and dict(table.claims) == {} and dict(table.queues) == {}


MAKERS = [
    pytest.param(KeyedLocks, id="keyed"),
    pytest.param(lambda: KeyedLocks(profile="lean"), id="keyed-lean"),
    pytest.param(lambda: KeyedLocks(shared=True), id="keyed-shared"),
    pytest.param(lambda: Sections(1, hash=len), id="sections"),
    pytest.param(lambda: Sections(1, hash=len, shared=True), id="sections-shared"),
]

CALLERS = [
    pytest.param([Room.visit, Room.visit], 3, id="two"),
    pytest.param([Room.visit_twice, Room.visit], 2, id="a hog and a guest"),
    pytest.param([Room.failing, Room.hasty], 2, id="fails, times out"),
    pytest.param([Room.visit, Room.trying], 2, id="one tries"),
    pytest.param([Room.visit, Room.visit, Room.visit], 1, id="three"),
]


@pytest.fixture(autouse=True)
def no_second_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """A blocked thread waits for ever, so that a lost wake-up is a deadlock and seen."""
    monkeypatch.setattr("perkey.locks.table.PATIENCE", -1.0)


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize(("callers", "preemptions"), CALLERS)
def test_exclusion_no_lost_wake_up_and_no_trace(
    make: Callable[[], Any], callers: list[Any], preemptions: int
) -> None:
    explore_threads(
        lambda: Room(make()), callers, check=Room.clean, preemptions=preemptions
    ).assert_holds()


class Unchecked(KeyedLocks):
    """Planted: a waiter joins without looking once more whether the holder is still there."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(profile="lean")
        table = self._table

        def join(waiter: Any) -> bool:
            with table.mutex:
                if table.claims.setdefault(waiter.key, waiter.token) is waiter.token:
                    return True
                table.queues.setdefault(waiter.key, deque()).append(waiter)
                return False

        table.join = join  # type: ignore[method-assign]


def test_the_exploration_finds_a_lost_wake_up() -> None:
    explore_threads(lambda: Room(Unchecked()), [Room.visit] * 2, check=Room.clean).assert_fails(
        "deadlock"
    )


class TwoSteps(Stepped):
    """Planted: looks and takes in two steps instead of one ``setdefault``."""

    def setdefault(self, key: Any, default: Any = None) -> Any:
        found = self.get(key)
        if found is None:
            self[key] = found = default
        return found


class TwoStepRoom(Room):
    def __init__(self) -> None:
        super().__init__(KeyedLocks(profile="lean"))
        self.locks._table.claims = TwoSteps()
        self.locks._restart()


def test_the_exploration_finds_a_claim_that_is_not_atomic() -> None:
    explore_threads(TwoStepRoom, [Room.visit] * 2, check=Room.clean).assert_fails()
