"""Every link from one page of the project to another leads somewhere, headings included."""

from __future__ import annotations

import re
from pathlib import Path

from tests.tidy import repo

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def pages() -> list[tuple[Path, str]]:
    found = [(repo.ROOT / name, text) for name, text in repo.texts() if name.endswith(".md")]
    return [(page, re.sub(r"```.*?```", "", text, flags=re.DOTALL)) for page, text in found]


def anchors(page: Path) -> set[str]:
    """The names that a page's headings get."""
    heads = re.findall(r"^#{1,6} (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}


def test_every_link_to_another_page_leads_somewhere() -> None:
    broken = []
    for page, text in pages():
        for link in LINK.findall(text):
            if re.match(r"[a-z]+:", link):
                continue
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            if not target.exists() or (anchor and anchor not in anchors(target)):
                broken.append(f"{page.relative_to(repo.ROOT)}: {link}")
    assert broken == []


def test_every_page_of_the_documentation_is_in_its_index() -> None:
    docs = repo.ROOT / "docs"
    index = (docs / "index.md").read_text("utf-8")
    trees = re.findall(r"```\{toctree\}\n(.*?)```", index, re.DOTALL)
    globs = [line for tree in trees for line in tree.splitlines() if not line.startswith(":")]
    listed = {page for glob in globs for page in docs.glob(f"{glob}.md")}
    written = {p for p in docs.rglob("*.md") if "_build" not in p.parts} - {docs / "index.md"}
    assert written == listed
