"""Two-phase transfers: what is kept back, and that of settle and release one wins."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from perkey import (
    Expired,
    InsufficientFunds,
    InvalidAmount,
    InvalidState,
    KeyReused,
    Ledger,
    NotFound,
    UsageError,
)
from perkey.flows.ledger import holds
from tests.unit.manual_clock import ManualClock, memory_store


def available(ledger: Ledger, name: str = "a") -> tuple[int, int, int]:
    figures = ledger.balance(name)
    return figures.posted, figures.held, figures.available


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def timed(clock: ManualClock) -> Iterator[Ledger]:
    """The same accounts on a store whose time the test moves."""
    with memory_store(clock) as store:
        ledger = Ledger(store)
        ledger.open_account("world", "EUR", floor=None)
        for name in ("a", "b"):
            ledger.open_account(name, "EUR")
        ledger.transfer("world", "a", 1000, key="funding")
        yield ledger


def test_a_hold_keeps_its_amount_back_and_moves_nothing(ledger: Ledger) -> None:
    held = ledger.hold("a", "b", 600, key="h1")
    assert (held.state, held.legs, held.kind) == ("pending", (), "hold")
    assert available(ledger) == (1000, 600, 400)
    with pytest.raises(InsufficientFunds):
        ledger.transfer("a", "b", 401, key="t1")
    with pytest.raises(InsufficientFunds):
        ledger.hold("a", "b", 401, key="h2")
    assert ledger.hold("a", "b", 600, key="h1").replayed


def test_settling_posts_it_and_settling_a_part_frees_the_rest(ledger: Ledger) -> None:
    ledger.hold("a", "b", 600, key="h1")
    settled = ledger.settle("h1", key="s1", amount=250)
    assert (settled.kind, settled.amount, settled.refers) == ("settle", 250, "h1")
    assert available(ledger) == (750, 0, 750)
    assert ledger.settle("h1", key="s1", amount=250).replayed
    assert ledger.find("h1").state == "settled"
    with pytest.raises(KeyReused):
        ledger.settle("h1", key="s1", amount=100)
    with pytest.raises(InvalidState, match="already settled"):
        ledger.settle("h1", key="s2")
    with pytest.raises(InvalidState, match="already settled"):
        ledger.release("h1")


def test_releasing_frees_it_and_again_is_a_replay(ledger: Ledger) -> None:
    ledger.hold("a", "b", 600, key="h1")
    assert ledger.release("h1").state == "released"
    assert available(ledger) == (1000, 0, 1000)
    assert ledger.release("h1").replayed
    with pytest.raises(InvalidState, match="already released"):
        ledger.settle("h1", key="s1")


def test_a_hold_is_settled_up_to_its_amount(ledger: Ledger) -> None:
    ledger.hold("a", "b", 600, key="h1")
    with pytest.raises(UsageError, match=r"at most the held 6\.00 EUR"):
        ledger.settle("h1", key="s1", amount=601)
    for amount in (0, -1, True, 1.5):
        with pytest.raises(InvalidAmount):
            ledger.settle("h1", key="s1", amount=amount)  # type: ignore[arg-type]
    assert available(ledger) == (1000, 600, 400)


def test_a_hold_uses_what_it_kept_back_even_when_nothing_else_is_left(ledger: Ledger) -> None:
    ledger.hold("a", "b", 600, key="h1")
    ledger.transfer("a", "c", 400, key="t1")
    ledger.settle("h1", key="s1")
    assert available(ledger) == (0, 0, 0)
    assert ledger.verify() is None


@pytest.mark.parametrize("name", ["never", "funding"])
def test_only_a_hold_can_be_settled_or_released(ledger: Ledger, name: str) -> None:
    for call in (lambda: ledger.settle(name, key="s1"), lambda: ledger.release(name)):
        with pytest.raises((NotFound, InvalidState)):
            call()


def test_an_expired_hold_holds_nothing_and_cannot_be_settled(
    timed: Ledger, clock: ManualClock
) -> None:
    timed.hold("a", "b", 600, key="h1", expires_in=30)
    clock.elapsed += 29.9
    assert available(timed) == (1000, 600, 400)
    clock.elapsed += 0.1
    assert available(timed) == (1000, 0, 1000)
    with pytest.raises(Expired):
        timed.settle("h1", key="s1")
    timed.transfer("a", "b", 1000, key="t1")
    assert timed.release("h1").state == "released"
    assert timed.verify() is None


def test_expiry_is_by_the_stores_time_whatever_the_wall_clock_says(
    timed: Ledger, clock: ManualClock
) -> None:
    timed.hold("a", "b", 600, key="h1", expires_in=30)
    clock.wall += 3_600_000
    assert available(timed) == (1000, 600, 400)
    timed.settle("h1", key="s1")
    assert available(timed) == (400, 0, 400)


@pytest.mark.parametrize("expiry", [0, -1, True])
def test_an_expiry_is_a_time_to_come(ledger: Ledger, expiry: float) -> None:
    with pytest.raises(UsageError):
        ledger.hold("a", "b", 1, key="h1", expires_in=expiry)


def test_open_holds_are_bounded(timed: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holds, "MAX_OPEN_HOLDS", 3)
    for n in range(3):
        timed.hold("a", "b", 1, key=f"h{n}", expires_in=9)
    with pytest.raises(UsageError, match="3 open holds"):
        timed.hold("a", "b", 1, key="h9", expires_in=9)
    timed.release("h0")
    timed.hold("a", "b", 1, key="h9", expires_in=9)
