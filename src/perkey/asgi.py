"""``IdempotencyKey``: the ``Idempotency-Key`` header for any ASGI application.

Follows draft-ietf-httpapi-idempotency-key-header-07.  The application is the effect of an
external operation of ``AsyncOnce``: its whole response is the receipt, and is sent when the
receipt has been committed.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import math
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, MutableMapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from perkey.errors import InProgress, PerkeyError
from perkey.once import AsyncOnce, Context

__all__ = ["IdempotencyKey"]

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

MAX_KEY = 255
_QUOTED = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])*)"')
_BARE = re.compile(r"[!#-+\--\[\]-~]+")
_NOT_REPLAYED = {b"set-cookie", b"date"}


@dataclass
class _Response:
    """What the application answered, whole."""

    status: int = 0
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: bytearray = field(default_factory=bytearray)
    complete: bool = False

    async def take(self, message: Message) -> None:
        """The ``send`` that the application gets."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = [(bytes(n), bytes(v)) for n, v in message.get("headers", ())]
        elif message["type"] == "http.response.body":
            self.body += message.get("body", b"")
            self.complete = not message.get("more_body", False)

    def stored(self, limit: int) -> dict[str, Any]:
        """As a JSON value; without its body where that is longer than ``limit``."""
        kept = [(n, v) for n, v in self.headers if n.lower() not in _NOT_REPLAYED]
        body = bytes(self.body)
        return {
            "status": self.status,
            "headers": [[n.decode("latin-1"), v.decode("latin-1")] for n, v in kept],
            "body": base64.b64encode(body).decode() if len(body) <= limit else None,
        }

    async def give(self, send: Send) -> None:
        """Send it on."""
        await _answer(send, self.status, self.headers, bytes(self.body))


class _Raised(Exception):
    """The application raised; its error must not be taken for one of ours."""

    def __init__(self, error: Exception) -> None:
        super().__init__(repr(error))
        self.error = error


class _NotStored(Exception):
    """The application answered with an error, which frees the key."""


class IdempotencyKey:
    """ASGI middleware: a request with an ``Idempotency-Key`` runs once, and is then replayed.

    ``user(scope)`` names the authenticated user; keys of different users, methods and paths
    never meet.  A request without the header is a 400 unless ``required=False``.  Answers of
    400 and above free the key unless ``store_errors=True``.  A request body beyond
    ``max_request`` bytes is a 413; a response beyond ``max_response`` is sent, and its replay
    is a 409 that says so.  A problem's ``type`` is its code behind ``problems``, where that is
    given.  ``lease`` and ``keep`` are seconds, as in ``AsyncOnce.run``.

    An operation that has begun goes on to its end when the client disconnects or the request
    is cancelled, so that the retry finds its answer.
    """

    def __init__(
        self,
        app: App,
        *,
        once: AsyncOnce,
        user: Callable[[Scope], str],
        methods: Collection[str] = ("POST", "PATCH"),
        required: bool = True,
        store_errors: bool = False,
        lease: float = 30.0,
        keep: float | None = 86_400.0,
        max_request: int = 1024 * 1024,
        max_response: int = 512 * 1024,
        problems: str = "",
    ) -> None:
        self._app = app
        self._once = once
        self._user = user
        self._methods = frozenset(methods)
        self._required = required
        self._store_errors = store_errors
        self._lease, self._keep = lease, keep
        self._max_request, self._max_response = max_request, max_response
        self._problems = problems
        self._running: set[asyncio.Task[Any]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] != "http" or scope["method"] not in self._methods:
            return await self._app(scope, receive, send)
        given = [v for n, v in scope["headers"] if n.lower() == b"idempotency-key"]
        if not given and not self._required:
            return await self._app(scope, receive, send)
        key = parse_key(given)
        if key is None:
            return await _problem(send, 400, "invalid-key", _EXPECTED, self._problems)
        body = await self._body(receive)
        if body is None:
            return None  # the client has gone; nothing began
        if len(body) > self._max_request:
            most = f"expected a body of at most {self._max_request} bytes"
            return await _problem(send, 413, "limit-exceeded", most, self._problems)
        return await self._run_once(scope, key, body, send)

    async def _body(self, receive: Receive) -> bytes | None:
        body = bytearray()
        while len(body) <= self._max_request:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body += message.get("body", b"")
            if not message.get("more_body", False):
                break
        return bytes(body)

    async def _run_once(self, scope: Scope, key: str, body: bytes, send: Send) -> None:
        response = _Response()

        async def effect(context: Context) -> dict[str, Any]:
            await self._call(scope, body, response)
            if response.status >= 400 and not self._store_errors:
                raise _NotStored
            return response.stored(self._max_response)

        payload = {
            "query": scope.get("query_string", b"").decode("latin-1"),
            "body": hashlib.sha256(body).hexdigest(),
        }
        running = asyncio.ensure_future(
            self._once.run(
                key,
                payload,
                effect,
                operation=operation(self._user(scope), scope["method"], scope["path"]),
                lease=self._lease,
                keep=self._keep,
                wait=0,
            )
        )
        self._running.add(running)
        running.add_done_callback(self._ended)
        try:
            receipt = await asyncio.shield(running)
        except _Raised as raised:
            raise raised.error from None
        except _NotStored:
            return await response.give(send)
        except PerkeyError as error:
            return await _refuse(send, error, self._problems)
        if not receipt.replayed:
            return await response.give(send)
        return await _replay(send, receipt.value, self._problems)

    def _ended(self, running: asyncio.Task[Any]) -> None:
        self._running.discard(running)
        if not running.cancelled():
            running.exception()  # whoever was waiting has it, or is gone

    async def _call(self, scope: Scope, body: bytes, response: _Response) -> None:
        left = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Message:
            if left:
                return left.pop()
            # A disconnect would make the application stop half way.
            never: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
            return await never

        # Its extensions could bypass ``send`` (files sent by the server) and be lost.
        inner = {**scope, "extensions": {}}
        try:
            await self._app(inner, receive, response.take)
            if not response.complete:
                raise RuntimeError("the application ended without a complete response")
        except Exception as error:
            raise _Raised(error) from error


_EXPECTED = (
    f"expected exactly one Idempotency-Key header of 1 to {MAX_KEY} characters, "
    'like "8e03978e-40d5-43dd-bc93-6894a57f9324", quoted or bare'
)


def parse_key(given: Iterable[bytes]) -> str | None:
    """The key of a request, quoted (a structured-field string) or bare; None where invalid."""
    values = [value.decode("latin-1").strip(" \t") for value in given]
    if len(values) != 1:
        return None
    quoted = _QUOTED.fullmatch(values[0])
    if quoted is not None:
        key = re.sub(r'\\(["\\])', r"\1", quoted[1])
    elif _BARE.fullmatch(values[0]):
        key = values[0]
    else:
        return None
    return key if 1 <= len(key) <= MAX_KEY else None


def operation(user: str, method: str, path: str) -> str:
    """One name for a user's method and path, of bounded length; no two share one."""
    whole = f"{len(user)}:{user}{method} {path}"
    digest = hashlib.blake2b(whole.encode("utf-8", "surrogatepass"), digest_size=16)
    return f"http {method[:16]} {digest.hexdigest()}"


async def _replay(send: Send, value: dict[str, Any], problems: str) -> None:
    if value["body"] is None:
        done = "this was done before, and its response was too long to be kept"
        return await _problem(send, 409, "expired", done, problems)
    headers = [(n.encode("latin-1"), v.encode("latin-1")) for n, v in value["headers"]]
    return await _answer(send, value["status"], headers, base64.b64decode(value["body"]))


async def _refuse(send: Send, error: PerkeyError, problems: str) -> None:
    extra = []
    if isinstance(error, InProgress):
        wait = max(1, math.ceil(error.details.get("retry_after", 1.0)))
        extra = [(b"retry-after", str(wait).encode())]
    await _problem(send, error.status, error.code, error.message, problems, extra)


async def _problem(
    send: Send,
    status: int,
    code: str,
    detail: str,
    problems: str,
    extra: Iterable[tuple[bytes, bytes]] = (),
) -> None:
    """A problem document, RFC 9457."""
    kind = f"{problems}{code}" if problems else "about:blank"
    title = HTTPStatus(status).phrase
    facts = {"type": kind, "title": title, "status": status, "code": code, "detail": detail}
    body = json.dumps(facts).encode()
    headers = [
        (b"content-type", b"application/problem+json"),
        (b"content-length", str(len(body)).encode()),
        *extra,
    ]
    await _answer(send, status, headers, body)


async def _answer(
    send: Send, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes
) -> None:
    await send({"type": "http.response.start", "status": status, "headers": list(headers)})
    await send({"type": "http.response.body", "body": body})
