"""Vocabulary: the terms a text leans on, and words that it writes in more than one way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from perkey.cli.audit.corpus import Corpus
from perkey.cli.audit.findings import Finding, Section, section
from perkey.cli.audit.prose import WORD, bare, classify
from perkey.cli.audit.words import STOP_WORDS, UK_TO_US

TOP_TERMS = 12
MIN_TERM_LETTERS = 4
MAX_COMPOUND_PARTS = 4
"""``compare-and-swap`` has three; longer ones are phrases."""
MAX_FORMS = 200_000
"""Distinct forms kept; later new ones are not counted, and the summary says so."""


@dataclass(slots=True)
class Forms:
    """How often each written form occurs, and where it first does."""

    counts: Counter[str] = field(default_factory=Counter)
    first: dict[str, tuple[str, int]] = field(default_factory=dict)
    left_out: int = 0

    def add(self, form: str, file: str, line: int) -> None:
        if form not in self.first:
            if len(self.first) >= MAX_FORMS:
                self.left_out += 1
                return
            self.first[form] = (file, line)
        self.counts[form] += 1


def vocabulary(corpus: Corpus) -> Section:
    """Top terms; findings are mixed spelling, hyphenation and capitals, in that order."""
    words, phrases = _collect(corpus)
    lower = _folded(words)
    spelling = list(_mixed_spelling(lower))
    hyphens = list(_mixed_hyphens(lower, phrases))
    capitals = list(_mixed_capitals(words))
    uk, us = _sides(lower)
    summary: dict[str, int | float | str] = {
        "different words": len(lower.counts),
        "top terms": ", ".join(f"{term} ({count})" for term, count in _terms(lower.counts)),
        "UK spellings": uk,
        "US spellings": us,
        "written in two ways": len(spelling) + len(hyphens) + len(capitals),
    }
    if words.left_out + phrases.left_out:
        summary["forms not counted"] = words.left_out + phrases.left_out
    return section("Vocabulary", summary, spelling + hyphens + capitals)


def _collect(corpus: Corpus) -> tuple[Forms, Forms]:
    """Single words as written, and runs of two to four plain words that could be a compound."""
    words, phrases = Forms(), Forms()
    compounds: set[str] = set()
    lines: list[tuple[str, int, list[str]]] = []
    for text in corpus.texts:
        for line in classify(text):
            if line.kind in {"prose", "item", "table", "heading"}:
                found = WORD.findall(bare(line.text))
                lines.append((text.name, line.number, found))
                for word in found:
                    words.add(word, text.name, line.number)
                    if "-" in word:
                        compounds.add(word.lower().replace("-", " "))
    for name, number, found in lines:
        plain = [word.lower() for word in found]
        for size in range(2, MAX_COMPOUND_PARTS + 1):
            for start in range(len(plain) - size + 1):
                run = " ".join(plain[start : start + size])
                if run in compounds:
                    phrases.add(run, name, number)
    return words, phrases


def _folded(words: Forms) -> Forms:
    """The same counts with capitals put aside."""
    lower = Forms()
    for form, place in words.first.items():
        key = form.lower()
        lower.counts[key] += words.counts[form]
        lower.first.setdefault(key, place)
    return lower


def _terms(counts: Counter[str]) -> list[tuple[str, int]]:
    kept = [
        (word, count)
        for word, count in counts.items()
        if len(word) >= MIN_TERM_LETTERS and word not in STOP_WORDS
    ]
    return sorted(kept, key=lambda item: (-item[1], item[0]))[:TOP_TERMS]


def _sides(lower: Forms) -> tuple[int, int]:
    uk = sum(lower.counts[word] for word in UK_TO_US)
    return uk, sum(lower.counts[word] for word in UK_TO_US.values())


def _mixed_spelling(lower: Forms) -> Iterator[Finding]:
    """Words of the rarer side where a text uses both sides of the ocean."""
    uk, us = _sides(lower)
    if not uk or not us:
        return
    side, rarer = ("US", UK_TO_US.values()) if us <= uk else ("UK", UK_TO_US.keys())
    other = "UK" if side == "US" else "US"
    for word in sorted(set(rarer)):
        if word in lower.first:
            file, line = lower.first[word]
            said = f"“{word}” ({lower.counts[word]}) is {side} spelling; the text is mostly {other}"
            yield {"file": file, "line": line, "text": said}


def _mixed_hyphens(lower: Forms, phrases: Forms) -> Iterator[Finding]:
    """``read-only`` beside ``read only`` or ``readonly``."""
    for word in sorted(filter(_compound, lower.first)):
        forms = [(word, lower.counts[word])]
        open_form, closed = word.replace("-", " "), word.replace("-", "")
        if open_form in phrases.first:
            forms.append((open_form, phrases.counts[open_form]))
        if closed in lower.first:
            forms.append((closed, lower.counts[closed]))
        if len(forms) > 1:
            rarest = min(forms, key=lambda form: form[1])[0]
            place = phrases.first[rarest] if " " in rarest else lower.first[rarest]
            yield {"file": place[0], "line": place[1], "text": _listed(forms)}


def _compound(word: str) -> bool:
    """``read-only``, but not ``x-ray``: a lone letter is a name more often than a part."""
    parts = word.split("-")
    return len(parts) > 1 and min(map(len, parts)) > 1


def _mixed_capitals(words: Forms) -> Iterator[Finding]:
    """``GitHub`` beside ``Github``: names with a capital inside, written another way too."""
    groups: dict[str, list[str]] = {}
    for form in words.first:
        if not form.islower():
            groups.setdefault(form.lower(), []).append(form)
    for _, forms in sorted(groups.items()):
        if len(forms) > 1 and any(_camel(form) for form in forms):
            rarest = min(forms, key=lambda form: (words.counts[form], form))
            file, line = words.first[rarest]
            counted = ((form, words.counts[form]) for form in forms)
            yield {"file": file, "line": line, "text": _listed(counted)}


def _camel(form: str) -> bool:
    return any(letter.isupper() for letter in form[1:]) and not form.isupper() and "-" not in form


def _listed(forms: Iterable[tuple[str, int]]) -> str:
    ordered = sorted(forms, key=lambda form: (-form[1], form[0]))
    return "written as " + ", ".join(f"“{form}” ({count})" for form, count in ordered)
