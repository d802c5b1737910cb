"""The report as Markdown shows what was found and lets nothing of the input act as markup."""

from __future__ import annotations

from perkey.cli.audit.findings import Section
from perkey.cli.audit.render import code, escape, render

SECTION: Section = {
    "title": "Links",
    "summary": {"broken": 1},
    "findings": [{"file": "a.md", "line": 3, "text": "x does not exist"}],
    "found": 2,
}


def test_a_report() -> None:
    assert render({"title": "T", "sections": {"links": SECTION}}, ["links"]) == (
        "# T\n\n## Links\n\n| | |\n| --- | --- |\n| broken | 1 |\n\n"
        "- `a.md:3` x does not exist\n- … and 1 more\n"
    )


def test_a_section_names_its_author() -> None:
    assert "*By worker-1.*" in render({"sections": {"x": {**SECTION, "by": "worker-1"}}}, ["x"])


def test_missing_sections_are_named_first() -> None:
    page = render({"title": "T", "sections": {"links": SECTION}}, ["inventory", "links", "other"])
    assert "**Incomplete: inventory, other missing.**" in page


def test_sections_follow_the_given_order() -> None:
    sections = {"b": {**SECTION, "title": "B"}, "a": {**SECTION, "title": "A"}}
    page = render({"sections": sections}, ["a", "b"])
    assert page.index("## A") < page.index("## B")


def test_a_whole_file_has_no_line_and_no_findings_are_said() -> None:
    whole: Section = {**SECTION, "findings": [{"file": "a.md", "line": 0, "text": "t"}], "found": 1}
    assert "- `a.md` t\n" in render({"sections": {"x": whole}}, ["x"])
    none: Section = {**SECTION, "findings": [], "found": 0}
    assert "Nothing found." in render({"sections": {"x": none}}, ["x"])


def test_markup_in_the_input_is_escaped() -> None:
    assert escape("<b> [x](y) | `z` *w*\n# h") == "\\<b\\> \\[x\\](y) \\| \\`z\\` \\*w\\* \\# h"


def test_backticks_in_a_name_stay_inside_the_span() -> None:
    assert code("a`b.md") == "``a`b.md``"
    assert code("`x`") == "`` `x` ``"
