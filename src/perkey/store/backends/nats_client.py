"""A blocking NATS connection on top of nats-py.

Its event loop is private and runs only while a call waits, on whichever thread makes the
call; nothing goes on in between.  A connection that breaks is not mended but replaced, by the
next call: so it is always clear which requests were sent on which.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import threading
import weakref
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from nats import errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from perkey.errors import StoreUnavailable
from perkey.store.backends.port import NothingDone
from perkey.store.limits import Limits
from perkey.store.url import Location

T = TypeVar("T")
Headers = Mapping[str, str]
Post = tuple[str, bytes, Headers]
"""(subject, payload, headers) of one message."""

OPTIONS = {"name", "replicas", "timeout", "token", "creds", "ca", "cert", "key"}
"""``name`` is the stream's; ``replicas`` 1, 3 or 5; ``timeout`` in seconds; ``token``, or a
``creds`` file; ``ca``, ``cert`` and ``key`` are PEM files, with ``tls://``."""

FAILURES = (errors.Error, OSError, TimeoutError, EOFError, ValueError)


CLOSING_S = 1.0


class Wire:
    """One connection, for one thread at a time."""

    def __init__(self, location: Location, limits: Limits) -> None:
        self.seconds = location.request_s(limits)
        self._location = location
        self._loop = asyncio.new_event_loop()
        self._held: list[Client] = []
        """The connection, or nothing; a list, for whoever closes it when this object is gone."""
        self._inbox = ""
        self._count = 0
        self._token = ""
        self._replies: list[Msg] = []
        self._complete: Callable[[Msg], bool] = bool
        self._answer: asyncio.Future[list[Msg]] | None = None
        # Whoever never closes a store gets no complaints about the loop's tasks at exit.
        self._finalizer = weakref.finalize(self, _abandon, self._loop, self._held, os.getpid())

    @property
    def place(self) -> str:
        """The server's address, for people."""
        return f"{self._location.host or 'localhost'}:{self._location.port or 4222}"

    @property
    def max_payload(self) -> int:
        """The longest payload that the server takes, headers included, in bytes."""
        return self._held[0].max_payload if self._held else 1_048_576

    @property
    def server(self) -> str:
        """The server's version."""
        if not self._held:
            return "unknown"
        version = self._held[0].connected_server_version
        return f"{version.major}.{version.minor}.{version.patch}"

    # ------------------------------------------------------------------------- asking

    def ask(self, subject: str, payload: bytes = b"", headers: Headers | None = None) -> Msg:
        """One request, one reply.  ``StoreUnavailable`` where none came in time."""
        posts = [(subject, payload, headers or {})]
        return self._run(self._asked(posts, lambda reply: True))[0]

    def ask_many(self, subject: str, payload: bytes) -> list[Msg]:
        """One request, replies up to the one with a status; that one stands last."""
        return self._run(self._asked([(subject, payload, {})], _has_status))

    def post(self, messages: Sequence[Post]) -> Msg:
        """Send several messages and wait for the reply to the last."""
        return self._run(self._asked(messages, lambda reply: True))[0]

    def api(self, subject: str, body: Any = None) -> dict[str, Any]:
        """A request to JetStream's own interface, in JSON both ways."""
        payload = b"" if body is None else json.dumps(body).encode()
        reply = self.ask(f"$JS.API.{subject}", payload)
        if status(reply) == "503":
            raise StoreUnavailable(f"NATS at {self.place} has no JetStream, or it is starting")
        answer: dict[str, Any] = json.loads(reply.data)
        return answer

    async def _asked(self, posts: Sequence[Post], complete: Callable[[Msg], bool]) -> list[Msg]:
        client = await self._connected()
        self._count += 1
        self._token = f"{self._inbox}.{self._count}"
        self._replies, self._complete = [], complete
        self._answer = self._loop.create_future()
        try:
            for subject, payload, headers in posts[:-1]:
                await client.publish(subject, payload, headers=dict(headers) or None)
            subject, payload, headers = posts[-1]
            await client.publish(subject, payload, reply=self._token, headers=dict(headers) or None)
            async with asyncio.timeout(self.seconds):
                return await self._answer
        except FAILURES as error:
            await self._drop()
            raise StoreUnavailable(
                f"NATS at {self.place} did not answer: {_said(error)}"
            ) from error
        except BaseException:  # a late reply must not answer what follows
            await self._drop()
            raise
        finally:
            self._token = ""

    async def _receive(self, reply: Msg) -> None:
        if reply.subject != self._token or self._answer is None or self._answer.done():
            return
        self._replies.append(reply)
        if self._complete(reply):
            self._answer.set_result(self._replies)

    async def _broken(self) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(errors.ConnectionClosedError())

    # --------------------------------------------------------------------- connection

    def connect(self) -> None:
        """Connect now, where there is no connection."""
        self._run(self._connected())

    async def _connected(self) -> Client:
        if self._held:
            client = self._held[0]
            await asyncio.sleep(0)  # lets it notice what has arrived meanwhile, the end too
            if client.is_connected:
                return client
            await self._drop()
        client = Client()
        try:
            async with asyncio.timeout(self.seconds):
                await client.connect(**self._options())
                self._inbox = client.new_inbox()
                await client.subscribe(
                    f"{self._inbox}.*",
                    cb=self._receive,
                    pending_msgs_limit=0,  # no limit: we ask for no more than we can take
                    pending_bytes_limit=0,
                )
        except FAILURES as error:
            await _closed(client)
            raise NothingDone(f"NATS at {self.place} cannot be reached: {_said(error)}") from None
        self._held.append(client)
        return client

    def _options(self) -> dict[str, Any]:
        place, options = self._location, self._location.options
        given: dict[str, Any] = {
            "servers": f"nats://{place.host or 'localhost'}:{place.port or 4222}",
            "name": "perkey",
            "allow_reconnect": False,
            "max_reconnect_attempts": 1,  # or it would try for minutes to connect at all
            "reconnect_time_wait": 0,
            "connect_timeout": max(1, int(self.seconds)),
            "error_cb": _ignore,
            "disconnected_cb": self._broken,
            "closed_cb": self._broken,
            "user": place.user,
            "password": place.password,
            "token": options.get("token"),
            "user_credentials": options.get("creds"),
        }
        if place.scheme == "tls":
            given["tls"] = ssl.create_default_context(cafile=options.get("ca"))
            given["tls_hostname"] = place.host
            if "cert" in options:
                given["tls"].load_cert_chain(options["cert"], options.get("key"))
        return {name: value for name, value in given.items() if value is not None}

    async def _drop(self) -> None:
        if self._held:
            await _closed(self._held.pop())

    def close(self) -> None:
        """Close the connection and the loop."""
        if not self._loop.is_closed():
            self._run(self._drop())
            self._finalizer()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the private loop until ``work`` is done."""
        if asyncio._get_running_loop() is None:
            return self._run_here(work)
        # A loop runs on this thread and waits for us anyway; ours then needs another thread.
        outcome: list[T] = []
        failure: list[BaseException] = []

        def elsewhere() -> None:
            try:
                outcome.append(self._run_here(work))
            except BaseException as error:
                failure.append(error)

        thread = threading.Thread(target=elsewhere, name="perkey-nats")
        thread.start()
        thread.join()
        if failure:
            raise failure[0]
        return outcome[0]

    def _run_here(self, work: Coroutine[Any, Any, T]) -> T:
        task = self._loop.create_task(work)
        try:
            return self._loop.run_until_complete(task)
        except BaseException:
            if not task.done():  # Ctrl-C: it must not go on when the loop runs again
                task.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    self._loop.run_until_complete(task)
            raise


async def _closed(client: Client) -> None:
    """Close it, without waiting for long: a server that stands still never takes what is left."""
    with suppress(*FAILURES):
        async with asyncio.timeout(CLOSING_S):
            await client.close()


def _abandon(loop: asyncio.AbstractEventLoop, held: list[Client], process: int) -> None:
    """Close what is left; not in a forked child, which shares the loop's selector."""
    if loop.is_closed() or os.getpid() != process:
        return
    if held:
        loop.run_until_complete(_closed(held.pop()))
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
    loop.close()


async def _ignore(error: Exception) -> None:
    """Failures reach whoever waits for an answer; printing them as well helps nobody."""


def again(ask: Callable[[], T]) -> T:
    """``ask()``, once more on a new connection if the old one turns out to be gone."""
    try:
        return ask()
    except StoreUnavailable as error:
        if isinstance(error, NothingDone) or isinstance(error.__cause__, TimeoutError):
            raise
        return ask()


def status(reply: Msg) -> str:
    """The status that the server answered with instead of a message; "" for a message."""
    return (reply.headers or {}).get("Status", "")


def _has_status(reply: Msg) -> bool:
    return bool(status(reply))


def _said(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
