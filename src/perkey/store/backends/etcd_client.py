"""grpcio, set up so that nothing is ever sent twice behind our back.

Messages go in and out as bytes.  A channel whose call failed is not mended but replaced, by the
next call and perhaps on another member of the cluster; so no call waits for the backoff of an
earlier one.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any, TypeVar

import grpc

from perkey.errors import LimitExceeded, StoreUnavailable, UsageError
from perkey.store.backends import etcd_messages as messages
from perkey.store.backends.port import NothingDone
from perkey.store.limits import Limits
from perkey.store.url import Location

T = TypeVar("T")

OPTIONS = {"name", "also", "timeout", "ca", "cert", "key"}
"""``name`` tells stores on one cluster apart; ``also`` lists more members, ``host:port`` with
commas between; ``timeout`` in seconds; ``ca``, ``cert`` and ``key`` are PEM files, with
``etcds://``."""

PORT = 2379
TOO_MUCH = ("request is too large", "too many operations in txn", "received message larger")
"""What a server says of a request over its ``--max-request-bytes`` or ``--max-txn-ops``."""
OURS = ("etcdserver: ", "mvcc: ", "auth: ")
"""How the server begins what it says itself, as opposed to the connection."""
NOT_CONNECTED = "failed to connect to all addresses"
"""What grpc says where it had no connection to send anything on."""
NEW_TOKEN = ("invalid auth token", "user name is empty", "revision of auth store is old")

UNSURE = frozenset(
    {"UNAVAILABLE", "DEADLINE_EXCEEDED", "UNKNOWN", "CANCELLED", "INTERNAL", "ABORTED"}
)
"""Status codes after which a commit may have landed, or may land later."""


class Compacted(Exception):
    """The revision that was asked for is no longer kept."""


class TimedOut(StoreUnavailable):
    """No answer came in time."""

    code = "timed-out"


class Wire:
    """One connection, for one thread at a time."""

    def __init__(self, location: Location, limits: Limits) -> None:
        self.seconds = location.request_s(limits)
        self._members = _members(location)
        self._member = 0
        self._location = location
        self._credentials = _credentials(location)
        self._channel: Any = None
        self._methods: dict[str, Callable[..., bytes]] = {}
        self._metadata: list[tuple[str, str]] = []

    @property
    def place(self) -> str:
        """The address of the member that is asked now, for people."""
        return self._members[self._member]

    def call(self, path: str, request: bytes) -> bytes:
        """One request, one answer.

        ``LimitExceeded`` and ``NothingDone`` where the server refused and did nothing,
        ``Compacted`` for a revision that is gone; after ``StoreUnavailable`` a write may have
        landed, or may land later.
        """
        if self._location.user is not None and not self._metadata:
            self._authenticate()
        try:
            return self._ask(path, request)
        except grpc.RpcError as error:
            if self._location.user is None or not _says(error, NEW_TOKEN):
                raise self._failure(error) from error
        # It was refused before anything was done: with a new token it may be sent once more.
        self._authenticate()
        try:
            return self._ask(path, request)
        except grpc.RpcError as error:
            raise self._failure(error) from error

    def server_ms(self) -> int | None:
        """The member's clock in milliseconds, to the second; None where it does not tell.

        gRPC has no clock, but the same port answers HTTP, whose replies are dated.
        """
        options = self._location.options
        connection = HTTPConnection(self.place, timeout=self.seconds)
        try:
            if self._credentials is not None:
                context = ssl.create_default_context(cafile=options.get("ca"))
                if "cert" in options:
                    context.load_cert_chain(options["cert"], options.get("key"))
                connection = HTTPSConnection(self.place, timeout=self.seconds, context=context)
            connection.request("GET", "/version")
            told = connection.getresponse().getheader("Date", "")
            return int(parsedate_to_datetime(told).timestamp() * 1000)
        except (OSError, HTTPException, ValueError):
            return None
        finally:
            connection.close()

    def _authenticate(self) -> None:
        self._metadata = []
        user, password = self._location.user or "", self._location.password or ""
        request = messages.authenticate_request(user, password)
        try:
            token = messages.token(self._ask(messages.AUTHENTICATE, request))
        except grpc.RpcError as error:
            failure = self._failure(error)
            raise NothingDone(str(failure)) from error
        self._metadata = [("token", token)]

    def _ask(self, path: str, request: bytes) -> bytes:
        if self._channel is None:
            self._channel = self._connected()
        method = self._methods.get(path)
        if method is None:
            method = self._methods[path] = self._channel.unary_unary(path)
        return method(request, timeout=self.seconds, metadata=self._metadata or None)

    def _connected(self) -> Any:
        options = [
            ("grpc.enable_retries", 0),
            ("grpc.enable_http_proxy", 0),
            ("grpc.service_config_disable_resolution", 1),
            # One connection for each channel, as it is for the clients of other stores.
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.max_receive_message_length", -1),
            ("grpc.max_send_message_length", -1),
            ("grpc.min_reconnect_backoff_ms", int(self.seconds * 1000)),
            ("grpc.primary_user_agent", "perkey"),
        ]
        if self._credentials is None:
            return grpc.insecure_channel(self.place, options=options)
        return grpc.secure_channel(self.place, self._credentials, options=options)

    def _failure(self, error: Any) -> Exception:
        """What the failed call means, for whoever made it."""
        code, said = error.code().name, " ".join(str(error.details() or "").split())
        if _says(error, TOO_MUCH):
            return LimitExceeded(f"etcd at {self.place} does not take so much at once: {said}")
        if code == "OUT_OF_RANGE" and "compacted" in said:
            return Compacted(said)
        if code not in UNSURE and said.startswith(OURS):
            return NothingDone(f"etcd at {self.place} refused: {said}")
        place = self.place
        self._replace()
        if code == "UNAVAILABLE" and said.startswith(NOT_CONNECTED):
            return NothingDone(f"etcd at {place} cannot be reached: {said}")
        kind = TimedOut if code == "DEADLINE_EXCEEDED" else StoreUnavailable
        return kind(f"etcd at {place} did not answer: {said or code}")

    def _replace(self) -> None:
        """The next call makes a new connection, to the next member."""
        self.close()
        self._member = (self._member + 1) % len(self._members)

    def close(self) -> None:
        """Close the connection; a later call makes a new one."""
        channel, self._channel = self._channel, None
        self._methods.clear()
        self._metadata = []
        if channel is not None:
            channel.close()


def again(ask: Callable[[], T]) -> T:
    """``ask()``, once more on a new connection if the old one turns out to be gone."""
    try:
        return ask()
    except (NothingDone, TimedOut):
        raise
    except StoreUnavailable:
        return ask()


def _says(error: Any, words: tuple[str, ...]) -> bool:
    said = str(error.details() or "")
    return any(each in said for each in words)


def _members(location: Location) -> list[str]:
    host = location.host or "localhost"
    first = f"[{host}]" if ":" in host else host
    members = [f"{first}:{location.port or PORT}"]
    for text in filter(None, location.options.get("also", "").split(",")):
        name, colon, port = text.rpartition(":")
        if not (name and colon and port.isdecimal()):
            raise UsageError(f"expected also=host:port,host:port in the URL, found {text!r}")
        members.append(text)
    return members


def _credentials(location: Location) -> Any:
    files = [location.options.get(name) for name in ("ca", "key", "cert")]
    if location.scheme != "etcds":
        if any(files):
            raise UsageError("ca, cert and key in the URL need etcds:// (TLS)")
        return None
    try:
        return grpc.ssl_channel_credentials(*(name and Path(name).read_bytes() for name in files))
    except OSError as error:
        raise UsageError(f"a PEM file in the URL cannot be read: {error}") from None
