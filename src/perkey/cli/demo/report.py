"""The one document that all workers write, and the two ways to add a section to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perkey import Document, Documents, Tx


def empty(title: str) -> dict[str, Any]:
    """The report before anyone has written."""
    return {"title": title, "sections": {}, "findings": 0}


def with_section(name: str, section: dict[str, Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """The small pure change: this section and the total, whatever else the report holds.

    Applying it twice is applying it once, so a worker that takes over a dead one's task may
    repeat it.
    """

    def change(report: dict[str, Any]) -> dict[str, Any]:
        sections = {**report["sections"], name: section}
        return {**report, "sections": sections, "findings": total(sections)}

    return change


def total(sections: dict[str, Any]) -> int:
    """Findings over all sections."""
    return sum(section["found"] for section in sections.values())


def adding(key: str, name: str, section: dict[str, Any]) -> Callable[[Tx], None]:
    """The same change inside a transaction, on whatever the newest version is."""
    change = with_section(name, section)

    def apply(tx: Tx) -> None:
        tx[key] = change(tx[key])

    return apply


def overwrite_blindly(
    docs: Documents, key: str, name: str, section: dict[str, Any], by: str, read: Document
) -> Document:
    """Without perkey's help: the whole document as it was read some time ago, plus one section."""
    value = with_section(name, section)(read.value)
    return docs.put(key, value, overwrite=True, base=read.version, by=by)
