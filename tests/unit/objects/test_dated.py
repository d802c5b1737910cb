"""Time from whole-second dates: the client's own, as long as the store's leaves it possible."""

from __future__ import annotations

from email.utils import formatdate

import pytest

from perkey.store.backends.dated import DatedTime
from tests.unit.manual_clock import ManualClock

SERVER = 1_700_000_000_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def told(clock: ManualClock, server_ms: int, took: float = 0.0) -> DatedTime:
    """A time that has seen one answer, which the server dated ``server_ms``."""
    time = DatedTime(clock)
    asked = clock.monotonic()
    clock.elapsed += took
    time.saw(formatdate(server_ms // 1000, usegmt=True), asked)
    return time


def test_without_a_date_it_is_the_clients(clock: ManualClock) -> None:
    assert DatedTime(clock).now_ms() == clock.wall
    time = DatedTime(clock)
    for wrong in ("", "yesterday", "Mon, 99 Nov"):
        time.saw(wrong, clock.monotonic())
    assert (time.now_ms(), time.off_ms) == (clock.wall, 0)


@pytest.mark.parametrize("ahead", [0, 1, 400, 999])
def test_a_clock_that_may_be_right_is_exact(clock: ManualClock, ahead: int) -> None:
    clock.wall = SERVER + ahead
    time = told(clock, SERVER)
    assert (time.now_ms(), time.off_ms) == (SERVER + ahead, 0)
    clock.wall += 250
    clock.elapsed += 0.25
    assert time.now_ms() == SERVER + ahead + 250


@pytest.mark.parametrize(("wall", "expected"), [(-3_600_000, 0), (3_600_000, 1_000)])
def test_a_wrong_clock_is_held(clock: ManualClock, wall: int, expected: int) -> None:
    clock.wall = SERVER + wall
    time = told(clock, SERVER)
    assert time.now_ms() == SERVER + expected
    assert time.off_ms == expected - wall
    clock.elapsed += 5  # it goes on with the time that passes, not with the clock that is wrong
    assert time.now_ms() == SERVER + expected + 5_000


def test_a_slow_answer_leaves_more_possible(clock: ManualClock) -> None:
    clock.wall = SERVER + 3_600_000
    assert told(clock, SERVER, took=2.0).now_ms() == SERVER + 3_000


def test_it_never_goes_back(clock: ManualClock) -> None:
    clock.wall = SERVER + 900
    time = told(clock, SERVER)
    first = time.now_ms()
    clock.wall -= 10_000
    assert time.now_ms() == first
    time.saw(formatdate((SERVER - 60_000) // 1000, usegmt=True), clock.monotonic())
    assert time.now_ms() == first


def test_it_goes_on_from_what_another_wrote(clock: ManualClock) -> None:
    clock.wall = SERVER + 100
    time = told(clock, SERVER)
    time.not_before(SERVER + 700)
    assert time.now_ms() == SERVER + 700
    time.not_before(SERVER + 9_000_000)  # a writer whose clock was wrong moves nobody's time
    assert time.now_ms() == SERVER + 1_000
