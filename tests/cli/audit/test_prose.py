"""Lines, prose and sentences as the sections see them."""

from __future__ import annotations

import pytest

from perkey.cli.audit.corpus import text
from perkey.cli.audit.prose import bare, classify, sentences

PAGE = """---
title: front matter
---
# One #

Some prose
goes on.

Two
===
- an item
  continued
1. [x] numbered

    indented code

```python
# not a heading
~~~
```
| a | table |
[ref]: target
> quoted
"""


def kinds(content: str) -> list[str]:
    return [line.kind for line in classify(text("x.md", content))]


def spoken(content: str) -> list[tuple[int, str]]:
    return [(s.line, s.text) for s in sentences(classify(text("x.md", content)))]


def test_every_line_has_its_kind() -> None:
    assert kinds(PAGE) == [
        *["code"] * 3,
        *["heading", "blank", "prose", "prose", "blank"],
        *["heading", "blank"],
        *["item", "prose", "item", "blank", "code", "blank"],
        *["code"] * 4,
        *["table", "table", "prose"],
    ]


def test_headings_carry_title_and_level() -> None:
    lines = classify(text("x.md", "# One #\n\nTwo\n---\n### C# notes"))
    found = [(line.text, line.level) for line in lines if line.kind == "heading"]
    assert found == [("One", 1), ("Two", 2), ("C# notes", 3)]


def test_a_fence_ends_only_with_its_own_kind() -> None:
    assert kinds("````\n```\n````\nprose") == ["code", "code", "code", "prose"]
    assert kinds("~~~\n```\n~~~\nprose") == ["code", "code", "code", "prose"]


def test_an_unclosed_fence_runs_to_the_end() -> None:
    assert set(kinds("```\n# a\n\nb")) == {"code"}


def test_a_rule_below_a_blank_is_no_heading() -> None:
    assert "heading" not in kinds("prose\n\n---\n")


@pytest.mark.parametrize(
    ("line", "plain"),
    [
        ("- [ ] do *this* _now_", "do this now"),
        ("see [the page](x.md#a) and ![alt](i.png)", "see the page and alt"),
        ("a `code_span` and ``a ` b`` here", "a   and   here"),
        ("<b>bold</b> at https://x.org/a?b", " bold  at  "),
        ("> > snake_case stays", "snake_case stays"),
    ],
)
def test_markup_is_taken_off(line: str, plain: str) -> None:
    assert bare(line) == plain


def test_code_can_be_kept() -> None:
    assert bare("use `put`", code=True) == "use `put`"


def test_sentences_know_their_line_across_lines() -> None:
    assert spoken("First one.\nThen a second\nsentence! And") == [
        (1, "First one."),
        (2, "Then a second sentence!"),
        (3, "And"),
    ]


@pytest.mark.parametrize(
    "whole",
    [
        "See e.g. the store, i.e. the file.",
        "Written by R. Flesch in 1948.",
        "Version 3.14 is fine.",
        "He said “stop.” and went.",
        "It is in file.txt now.",
    ],
)
def test_a_full_stop_is_not_always_an_end(whole: str) -> None:
    assert spoken(whole) == [(1, whole)]


def test_items_and_paragraphs_end_sentences() -> None:
    assert [line for line, _ in spoken("- one\n- two\n\nthree\n\nfour")] == [1, 2, 4, 6]


def test_code_is_no_word() -> None:
    (sentence,) = sentences(classify(text("x.md", "Call `a b c` now.")))
    assert sentence.words == ["Call", "now"]
    assert sentence.text == "Call `a b c` now."
