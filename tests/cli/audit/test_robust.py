"""Any text at all gives a report: plain JSON, bounded, at places that exist, in every section."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perkey.cli.audit import SECTIONS, render
from perkey.cli.audit.findings import MAX_EXCERPT, MAX_FINDINGS
from tests.cli.audit.build import corpus

FRAGMENTS = [
    "# ", "## A\n", "\n\n", "- [ ] ", "[a](", ")", "[a][b]", "[b]: x.md\n", "```\n", "~~~", "`",
    "---\n", "===\n", "| a |", "> ", "*", "_", "<a id='x'>", "https://x.org/", "Why? ", "e.g. ",
    "colour color ", "read-only read only ", "GitHub Github ", "word " * 20, "\t", "\u2028",
    "é", "\0",
]  # fmt: skip
pages = st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=8), max_size=40).map("".join)


@settings(max_examples=150, deadline=None)
@given(st.lists(pages, max_size=3))
def test_any_text_gives_a_report(contents: list[str]) -> None:
    given_texts = corpus(*contents)
    lengths = {text.name: len(text.lines) for text in given_texts.texts}
    report = {
        "title": "Any",
        "sections": {n: section(given_texts) for n, section in SECTIONS.items()},
    }
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    for found in report["sections"].values():
        assert len(found["findings"]) <= min(MAX_FINDINGS, found["found"])
        for finding in found["findings"]:
            assert 0 <= finding["line"] <= lengths[finding["file"]]
            assert "\n" not in finding["text"]
            assert len(finding["text"]) <= 3 * MAX_EXCERPT
    assert render(report, list(SECTIONS)).startswith("# Any\n")


@pytest.mark.parametrize(
    "hostile",
    ["[" * 5000, "[a](" * 1000, "`" * 4999, "*" * 5000, "<" * 5000, "- " * 2000, "![" * 2000,
     "a-" * 2000, "(" * 5000, "[a]: " + "x" * 4000, "> " * 2000, "a?" * 2000, "`a" * 2400],
    ids=lambda text: text[:4],
)  # fmt: skip
@pytest.mark.timeout(60)
def test_no_line_makes_a_pattern_explode(hostile: str) -> None:
    """Lines are cut at 5,000 characters; fifty of the worst must still be read at once."""
    for section in SECTIONS.values():
        section(corpus("\n\n".join([hostile] * 50)))
