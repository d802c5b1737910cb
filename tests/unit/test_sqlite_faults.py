"""Whatever strikes at whichever statement, a write happens once or not at all, and is told so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import perkey
from perkey.store.backends.sqlite import SqliteBackend
from perkey.store.evaluate import Batch
from perkey.store.transaction import Outcome, Tx
from tests.unit.sqlite_faults import AFTER, BEFORE, Strike, disk_error, striking, url

STATEMENTS = 6
"""BEGIN, the heads, the versions, their names, the time mark, COMMIT."""


def increment(tx: Tx) -> int:
    value: int = tx.get("n", 0) + 1
    tx["n"] = value
    return value


def strike_everywhere(
    folder: Path, make: Callable[[], BaseException], check: Callable[[perkey.Store, Strike], None]
) -> int:
    """Strike each statement in turn; returns how many strikes fell."""
    fell = 0
    with perkey.open(url(folder)) as store:
        for at in range(12):
            for when in (BEFORE, AFTER):
                store.backend._high = 0  # type: ignore[attr-defined]  # so that it is raised again
                with striking(store, Strike(at, when, make)) as strike:
                    check(store, strike)
                fell += strike.fell is not None
                check_usable(folder, store)
    return fell


def check_usable(folder: Path, store: perkey.Store) -> None:
    """Neither this store nor another one is kept from writing."""
    with perkey.open(url(folder)) as other:
        before = store.get("n").version if store.get("n", None) else 0
        other.transact("n", increment, timeout=60)
        store.transact("n", increment, timeout=60)
        assert store.get("n").version == before + 2


def test_an_error_at_any_statement_is_a_failure_or_a_success_never_both(tmp_path: Path) -> None:
    told: list[str] = []

    def check(store: perkey.Store, strike: Strike) -> None:
        before = store.get("n", None)
        version = before.version if before else 0
        try:
            store.transact("n", increment)
        except perkey.StoreError:
            assert (store.get("n").version if version else 0) == version
            told.append("failure")
        else:
            assert store.get("n").version == version + 1
            assert store.get("n").value == version + 1
            if strike.fell:
                told.append(f"success in spite of {strike.fell}")

    fell = strike_everywhere(tmp_path, disk_error, check)
    assert fell == 2 * STATEMENTS
    assert told.count("success in spite of COMMIT") == 1  # the one that had landed
    assert told.count("failure") == fell - 1


def test_ctrl_c_at_any_statement_leaves_no_doubt(tmp_path: Path) -> None:
    told: list[bool] = []

    def check(store: perkey.Store, strike: Strike) -> None:
        before = store.get("n", None)
        version = before.version if before else 0
        try:
            store.transact("n", increment)
        except KeyboardInterrupt:
            found = store.get("n", None)
            assert (found.version if found else 0) in (version, version + 1)
            told.append(bool(found) and found.version == version + 1)
        else:
            assert strike.fell is None

    fell = strike_everywhere(tmp_path, KeyboardInterrupt, check)
    assert len(told) == fell
    assert told.count(True) == 1  # after COMMIT


def lost_reply(folder: Path, later: int) -> tuple[int, int]:
    """(what the caller was told, the counter) when a commit landed, its reply was lost, and
    ``later`` other writes came on top before the caller could look."""
    with perkey.open(url(folder)) as store, perkey.open(url(folder)) as other:
        store.put("n", 0, create=True)
        store.transact("n", increment)

        def on_top() -> None:
            for _ in range(later):
                other.transact("n", increment)

        with striking(store, Strike(4, AFTER, disk_error)) as strike:
            strike.then = on_top
            told = store.transact("n", increment)
        assert strike.fell == "COMMIT"
        assert len(store.history("n")) == later + 3
        return told, store.get("n").value


@pytest.mark.parametrize("later", [0, 1, 15, 16, 17, 60])
def test_a_lost_reply_is_found_out(tmp_path: Path, later: int) -> None:
    """Also beyond the window of ops in the record: history tells."""
    assert lost_reply(tmp_path, later) == (2, 2 + later)


def test_a_backend_that_forgets_its_commit_would_apply_it_twice_or_deny_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mutant: nothing is noted before COMMIT.  The tests above must see it."""
    apply = SqliteBackend.apply

    class Forgetful(Batch):
        def __setattr__(self, name: str, value: object) -> None:
            if name != "committing":
                super().__setattr__(name, value)

    def mutant(self: SqliteBackend, batch: Batch) -> list[Outcome]:
        forgetful = Forgetful(batch.transactions)
        return apply(self, forgetful)

    monkeypatch.setattr(SqliteBackend, "apply", mutant)
    with pytest.raises(perkey.StoreError):
        lost_reply(tmp_path, 1)


def test_a_receipt_is_replayed_after_a_lost_reply(tmp_path: Path) -> None:
    with perkey.open(url(tmp_path)) as store:
        store.put("n", 0, create=True)
        with striking(store, Strike(6, AFTER, disk_error)) as strike:
            assert store.transact("n", increment, idempotency_key="once") == 1
        assert strike.fell == "COMMIT", strike.statements
        assert store.transact("n", increment, idempotency_key="once") == 1
        assert store.get("n").value == 1
