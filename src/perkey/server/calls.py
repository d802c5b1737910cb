"""One request as a handler sees it: who calls, what the path and the query say, the body."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote_to_bytes

import msgspec
from starlette.types import Message, Receive, Scope, Send

from perkey.flows.documents import Write
from perkey.server.conditions import Condition, parse
from perkey.server.identity import LOCAL, Caller
from perkey.server.refusals import BadRequest, InvalidBody, UnsupportedMedia

if TYPE_CHECKING:
    from perkey.server.services import Services

T = TypeVar("T")

UNSIGNED = Write()
"""How a local caller writes that does not say who it is."""
Lines = dict[bytes, list[bytes]]
"""The header lines of a request by their name."""

_BAD_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_WHOLE = re.compile(r"[0-9]{1,19}")
JSON = "application/json"


def decoded(raw: bytes) -> str:
    """Percent-decoded UTF-8 text of a path segment or a query part; ``BadRequest`` otherwise."""
    if b"%" in raw:
        if _BAD_ESCAPE.search(raw):
            raise BadRequest(f"expected %XX with two hex digits, found {raw!r:.80}")
        raw = unquote_to_bytes(raw)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise BadRequest("expected percent-encoded UTF-8 in the path and the query") from None


def by_name(headers: Iterable[tuple[bytes, bytes]]) -> Lines:
    """Header lines by their name, each name's in order; ASGI gives names in lower case."""
    found: Lines = {}
    for name, value in headers:
        if name in found:
            found[name].append(value)
        else:
            found[name] = [value]
    return found


async def _nothing() -> Message:
    return {"type": "http.disconnect"}


async def _nobody(message: Message) -> None:
    pass


@dataclass(slots=True)
class Call:
    """A request that was let in."""

    scope: Scope
    services: Services
    params: dict[str, str] = field(default_factory=dict)
    """The decoded variable segments of the path."""
    query: dict[str, str] = field(default_factory=dict)
    caller: Caller = LOCAL
    body: bytes = b""
    receive: Receive = _nothing
    send: Send = _nobody
    """For streams only; every other handler returns its answer."""
    release: Callable[[], None] = lambda: None
    """A stream calls it once it is let in: it is no request that is being worked on any more."""

    lines: Lines = field(default_factory=dict)
    """The header lines by name."""
    _write: Write | None = None

    def __post_init__(self) -> None:
        if not self.lines:
            self.lines = by_name(self.scope["headers"])

    @property
    def method(self) -> str:
        """``GET``, ``PUT`` ..."""
        method: str = self.scope["method"]
        return method

    def headers(self, name: str) -> list[str]:
        """The values of all header lines of this name, in order."""
        found = self.lines.get(name.encode("latin-1"))
        return [value.decode("latin-1").strip(" \t") for value in found] if found else []

    def header(self, name: str) -> str | None:
        """The value of a header that may come once; ``BadRequest`` where it comes twice."""
        values = self.headers(name)
        if len(values) > 1:
            raise BadRequest(f"expected one {name} header, found {len(values)}")
        return values[0] if values else None

    # ------------------------------------------------------------------ the path and query

    @property
    def key(self) -> str:
        """The key in the path, once the caller may touch it."""
        key = self.params["key"]
        self.caller.need_key(key)
        return key

    def text(self, name: str, default: str = "") -> str:
        """A text in the query."""
        return self.query.get(name, default)

    def whole(self, name: str, default: int | None, least: int = 0, most: int = 2**63 - 1) -> int:
        """A whole number in the query; ``BadRequest`` where it is none, or is missing."""
        text = self.query.get(name)
        if text is None:
            if default is None:
                raise BadRequest(f"expected ?{name}= as a whole number, found none")
            return default
        return whole(name, text, least, most)

    def flag(self, name: str) -> bool:
        """``true`` or ``false`` in the query; false where it is missing."""
        text = self.query.get(name, "false")
        if text not in ("true", "false"):
            raise BadRequest(f"expected ?{name}=true or false, found {text!r:.40}")
        return text == "true"

    # ------------------------------------------------------------------ headers

    @property
    def write(self) -> Write:
        """How a write of this caller is made: its author cannot be anybody else."""
        if self._write is None:
            self._write = self._signed()
        return self._write

    def _signed(self) -> Write:
        claimed = self.header("perkey-by") if b"perkey-by" in self.lines else None
        if claimed is None and self.caller is LOCAL:
            return UNSIGNED
        by = "" if claimed is None else decoded(claimed.encode("latin-1"))
        return Write(self.caller.author(by))

    @property
    def condition(self) -> Condition:
        """What ``If-Match`` and ``If-None-Match`` demand."""
        lines = self.lines
        match = parse("If-Match", self.headers("if-match")) if b"if-match" in lines else None
        if b"if-none-match" not in lines:
            return Condition(match)
        return Condition(match, parse("If-None-Match", self.headers("if-none-match")))

    def preferences(self) -> dict[str, str]:
        """What the ``Prefer`` headers ask for, RFC 7240; the first of each name counts."""
        found: dict[str, str] = {}
        if b"prefer" not in self.lines:
            return found
        for part in ",".join(self.headers("prefer")).split(","):
            name, _, value = part.partition(";")[0].partition("=")
            if name.strip():
                found.setdefault(name.strip().lower(), value.strip().strip('"').lower())
        return found

    # ------------------------------------------------------------------ the body

    def media(self, *known: str, missing: str = "") -> str:
        """The body's media type, one of ``known``; ``missing`` where no header names it."""
        given = self.header("content-type")
        if given is None and missing:
            return missing
        if given in known:
            return given
        kind, _, parameters = (given or "").partition(";")
        kind = kind.strip().lower()
        charset = re.search(r'charset="?([^";]*)', parameters, re.IGNORECASE)
        if kind not in known or (charset and charset[1].strip().lower() not in ("utf-8", "utf8")):
            raise UnsupportedMedia(
                f"expected Content-Type: {' or '.join(known)} in UTF-8, found {given!r:.80}",
                accepted=", ".join(known),
            )
        return kind

    def decode(self, kind: type[T]) -> T:
        """The JSON body as ``kind``, a msgspec type; ``InvalidBody`` says what does not fit."""
        self.media(JSON, missing=JSON)
        try:
            return msgspec.json.decode(self.body, type=kind)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise InvalidBody(f"the body is not what this path takes: {error}") from None


def whole(name: str, text: str, least: int = 0, most: int = 2**63 - 1) -> int:
    """A whole number that somebody sent as text."""
    if not (_WHOLE.fullmatch(text) and least <= int(text) <= most):
        raise BadRequest(
            f"expected {name} as a whole number from {least} to {most}, found {text!r:.40}"
        )
    return int(text)


def parse_query(raw: bytes, known: Sequence[str]) -> dict[str, str]:
    """The query's names and values; an unknown or doubled name is refused, not ignored."""
    found: dict[str, Any] = {}
    for part in raw.split(b"&") if raw else ():
        if not part:
            continue
        name, _, value = part.replace(b"+", b" ").partition(b"=")
        key = decoded(name)
        if key not in known:
            names = ", ".join(known) or "no query at all"
            raise BadRequest(f"expected {names}, found ?{key:.40}")
        if key in found:
            raise BadRequest(f"expected ?{key}= once, found it twice")
        found[key] = decoded(value)
    return found
