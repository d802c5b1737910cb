"""``perkey ledger`` on a SQLite file: what each command prints, moves and refuses."""

from __future__ import annotations

import csv
from datetime import datetime, timedelta
from pathlib import Path

import pytest

import perkey as library
from perkey.cli import exits
from perkey.flows import steps
from perkey.flows.ledger.model import account_key, encode, load
from perkey.store.transaction import Tx
from tests.cli.run import Command


@pytest.fixture
def funded(perkey: Command) -> Command:
    """``a`` has 10.00 EUR, ``b`` none, ``world`` has no floor."""
    perkey("ledger", "open", "world", "EUR", "--floor", "none")
    perkey("ledger", "open", "a", "EUR")
    perkey("ledger", "open", "b", "EUR")
    assert perkey("ledger", "transfer", "world", "a", "10", "--key", "funding").code == exits.DONE
    return perkey


def posted(perkey: Command, account: str) -> int:
    found: int = perkey("ledger", "balance", account, "--json").json["posted"]
    return found


def test_a_transfer_moves_once(funded: Command) -> None:
    ran = funded("ledger", "transfer", "a", "b", "2.5", "--key", "t1", "--memo", "lunch")
    assert ran.code == exits.DONE
    assert ran.out.splitlines() == [
        "t1: transfer", "  a -2.50 EUR, balance 7.50", "  b 2.50 EUR, balance 2.50",
    ]  # fmt: skip
    again = funded("ledger", "transfer", "a", "b", "2.50", "--key", "t1", "--memo", "lunch")
    assert "replayed" in again.out
    assert (posted(funded, "a"), posted(funded, "b")) == (750, 250)
    other = funded("ledger", "transfer", "a", "b", "2.51", "--key", "t1", "--memo", "lunch")
    assert (other.code, "key-reused" in other.err) == (exits.REFUSED, True)


@pytest.mark.parametrize(
    ("amount", "code"),
    [
        ("2.505", exits.USAGE), ("0", exits.USAGE), ("-1", exits.USAGE), ("1e3", exits.USAGE),
        ("nan", exits.USAGE), ("1,5", exits.USAGE), ("٣", exits.USAGE), ("", exits.USAGE),
        ("9" * 30, exits.USAGE), ("10.01", exits.REFUSED),
    ],
)  # fmt: skip
def test_an_amount_that_is_refused_moves_nothing(funded: Command, amount: str, code: int) -> None:
    assert funded("ledger", "transfer", "a", "b", amount, "--key", "t").code == code
    assert posted(funded, "a") == 1000


def test_the_unit_of_the_amounts_in_a_refusal_is_told(funded: Command) -> None:
    ran = funded("ledger", "transfer", "a", "b", "10.01", "--key", "t")
    told = "'a' needs 10.01 EUR and has 10.00 EUR available (1001 and 1000 in minor units)"
    assert told in ran.err
    assert "hint: perkey ledger balance" in ran.err
    missing = funded("ledger", "statement", "none")
    assert "ledger accounts" in missing.err


def test_minor_units(funded: Command) -> None:
    moved = funded("ledger", "transfer", "a", "b", "250", "--minor", "--key", "t", "--json").json
    assert (moved["amount"], moved["legs"][1]["balance"], moved["replayed"]) == (250, 250, False)
    refused = funded("ledger", "transfer", "a", "b", "2.50", "--minor", "--key", "u")
    assert refused.code == exits.USAGE


def test_a_scale_and_a_floor_of_ones_own(perkey: Command) -> None:
    perkey("ledger", "open", "yen", "JPY", "--scale", "0", "--floor", "-500")
    perkey("ledger", "open", "shop", "JPY", "--scale", "0")
    assert "yen -500 JPY" in perkey("ledger", "transfer", "yen", "shop", "500", "--key", "t").out
    assert perkey("ledger", "transfer", "yen", "shop", "1", "--key", "u").code == exits.REFUSED
    assert perkey("ledger", "open", "x", "JPY", "--scale", "19").code == exits.USAGE
    assert perkey("ledger", "open", "x", "JPY", "--floor", "low").code == exits.USAGE
    assert perkey("ledger", "open", "yen", "JPY", "--scale", "0").code == exits.REFUSED


def test_hold_then_settle_a_part(funded: Command) -> None:
    assert funded("ledger", "hold", "a", "b", "6", "--key", "h").out == (
        "h: hold pending\n  6.00 EUR from a to b, available 4.00\n"
    )
    row = funded("ledger", "balance", "a").out.splitlines()[1].split()
    assert row == ["a", "EUR", "10.00", "6.00", "4.00", "0.00", "open"]
    assert "b 1.25 EUR" in funded("ledger", "settle", "h", "1.25", "--key", "s").out
    assert posted(funded, "b") == 125
    late = funded("ledger", "release", "h")
    assert (late.code, "already settled" in late.err) == (exits.REFUSED, True)


def test_hold_then_settle_all_or_release(funded: Command) -> None:
    for key in ("h1", "h2"):
        funded("ledger", "hold", "a", "b", "3", "--key", key, "--expires", "3600")
    funded("ledger", "settle", "h1", "--key", "s")
    assert funded("ledger", "release", "h2").out == (
        "h2: hold released\n  3.00 EUR from a to b, available 7.00\n"
    )
    assert (posted(funded, "a"), posted(funded, "b")) == (700, 300)


def test_reverse(funded: Command) -> None:
    funded("ledger", "transfer", "a", "b", "4", "--key", "t")
    assert funded("ledger", "reverse", "t", "--json").json["refers"] == "t"
    assert "replayed" in funded("ledger", "reverse", "t").out
    assert (posted(funded, "a"), posted(funded, "b")) == (1000, 0)


def test_accounts_and_statements(funded: Command) -> None:
    funded("ledger", "transfer", "a", "b", "4", "--key", "t")
    names = [each["account"] for each in funded("ledger", "accounts", "--json").json]
    assert names == ["a", "b", "world"]
    assert len(funded("ledger", "accounts", "--after", "a", "--limit", "1", "--json").json) == 1
    lines = [line.split() for line in funded("ledger", "statement", "a").out.splitlines()]
    assert lines[1:] == [["1", "10.00", "10.00", "funding"], ["2", "-4.00", "6.00", "t"]]
    later = funded("ledger", "statement", "a", "--after", "1", "--json").json
    assert [(line["amount"], line["balance"]) for line in later] == [(-400, 600)]


@pytest.mark.parametrize(
    "arguments",
    [["balance", "none"], ["statement", "none"], ["release", "none"], ["reverse", "none"],
     ["settle", "none", "1", "--key", "k"], ["settle", "funding", "1", "--key", "k"]],
)  # fmt: skip
def test_what_is_not_there(funded: Command, arguments: list[str]) -> None:
    assert funded("ledger", *arguments).code == exits.REFUSED


def test_a_transfer_needs_a_key(funded: Command) -> None:
    assert funded("ledger", "transfer", "a", "b", "1").code == exits.USAGE


def test_verify(funded: Command, url: str) -> None:
    ran = funded("ledger", "verify")
    assert (ran.code, ran.out) == (
        exits.DONE,
        "3 accounts, all balances agree with their entries\n",
    )
    with library.open(url) as store:
        name = account_key("a")

        def spoil(tx: Tx) -> None:
            account = load(tx, "a")
            account.credits += 1
            tx.put_body(name, encode(account))

        store.core.transact(steps.Transact((name,), spoil, "", op="spoiled"), None)
    spoilt = funded("ledger", "verify")
    assert (spoilt.code, spoilt.out) == (
        exits.REFUSED,
        "a: credits should be 10.00 EUR and is 10.01 EUR\n",
    )
    assert funded("ledger", "verify", "--json").json["difference"]["account"] == "a"


# --------------------------------------------------------------------------------- files


def written(path: Path, *rows: str) -> str:
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return str(path)


def test_import_is_idempotent_and_goes_on_after_refused_rows(
    funded: Command, tmp_path: Path
) -> None:
    rows = [
        "source,target,amount,memo",
        "a,b,1.50,one",
        "a,b,99,too much",
        "a,none,1,nobody",
        "a,b,0.001,too fine",
        "a,b",
        'a,b,2,"two, quoted"',
    ]
    path = written(tmp_path / "may.csv", *rows)
    first = funded("ledger", "import", path, "--json")
    assert first.code == exits.REFUSED
    assert [(each["line"], each["code"]) for each in first.json["errors"]] == [
        (3, "insufficient-funds"), (4, "not-found"), (5, "invalid-amount"), (6, "usage"),
    ]  # fmt: skip
    assert (first.json["rows"], first.json["moved"], first.json["refused"]) == (6, 2, 4)
    again = funded("ledger", "import", written(tmp_path / "may.csv", *rows, "a,b,1,new"))
    assert again.out.splitlines()[-1] == "7 rows: 1 moved, 2 done before, 4 refused"
    assert posted(funded, "b") == 450


def test_import_with_keys_and_minor_units(funded: Command, tmp_path: Path) -> None:
    path = written(tmp_path / "x.csv", "key,source,target,minor", "k1,a,b,5", "k1,a,b,5", ",a,b,7")
    ran = funded("ledger", "import", path, "--batch", "june")
    assert (ran.code, ran.out) == (exits.DONE, "3 rows: 2 moved, 1 done before, 0 refused\n")
    keys = {line["transfer"] for line in funded("ledger", "statement", "b", "--json").json}
    assert keys == {"k1", "june/4"}


@pytest.mark.parametrize(
    "rows",
    [["source,target"], ["source,target,amount,minor"], ["source,target,amount,colour"], [""],
     ["source,target,amount", 'a,b,"1']],
)  # fmt: skip
def test_a_file_that_is_no_import(funded: Command, tmp_path: Path, rows: list[str]) -> None:
    assert funded("ledger", "import", written(tmp_path / "x.csv", *rows)).code == exits.USAGE
    assert posted(funded, "b") == 0


def test_files_that_cannot_be_used(funded: Command, tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"source,target,amount,memo\na,b,1,\xff\n")
    for path in (tmp_path / "latin", tmp_path / "missing"):
        assert funded("ledger", "import", str(path)).code == exits.USAGE
    assert funded("ledger", "export", str(tmp_path / "no" / "where")).code == exits.USAGE


def test_export_has_every_leg(funded: Command, tmp_path: Path) -> None:
    funded("ledger", "transfer", "a", "b", "4", "--key", "t", "--memo", 'so "far"', "--by", "me")
    funded("ledger", "hold", "a", "b", "1", "--key", "h")
    path = tmp_path / "all.csv"
    assert funded("ledger", "export", str(path)).out == f"{path}: 2 postings\n"
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["key"], row["account"], row["amount"], row["balance"]) for row in rows] == [
        ("funding", "world", "-10.00", "-10.00"), ("funding", "a", "10.00", "10.00"),
        ("t", "a", "-4.00", "6.00"), ("t", "b", "4.00", "4.00"),
    ]  # fmt: skip
    assert (rows[2]["memo"], rows[2]["by"]) == ('so "far"', "me")
    found = funded("ledger", "statement", "b", "--json").json
    assert [rows[3]["at"]] == [line["at"] for line in found]
    assert datetime.fromisoformat(rows[3]["at"]).utcoffset() == timedelta()


def test_moments_are_rfc_3339_as_everywhere(funded: Command) -> None:
    hold = ("ledger", "hold", "a", "b", "1", "--key", "h", "--expires", "60", "--json")
    held = funded(*hold).json
    at, expires = (datetime.fromisoformat(held[each]) for each in ("at", "expires"))
    assert expires - at == timedelta(seconds=60)
    moved = funded("ledger", "transfer", "a", "b", "1", "--key", "t", "--json").json
    assert moved["expires"] is None


def test_a_hold_says_how_much_of_whose_for_whom(funded: Command) -> None:
    hold = ("ledger", "hold", "a", "b", "2.50", "--key", "h1")
    said = "  2.50 EUR from a to b, available 7.50\n"
    assert funded(*hold).out == f"h1: hold pending\n{said}"
    assert funded(*hold).out == f"h1: hold pending (replayed: it was done before)\n{said}"
