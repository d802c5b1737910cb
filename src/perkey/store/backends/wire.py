"""One HTTP connection to a service in the cloud, or to a server that speaks its language.

Each request is sent once.  The vendors' client libraries send requests again by themselves, and
so turn a write that landed, and whose reply was lost, into a conflict.  What differs between the
vendors, who the caller is, stands in ``prepared``.
"""

from __future__ import annotations

import http.client
import select
import ssl
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import NamedTuple, Self
from urllib.parse import quote, urlsplit

from perkey.clock import Clock
from perkey.errors import StoreUnavailable, UsageError
from perkey.store.backends.dated import DatedTime
from perkey.store.backends.port import NothingDone
from perkey.store.url import Location

FAILURES = (OSError, http.client.HTTPException)


class Answer(NamedTuple):
    """What a server answered."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes


class Wire(ABC):
    """One connection, for one thread at a time; made when it is needed."""

    def __init__(self, endpoint: str, location: Location, seconds: float, clock: Clock) -> None:
        """``endpoint`` is ``https://host`` or ``http://host:port``; ``ca=`` in the URL is read."""
        self.time = DatedTime(clock)
        self._seconds = seconds
        self._clock = clock
        self._secure, self._server, self._port = endpoint_parts(endpoint)
        default = 443 if self._secure else 80
        self.place = (
            self._server if self._port in (None, default) else f"{self._server}:{self._port}"
        )
        self._tls = _tls(location) if self._secure else None
        self._connection: http.client.HTTPConnection | None = None

    @abstractmethod
    def another(self) -> Self:
        """A second connection to the same place."""

    @abstractmethod
    def prepared(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: bytes,
    ) -> tuple[str, dict[str, str]]:
        """(what stands behind the method, the headers, which say who asks)."""

    # ------------------------------------------------------------------------ asking

    def ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] = {},
        headers: Mapping[str, str] = {},
        body: bytes = b"",
        *,
        again: bool = False,
    ) -> Answer:
        """Send one request; ``again``: once more where the connection turned out to be gone.

        ``NothingDone`` where it was never sent; ``StoreUnavailable`` where no answer came.
        """
        for reused in (True, False) if again else (False,):
            target, sent = self.prepared(method, path, query, headers, body)
            began = self._clock.monotonic()
            connection = self._connected()
            try:
                answer = _exchange(connection, method, target, sent, body)
            except FAILURES as error:
                self.close()
                if reused and not isinstance(error, TimeoutError):
                    continue
                raise StoreUnavailable(f"{self.place} did not answer: {_said(error)}") from error
            except BaseException:  # a late answer must not meet the next request
                self.close()
                raise
            self.time.saw(answer.headers.get("date", ""), began)
            return answer
        raise AssertionError("unreachable")

    # --------------------------------------------------------------------- connection

    def _connected(self) -> http.client.HTTPConnection:
        connection = self._connection
        if connection is not None:
            # What is there to read before we asked is the other side's end.
            if connection.sock is not None and not select.select([connection.sock], [], [], 0)[0]:
                return connection
            self.close()
        if self._tls is None:
            connection = http.client.HTTPConnection(self._server, self._port, timeout=self._seconds)
        else:
            connection = http.client.HTTPSConnection(
                self._server, self._port, timeout=self._seconds, context=self._tls
            )
        try:
            connection.connect()
        except OSError as error:
            raise NothingDone(f"{self.place} cannot be reached: {_said(error)}") from error
        self._connection = connection
        return connection

    def close(self) -> None:
        """Close the connection; the next request makes a new one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _exchange(
    connection: http.client.HTTPConnection,
    method: str,
    target: str,
    headers: Mapping[str, str],
    body: bytes,
) -> Answer:
    connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
    for name, value in headers.items():
        connection.putheader(name, value)
    if body or method != "GET":
        connection.putheader("content-length", str(len(body)))
    connection.endheaders(body or None)
    response = connection.getresponse()
    data = response.read()
    return Answer(response.status, response.headers, data)


def endpoint_parts(endpoint: str) -> tuple[bool, str, int | None]:
    """(TLS, host, port)"""
    try:
        parts = urlsplit(endpoint)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    plain = parts.username is None and not parts.query and parts.path in ("", "/")
    if parts.scheme not in ("http", "https") or not parts.hostname or not plain:
        raise UsageError(
            "expected endpoint=http://host:port or https://host, without path and password; "
            "credentials stand at the beginning, as in //key:secret@..."
        )
    return parts.scheme == "https", parts.hostname, port


def query_text(query: Mapping[str, str]) -> str:
    """A query as it stands in a request, in order of its names as they are sent."""
    pairs = sorted((quoted(name), quoted(value)) for name, value in query.items())
    return "&".join(f"{name}={value}" for name, value in pairs)


def quoted(text: str) -> str:
    """Everything but letters, digits and ``-_.~`` percent-encoded."""
    return quote(text, safe="-_.~")


def quoted_path(path: str) -> str:
    """The same, slashes left as they are."""
    return quote(path, safe="/-_.~")


def _tls(location: Location) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=location.options.get("ca"))
    except OSError as error:
        raise UsageError(f"the file that ca= names cannot be used: {error.strerror}") from None


def _said(error: BaseException) -> str:
    text = error.strerror if isinstance(error, OSError) else ""
    return text or type(error).__name__
