"""Readability: the Flesch formulas, and the sentences that are hardest to read.

Reading ease: R. Flesch, "A new readability yardstick", Journal of Applied Psychology 32(3),
1948.  Grade level: J. P. Kincaid et al., Research Branch Report 8-75, Naval Air Station
Memphis, 1975.  Both were made for English; syllables are counted by groups of vowels, which is
within a few per cent of a dictionary over a page and often wrong for one word.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from perkey.cli.audit.corpus import Corpus
from perkey.cli.audit.findings import Finding, Section, excerpt, section
from perkey.cli.audit.prose import classify, sentences

LONG_SENTENCE_WORDS = 35
HARD_EASE = 30.0
"""Flesch's own word for what lies below: very difficult."""
FEW_WORDS = 100
"""Flesch's sample size; a shorter file is not judged by itself."""

VOWELS = re.compile(r"[aeiouy]+")
SILENT_E = re.compile(r"(?:[^laeiouy]e|[^tdaeiouy]ed|[^aeiouycsxzhg]es)$")


@dataclass(slots=True)
class Count:
    """What the formulas need."""

    words: int = 0
    sentences: int = 0
    syllables: int = 0

    def add(self, other: Count) -> None:
        self.words += other.words
        self.sentences += other.sentences
        self.syllables += other.syllables


def readability(corpus: Corpus) -> Section:
    """Ease and grade over all prose; findings are hard files and long sentences, worst first."""
    total = Count()
    files: list[tuple[float, Finding]] = []
    long: list[tuple[int, Finding]] = []
    for text in corpus.texts:
        count = Count()
        for sentence in sentences(classify(text)):
            words = sentence.words
            if not words:
                continue
            count.add(Count(len(words), 1, sum(map(syllables, words))))
            if len(words) > LONG_SENTENCE_WORDS:
                said = f"{len(words)} words in one sentence: {excerpt(sentence.text, 100)}"
                finding: Finding = {"file": text.name, "line": sentence.line, "text": said}
                long.append((-len(words), finding))
        total.add(count)
        if count.words >= FEW_WORDS and ease(count) < HARD_EASE:
            said = f"reading ease {ease(count):.0f}: very difficult"
            files.append((ease(count), {"file": text.name, "line": 0, "text": said}))
    ranked = [f for _, f in sorted(files, key=_rank)] + [f for _, f in sorted(long, key=_rank)]
    return section("Readability", _summary(total, len(long)), ranked)


def _rank(item: tuple[float, Finding]) -> tuple[float, str, int]:
    return item[0], item[1]["file"], item[1]["line"]


def _summary(total: Count, long: int) -> dict[str, int | float | str]:
    summary: dict[str, int | float | str] = {
        "sentences": total.sentences,
        "words in prose": total.words,
        f"sentences over {LONG_SENTENCE_WORDS} words": long,
    }
    if total.words:
        summary["words a sentence"] = round(total.words / total.sentences, 1)
        summary["reading ease"] = round(ease(total), 1)
        summary["grade level"] = round(grade(total), 1)
        summary["verdict"] = verdict(ease(total))
    return summary


def ease(count: Count) -> float:
    """Flesch reading ease: 100 very easy, 0 very difficult; ``count`` may not be empty."""
    return 206.835 - 1.015 * count.words / count.sentences - 84.6 * count.syllables / count.words


def grade(count: Count) -> float:
    """Flesch-Kincaid grade level, in years of US school; ``count`` may not be empty."""
    return 0.39 * count.words / count.sentences + 11.8 * count.syllables / count.words - 15.59


def verdict(score: float) -> str:
    """Flesch's words for a reading ease."""
    steps = [(90, "very easy"), (80, "easy"), (70, "fairly easy"), (60, "standard")]
    steps += [(50, "fairly difficult"), (30, "difficult")]
    return next((word for floor, word in steps if score >= floor), "very difficult")


def syllables(word: str) -> int:
    """Groups of vowels, a silent final e not counted; at least one."""
    plain = word.lower()
    groups = len(VOWELS.findall(plain))
    return max(1, groups - bool(SILENT_E.search(plain)))
