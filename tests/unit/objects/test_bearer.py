"""Tokens that end: fetched when needed, before they end, and never shown."""

from __future__ import annotations

import threading

import pytest

from perkey.store.backends.bearer import EARLY_MS, Bearer, Fixed, Token
from perkey.store.backends.port import NothingDone
from tests.unit.manual_clock import ManualClock

HOUR_MS = 3_600_000
SECRET = "s3cr3t-w0rd"


class Fetches:
    """Gives ``t1``, ``t2`` ... each good for an hour, or fails on order."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.count = 0
        self.fails = False

    def __call__(self) -> Token:
        if self.fails:
            raise RuntimeError(f"the service said: {SECRET}")
        self.count += 1
        return Token(f"t{self.count}", self.clock.now_ms() + HOUR_MS)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def fetches(clock: ManualClock) -> Fetches:
    return Fetches(clock)


@pytest.fixture
def bearer(fetches: Fetches, clock: ManualClock) -> Bearer:
    return Bearer(fetches, clock)


def test_one_token_lasts_until_shortly_before_its_end(
    bearer: Bearer, fetches: Fetches, clock: ManualClock
) -> None:
    assert fetches.count == 0
    assert [bearer.now(), bearer.now()] == ["t1", "t1"]
    clock.wall += HOUR_MS - EARLY_MS - 1
    assert bearer.now() == "t1"
    clock.wall += 1
    assert bearer.now() == "t2"


def test_while_none_can_be_had_the_old_one_is_used_to_its_end(
    bearer: Bearer, fetches: Fetches, clock: ManualClock
) -> None:
    bearer.now()
    fetches.fails = True
    clock.wall += HOUR_MS - 1
    assert bearer.now() == "t1"
    clock.wall += 1
    with pytest.raises(NothingDone, match="RuntimeError") as caught:
        bearer.now()
    assert caught.value.__cause__ is None
    assert SECRET not in f"{caught.value}"
    fetches.fails = False
    assert bearer.now() == "t2"


def test_threads_fetch_one_token(bearer: Bearer, fetches: Fetches) -> None:
    barrier = threading.Barrier(8)
    found: list[str] = []

    def ask() -> None:
        barrier.wait()
        found.append(bearer.now())

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == ["t1"] * 8
    assert fetches.count == 1


def test_tokens_do_not_show_themselves() -> None:
    assert SECRET not in f"{Token(SECRET, 0)!r}{Fixed(SECRET)!r}"
    assert Fixed(SECRET).now() == SECRET
