"""Corpora for tests, written as text."""

from __future__ import annotations

from pathlib import Path

from perkey.cli.audit.corpus import Corpus, text
from perkey.cli.audit.findings import Section

ROOT = Path("/audited")


def corpus(*contents: str, **named: str) -> Corpus:
    """Texts ``1.md``, ``2.md`` ... and ``name.md`` for each keyword."""
    files = {f"{number}.md": content for number, content in enumerate(contents, 1)}
    files |= {f"{name}.md": content for name, content in named.items()}
    return Corpus(ROOT, tuple(text(name, content, ROOT) for name, content in files.items()))


def places(section: Section) -> list[tuple[str, int]]:
    """File and line of every finding."""
    return [(finding["file"], finding["line"]) for finding in section["findings"]]


def said(section: Section) -> list[str]:
    """The text of every finding."""
    return [finding["text"] for finding in section["findings"]]
