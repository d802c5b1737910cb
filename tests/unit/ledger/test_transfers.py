"""Transfers: what moves, what is refused, and that a refusal leaves nothing."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perkey
from perkey import (
    AccountClosed,
    AccountFrozen,
    BalanceOverflow,
    InsufficientFunds,
    InvalidAmount,
    InvalidState,
    KeyReused,
    Ledger,
    LimitExceeded,
    NotFound,
    SameAccount,
    Unbalanced,
    UnitMismatch,
    UsageError,
)
from perkey.flows.ledger import bulk
from perkey.flows.ledger.model import (
    Leg,
    Posting,
    decode_posting,
    encode,
    page_key,
    transfer_key,
)
from perkey.flows.ledger.posting import execute, transfer_order
from perkey.store.backends.memory import MemoryBackend
from perkey.store.evaluate import Batch
from perkey.store.transaction import Outcome, Transaction

BIG = 2**63 - 1


def figures(ledger: Ledger) -> dict[str, tuple[int, int]]:
    return {each.account: (each.posted, each.entries) for each in ledger.accounts()}


def test_a_transfer_moves_both_balances_and_leaves_both_entries(ledger: Ledger) -> None:
    moved = ledger.transfer("a", "b", 300, key="t1", memo="rent", by="ann")
    assert [(leg.account, leg.amount, leg.balance) for leg in moved.legs] == [
        ("a", -300, 700),
        ("b", 300, 300),
    ]
    assert (moved.amount, moved.memo, moved.by, moved.replayed) == (300, "rent", "ann", False)
    lines = ledger.statement("a")
    assert [(line.number, line.transfer, line.amount, line.balance) for line in lines] == [
        (1, "funding", 1000, 1000),
        (2, "t1", -300, 700),
    ]
    assert ledger.verify() is None


def test_the_same_transfer_again_is_a_replay_and_moves_nothing(ledger: Ledger) -> None:
    first = ledger.transfer("a", "b", 300, key="t1")
    again = ledger.transfer("a", "b", 300, key="t1")
    assert (again.replayed, again.legs, again.at) == (True, first.legs, first.at)
    assert ledger.balance("b").posted == 300


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"amount": 301}, ["amount"]),
        ({"target": "c"}, ["accounts"]),
        ({"memo": "other"}, ["memo"]),
        ({"source": "b", "target": "a"}, ["accounts"]),
    ],
)
def test_a_key_is_not_used_for_another_transfer(
    ledger: Ledger, change: dict[str, Any], named: list[str]
) -> None:
    wanted: dict[str, Any] = {"source": "a", "target": "b", "amount": 300, "key": "t1"}
    ledger.transfer(**wanted)
    with pytest.raises(KeyReused) as refused:
        ledger.transfer(**{**wanted, **change})
    assert refused.value.fields == named
    assert ledger.balance("b").posted == 300


REFUSALS = [
    (("a", "b", 1001), InsufficientFunds),
    (("a", "usd", 1), UnitMismatch),
    (("a", "a", 1), SameAccount),
    (("a", "nobody", 1), NotFound),
    (("nobody", "a", 1), NotFound),
    (("a", "b", 0), InvalidAmount),
    (("a", "b", -1), InvalidAmount),
    (("a", "b", True), InvalidAmount),
    (("a", "b", 1.0), InvalidAmount),
    (("a", "b", "1"), InvalidAmount),
    (("a", "b", Decimal(1)), InvalidAmount),
    (("a", "b", float("nan")), InvalidAmount),
    (("a", "b", None), InvalidAmount),
    (("a", "b", 2**63), InvalidAmount),
]


@pytest.mark.parametrize(("call", "error"), REFUSALS)
def test_a_refusal_leaves_nothing_and_its_key_free(
    ledger: Ledger, call: tuple[Any, ...], error: type[Exception]
) -> None:
    before = figures(ledger)
    with pytest.raises(error):
        ledger.transfer(*call, key="t1")
    assert figures(ledger) == before
    assert not ledger.transfer("a", "b", 5, key="t1").replayed


def test_sums_never_leave_63_bits(ledger: Ledger) -> None:
    ledger.open_account("rich", "EUR")
    ledger.open_account("source", "EUR", floor=None)
    ledger.transfer("source", "rich", BIG, key="all")
    with pytest.raises(BalanceOverflow):
        ledger.transfer("world", "rich", 1, key="one more")
    assert ledger.balance("rich").posted == BIG


def test_a_floor_below_zero_is_a_credit_line(ledger: Ledger) -> None:
    ledger.open_account("line", "EUR", floor=-500)
    ledger.transfer("line", "a", 500, key="t1")
    assert (ledger.balance("line").posted, ledger.balance("line").available) == (-500, 0)
    with pytest.raises(InsufficientFunds):
        ledger.transfer("line", "a", 1, key="t2")


def test_a_frozen_account_moves_neither_way_until_thawed(ledger: Ledger) -> None:
    ledger.freeze("a")
    for source, target in (("a", "b"), ("world", "a")):
        with pytest.raises(AccountFrozen):
            ledger.transfer(source, target, 1, key="t1")
    assert ledger.thaw("a").state == "open"
    ledger.transfer("a", "b", 1, key="t1")


def test_an_account_is_closed_when_empty_and_for_ever(ledger: Ledger) -> None:
    with pytest.raises(InvalidState, match=r"balance of 10\.00 EUR and 0\.00 EUR held"):
        ledger.close_account("a")
    ledger.close_account("b")
    with pytest.raises(AccountClosed):
        ledger.transfer("a", "b", 1, key="t1")
    with pytest.raises(InvalidState, match="for ever"):
        ledger.thaw("b")


def test_opening_again_is_harmless_and_other_terms_are_refused(ledger: Ledger) -> None:
    assert ledger.open_account("a", "EUR").posted == 1000
    for terms in ({"unit": "USD"}, {"scale": 3}, {"floor": None}):
        with pytest.raises(InvalidState):
            ledger.open_account("a", **{"unit": "EUR", **terms})


@pytest.mark.parametrize(
    "terms",
    [{"unit": ""}, {"unit": 5}, {"scale": -1}, {"scale": True}, {"floor": 1.5}, {"floor": 2**63}],
)
def test_an_account_needs_sensible_terms(ledger: Ledger, terms: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        ledger.open_account("new", **{"unit": "EUR", **terms})


def test_a_posting_has_many_legs_that_balance_in_each_unit(ledger: Ledger) -> None:
    ledger.open_account("till", "USD", floor=None)
    posted = ledger.post(
        [("a", -100), ("b", 60), ("c", 40), ("till", -7), ("usd", 7)], key="p1", memo="split"
    )
    assert posted.amount == 107
    assert figures(ledger)["c"] == (40, 1)
    assert ledger.trial_balance().balanced
    with pytest.raises(Unbalanced, match="EUR"):
        ledger.post([("a", -100), ("b", 99)], key="p2")
    with pytest.raises(Unbalanced):
        ledger.post([("a", -5), ("usd", 5)], key="p3")


def test_an_account_may_have_several_legs_and_its_net_counts(ledger: Ledger) -> None:
    ledger.post([("a", -1500), ("b", 900), ("a", 600)], key="p1")
    assert figures(ledger)["a"] == (100, 3)
    with pytest.raises(InsufficientFunds):
        ledger.post([("a", -1500), ("b", 900), ("a", 600)], key="p2")


@pytest.mark.parametrize("count", [0, 1, 101])
def test_a_posting_has_2_to_100_legs(ledger: Ledger, count: int) -> None:
    with pytest.raises(LimitExceeded):
        ledger.post([("a", 1)] * count, key="p")


def test_a_reversal_posts_the_opposite_once(ledger: Ledger) -> None:
    ledger.transfer("a", "b", 300, key="t1")
    undone = ledger.reverse("t1")
    assert [(leg.account, leg.amount) for leg in undone.legs] == [("a", 300), ("b", -300)]
    assert ledger.reverse("t1").replayed
    assert (figures(ledger)["a"], figures(ledger)["b"]) == ((1000, 3), (0, 2))
    with pytest.raises(InvalidState):
        ledger.reverse("t1/reversal")
    with pytest.raises(NotFound):
        ledger.reverse("never")


def test_a_reversal_needs_the_funds(ledger: Ledger) -> None:
    ledger.transfer("a", "b", 300, key="t1")
    ledger.transfer("b", "c", 1, key="t2")
    with pytest.raises(InsufficientFunds):
        ledger.reverse("t1")


def test_a_bulk_gives_each_transfer_its_own_result(ledger: Ledger) -> None:
    items = ledger.transfers(
        [
            ("a", "b", 10, "x1"),
            ("a", "b", 5000, "x2"),
            ("a", "b", 10, "x1"),
            ("a", "b", 2.5, "x3"),
            ("a", "b", 11, "x1"),
            ("a", "c", 7, "x4", "memo"),
        ]
    )
    kinds = [type(item.error).__name__ if item.error else item.transfer.replayed for item in items]
    assert kinds == [False, "InsufficientFunds", True, "InvalidAmount", "KeyReused", False]
    assert (figures(ledger)["a"], figures(ledger)["c"]) == ((983, 3), (7, 1))
    assert ledger.verify() is None


def test_a_large_bulk_takes_several_commits(
    ledger: Ledger, store: perkey.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "CHUNK", 300)
    before = store.statistics()["commits"]
    items = ledger.transfers([("world", "b", 1, f"x{n}") for n in range(700)])
    assert {item.error for item in items} == {None}
    assert store.statistics()["commits"] == before + 3
    assert figures(ledger)["b"] == (700, 700)
    assert ledger.verify() is None


class Bounded(MemoryBackend):
    """Commits at most ``atomic_keys`` keys, those that are only appended included."""

    atomic_keys = 42

    def apply(self, batch: Batch) -> list[Outcome]:
        outcomes = super().apply(batch)
        for outcome in outcomes:
            assert len({record.key for record in outcome.writes}) <= self.atomic_keys
        return outcomes


def test_a_bulk_keeps_to_what_its_store_can_commit() -> None:
    """Also where every transfer fills a page of entries on both sides."""
    names = [f"n{n:02}" for n in range(40)]
    with perkey.Store(Bounded(None)) as store:
        ledger = Ledger(store)
        for name in names:
            ledger.open_account(name, "EUR", floor=None)
        for turn in range(16):
            rows = [(a, b, 1, f"{turn}/{a}") for a, b in zip(names[::2], names[1::2], strict=True)]
            assert {item.error for item in ledger.transfers(rows)} == {None}
        assert store.statistics()["commits"] > 40 + 16
        assert (ledger.balance("n00").posted, ledger.balance("n01").posted) == (-16, 16)
        assert ledger.verify() is None


def test_a_bulk_keeps_to_the_limit_of_keys() -> None:
    with perkey.open("memory://", limits=perkey.Limits(transaction_keys=10)) as store:
        ledger = Ledger(store)
        for name in ("world", "b"):
            ledger.open_account(name, "EUR", floor=None)
        items = ledger.transfers([("world", "b", 1, f"x{n}") for n in range(50)])
        assert {item.error for item in items} == {None}
        assert ledger.balance("b").posted == 50


def test_a_statement_comes_in_pages(ledger: Ledger) -> None:
    ledger.transfers([("a", "b", n, f"x{n}") for n in range(1, 26)])
    lines, after = [], 0
    while page := ledger.statement("b", after=after, limit=10):
        lines += page
        after = page[-1].number
    assert [line.number for line in lines] == list(range(1, 26))
    assert [line.balance for line in lines] == [n * (n + 1) // 2 for n in range(1, 26)]
    with pytest.raises(NotFound):
        ledger.statement("nobody")


def test_accounts_whose_names_look_alike_keep_their_entries_apart(ledger: Ledger) -> None:
    for name in ("1:a", "a;000000000000001", "a;", "A"):
        ledger.open_account(name, "EUR")
        ledger.transfer("world", name, 1, key=f"to {name}")
    assert [line.transfer for line in ledger.statement("a")] == ["funding"]
    assert [line.transfer for line in ledger.statement("a;")] == ["to a;"]


def test_find_shows_a_transfer_by_its_key(ledger: Ledger) -> None:
    moved = ledger.transfer("a", "b", 300, key="t1", memo="rent")
    assert ledger.find("t1").legs == moved.legs
    with pytest.raises(NotFound):
        ledger.find("never")


def test_a_plan_moves_money_in_the_commit_of_a_document(
    ledger: Ledger, store: perkey.Store
) -> None:
    plan = ledger.plan("a", "b", 250, key="t1")

    def work(tx: perkey.Tx) -> int:
        tx["task"] = {"state": "done"}
        return plan.fn(tx).amount

    assert store.transact(["task", *plan.keys], work) == 250
    assert store.get("task").value == {"state": "done"}

    def fail(tx: perkey.Tx) -> None:
        work(tx)
        raise RuntimeError("the task failed after the money had moved")

    dear = ledger.plan("a", "b", 100, key="t2")
    plan = dear
    with pytest.raises(RuntimeError):
        store.transact(["task", *dear.keys], fail)
    assert ledger.balance("a").posted == 750


def test_verify_names_the_first_difference(ledger: Ledger, store: perkey.Store) -> None:
    from perkey.flows.ledger.model import account_key, decode_account, encode

    def forge(tx: perkey.Tx) -> None:
        account = decode_account(tx.body(account_key("a")) or b"")
        account.credits += 5
        tx.put_body(account_key("a"), encode(account))

    store.transact([account_key("a")], forge)
    wrong = ledger.verify()
    assert wrong is not None
    assert (wrong.account, wrong.what, wrong.expected, wrong.found) == ("a", "credits", 1000, 1005)
    assert not ledger.trial_balance().balanced


@pytest.mark.parametrize("entries", [1, 15, 16, 17, 31, 32, 33, 50])
def test_a_statement_from_any_entry_on(ledger: Ledger, entries: int) -> None:
    for n in range(1, entries + 1):
        ledger.transfer("world", "b", n, key=f"k{n}")
    whole = ledger.statement("b")
    assert [(each.number, each.transfer) for each in whole] == [
        (n, f"k{n}") for n in range(1, entries + 1)
    ]
    for after in range(entries + 2):
        for limit in (1, 2, 15, 16, 17, 100):
            assert ledger.statement("b", after=after, limit=limit) == whole[after : after + limit]
    assert ledger.verify() is None


def test_many_legs_on_one_account_are_entries_of_one_transfer(ledger: Ledger) -> None:
    for round_ in range(7):
        legs = [("world", -60), ("b", 10), ("b", 20), ("b", 30)]
        ledger.post(legs, key=f"p{round_}")
    lines = ledger.statement("b")
    assert [line.amount for line in lines] == [10, 20, 30] * 7
    assert [line.balance for line in lines] == [sum(([10, 20, 30] * 7)[:n]) for n in range(1, 22)]
    assert [line.number for line in lines] == [*range(1, 22)]
    assert [line.transfer for line in lines] == [f"p{n // 3}" for n in range(21)]
    assert ledger.verify() is None


def test_a_refused_row_of_a_bulk_leaves_the_others_right(ledger: Ledger) -> None:
    rows: list[tuple[str, str, int, str]] = []
    for n in range(40):
        rows.append(("a", "b", 1, f"good{n}"))
        rows.append(("a", "b", 10**9, f"dear{n}"))
        rows.append(("a", "nobody", 1, f"lost{n}"))
        rows.append(("b", "a", 1, f"good{n}"))  # the key of another transfer
    items = ledger.transfers(rows)
    assert [type(item.error) for item in items] == [
        type(None),
        perkey.InsufficientFunds,
        NotFound,
        perkey.KeyReused,
    ] * 40
    assert figures(ledger)["b"] == (40, 40)
    assert [line.balance for line in ledger.statement("b")] == [*range(1, 41)]
    assert ledger.verify() is None


def test_a_memo_that_cannot_be_stored_is_refused_before_the_commit(ledger: Ledger) -> None:
    with pytest.raises(perkey.InvalidValue):
        ledger.transfer("a", "b", 1, key="k", memo="\ud800")
    (item,) = ledger.transfers([("a", "b", 1, "k", "\ud800")])
    assert isinstance(item.error, perkey.InvalidValue)
    assert ledger.transfer("a", "b", 1, key="k", memo="é").memo == "é"


def forge_posting(store: perkey.Store, key: str, change: Callable[[Posting], None]) -> None:
    """Rewrite the record of a transfer."""

    def fn(tx: perkey.Tx) -> None:
        posting = decode_posting(tx.body(transfer_key(key)) or b"")
        change(posting)
        tx.put_body(transfer_key(key), encode(posting))

    store.transact([transfer_key(key)], fn)


def test_verify_finds_an_entry_whose_transfer_does_not_have_it(
    ledger: Ledger, store: perkey.Store
) -> None:
    for n in range(1, 21):
        ledger.transfer("a", "b", 1, key=f"k{n}")

    def drop(posting: Posting) -> None:
        posting.legs = [leg for leg in posting.legs if leg.account != "b"]

    for number in (3, 19):  # one in a page, one in the account
        forge_posting(store, f"k{number}", drop)
    wrong = ledger.verify()
    assert wrong is not None
    assert (wrong.account, wrong.what) == ("b", "entry 3 in transfer 'k3'")
    with pytest.raises(perkey.StoreCorrupt, match="entry 3 of account 'b'"):
        ledger.statement("b")
    with pytest.raises(perkey.StoreCorrupt, match="entry 19 of account 'b'"):
        ledger.statement("b", after=3)
    assert [line.number for line in ledger.statement("b", after=3, limit=15)] == [*range(4, 19)]


def test_verify_finds_a_changed_amount(ledger: Ledger, store: perkey.Store) -> None:
    for n in range(1, 21):
        ledger.transfer("a", "b", 1, key=f"k{n}")

    def more(posting: Posting) -> None:
        first, second = posting.legs
        posting.legs = [first, Leg("b", 7, second.balance, second.entry)]

    forge_posting(store, "k4", more)
    wrong = ledger.verify()
    assert wrong is not None
    assert (wrong.account, wrong.what) == ("b", "the balance of entry 4")
    assert (wrong.expected, wrong.found) == (10, 4)


def test_verify_finds_a_missing_page(ledger: Ledger, store: perkey.Store) -> None:
    for n in range(1, 41):
        ledger.transfer("a", "b", 1, key=f"k{n}")
    store.transact([page_key("b", 17)], lambda tx: tx.put_body(page_key("b", 17), None))
    wrong = ledger.verify()
    assert wrong is not None
    assert (wrong.account, wrong.what) == ("b", "the number of an entry")
    assert (wrong.expected, wrong.found) == (17, 33)


def test_a_transfer_writes_three_records_and_a_page_in_sixteen(
    ledger: Ledger, store: perkey.Store
) -> None:
    wrote = []
    for n in range(32):
        wanted = transfer_order("world", "b", 1, f"k{n}")
        outcome = store.core.transact(Transaction(wanted.keys, execute(wanted), op=f"{n}"), None)
        wrote.append(len(outcome.writes))
    # "world" has had an entry before.
    assert wrote == [3 + ((n + 2) % 16 == 0) + ((n + 1) % 16 == 0) for n in range(32)]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 400), st.integers(0, 12)),
        max_size=40,
    )
)
def test_whatever_is_asked_the_books_balance(calls: list[tuple[int, int, int, int]]) -> None:
    with perkey.open("memory://") as store:
        ledger = Ledger(store)
        for n in range(4):
            ledger.open_account(f"acc{n}", "EUR", floor=None if n == 0 else 0)
        model = [0, 0, 0, 0]
        done: dict[int, tuple[int, int, int]] = {}
        for source, target, amount, key in calls:
            try:
                moved = ledger.transfer(f"acc{source}", f"acc{target}", amount, key=f"k{key}")
            except perkey.PerkeyError:
                continue
            if moved.replayed:
                assert done[key] == (source, target, amount)
            done[key] = (source, target, amount)
        for source, target, amount in done.values():
            model[source] -= amount
            model[target] += amount
        assert [ledger.balance(f"acc{n}").posted for n in range(4)] == model
        assert all(ledger.balance(f"acc{n}").posted >= 0 for n in (1, 2, 3))
        assert ledger.verify() is None
        assert ledger.trial_balance().balanced


@pytest.mark.parametrize("name", [None, 1, True, [], {}, "", "x" * 600, b"a", "\ud800"])
def test_a_name_that_is_no_name_is_one_rows_error(ledger: Ledger, name: Any) -> None:
    """Also where the bulk looks up names that it has seen before."""
    rows = [("a", "b", 1, "k1"), (name, "b", 1, "k2"), ("a", name, 1, "k3"), ("a", "b", 1, "k4")]
    items = ledger.transfers(rows)
    assert [type(item.error) for item in items] == [
        type(None), perkey.InvalidKey, perkey.InvalidKey, type(None),
    ]  # fmt: skip
    assert ledger.balance("b").posted == 2


def test_what_a_bulk_declares_is_sorted_and_has_no_doubles() -> None:
    wanted = [transfer_order("b", "a", 1, key) for key in ("z", "y", "z")]
    keys = bulk.Keys()
    for each in wanted:
        keys.add(each)
    assert [*keys.declared()] == sorted({key for each in wanted for key in each.keys})
    assert len(keys) == 4
