"""The pages that people read first: the changelog's shape and the guarantee table's tests."""

from __future__ import annotations

import re

from tests.tidy import repo

README = (repo.ROOT / "README.md").read_text("utf-8")
CHANGELOG = (repo.ROOT / "CHANGELOG.md").read_text("utf-8")

SECTIONS = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]


def test_the_changelog_keeps_its_shape() -> None:
    """Keep a Changelog: an Unreleased part first, versions newest first, known headings only."""
    versions = re.findall(r"^## (.+)$", CHANGELOG, re.MULTILINE)
    assert versions[0] == "Unreleased"
    for version in versions[1:]:
        assert re.fullmatch(r"\d+\.\d+\.\d+ - \d{4}-\d{2}-\d{2}", version), version
    numbers = [tuple(map(int, v.split(" ")[0].split("."))) for v in versions[1:]]
    assert numbers == sorted(numbers, reverse=True)


def test_every_change_stands_under_what_kind_it_is() -> None:
    """In each version: known headings, each once and in their order, and no line outside them."""
    for version in re.split(r"^## ", CHANGELOG, flags=re.MULTILINE)[1:]:
        before, *parts = re.split(r"^### (.+)$", version, flags=re.MULTILINE)
        assert "\n- " not in before
        kinds = parts[::2]
        assert kinds
        assert kinds == [each for each in SECTIONS if each in kinds]
        assert all(re.match(r"\n\n- ", lines) for lines in parts[1::2])


def named_tests(text: str) -> list[str]:
    """The test files, and tests in them, that a page names in code: ``tests/x.py::test_y``."""
    return re.findall(r"`(tests/[\w/.]+\.py(?:::\w+)*)`", text)


def test_every_test_that_a_page_names_exists() -> None:
    missing = []
    pages = [(name, text) for name, text in repo.texts() if name.endswith(".md")]
    for page, text in pages:
        for test in named_tests(text):
            path, _, inside = test.partition("::")
            file = repo.ROOT / path
            body = file.read_text("utf-8") if file.exists() else ""
            wanted = [part for part in inside.split("::") if part]
            if not body or not all(re.search(rf"(def|class) {part}\b", body) for part in wanted):
                missing.append(f"{page}: {test}")
    assert missing == []


def test_the_first_page_names_the_two_commands() -> None:
    assert "make demo" in README
    assert "make test" in README


def test_every_make_target_is_explained() -> None:
    makefile = (repo.ROOT / "Makefile").read_text("utf-8")
    phony = re.search(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)
    assert phony is not None
    targets = set(phony.group(1).split()) - {"help", "install"}
    assert [t for t in sorted(targets) if f'@echo "make {t}' not in makefile] == []
