"""The sections against slower and simpler ways to say the same, on small random inputs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from perkey.cli.audit.corpus import shown, text
from perkey.cli.audit.duplicates import Passage, repeats
from perkey.cli.audit.prose import classify, paragraphs, sentences
from perkey.cli.audit.render import code, escape

K = 3
"""Shingles this short make repeats in small inputs."""


files = st.lists(st.text("abc", max_size=14), min_size=1, max_size=4)


def flat(contents: Sequence[str]) -> tuple[list[str], list[int]]:
    """Each letter a word, with the number of its file."""
    words = [letter for content in contents for letter in content]
    return words, [number for number, content in enumerate(contents) for _ in content]


def whole(texts: Sequence[int], start: int, length: int) -> bool:
    """Whether these words stand in one file."""
    return start + length <= len(texts) and texts[start] == texts[start + length - 1]


def disjoint(one: Passage) -> bool:
    return one.first + one.length <= one.start


@settings(max_examples=400, deadline=None)
@given(files)
def test_each_repeat_is_one_and_lies_in_one_file(contents: list[str]) -> None:
    words, texts = flat(contents)
    for found in repeats(words, texts, K):
        there = words[found.first : found.first + found.length]
        assert there == words[found.start : found.start + found.length]
        assert found.length >= K
        assert disjoint(found)
        assert whole(texts, found.first, found.length)
        assert whole(texts, found.start, found.length)


@settings(max_examples=400, deadline=None)
@given(files)
def test_no_repeat_is_missed(contents: list[str]) -> None:
    """Whatever stands again at a place, by comparing every pair, is inside a passage found."""
    words, texts = flat(contents)
    inside = {
        position
        for found in repeats(words, texts, K)
        for position in range(found.start, found.start + found.length)
    }
    for later in range(len(words)):
        for earlier in range(later - K + 1):
            if (
                whole(texts, later, K)
                and whole(texts, earlier, K)
                and words[earlier : earlier + K] == words[later : later + K]
            ):
                assert later in inside


@given(st.text('aB .?!\n"e.g', max_size=60))
def test_sentences_are_the_paragraphs_cut_up(content: str) -> None:
    lines = classify(text("x.md", content))
    whole_words = [piece for pieces in paragraphs(lines) for piece, _ in pieces]
    assert [word for s in sentences(lines) for word in s.text.split()] == whole_words


@given(st.text())
def test_every_line_is_classified_in_order(content: str) -> None:
    given_text = text("x.md", content)
    numbers = [line.number for line in classify(given_text)]
    assert numbers == list(range(1, len(given_text.lines) + 1))


@given(st.text())
def test_names_are_one_printable_line(name: str) -> None:
    assert shown(name).isprintable()
    assert shown(shown(name)) == shown(name)


@given(st.text("a`\\*_[]<>|#!~", max_size=20))
def test_escaped_text_holds_no_live_markup(content: str) -> None:
    """Nothing is left that Markdown would act on once each escaped pair is taken away."""
    assert set(re.sub(r"\\.", "", escape(content))) <= {"a"}
    assert re.sub(r"\\(.)", r"\1", escape(content)) == content


@given(st.text("a`", max_size=20))
def test_a_code_span_holds_its_text(content: str) -> None:
    span = code(content)
    fence = span[: len(span) - len(span.lstrip("`"))]
    inner = span[len(fence) : len(span) - len(fence)]
    assert inner.strip(" ") == content or content == ""
    assert fence not in inner
