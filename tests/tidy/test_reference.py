"""Every public name has its place in the reference."""

from __future__ import annotations

import re

import perkey
import perkey.documents
import perkey.engine
import perkey.testing
from perkey import PerkeyError
from tests.tidy import repo

PAGES = "\n".join(p.read_text("utf-8") for p in (repo.ROOT / "docs" / "reference").glob("*.md"))
NAMED = set(re.findall(r"^\.\. auto\w+:: ([\w.]+)$", PAGES, re.MULTILINE))
LEFT_OUT = {
    # Values and exceptions that the pages above name where they are raised or returned.
    *("perkey.documents.ABSENT", "perkey.engine.Delivered", "perkey.engine.InstanceState"),
    *("perkey.engine.State", "perkey.engine.Starter"),
}


def test_every_name_of_the_package() -> None:
    """The errors have a page of their own, made from their module."""
    names = {
        f"perkey.{name}"
        for name in perkey.__all__
        if not (isinstance(found := getattr(perkey, name), type) and issubclass(found, PerkeyError))
    }
    assert names - NAMED == set()


def test_every_name_of_documents_and_of_the_engine() -> None:
    for module in (perkey.documents, perkey.engine):
        short = {"Documents", "AsyncDocuments", "Engine", "AsyncEngine"}
        names = {
            f"perkey.{name}" if name in short else f"{module.__name__}.{name}"
            for name in module.__all__
        }
        assert names - NAMED - LEFT_OUT == set()


def test_what_tests_are_written_with() -> None:
    functions = {"explore", "explore_threads", "step", "switch_point", "check_backend"}
    assert {f"perkey.testing.{name}" for name in functions} <= NAMED
