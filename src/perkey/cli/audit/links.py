"""Links: targets that do not exist, anchors that do not, and addresses given more than once.

Nothing is fetched.  A relative target is looked up on disk only below the audited folder.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from perkey.cli.audit.corpus import Corpus, Text
from perkey.cli.audit.findings import Finding, Section, excerpt, section
from perkey.cli.audit.prose import CODE_SPAN, LINK, Line, classify

INLINE = re.compile(
    r"!?\[[^\[\]]*\]\(\s*(?:<([^<>]*)>|([^()<>\s]*(?:\([^()\s]*\))?[^()<>\s]*))[^()]*\)"
)
DEFINITION = re.compile(r"^\s{0,3}\[([^\[\]]{1,200})\]:\s*<?([^\s<>]+)>?")
REFERENCE = re.compile(r"!?\[([^\[\]]+)\]\[([^\[\]]*)\]")
ADDRESS = re.compile(r"\bhttps?://[^\s<>\"'`()\[\]]+")
IDENTIFIER = re.compile(r"<[^<>]*\b(?:id|name)\s*=\s*[\"']([^\"'<>]+)[\"']")
SCHEME = re.compile(r"^[a-zA-Z][a-zA-Z0-9+.-]*:")


@dataclass(frozen=True, slots=True)
class Link:
    """One link and where it stands."""

    text: Text
    line: int
    target: str


def links(corpus: Corpus, exists: Callable[[Path], bool] = os.path.exists) -> Section:
    """Every link followed as far as the disk; ``exists`` answers for files outside the corpus."""
    parsed = {text.path: (text, classify(text)) for text in corpus.texts}
    anchors = {path: set(anchors_of(lines)) for path, (_, lines) in parsed.items()}
    found: list[Link] = []
    findings: list[Finding] = []
    addresses: dict[str, list[Link]] = defaultdict(list)
    for text, lines in parsed.values():
        found += _links(text, lines)
        findings += _undefined(text, lines)
        for link in _addresses(text, lines):
            addresses[link.target].append(link)
    internal = [link for link in found if not SCHEME.match(link.target)]
    for link in internal:
        if problem := _problem(link, corpus.root, anchors, exists):
            findings.append({"file": link.text.name, "line": link.line, "text": problem})
    broken = len(findings)
    again = {where: places for where, places in addresses.items() if len(places) > 1}
    often = sorted(again.items(), key=lambda item: (-len(item[1]), item[0]))
    findings += (_repeated(where, places) for where, places in often)
    summary: dict[str, int | float | str] = {
        "internal links": len(internal),
        "broken": broken,
        "addresses": len(addresses),
        "given more than once": len(again),
    }
    return section("Links", summary, findings)


def anchors_of(lines: list[Line]) -> Iterator[str]:
    """The anchors of a page: its headings' slugs, repeats numbered, and explicit ids."""
    seen: dict[str, int] = {}
    for line in lines:
        if line.kind == "heading":
            name = slug(line.text)
            number = seen[name] = seen.get(name, -1) + 1
            yield f"{name}-{number}" if number else name
        if line.kind != "code":
            yield from IDENTIFIER.findall(line.text)


def slug(title: str) -> str:
    """A heading's anchor as GitHub makes it: lower case, punctuation dropped, spaces to hyphens."""
    plain = LINK.sub(r"\1", title).strip().lower().replace("`", "")
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


def _links(text: Text, lines: list[Line]) -> Iterator[Link]:
    for line in _outside_code(lines):
        plain = CODE_SPAN.sub(" ", line.text)
        for bracketed, target in INLINE.findall(plain):
            yield Link(text, line.number, bracketed or target)
        if definition := DEFINITION.match(plain):
            yield Link(text, line.number, definition.group(2))


def _outside_code(lines: list[Line]) -> Iterator[Line]:
    return (line for line in lines if line.kind not in {"code", "blank"})


def _addresses(text: Text, lines: list[Line]) -> Iterator[Link]:
    for line in _outside_code(lines):
        for address in ADDRESS.findall(CODE_SPAN.sub(" ", line.text)):
            yield Link(text, line.number, address.rstrip(".,;:!?*_"))


def _undefined(text: Text, lines: list[Line]) -> Iterator[Finding]:
    """``[words][name]`` where nothing defines ``name``."""
    matches = (DEFINITION.match(line.text) for line in _outside_code(lines))
    defined = {match.group(1).strip().lower() for match in matches if match}
    for line in _outside_code(lines):
        for words, name in REFERENCE.findall(CODE_SPAN.sub(" ", line.text)):
            if (name or words).strip().lower() not in defined:
                said = f"no definition of [{excerpt(name or words, 60)}]"
                yield {"file": text.name, "line": line.number, "text": said}


def _problem(
    link: Link, root: Path, anchors: dict[Path, set[str]], exists: Callable[[Path], bool]
) -> str:
    """Why an internal link leads nowhere, or nothing."""
    where, _, anchor = link.target.partition("#")
    shown = excerpt(link.target, 100)
    target = link.text.path
    if where:
        plain = unquote(where.partition("?")[0])
        base = root if plain.startswith("/") else link.text.path.parent
        target = Path(os.path.normpath(base / plain.lstrip("/")))
        if not target.is_relative_to(root):
            return f"{shown} leads out of the audited folder; not followed"
    elif not link.target:
        return "a link without a target"
    if target not in anchors and not _exists(target, exists):
        return f"{shown} does not exist"
    if anchor and target in anchors and unquote(anchor) not in anchors[target]:
        return f"{shown}: no such heading or anchor"
    return ""


def _exists(path: Path, exists: Callable[[Path], bool]) -> bool:
    try:
        return exists(path)
    except (OSError, ValueError):  # a name too long, or with a null character
        return False


def _repeated(address: str, places: list[Link]) -> Finding:
    others = ", ".join(f"{place.text.name}:{place.line}" for place in places[1:4])
    more = f" and {len(places) - 4} more" if len(places) > 4 else ""
    said = f"{excerpt(address, 100)} stands {len(places)} times; also {others}{more}"
    return {"file": places[0].text.name, "line": places[0].line, "text": said}
