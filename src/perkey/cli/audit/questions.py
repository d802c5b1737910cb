"""Open questions: what a text itself says is not settled."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from perkey.cli.audit.corpus import Corpus, Text
from perkey.cli.audit.findings import Finding, Section, excerpt, section
from perkey.cli.audit.prose import Line, classify, sentences

# Written with classes so that this file holds no such mark itself.
MARKER = re.compile(r"\b(TO[D]O|FIX[M]E|XX[X]|TB[DCA])\b:?")
UNCHECKED = re.compile(r"^\s*(?:[-*+]|\d{1,9}[.)])\s+\[ \]\s+(.*)")
HEDGE = re.compile(
    r"\b(unclear|undecided|not (?:yet )?(?:clear|sure|decided|known)|open question|"
    r"to be (?:decided|confirmed|determined|defined|clarified|discussed)|"
    r"needs? (?:clarification|to be clarified|a decision)|remains? to be seen)\b",
    re.IGNORECASE,
)
KINDS = ("marker", "unchecked item", "question", "unclear")


def questions(corpus: Corpus) -> Section:
    """Markers, unchecked items, questions in the prose and sentences that hedge."""
    found = [each for text in corpus.texts for each in _open(text)]
    counts = Counter(kind for kind, _ in found)
    found.sort(key=lambda each: KINDS.index(each[0]))  # stable: file and line order within a kind
    summary: dict[str, int | float | str] = {f"{kind}s": counts[kind] for kind in KINDS[:3]}
    summary["unclear sentences"] = counts["unclear"]
    return section("Open questions", summary, (finding for _, finding in found))


def _open(text: Text) -> Iterator[tuple[str, Finding]]:
    lines = classify(text)
    for line in lines:
        if kind := _of_line(line):
            said = f"{kind}: {excerpt(line.text)}"
            yield kind, {"file": text.name, "line": line.number, "text": said}
    for sentence in sentences(lines):
        if kind := _of_sentence(sentence.text):
            said = f"{kind}: {excerpt(sentence.text)}"
            yield kind, {"file": text.name, "line": sentence.line, "text": said}


def _of_line(line: Line) -> str:
    if line.kind != "blank" and MARKER.search(line.text):
        return "marker"
    return "unchecked item" if line.kind == "item" and UNCHECKED.match(line.text) else ""


def _of_sentence(text: str) -> str:
    if MARKER.search(text):
        return ""  # found as a line already
    if text.rstrip("\"'”’)]").endswith("?"):
        return "question"
    return "unclear" if HEDGE.search(text) else ""
