"""``Idempotency-Key`` on requests whose whole answer is kept: the middleware of ``perkey.asgi``.

What such a request does and the record of its answer are two commits, with a lease in between;
where one commit can hold both, as in the ledger, the handler keeps the key itself.
"""

from __future__ import annotations

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from perkey.asgi import MAX_KEY, IdempotencyKey, parse_key
from perkey.errors import PerkeyError
from perkey.once import AsyncOnce
from perkey.server import problems
from perkey.server.calls import Call
from perkey.server.refusals import BadRequest
from perkey.server.routes import Route
from perkey.server.services import Services

CALL = "perkey.call"
ROUTE = "perkey.route"


def require_key(call: Call) -> str:
    """The request's ``Idempotency-Key``; ``BadRequest`` where it has none that can be read."""
    lines = call.headers("idempotency-key")
    given = parse_key(value.encode("latin-1") for value in lines)
    if given is not None:
        return given
    wanted = f"one Idempotency-Key header of 1 to {MAX_KEY} characters, quoted or bare"
    if not lines:
        raise BadRequest(
            f"this path requires {wanted}, found none; choose a key for each thing that is to "
            "happen once, and send the same key when you repeat it"
        )
    found = f"{lines[0]!r:.80}" if len(lines) == 1 else f"{len(lines)} of them"
    raise BadRequest(f"expected {wanted}, found {found}")


class Kept(Response):
    """An answer as the middleware gives it, first or replayed."""

    def __init__(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        super().__init__(body, status)
        self.raw_headers = headers


class Replaying:
    """Runs handlers, behind the middleware where a request asks for it."""

    def __init__(self, services: Services) -> None:
        self._middleware = IdempotencyKey(
            self._inner,
            once=AsyncOnce(services.store),
            user=lambda scope: str(scope[CALL].caller.name),
            max_request=services.settings.body_bytes,
            problems="/problems/",
        )

    async def answer(self, route: Route, call: Call) -> Response:
        """What the handler answers, or what it answered the first time."""
        if not route.replayable or not call.headers("idempotency-key"):
            return await route.handler(call)
        require_key(call)
        status, headers, body = 0, [], b""
        left = [call.body]

        async def receive() -> Message:
            return {"type": "http.request", "body": left.pop(), "more_body": False}

        async def send(message: Message) -> None:
            nonlocal status, headers, body
            if message["type"] == "http.response.start":
                status, headers = message["status"], list(message["headers"])
            else:
                body += message.get("body", b"")

        await self._middleware({**call.scope, CALL: call, ROUTE: route}, receive, send)
        return Kept(status, headers, body)

    async def _inner(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The handler as an application: its errors are answers here, which free the key."""
        call: Call = scope[CALL]
        route: Route = scope[ROUTE]
        try:
            response = await route.handler(call)
        except PerkeyError as error:
            response = problems.answer(error, str(scope.get("root_path", "")).rstrip("/"))
        headers = response.raw_headers
        status = response.status_code
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": bytes(response.body)})
