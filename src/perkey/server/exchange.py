"""The short way between a connection and the application, beside ASGI's messages.

Most requests have come whole before anybody looks at them, and most answers go out whole.  For
those, messages, a deadline for a body that is there already, and two writes for one answer cost
as much as all the rest of the protocol.  So a connection of this server offers itself in the
scope, as an extension.  Whatever is not plain, and every other server, takes ASGI's way.

It leans on what uvicorn's request is made of.  That is looked over once: a uvicorn that is made
otherwise is spoken to in messages alone.
"""

from __future__ import annotations

import http
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from starlette.types import Scope

if TYPE_CHECKING:
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

EXTENSION = "perkey.exchange"
"""Its name among the scope's extensions."""
NEEDED: Mapping[str, Callable[[Any], bool]] = {
    "body": lambda body: isinstance(body, bytes | bytearray),
    "more_body": lambda more: isinstance(more, bool),
    "disconnected": lambda gone: isinstance(gone, bool),
    "response_started": lambda begun: begun is False,
    "response_complete": lambda ended: ended is False,
    "waiting_for_100_continue": lambda waits: isinstance(waits, bool),
    "keep_alive": lambda keep: isinstance(keep, bool),
    "default_headers": lambda lines: isinstance(lines, list),
    "scope": lambda scope: isinstance(scope, dict) and "method" in scope,
    "message_event": lambda event: callable(event.set),
    "on_response": callable,
    "transport": lambda way: callable(way.write) and callable(way.close),
    "flow": lambda flow: callable(flow.resume_reading) and isinstance(flow.write_paused, bool),
}
"""What a request of uvicorn must have, each as it is when the request has just been made."""
_STATUS = {
    each.value: f"HTTP/1.1 {each.value} {each.phrase}\r\n".encode() for each in http.HTTPStatus
}
_CLOSE = b"connection: close\r\n"
_CONTROL = bytes([*range(0x09), 0x0B, 0x0C, *range(0x0E, 0x20), 0x7F])
"""What no line of a head may hold; line breaks are counted."""


class Exchange:
    """One request of a connection and its answer.  Belongs to the connection's loop."""

    __slots__ = ("_cycle",)

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle

    def body(self) -> bytes | None:
        """The request's body, once; None where it has not come whole, or nobody waits any more."""
        cycle = self._cycle
        if cycle.more_body or cycle.disconnected:
            return None
        cycle.flow.resume_reading()
        body, cycle.body = bytes(cycle.body), type(cycle.body)()
        return body

    def answer(
        self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes, *, close: bool
    ) -> bool:
        """Send a whole answer; False, with nothing sent, where it has to go ASGI's way.

        ``headers`` are in lower case.  ``close``: nothing more is read from the connection.
        """
        cycle = self._cycle
        if cycle.flow.write_paused or cycle.disconnected or cycle.response_started:
            return False
        if status not in _STATUS:
            return False
        close = close or not cycle.keep_alive
        told = (*cycle.default_headers, *headers)
        head = _head(status, told, body, close, bodiless=cycle.scope["method"] == "HEAD")
        if head is None:
            return False
        cycle.response_started = cycle.response_complete = True
        cycle.waiting_for_100_continue = False
        cycle.keep_alive = not close
        cycle.transport.write(head + body)
        cycle.message_event.set()
        if close:
            cycle.transport.close()
        cycle.on_response()
        return True


def fits(cycle: Any) -> bool:
    """Whether a request that was just made is what ``Exchange`` takes it for."""
    try:
        return all(right(getattr(cycle, name)) for name, right in NEEDED.items())
    except AttributeError:
        return False


def _head(
    status: int,
    headers: Sequence[tuple[bytes, bytes]],
    body: bytes,
    close: bool,
    *,
    bodiless: bool,
) -> bytes | None:
    """The head of an answer with this body; None unless it is one that can be sent as it is."""
    lines, length = [_STATUS[status]], b"0"
    for name, value in headers:
        lines += (name, b": ", value, b"\r\n")
        if name == b"content-length":
            length = value
        elif name in (b"connection", b"transfer-encoding"):
            return None
    if length != b"%d" % len(body) and not bodiless:
        return None
    lines.append(_CLOSE + b"\r\n" if close else b"\r\n")
    head = b"".join(lines)
    breaks = len(headers) + close + 2
    if head.count(b"\n") != breaks or head.count(b"\r") != breaks:
        return None
    return head if len(head.translate(None, _CONTROL)) == len(head) else None


def offered(scope: Scope) -> Exchange | None:
    """The short way of this request, where its server has one."""
    found = scope.get("extensions")
    if not found or EXTENSION not in found:
        return None
    exchange: Exchange = found[EXTENSION]["exchange"]
    return exchange
