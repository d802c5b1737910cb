"""Each section finds what it is for, at the right place, and nothing in a clean text."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from perkey.cli.audit import SECTIONS
from perkey.cli.audit.corpus import Corpus
from perkey.cli.audit.duplicates import SHINGLE_WORDS, duplicates, repeats
from perkey.cli.audit.findings import MAX_FINDINGS, excerpt
from perkey.cli.audit.inventory import inventory
from perkey.cli.audit.links import links, slug
from perkey.cli.audit.questions import questions
from perkey.cli.audit.readability import Count, ease, grade, readability, syllables, verdict
from perkey.cli.audit.vocabulary import vocabulary
from perkey.cli.audit.words import UK_TO_US
from tests.cli.audit.build import ROOT, corpus, places, said

CLEAN = "# Title\n\nA short text. It is clear.\n\n## Part\n\nSee [above](#title).\n"


@pytest.mark.parametrize("name", SECTIONS)
def test_a_clean_text_has_no_findings(name: str) -> None:
    found = SECTIONS[name](corpus(CLEAN))
    assert found["findings"] == []
    assert found["found"] == 0


# --------------------------------------------------------------------------- inventory


def test_inventory_counts() -> None:
    found = inventory(corpus("# A\n\none two three\n", "four\n"))
    summary = found["summary"]
    assert (summary["files"], summary["lines"], summary["words"]) == (2, 4, 5)
    assert (summary["headings"], summary["bytes"], summary["not read"]) == (1, 24, 0)
    assert summary["longest"] == "1.md (4 words)"


def test_inventory_names_what_was_not_read_and_what_is_empty() -> None:
    read = corpus("")
    found = inventory(Corpus(ROOT, read.texts, (("x.png", "binary"),)))
    assert said(found) == ["not read: binary", "holds no words"]


def test_inventory_sees_a_broken_heading_structure() -> None:
    page = "# A\n### B\n## C\n## C\n# A2\n## C\n#  #\n"
    found = inventory(corpus(page))
    assert places(found) == [("1.md", 2), ("1.md", 4), ("1.md", 7)]
    assert "jumps from level 1 to 3" in said(found)[0]
    assert "stands twice" in said(found)[1]
    assert "empty heading" in said(found)[2]


# ------------------------------------------------------------------------- readability


def test_the_flesch_formulas_on_known_figures() -> None:
    """100 words, 5 sentences and 150 syllables, worked by hand from the published formulas."""
    count = Count(words=100, sentences=5, syllables=150)
    assert ease(count) == pytest.approx(206.835 - 20.3 - 126.9)
    assert grade(count) == pytest.approx(7.8 + 17.7 - 15.59)


@pytest.mark.parametrize(
    ("word", "count"),
    [
        ("a", 1), ("the", 1), ("make", 1), ("table", 2), ("reading", 2), ("wanted", 2),
        ("passed", 1), ("versions", 2), ("syllable", 3), ("rhythm", 1), ("hmm", 1), ("idea", 2),
    ],
)  # fmt: skip
def test_syllables(word: str, count: int) -> None:
    assert syllables(word) == count


@pytest.mark.parametrize(
    ("score", "word"),
    [(95, "very easy"), (60, "standard"), (30, "difficult"), (-5, "very difficult")],
)
def test_verdicts(score: float, word: str) -> None:
    assert verdict(score) == word


def test_long_sentences_come_worst_first() -> None:
    page = "Fine.\n\n" + "word " * 36 + "end.\n\n" + "word " * 50 + "end.\n"
    found = readability(corpus(page))
    assert places(found) == [("1.md", 5), ("1.md", 3)]
    assert said(found)[0].startswith("51 words")
    assert found["summary"]["sentences over 35 words"] == 2


def test_a_very_hard_file_is_named() -> None:
    page = "Organisational internationalisation necessitates responsibility. " * 40
    found = readability(corpus(page))
    assert places(found) == [("1.md", 0)]
    assert found["summary"]["verdict"] == "very difficult"


def test_no_prose_has_no_score() -> None:
    assert "reading ease" not in readability(corpus("```\ncode\n```\n"))["summary"]


# -------------------------------------------------------------------------- vocabulary


def test_terms_leave_out_common_and_short_words() -> None:
    found = vocabulary(corpus("lease lease with with with cat cat cat board"))
    assert found["summary"]["top terms"] == "lease (2), board (1)"


def test_mixed_spelling_names_the_rarer_side() -> None:
    found = vocabulary(corpus("colour behaviour organised", "x\ncolor"))
    assert (found["summary"]["UK spellings"], found["summary"]["US spellings"]) == (3, 1)
    assert places(found) == [("2.md", 2)]
    assert "is US spelling" in said(found)[0]
    assert "is UK spelling" in said(vocabulary(corpus("colour color center")))[0]


def test_the_word_lists_do_not_overlap() -> None:
    assert UK_TO_US.keys().isdisjoint(UK_TO_US.values())
    assert all(word == word.lower() for pair in UK_TO_US.items() for word in pair)
    assert UK_TO_US["organising"] == "organizing"
    assert UK_TO_US["behaviours"] == "behaviors"


def test_hyphens_open_and_closed_forms_are_one_word() -> None:
    found = vocabulary(corpus("read-only and read-only", "a Read Only disk", "readonly readonly"))
    assert said(found) == ["written as “read-only” (2), “readonly” (2), “read only” (1)"]
    assert places(found) == [("2.md", 1)]


def test_a_three_part_compound() -> None:
    found = vocabulary(corpus("compare-and-swap", "to compare and swap it"))
    assert len(found["findings"]) == 1


def test_one_letter_parts_are_names() -> None:
    assert said(vocabulary(corpus("plan-b and plan b"))) == []


def test_capitals_inside_a_name() -> None:
    found = vocabulary(corpus("GitHub GitHub Github", "Lock lock LOCK"))
    assert said(found) == ["written as “GitHub” (2), “Github” (1)"]


# ------------------------------------------------------------------------------- links


def nothing(_: Path) -> bool:
    return False


@pytest.mark.parametrize(
    ("link", "problem"),
    [
        ("[a](2.md)", ""),
        ("[a](./2.md#part-two)", ""),
        ("[a](2.md#part-two-1)", ""),
        ("[a](2.md#by-id)", ""),
        ("[a](/2.md 'title')", ""),
        ("[a](#here)", ""),
        ("[a](https://x.org/none#y)", ""),
        ("[a](mailto:x@y.org)", ""),
        ("`[a](none.md)`", ""),
        ("[a][two]\n\n[two]: 2.md", ""),
        ("[a](none.md)", "none.md does not exist"),
        ("[a](<no ne.md>)", "no ne.md does not exist"),
        ("![a](img/none.png)", "img/none.png does not exist"),
        ("[a](2.md#none)", "no such heading or anchor"),
        ("[a](#none)", "no such heading or anchor"),
        ("[a]()", "a link without a target"),
        ("[a](../../etc/passwd)", "leads out of the audited folder"),
        ("[a](%2e%2e/%2e%2e/x)", "leads out of the audited folder"),
        ("[a](x%00y.md)", "does not exist"),
        ("[a][nowhere]", "no definition of [nowhere]"),
        ("[two]: none.md", "none.md does not exist"),
    ],
)
def test_links(link: str, problem: str) -> None:
    other = "# Part, *two*!\n\n## Part two\n\n<a id='by-id'></a>\n"
    found = links(corpus(f"# Here\n\n{link}\n", other), nothing)
    assert [problem in text for text in said(found)] == ([True] if problem else [])


def test_a_target_outside_the_corpus_is_looked_up_below_the_root() -> None:
    asked: list[Path] = []

    def exists(path: Path) -> bool:
        asked.append(path)
        return True

    assert said(links(corpus("[a](img/x.png) [b](../y)"), exists)) != []
    assert asked == [ROOT / "img/x.png"]


def test_a_name_that_the_disk_refuses_does_not_exist() -> None:
    def refuse(path: Path) -> bool:
        raise OSError("name too long")

    assert said(links(corpus("[a](x.png)"), refuse)) == ["x.png does not exist"]


@pytest.mark.parametrize(
    ("title", "anchor"),
    [
        ("Hello, World!", "hello-world"),
        ("`code` & more", "code--more"),
        ("[A link](x.md)", "a-link"),
        ("Überblick 2", "überblick-2"),
        ("snake_case-kept", "snake_case-kept"),
    ],
)
def test_slugs(title: str, anchor: str) -> None:
    assert slug(title) == anchor


def test_addresses_given_more_than_once() -> None:
    found = links(
        corpus("https://x.org/a.\n[x](https://x.org/a)", "<https://x.org/a> https://y.org")
    )
    assert (found["summary"]["addresses"], found["summary"]["given more than once"]) == (2, 1)
    assert said(found) == ["https://x.org/a stands 3 times; also 1.md:2, 2.md:1"]


# -------------------------------------------------------------------------- duplicates

PASSAGE = " ".join(f"alpha{c}" for c in "abcdefghijklmnopqrst")  # 20 words that no one else has


def letters(prefix: str, count: int) -> str:
    """``count`` distinct words, so that nothing repeats by accident."""
    return " ".join(prefix + "x" * n for n in range(1, count + 1))


def test_a_passage_in_two_files() -> None:
    found = duplicates(corpus(f"intro\n\n{letters('a', 5)}\n{PASSAGE}\n", f"{PASSAGE} end"))
    assert places(found) == [("2.md", 1)]
    assert said(found)[0].startswith("20 words as in 1.md:4:")
    assert found["summary"]["words in them"] == 20


def test_a_passage_twice_in_one_file() -> None:
    found = duplicates(corpus(f"{PASSAGE}\n\nbetween\n\n{PASSAGE}\n"))
    assert places(found) == [("1.md", 5)]


def test_a_passage_across_lines_with_other_case_and_markup() -> None:
    again = PASSAGE.upper().replace(" ALPHAJ ", "\n**ALPHAJ** ")
    assert len(duplicates(corpus(PASSAGE, again))["findings"]) == 1


def test_one_word_less_than_a_shingle_is_no_passage() -> None:
    short = " ".join(PASSAGE.split()[: SHINGLE_WORDS - 1])
    assert duplicates(corpus(short, short))["findings"] == []
    enough = " ".join(PASSAGE.split()[:SHINGLE_WORDS])
    assert len(duplicates(corpus(enough, enough))["findings"]) == 1


def test_a_passage_ends_with_its_file() -> None:
    """Neighbours in the list of words are no neighbours on the page."""
    half = PASSAGE.split()
    found = duplicates(corpus(PASSAGE, " ".join(half[:10]), " ".join(half[10:])))
    assert found["findings"] == []


def test_code_is_not_compared() -> None:
    fenced = f"```\n{PASSAGE}\n```\n"
    assert duplicates(corpus(fenced, fenced))["findings"] == []


def test_words_beyond_the_limit_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("perkey.cli.audit.duplicates")  # the name is the function's
    monkeypatch.setattr(module, "MAX_WORDS", 25)
    found = duplicates(corpus(PASSAGE, PASSAGE))
    assert found["summary"]["words compared"] == 25
    assert found["summary"]["words not compared"] == 15


def test_one_word_for_ever_is_not_quadratic() -> None:
    """Each repeat doubles, so there are few of them however long the run is."""
    words = ["again"] * 20_000
    assert len(list(repeats(words, [0] * len(words)))) < 20


# --------------------------------------------------------------------------- questions


def test_open_questions_by_kind() -> None:
    marker = "TO" + "DO"
    page = f"{marker}: write this.\n\n- [ ] decide\n- [x] done\n\nWhy? It is unclear.\n"
    found = questions(corpus(page))
    assert list(found["summary"].values()) == [1, 1, 1, 1]
    assert places(found) == [("1.md", 1), ("1.md", 3), ("1.md", 6), ("1.md", 6)]
    assert [text.partition(":")[0] for text in said(found)] == [
        "marker", "unchecked item", "question", "unclear",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "sentence",
    ["This is to be decided.", "It needs clarification.", "We are not sure.", "Not yet known."],
)
def test_hedges(sentence: str) -> None:
    assert len(questions(corpus(sentence))["findings"]) == 1


@pytest.mark.parametrize("sentence", ["Mastodon is a name.", "A clear text.", "`what?` is code."])
def test_what_is_no_open_question(sentence: str) -> None:
    assert questions(corpus(sentence))["findings"] == []


def test_a_marker_in_code_counts_and_a_question_in_code_does_not() -> None:
    page = "```\n# FIX" + "ME here\nis it? yes\n```\n"
    assert places(questions(corpus(page))) == [("1.md", 2)]


# ------------------------------------------------------------------------------ limits


def test_findings_are_capped_and_counted() -> None:
    found = questions(corpus("Why?\n\n" * 100))
    assert (len(found["findings"]), found["found"]) == (MAX_FINDINGS, 100)


def test_excerpts_are_one_short_line() -> None:
    assert excerpt("a\n b\t c") == "a b c"
    assert excerpt("x" * 200, 10) == "x" * 9 + "…"
