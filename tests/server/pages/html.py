"""Looking at HTML as a browser parses it, with the standard library alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

from tests.server.client import Answer

VOID = {"meta", "link", "img", "input", "br", "hr"}


@dataclass
class Element:
    """One element: its name, its attributes, and the text inside it."""

    name: str
    attributes: dict[str, str]
    text: str = ""
    inside: list[Element] = field(default_factory=list)

    def __getitem__(self, name: str) -> str:
        return self.attributes[name]

    @property
    def classes(self) -> list[str]:
        return self.attributes.get("class", "").split()


class Page(HTMLParser):
    """A page, checked as far as every page is the same."""

    def __init__(self, answer: Answer, status: int = 200) -> None:
        super().__init__()
        assert answer.status == status, (answer.status, answer.body[:2000])
        assert answer.header("content-type") == "text/html; charset=utf-8"
        self.elements: list[Element] = []
        self._open: list[Element] = []
        self.feed(answer.body.decode("utf-8"))
        assert self._open == [], [each.name for each in self._open]
        self._harmless(answer)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs})
        assert len(element.attributes) == len(attrs), f"an attribute twice: {attrs}"
        self.elements.append(element)
        if tag in ("td", "th", "li", "dd"):
            self.handle_data(" ")  # to whoever reads the row, cells stand apart
        for outer in self._open:
            outer.inside.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_endtag(self, tag: str) -> None:
        while self._open[-1].name != tag and self._open[-1].name in {"li", "p", "td", "tr"}:
            self._open.pop()
        assert self._open.pop().name == tag

    def handle_data(self, data: str) -> None:
        for element in self._open:
            element.text += data

    def _harmless(self, answer: Answer) -> None:
        """Nothing inline that runs or styles, whatever was stored; and a policy against it."""
        for element in self.elements:
            for name, value in element.attributes.items():
                assert not name.startswith("on"), element
                assert name != "style", element
                if name in ("href", "src", "action", "hx-get", "data-follows"):
                    assert value.startswith(("/", "#")), element
                    assert not value.startswith("//"), element
            if element.name == "script":
                assert element["src"].startswith("/ui/static/")
                assert element.text == ""
            assert element.name not in ("style", "iframe", "object", "embed", "base")
        policy = answer.header("content-security-policy") or ""
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.header("cache-control") == "no-store"

    def all(self, name: str, of: str = "") -> list[Element]:
        """The elements with that name, and class ``of`` where it is given."""
        return [
            each for each in self.elements if each.name == name and (not of or of in each.classes)
        ]

    def one(self, name: str, of: str = "") -> Element:
        """The only one of them."""
        (found,) = self.all(name, of)
        return found

    @property
    def text(self) -> str:
        """All text, spaces made one."""
        return " ".join(self.one("html").text.split())

    def link(self, text: str) -> str:
        """Where the link with that text leads."""
        found = {each["href"] for each in self.all("a") if each.text.strip() == text}
        assert len(found) == 1, (text, found)
        return found.pop()

    def commands(self) -> list[str]:
        """The lines for a shell, each with its button to copy it."""
        blocks = self.all("div", "command")
        for block in blocks:
            (button,) = (each for each in block.inside if each.name == "button")
            (code,) = (each for each in block.inside if each.name == "code")
            assert button["data-copy"] == code.text
        return [
            button["data-copy"]
            for block in blocks
            for button in block.inside
            if "copy" in button.classes
        ]


def compact(text: str) -> str:
    """Text with its spaces made one."""
    return " ".join(text.split())
