"""A mistyped path: commands that cannot begin a store do not leave an empty one behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from perkey.cli import exits
from perkey.cli.options import must_exist
from tests.cli.run import Command

NEEDING = [
    "doc get k",
    "doc get k --at 1",
    "doc history k",
    "doc diff k 1 2",
    "doc blame k",
    "doc list",
    "doc watch --until-synced",
    "doc delete k",
    "doc put k 1 --if-match 1",
    'doc patch k {"a":1}',
    "ledger balance cash",
    "ledger accounts",
    "ledger statement cash",
    "ledger verify",
    "ledger transfer a b 1 --key k",
    "ledger hold a b 1 --key k",
    "ledger settle k --key l",
    "ledger release k",
    "ledger reverse k",
]
BEGINNING = [
    "doc put k 1 --create",
    "doc put k 1 --overwrite",
    'doc patch k [{"op":"increment","path":"/n","value":1}] --as transforms',
    "ledger open cash EUR",
]
SCHEMES = ["sqlite", "file"]


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("line", NEEDING)
def test_a_command_that_needs_a_store_makes_none(
    perkey: Command, tmp_path: Path, scheme: str, line: str
) -> None:
    place = tmp_path / "typo"
    ran = perkey(*line.split(), "--store", f"{scheme}:///{place}", "--json")
    assert (ran.code, ran.out) == (exits.STORE, "")
    assert ran.error["code"] == "store-unavailable"
    assert f"there is no store at {place}" in ran.error["message"].replace("//", "/")
    assert "create=true" in ran.error["message"]
    assert "create=false" not in ran.error["message"], "nobody wrote that"
    assert "begin a store" in ran.error["hint"]
    assert not list(tmp_path.glob("typo*"))


@pytest.mark.parametrize("line", BEGINNING)
def test_a_command_that_can_begin_a_store_does(perkey: Command, tmp_path: Path, line: str) -> None:
    place = tmp_path / "new.db"
    assert perkey(*line.split(), "--store", f"sqlite:///{place}").code == exits.DONE
    assert place.exists()


def test_the_url_decides_where_it_says_so(perkey: Command, tmp_path: Path) -> None:
    place = tmp_path / "new.db"
    ran = perkey("doc", "list", "--store", f"sqlite:///{place}?create=true", "--json")
    assert (ran.code, ran.json) == (exits.DONE, [])
    other = f"sqlite:///{tmp_path}/other.db?create=false"
    assert perkey("doc", "put", "k", "1", "--create", "--store", other).code == exits.STORE


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("sqlite:///a.db", "sqlite:///a.db?create=false"),
        ("sqlite:///a.db?synchronous=OFF", "sqlite:///a.db?synchronous=OFF&create=false"),
        ("sqlite:///a.db?create=true", "sqlite:///a.db?create=true"),
        ("sqlite:///:memory:", "sqlite:///:memory:"),
        ("file:///a", "file:///a?create=false"),
        ("memory://", "memory://"),
        ("redis://h:1/0", "redis://h:1/0"),
    ],
)
def test_how_the_url_is_told(url: str, told: str) -> None:
    assert must_exist(url) == told
