"""Duplicated passages, found by shingles: runs of words that stand in two places.

A. Broder, "On the resemblance and containment of documents", 1997, with every shingle kept
rather than a sample, a rolling hash (R. Karp and M. Rabin, 1987) to find candidates, and each
candidate compared word by word, so a finding is never a hash collision.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from perkey.cli.audit.corpus import Corpus
from perkey.cli.audit.findings import Finding, Section, excerpt, section
from perkey.cli.audit.prose import WORD, bare, classify

SHINGLE_WORDS = 14
"""Shorter repeats are phrases, not passages."""
MAX_WORDS = 400_000
"""Words compared; what lies behind is counted and said, not compared."""

_BASE = 1_000_003
_MODULUS = (1 << 61) - 1


@dataclass(frozen=True, slots=True)
class Place:
    """Where one word stands."""

    file: str
    line: int
    text: int
    """Number of the file, so that a passage ends with its file."""


@dataclass(frozen=True, slots=True)
class Passage:
    """``length`` words that stand at ``start`` stood at ``first`` already."""

    first: int
    start: int
    length: int


def duplicates(corpus: Corpus) -> Section:
    """Passages of ``SHINGLE_WORDS`` words or more that occur again, longest first."""
    words, places, left_out = _words(corpus)
    passages = sorted(repeats(words, [p.text for p in places]), key=lambda p: (-p.length, p.start))
    repeated = sum(passage.length for passage in passages)
    summary: dict[str, int | float | str] = {
        "words compared": len(words),
        "passages": len(passages),
        "words in them": repeated,
        "share": f"{repeated / len(words):.1%}" if words else "0.0%",
    }
    if left_out:
        summary["words not compared"] = left_out
    return section("Duplicated passages", summary, (_finding(p, words, places) for p in passages))


def _words(corpus: Corpus) -> tuple[list[str], list[Place], int]:
    words: list[str] = []
    places: list[Place] = []
    left_out = 0
    for number, text in enumerate(corpus.texts):
        for line in classify(text):
            if line.kind not in {"prose", "item", "table"}:
                continue
            found = [word.lower() for word in WORD.findall(bare(line.text))]
            room = MAX_WORDS - len(words)
            left_out += max(0, len(found) - room)
            words += found[:room]
            places += [Place(text.name, line.number, number)] * min(len(found), room)
    return words, places, left_out


def repeats(
    words: Sequence[str], texts: Sequence[int], size: int = SHINGLE_WORDS
) -> Iterator[Passage]:
    """Repeats of ``size`` words or more, as long as they get, left to right, none overlapping.

    ``texts`` gives each word's file; a passage lies in one file.
    """
    seen: dict[int, int] = {}
    end = 0  # of the latest passage
    for position, value in enumerate(_rolling(words, size)):
        if texts[position] != texts[position + size - 1]:
            continue  # neighbours in the list are no neighbours on the page
        first = seen.setdefault(value, position)
        if position < end or first == position:
            continue
        length = _common(words, texts, first, position)
        if length >= size:
            yield Passage(first, position, length)
            end = position + length


def _rolling(words: Sequence[str], size: int) -> Iterator[int]:
    """The hash of the ``size`` words at each position."""
    numbers: dict[str, int] = {}
    codes = [numbers.setdefault(word, len(numbers) + 1) for word in words]
    top = pow(_BASE, size - 1, _MODULUS)
    value = 0
    for index, code in enumerate(codes):
        if index >= size:
            value -= codes[index - size] * top
        value = (value * _BASE + code) % _MODULUS
        if index >= size - 1:
            yield value


def _common(words: Sequence[str], texts: Sequence[int], first: int, start: int) -> int:
    """How many words agree from both places on, within one file each and without overlap."""
    limit = min(start - first, len(words) - start)
    length = 0
    while (
        length < limit
        and words[first + length] == words[start + length]
        and texts[first + length] == texts[first]
        and texts[start + length] == texts[start]
    ):
        length += 1
    return length


def _finding(passage: Passage, words: Sequence[str], places: Sequence[Place]) -> Finding:
    there, here = places[passage.first], places[passage.start]
    quoted = excerpt(" ".join(words[passage.start : passage.start + passage.length]), 90)
    said = f"{passage.length} words as in {there.file}:{there.line}: “{quoted}”"
    return {"file": here.file, "line": here.line, "text": said}
