"""The report as Markdown.  What came from the input is escaped: it is quoted, never markup."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from perkey.cli.audit.findings import Section

_SPECIAL = re.compile(r"([\\`*_\[\]<>|#!~])")


def render(report: Mapping[str, Any], order: list[str]) -> str:
    """The whole report: a title, a line of facts, then the sections of ``order`` that are there.

    ``report`` is the stored document: ``title``, ``files`` and ``sections`` by name.  A section
    that is missing is named as missing, so that a reader never takes a part for the whole.
    """
    sections: Mapping[str, Section] = report.get("sections", {})
    parts = [f"# {escape(str(report.get('title', 'Audit')))}", ""]
    missing = [name for name in order if name not in sections]
    if missing:
        parts += [f"**Incomplete: {', '.join(missing)} missing.**", ""]
    for name in order:
        if name in sections:
            parts += _section(sections[name])
    return "\n".join(parts).rstrip("\n") + "\n"


def _section(section: Section) -> list[str]:
    lines = [f"## {escape(section['title'])}", ""]
    if by := section.get("by"):
        lines += [f"*By {escape(by)}.*", ""]
    lines += ["| | |", "| --- | --- |"]
    lines += [f"| {escape(k)} | {escape(str(v))} |" for k, v in section["summary"].items()]
    lines.append("")
    for finding in section["findings"]:
        where = finding["file"] + (f":{finding['line']}" if finding["line"] else "")
        lines.append(f"- {code(where)} {escape(finding['text'])}")
    rest = section["found"] - len(section["findings"])
    if rest > 0:
        lines.append(f"- … and {rest} more")
    if not section["findings"]:
        lines.append("Nothing found.")
    return [*lines, ""]


def escape(text: str) -> str:
    """Text that Markdown shows as it is."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def code(text: str) -> str:
    """Text as a code span, whatever backticks it holds."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}"
