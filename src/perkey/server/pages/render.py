"""Templates into answers: autoescaped HTML under a policy that runs no inline script.

jinja2 is imported on the first page, so that a server without it still speaks its API.
"""

from __future__ import annotations

import functools
import hashlib
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from starlette.responses import RedirectResponse, Response

from perkey.errors import MissingExtra
from perkey.flows.ledger.amounts import decimal
from perkey.server.calls import Call
from perkey.store.views import moment

if TYPE_CHECKING:
    from jinja2 import Environment

HERE = Path(__file__).parent
STATIC = HERE / "static"
HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    # Not no-referrer: with it a browser would send our own forms without their origin.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=()",
}
TINTS = 18
"""How many colours the style sheet has for authors."""


@functools.lru_cache(4096)
def tint(by: str | None) -> str:
    """An author's class in the style sheet: the same on every page, for it comes from the name
    alone.  Two authors may share a colour; a name always stands by."""
    if by is None:
        return "by-unknown"
    digest = hashlib.blake2b(by.encode("utf-8", "surrogatepass"), digest_size=4).digest()
    return f"by-{int.from_bytes(digest, 'big') % TINTS}"


@functools.cache
def environment() -> Environment:
    """The templates; ``MissingExtra`` where jinja2 is not installed."""
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
    except ModuleNotFoundError:
        raise MissingExtra(
            "the pages need the package 'jinja2'; install it with: pip install 'perkey[server]'"
        ) from None
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["moment"] = moment
    made.filters["size"] = size
    made.filters["money"] = decimal
    made.filters["count"] = count
    made.filters["duration"] = duration
    made.filters["short"] = short
    return made


def size(octets: int) -> str:
    """A number of bytes for people."""
    if octets < 1024:
        return f"{octets} B"
    return f"{octets / 1024:.1f} KB" if octets < 1024 * 1024 else f"{octets / 1024 / 1024:.1f} MB"


def count(number: int, one: str, many: str = "") -> str:
    """``1 task``, ``2 tasks``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def short(text: str, most: int = 96) -> str:
    """Long text without its middle: keys differ in their ends."""
    return text if len(text) <= most else f"{text[: most * 2 // 3]}…{text[-(most // 3) :]}"


def duration(seconds: float) -> str:
    """A time for people, as the page's script says it too."""
    if seconds < 90:
        return f"{math.ceil(seconds)} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{round(seconds / 3600)} h"


@functools.cache
def fingerprint(name: str) -> str:
    """What changes when a static file does."""
    return hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:12]


def root(call: Call) -> str:
    """The path that the server is mounted at."""
    return str(call.scope.get("root_path", "")).rstrip("/")


def link(call: Call, path: str = "", **query: str | int) -> str:
    """An address of a page; a query's keys may be any text, so no key is ever a path."""
    found = f"{root(call)}/ui{path}"
    given = {name: value for name, value in query.items() if value != ""}
    return f"{found}?{urlencode(given, quote_via=quote)}" if given else found


def page(call: Call, template: str, status: int = 200, **facts: Any) -> Response:
    """A page of this server."""
    text = (
        environment()
        .get_template(template)
        .render(
            call=call,
            caller=call.caller,
            guarded=call.services.settings.tokens is not None,
            link=functools.partial(link, call),
            root=root(call),
            asset=lambda name: (
                f"{link(call, '/static/' + quote(name, safe=''))}?v={fingerprint(name)}"
            ),
            tint=tint,
            **facts,
        )
    )
    return Response(text, status, headers=HEADERS, media_type="text/html")


def redirect(address: str, cookie: str = "") -> Response:
    """Go on elsewhere on this server, with ``GET``."""
    more = {"set-cookie": cookie} if cookie else {}
    return RedirectResponse(address, 303, headers={**HEADERS, **more})
