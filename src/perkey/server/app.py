"""The ASGI application: who is let in, in which order that is checked, and what goes out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from perkey.server import missing

try:
    from starlette.responses import Response
    from starlette.types import Message, Receive, Scope, Send
except ModuleNotFoundError as error:
    raise missing(error) from error

from perkey.clock import SYSTEM, Clock
from perkey.engine import AsyncEngine
from perkey.errors import LimitExceeded, PerkeyError
from perkey.locks import KeyedLocks, Sections
from perkey.server import (
    accounts,
    boards,
    commits,
    documents,
    events,
    meta,
    metrics,
    openapi,
    pages,
    problems,
    processes,
    records,
)
from perkey.server.calls import Call, Lines, by_name, parse_query
from perkey.server.exchange import offered
from perkey.server.hosting import NAME, Hosted, Processes
from perkey.server.pages import refused, session
from perkey.server.refusals import (
    BadRequest,
    CrossOrigin,
    HeadersTooLarge,
    MethodNotAllowed,
    Overloaded,
    SlowRequest,
    WrongHost,
)
from perkey.server.replaying import Replaying
from perkey.server.replies import ALWAYS, ALWAYS_NAMES
from perkey.server.routes import Route, Table
from perkey.server.services import Services
from perkey.server.settings import Settings
from perkey.server.spans import RequestSpans
from perkey.stores import AsyncStore

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
CLOSE = (b"connection", b"close")
HOSTS = 16
"""How many ways to write this server's name are remembered; the others are looked at each time."""

_log = logging.getLogger("perkey.server")


def routes() -> list[Route]:
    """Everything this server answers to programs; pages for people are ``pages.ROUTES``."""
    return [
        *documents.ROUTES,
        *commits.ROUTES,
        *records.ROUTES,
        *events.ROUTES,
        *accounts.ROUTES,
        *boards.ROUTES,
        *processes.ROUTES,
        *openapi.ROUTES,
        *meta.ROUTES,
        *metrics.ROUTES,
    ]


def application(
    store: AsyncStore,
    settings: Settings | None = None,
    *,
    clock: Clock = SYSTEM,
    processes: Processes | None = None,
    locks: Mapping[str, Sections | KeyedLocks] | None = None,
) -> Application:
    """The ASGI application on an open store; the caller closes the store, after it has ended.

    With ``processes`` an engine runs them on the same store; ``NotSupported`` where the store
    cannot hold one.  ``locks`` of this process are shown on the page by the names given here.
    """
    services = Services(store, settings or Settings(), clock)
    services.locks = locks or {}
    if processes is not None:
        services.hosted = Hosted(AsyncEngine(store, name=NAME, clock=clock), processes)
    app = Application(services, routes())
    if services.settings.spans:
        app.spans = RequestSpans()
        store.trace()
    return app


class _Slot:
    """One request's place among those that are being worked on."""

    def __init__(self, app: Application) -> None:
        self._app: Application | None = app
        app.running += 1

    def release(self) -> None:
        """Give it back; more than once is harmless."""
        if self._app is not None:
            self._app.running -= 1
            self._app = None


class _Stream:
    """A handler's own way to the client, and whether its answer has begun there."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.begun = False

    async def __call__(self, message: Message) -> None:
        self.begun = True
        await self._send(message)


class Gone(Exception):
    """The client went away before its request had arrived."""


class Application:
    """One server's requests."""

    def __init__(self, services: Services, table: Sequence[Route]) -> None:
        self.services = services
        self.table = Table([*table, *pages.ROUTES])
        services.routes = tuple(table)
        self._replaying = Replaying(services)
        self.spans: RequestSpans | None = None
        self.running = 0
        self.cut = 0
        """How many requests were cut off."""
        self.failure: Exception | None = None
        """Why it did not start."""
        self._buffered = 0
        self._hosts: dict[bytes, str] = {}
        """Names that were found to be this server's, as they were sent."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection, or the server's start and end."""
        if scope["type"] == "lifespan":
            return await self._lifespan(receive, send)
        if scope["type"] != "http":
            return None  # no web sockets here; the server refuses what is not accepted
        settings = self.services.settings
        if self.running >= settings.requests:
            full = Overloaded(
                f"{self.running} requests are being worked on and the limit is "
                f"{settings.requests}; nothing was done, send it again later"
            )
            return await _send(problems.answer(full), scope, send, close=True)
        slot = _Slot(self)
        try:
            if self.spans is None:
                return await self._serve(scope, receive, send, slot)
            with self.spans.request(scope):
                return await self._serve(scope, receive, send, slot)
        except asyncio.CancelledError:
            self.cut += 1
            raise
        finally:
            slot.release()

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                try:
                    await self._start()
                except Exception as error:
                    self.failure = error
                    await self.end()
                    await send({"type": "lifespan.startup.failed", "message": str(error)})
                    return
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.end()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _start(self) -> None:
        await self.services.feed.start()
        if self.services.hosted is not None:
            await self.services.hosted.start()
        self.services.pulse.start()
        self.services.ready = True

    async def end(self, timeout: float | None = None) -> None:
        """Stop the engine, within ``timeout`` seconds, and the feed; again is harmless."""
        self.stop()
        if self.services.hosted is not None:
            allowed = self.services.settings.engine_stop_s if timeout is None else timeout
            await self.services.hosted.stop(allowed)
        await self.services.pulse.stop()
        await self.services.feed.ended()

    def stop(self) -> None:
        """Be ready no more, and let the streams end.  More than once is harmless."""
        self.services.ready = False
        self.services.stopping.set()
        self.services.feed.stop()

    async def _serve(self, scope: Scope, receive: Receive, send: Send, slot: _Slot) -> None:
        began = self.services.clock.monotonic()
        buffered = [0]
        arrived = False
        path = "(none)"
        stream = _Stream(send)
        try:
            route, call = self._admitted(scope)
            path = route.path
            call.body = await self._body(call.lines, scope, receive, buffered)
            arrived = True
            call.receive, call.send, call.release = receive, stream, slot.release
            response = await self._replaying.answer(route, call)
        except Gone:
            return None
        except MethodNotAllowed as error:
            if scope["method"] == "OPTIONS":
                response = Response(status_code=204, headers={"allow": error.allow})
            else:
                response = self._refused(error, scope)
        except PerkeyError as error:
            response = self._refused(error, scope)
        except Exception:
            # What it is stays in the log: it may quote a value, or the store's address.
            _log.exception("a request failed")
            response = self._refused(PerkeyError("the server failed; its log says why"), scope)
        finally:
            self._buffered -= buffered[0]
        seconds = 0.0 if stream.begun else self.services.clock.monotonic() - began
        method = scope["method"] if path != "(none)" else "(none)"
        self.services.meters.count(method, path, response.status_code, seconds)
        if self.spans is not None:
            self.spans.answered(method, path, response.status_code)
        if stream.begun:
            # Its head is out, so no other may follow; the server closes what was not ended.
            return None
        return await _send(
            response, scope, send, close=not arrived and _has_body(by_name(scope["headers"]))
        )

    def _refused(self, error: PerkeyError, scope: Scope) -> Response:
        """A problem for programs; a page for who asked for one."""
        if _raw_path(scope).startswith(pages.UNDER):
            return refused.answer(error, Call(scope, self.services))
        return problems.answer(error, _root(scope))

    # ------------------------------------------------------------------ letting in

    def _admitted(self, scope: Scope) -> tuple[Route, Call]:
        """Check everything that needs no body, cheap things first."""
        settings = self.services.settings
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        if len(headers) > settings.head_lines:
            raise HeadersTooLarge(
                f"expected at most {settings.head_lines} header lines, found {len(headers)}"
            )
        lines = by_name(headers)
        host = self._host(lines)
        if scope["method"] not in SAFE:
            _check_origin(lines, host)
        route, params = self.table.find(scope["method"], _raw_path(scope))
        call = Call(scope, self.services, params, lines=lines)
        if route.page and scope["method"] not in SAFE:
            session.check_form(scope)
        if route.role is not None and route.page:
            call.caller = session.caller(scope, self.services.tokens)
            call.caller.need(route.role)
        elif route.role is not None:
            call.caller = self.services.tokens.caller(lines.get(b"authorization", ()))
            call.caller.need(route.role)
        call.query = parse_query(scope["query_string"], route.query)
        if route.role == "write":
            _ = call.write  # an author that cannot be read is refused, whoever looks at it
        return route, call

    def _host(self, lines: Lines) -> str:
        """The ``Host`` that a request names, which is one of this server's."""
        given: Sequence[bytes] = lines.get(b"host", ())
        known = self._hosts.get(given[0]) if len(given) == 1 else None
        if known is None:
            known = _check_host(given, self.services.settings)
            if len(self._hosts) < HOSTS:
                self._hosts[given[0]] = known
        return known

    async def _body(
        self, lines: Lines, scope: Scope, receive: Receive, buffered: list[int]
    ) -> bytes:
        """The whole body, within all limits."""
        settings = self.services.settings
        length = lines.get(b"content-length", [b""])[0]
        if length.isdigit():
            if int(length) > settings.body_bytes:
                raise _too_long(settings, int(length))
            if length == b"0":
                return b""
        elif not _has_body(lines):
            return b""
        exchange = offered(scope)
        whole = None if exchange is None else exchange.body()
        if whole is not None:
            self._hold(len(whole), buffered)
            return whole
        chunks: list[bytes] = []
        try:
            async with asyncio.timeout(settings.body_s):
                while True:
                    message: Message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Gone
                    chunks.append(message.get("body", b""))
                    self._hold(len(chunks[-1]), buffered)
                    if not message.get("more_body", False):
                        return b"".join(chunks) if len(chunks) > 1 else chunks[0]
        except TimeoutError:
            raise SlowRequest(
                f"the body took longer than {settings.body_s:g} seconds; nothing was done"
            ) from None

    def _hold(self, size: int, buffered: list[int]) -> None:
        """Count what this body holds in memory; ``buffered`` is its share."""
        settings = self.services.settings
        buffered[0] += size
        self._buffered += size
        if buffered[0] > settings.body_bytes:
            raise _too_long(settings, buffered[0])
        if self._buffered > settings.bodies_bytes:
            raise Overloaded(
                f"the bodies of all requests may hold {settings.bodies_bytes} bytes together, and "
                "they do; nothing was done, send it again later"
            )


def _too_long(settings: Settings, found: int) -> LimitExceeded:
    return LimitExceeded(
        f"expected a body of at most {settings.body_bytes} bytes, found {found}",
        limit=settings.body_bytes,
    )


def _has_body(lines: Lines) -> bool:
    lengths = lines.get(b"content-length", ())
    return b"transfer-encoding" in lines or any(each != b"0" for each in lengths)


def _check_host(hosts: Sequence[bytes], settings: Settings) -> str:
    if len(hosts) != 1:
        raise BadRequest(f"expected one Host header, found {len(hosts)}")
    host = hosts[0].decode("latin-1")
    name, _, port = host.rpartition(":")
    if not name or not port.isdigit():
        name = host
    if not settings.knows(name):
        raise WrongHost(
            f"this server does not serve the host {name!r:.80}; start it with --allow-host NAME "
            "if it should"
        )
    return host


def _check_origin(lines: Lines, host: str) -> None:
    """A browser names the page that sent a write; only this server's own pages may.

    Programs other than browsers send neither header and pass.
    """
    for value in lines.get(b"origin", ()):
        origin = value.decode("latin-1").partition("://")[2]
        if origin.lower() != host.lower():
            raise CrossOrigin(f"expected a page of {host!r:.80}, found {value!r:.80}")
    for value in lines.get(b"sec-fetch-site", ()):
        if value not in (b"same-origin", b"none"):
            raise CrossOrigin("a page of another site may not write here")


def _root(scope: Scope) -> str:
    root: str = scope.get("root_path", "")
    return root.rstrip("/")


def _raw_path(scope: Scope) -> bytes:
    """The path as it was sent, without the prefix that the server is mounted at."""
    raw: bytes = scope["raw_path"].partition(b"?")[0]
    return raw.removeprefix(_root(scope).encode()) or b"/"


async def _send(response: Response, scope: Scope, send: Send, *, close: bool = False) -> None:
    """Send an answer; the body of an answer to ``HEAD`` stays here."""
    given = response.raw_headers
    own = {name for name, _ in given}
    always = ALWAYS if own.isdisjoint(ALWAYS_NAMES) else [e for e in ALWAYS if e[0] not in own]
    headers = [*given, *always]
    status = response.status_code
    body = b"" if scope["method"] == "HEAD" else bytes(response.body)
    exchange = offered(scope)
    if exchange is not None and exchange.answer(status, headers, body, close=close):
        return
    if close:
        headers.append(CLOSE)
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
