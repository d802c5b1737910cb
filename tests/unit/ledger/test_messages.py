"""What refusals of money say: amounts as people see them, minor units beside them for programs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from perkey import InsufficientFunds, InvalidState, Ledger, PerkeyError
from perkey.flows.ledger import amounts


@pytest.fixture
def apples(ledger: Ledger) -> Ledger:
    """``stock`` and ``shop`` count whole apples; ``mills`` are euros with three places."""
    for name in ("stock", "shop"):
        ledger.open_account(name, "apples", scale=0, floor=None if name == "stock" else 0)
    ledger.open_account("mills", "EUR", scale=3)
    return ledger


REFUSED: list[tuple[Callable[[Ledger], object], str]] = [
    (
        lambda it: it.transfer("a", "b", 1250, key="t"),
        "account 'a' needs 12.50 EUR and has 10.00 EUR available (1250 and 1000 in minor units)",
    ),
    (
        lambda it: it.transfer("shop", "stock", 3, key="t"),
        "account 'shop' needs 3 apples and has 0 apples available",
    ),
    (
        lambda it: it.settle("h", key="s", amount=601),
        "expected at most the held 6.00 EUR, found 6.01 EUR (600 and 601 in minor units)",
    ),
    (
        lambda it: it.post([("a", -100), ("b", 95)], key="p"),
        "expected the entries in EUR to add up to 0, found -0.05 EUR (-5 in minor units)",
    ),
    (
        lambda it: it.transfer("a", "mills", 1, key="t"),
        "expected accounts of one unit, found EUR with 2 decimal places and EUR with 3 decimal "
        "places",
    ),
    (
        lambda it: it.open_account("a", "EUR", floor=-500),
        "account 'a' is already open with unit EUR, scale 2 and floor 0.00; open it with the "
        "same, or another name",
    ),
    (
        lambda it: it.open_account("world", "EUR"),
        "account 'world' is already open with unit EUR, scale 2 and floor none; open it with the "
        "same, or another name",
    ),
    (
        lambda it: it.close_account("a"),
        "account 'a' has a balance of 10.00 EUR and 6.00 EUR held; both must be 0 to close it",
    ),
    (
        lambda it: it.balance("nobody"),
        "there is no account 'nobody'; open it first (Ledger.open_account(), or perkey ledger "
        "open)",
    ),
    (
        lambda it: it.transfer("a", "b", -1, key="t"),
        "expected amount from 1 to 9223372036854775807 minor units, found -1",
    ),
]


@pytest.mark.parametrize(("refused", "said"), REFUSED, ids=[said[:40] for _, said in REFUSED])
def test_what_a_refusal_says(
    apples: Ledger, refused: Callable[[Ledger], object], said: str
) -> None:
    if "10.00 EUR available" not in said:
        apples.hold("a", "b", 600, key="h")
    with pytest.raises(PerkeyError) as told:
        refused(apples)
    assert told.value.message == said


def test_an_overflow_says_the_most_there_can_be(ledger: Ledger) -> None:
    ledger.open_account("rich", "EUR")
    ledger.open_account("source", "EUR", floor=None)
    ledger.transfer("source", "rich", 2**63 - 1, key="all")
    with pytest.raises(PerkeyError, match=r"would exceed 92233720368547758\.07 EUR"):
        ledger.transfer("world", "rich", 1, key="one more")


def test_programs_have_the_minor_units(ledger: Ledger) -> None:
    with pytest.raises(InsufficientFunds) as told:
        ledger.transfer("a", "b", 1250, key="t")
    assert told.value.details == {"key": "a", "available": 1000, "amount": 1250}


def test_a_closed_account_cannot_be_opened_with_other_terms(ledger: Ledger) -> None:
    with pytest.raises(InvalidState, match="scale 2 and floor"):
        ledger.open_account("a", "EUR", scale=3)


@pytest.mark.parametrize(
    ("amount", "scale", "shown", "minor"),
    [
        (1250, 2, "12.50 EUR", " (1250 in minor units)"),
        (-5, 2, "-0.05 EUR", " (-5 in minor units)"),
        (7, 0, "7 EUR", ""),
        (0, 3, "0.000 EUR", " (0 in minor units)"),
    ],
)
def test_how_money_is_shown(amount: int, scale: int, shown: str, minor: str) -> None:
    assert amounts.money(amount, scale, "EUR") == shown
    assert amounts.in_minor(scale, amount) == minor
