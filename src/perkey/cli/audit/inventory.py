"""Inventory: which files there are, how large, and how they are headed."""

from __future__ import annotations

from collections.abc import Iterator

from perkey.cli.audit.corpus import Corpus, Text
from perkey.cli.audit.findings import Finding, Section, excerpt, section
from perkey.cli.audit.prose import WORD, Line, classify

LONG_FILE_WORDS = 4_000
"""A page above this is worth splitting: over twenty minutes of reading."""


def inventory(corpus: Corpus) -> Section:
    """Files, lines, words, headings, bytes; findings about files and the heading structure."""
    parsed = [(text, classify(text)) for text in corpus.texts]
    words = {text.name: count_words(text) for text in corpus.texts}
    headings = [line for _, lines in parsed for line in lines if line.kind == "heading"]
    summary: dict[str, int | float | str] = {
        "files": len(corpus.texts),
        "lines": sum(len(text.lines) for text in corpus.texts),
        "words": sum(words.values()),
        "headings": len(headings),
        "bytes": sum(text.size for text in corpus.texts),
        "not read": len(corpus.skipped),
    }
    if words:
        longest = max(words, key=lambda name: (words[name], name))
        summary["longest"] = f"{longest} ({words[longest]} words)"
    findings: list[Finding] = [
        {"file": name, "line": 0, "text": f"not read: {reason}"} for name, reason in corpus.skipped
    ]
    for text, lines in parsed:
        findings += _about(text, words[text.name])
        findings += _structure(text, lines)
    return section("Inventory", summary, findings)


def count_words(text: Text) -> int:
    """Words in a file, markup and code included."""
    return sum(len(WORD.findall(line)) for line in text.lines)


def _about(text: Text, words: int) -> Iterator[Finding]:
    for note in text.notes:
        yield {"file": text.name, "line": 0, "text": note}
    if not words:
        yield {"file": text.name, "line": 0, "text": "holds no words"}
    elif words > LONG_FILE_WORDS:
        yield {"file": text.name, "line": 0, "text": f"{words} words long; consider splitting"}


def _structure(text: Text, lines: list[Line]) -> Iterator[Finding]:
    """Headings that skip a level, stand twice under one parent, or are empty."""
    path: list[tuple[int, str]] = []
    seen: set[tuple[str, ...]] = set()
    for line in (line for line in lines if line.kind == "heading"):
        title = excerpt(line.text, 80)
        if not title:
            yield {"file": text.name, "line": line.number, "text": "an empty heading"}
            continue
        while path and path[-1][0] >= line.level:
            path.pop()
        if path and line.level > path[-1][0] + 1:
            said = f"heading “{title}” jumps from level {path[-1][0]} to {line.level}"
            yield {"file": text.name, "line": line.number, "text": said}
        path.append((line.level, title))
        place = tuple(name for _, name in path)
        if place in seen:
            said = f"heading “{title}” stands twice in the same part"
            yield {"file": text.name, "line": line.number, "text": said}
        seen.add(place)
