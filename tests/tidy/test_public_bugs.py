"""The page of bugs that others reported: every row's test, mutant and citation are there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from tests.tidy import repo

PAGE = (repo.ROOT / "docs" / "public-bugs.md").read_text("utf-8")
LINK = re.compile(r"https://github\.com/[\w.-]+/[\w.-]+/(?:issues|pull)/\d+")
NAMED = re.compile(r"`(tests/[\w/.]+\.py)::(\w+)`")
AREAS = {"locks", "leases", "documents", "publishing", "once", "ledger", "engine", "backends"}


class Row(NamedTuple):
    links: list[str]
    test: tuple[str, str]
    mutant: tuple[str, str]


def rows() -> list[Row]:
    lines = [line for line in PAGE.splitlines() if line.startswith("| ") and "http" in line]
    found = []
    for line in lines:
        _, _, where, test, mutant, _ = re.split(r" ?\| ?", line)
        (one,), (other,) = NAMED.findall(test), NAMED.findall(mutant)
        found.append(Row(LINK.findall(where), one, other))
    return found


def body(path: str) -> str:
    return (repo.ROOT / path).read_text("utf-8")


def test_there_are_enough_of_every_kind() -> None:
    found = rows()
    assert len(found) >= 40
    assert all(row.links and row.test[0].startswith("tests/races/reported/") for row in found)
    assert {Path(row.test[0]).stem.removeprefix("test_") for row in found} == AREAS
    assert f"{len(found)} bugs" in PAGE


def test_every_row_has_a_test_and_another_thing_that_fails() -> None:
    for row in rows():
        assert re.search(rf"def {row.test[1]}\b", body(row.test[0])), row
        assert re.search(rf"(def|class) {row.mutant[1]}\b", body(row.mutant[0])), row
        assert row.test != row.mutant


def test_every_mutant_is_played_by_a_test() -> None:
    tests = "\n".join(path.read_text("utf-8") for path in reported())
    for row in rows():
        assert f"def {row.mutant[1]}(" in tests or f".{row.mutant[1]}" in tests, row


def test_every_row_is_cited_beside_its_test_or_its_mutant() -> None:
    for row in rows():
        told = body(row.test[0]) + body(row.mutant[0])
        assert [link for link in row.links if not re.search(rf"{link}\b", told)] == []


def test_every_report_that_a_test_cites_has_a_row() -> None:
    cited = {link for path in reported() for link in LINK.findall(path.read_text("utf-8"))}
    assert cited <= set(LINK.findall(PAGE))


def reported() -> list[Path]:
    return sorted((repo.TESTS / "races" / "reported").glob("test_*.py"))
