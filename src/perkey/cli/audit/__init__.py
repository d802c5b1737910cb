"""An audit of text files, in six sections that know nothing of each other.

Each section is a pure function of a ``Corpus`` and returns a plain JSON object: ``title``,
``summary`` (numbers and short texts by name), ``findings`` (``file``, ``line``, ``text``, at
most ``MAX_FINDINGS``) and ``found`` (how many there were).  ``perkey demo`` lets a worker
process do one each.
"""

from __future__ import annotations

from collections.abc import Callable

from perkey.cli.audit.corpus import Corpus, gather
from perkey.cli.audit.duplicates import duplicates
from perkey.cli.audit.findings import Section
from perkey.cli.audit.inventory import inventory
from perkey.cli.audit.links import links
from perkey.cli.audit.questions import questions
from perkey.cli.audit.readability import readability
from perkey.cli.audit.render import render
from perkey.cli.audit.vocabulary import vocabulary

SECTIONS: dict[str, Callable[[Corpus], Section]] = {
    "inventory": inventory,
    "readability": readability,
    "vocabulary": vocabulary,
    "links": links,
    "duplicates": duplicates,
    "questions": questions,
}
"""The sections by name, in the order of the report."""

__all__ = ["SECTIONS", "Corpus", "Section", "gather", "render"]
