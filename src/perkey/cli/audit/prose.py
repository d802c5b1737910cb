"""Just enough Markdown: headings, prose without its markup, sentences, and where each stands."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from perkey.cli.audit.corpus import Text

FENCE = re.compile(r"^\s{0,3}(```+|~~~+)")
HEADING = re.compile(r"^\s{0,3}(#{1,6})\s+(.*?)\s*#*\s*$")
UNDERLINE = re.compile(r"^\s{0,3}(=+|-+)\s*$")
ITEM = re.compile(r"^\s*(?:[-*+]|\d{1,9}[.)])\s+(?:\[[ xX]\]\s+)?")
QUOTE = re.compile(r"^\s{0,3}(?:>\s?)+")
TABLE = re.compile(r"^\s*\|")
REFERENCE = re.compile(r"^\s{0,3}\[[^\]]{1,200}\]:\s")
CODE_SPAN = re.compile(r"(`+)(?:(?!\1).){1,500}?\1")
LINK = re.compile(r"!?\[([^\[\]]*)\](?:\([^()]*\)|\[[^\[\]]*\])")
TAG = re.compile(r"<[^<>]{1,500}>")
URL = re.compile(r"\bhttps?://[^\s<>\"'`]+")
WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
SENTENCE_END = re.compile(r"[.!?…][\"'”’)\]]*$")
_ABBREVIATIONS = (
    "e.g. i.e. etc. cf. vs. al. mr. mrs. ms. dr. prof. st. no. fig. eq. sec. ch. vol. pp. p. ca. "
    "approx. inc. ltd. jr. sr. resp. viz."
)
ABBREVIATIONS = frozenset(_ABBREVIATIONS.split())


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a file and what it is: prose, item, heading, code, table or blank."""

    number: int
    kind: str
    text: str
    level: int = 0


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence as it stands in the text, with the line it begins on."""

    line: int
    text: str

    @property
    def words(self) -> list[str]:
        """Its words, without punctuation and code."""
        return WORD.findall(CODE_SPAN.sub(" ", self.text))


def classify(text: Text) -> list[Line]:
    """Every line with its kind.  A heading's text is its title."""
    found: list[Line] = []
    fence = ""
    front_matter = bool(text.lines) and text.lines[0].strip() == "---"
    for number, raw in enumerate(text.lines, 1):
        if front_matter:
            found.append(Line(number, "code", raw))
            front_matter = number == 1 or raw.strip() not in {"---", "..."}
            continue
        mark = FENCE.match(raw)
        if fence:
            found.append(Line(number, "code", raw))
            if mark and mark.group(1).startswith(fence) and not raw[mark.end() :].strip():
                fence = ""
        elif mark:
            fence = mark.group(1)
            found.append(Line(number, "code", raw))
        elif UNDERLINE.match(raw) and found and found[-1].kind == "prose":
            above = found[-1]
            level = 1 if raw.strip().startswith("=") else 2
            found[-1] = Line(above.number, "heading", above.text.strip(), level)
            found.append(Line(number, "blank", raw))
        else:
            found.append(_plain(number, raw, found[-1].kind if found else "blank"))
    return found


def _plain(number: int, raw: str, above: str) -> Line:
    """A line outside fences and front matter."""
    if not raw.strip():
        return Line(number, "blank", raw)
    if heading := HEADING.match(raw):
        return Line(number, "heading", heading.group(2), len(heading.group(1)))
    if ITEM.match(raw):
        return Line(number, "item", raw)
    if raw.startswith(("    ", "\t")) and above in {"blank", "code"}:
        return Line(number, "code", raw)
    if TABLE.match(raw) or REFERENCE.match(raw):
        return Line(number, "table", raw)
    return Line(number, "prose", raw)


def bare(text: str, *, code: bool = False) -> str:
    """A line of prose without list marks, link targets, tags, emphasis and, unless kept, code."""
    text = QUOTE.sub("", text)
    text = ITEM.sub("", text, count=1)
    text = text if code else CODE_SPAN.sub(" ", text)
    text = LINK.sub(r"\1", text)
    text = URL.sub(" ", TAG.sub(" ", text))
    return re.sub(r"\*+|(?<!\w)_+|_+(?!\w)", "", text)


def paragraphs(lines: Sequence[Line]) -> Iterator[list[tuple[str, int]]]:
    """Each paragraph or list item as its space-separated pieces, each with its line."""
    pieces: list[tuple[str, int]] = []
    for line in lines:
        if line.kind != "prose" and pieces:
            yield pieces
            pieces = []
        if line.kind in {"prose", "item"}:
            pieces += [(piece, line.number) for piece in bare(line.text, code=True).split()]
    if pieces:
        yield pieces


def sentences(lines: Sequence[Line]) -> Iterator[Sentence]:
    """The sentences of the prose and list items, in order."""
    for pieces in paragraphs(lines):
        start = 0
        for index, (piece, _) in enumerate(pieces):
            following = pieces[index + 1][0] if index + 1 < len(pieces) else ""
            if not following or _ends(piece, following):
                words = [word for word, _ in pieces[start : index + 1]]
                yield Sentence(pieces[start][1], " ".join(words))
                start = index + 1


def _ends(piece: str, following: str) -> bool:
    """Whether a sentence ends between these two pieces."""
    if not SENTENCE_END.search(piece):
        return False
    plain = piece.strip("\"'“”‘’()[]")
    if plain.lower() in ABBREVIATIONS or (len(plain) == 2 and plain[0].isupper()):
        return False  # an initial: "R. Flesch"
    first = following.lstrip("\"'“‘([")[:1]
    return not first.islower()
