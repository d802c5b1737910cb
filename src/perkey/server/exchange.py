"""The short way between a connection and the application, beside ASGI's messages.

Most requests have come whole before anybody looks at them, and most answers go out whole.  For
those, messages, a deadline for a body that is there already, and two writes for one answer cost
as much as all the rest of the protocol.  So a connection of this server offers itself in the
scope, as an extension.  Whatever is not plain, and every other server, takes ASGI's way.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

EXTENSION = "perkey.exchange"
"""Its name among the scope's extensions."""
_CLOSE = b"connection: close\r\n"
_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
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
        body, cycle.body = bytes(cycle.body), bytearray()
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


def _head(
    status: int,
    headers: Sequence[tuple[bytes, bytes]],
    body: bytes,
    close: bool,
    *,
    bodiless: bool,
) -> bytes | None:
    """The head of an answer with this body; None unless it is one that can be sent as it is."""
    lines, length = [STATUS_LINE[status]], b"0"
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
    if head.count(b"\n") != breaks or head.count(b"\r") != breaks or _CONTROL.search(head):
        return None
    return head


def offered(scope: Scope) -> Exchange | None:
    """The short way of this request, where its server has one."""
    found = scope.get("extensions")
    if not found or EXTENSION not in found:
        return None
    exchange: Exchange = found[EXTENSION]["exchange"]
    return exchange
