"""The page on URLs lists every scheme there is, and of each store the options that it takes."""

from __future__ import annotations

import re

import pytest

import perkey
from perkey.store.url import BACKENDS
from tests.tidy import repo

PAGE = (repo.ROOT / "docs" / "operations" / "servers.md").read_text("utf-8")
ROWS = re.findall(r"^\| ([\w, ]+) \| (`[^|]+) \| ([^|]*)\|$", PAGE, re.MULTILINE)
PLACES = {"az": "account:a2V5@container", "memory": "", "sqlite": "/x.db", "file": "/x"}


def schemes(urls: str) -> list[str]:
    return re.findall(r"`(\w+)://", urls)


def test_every_scheme_has_its_row() -> None:
    listed = [scheme for _, urls, _ in ROWS for scheme in schemes(urls)]
    assert set(listed) == set(BACKENDS)


@pytest.mark.parametrize(
    "row", [each for each in ROWS if each[0] != "PostgreSQL"], ids="{0[0]}".format
)
def test_the_options_are_those_that_the_store_takes(row: tuple[str, str, str]) -> None:
    """Each store refuses an option that it does not know, and then lists those that it knows;
    only PostgreSQL leaves that to libpq."""
    _, urls, options = row
    scheme = schemes(urls)[0]
    with pytest.raises(perkey.UsageError) as refused:
        perkey.open(f"{scheme}://{PLACES.get(scheme, 'host')}?nonsense=1")
    known = re.findall(r"\w+", str(refused.value).partition("it knows")[2])
    assert sorted(set(re.findall(r"(\w+)=", options))) == sorted(known)
