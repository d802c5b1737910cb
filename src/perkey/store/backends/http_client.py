"""One connection to a perkey server that never sends a request twice by itself."""

from __future__ import annotations

import http.client
import json
import ssl
from typing import Any, TypeVar

import msgspec

from perkey import errors
from perkey.clock import Clock
from perkey.errors import PerkeyError, StoreUnavailable, UsageError
from perkey.store.backends.http_wire import MEDIA, PATH, encode
from perkey.store.backends.port import NothingDone
from perkey.store.limits import Limits
from perkey.store.url import Location

T = TypeVar("T")

OPTIONS = {"timeout", "ca"}
"""``timeout`` in seconds for one request; ``ca`` a PEM file, with https."""
IDLE_S = 30.0
"""A connection that was quiet for longer may be gone: a new one is made."""
BROKEN = (OSError, http.client.HTTPException)


class Lost(StoreUnavailable):
    """The connection broke before the reply; what was asked may have been done."""

    code = "reply-lost"


class HttpClient:
    """Requests one after the other on one kept connection."""

    def __init__(self, location: Location, limits: Limits, clock: Clock) -> None:
        self._clock = clock
        self.secure = location.scheme == "https"
        port = location.port or (443 if self.secure else 80)
        self.place = f"{location.scheme}://{location.host}:{port}"
        self._mount = "/" + location.path.strip("/") if location.path.strip("/") else ""
        self.timeout = location.request_s(limits)
        self._headers = {"content-type": MEDIA, "accept": MEDIA, **_credentials(location)}
        self.identified = "authorization" in self._headers
        if self.secure:
            context = ssl.create_default_context(cafile=location.options.get("ca"))
            self._connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                location.host, port, timeout=self.timeout, context=context
            )
        elif "ca" in location.options:
            raise UsageError("ca= in the URL needs https://")
        else:
            self._connection = http.client.HTTPConnection(location.host, port, timeout=self.timeout)
        self._used = clock.monotonic()

    def ask(self, method: str, name: str, question: Any, kind: type[T]) -> T:
        """A request that only reads: once more on a new connection where the old one broke."""
        try:
            return self.once(method, name, question, kind)
        except Lost:
            return self.once(method, name, question, kind)

    def once(self, method: str, name: str, question: Any, kind: type[T]) -> T:
        """One request, sent once.

        Raises ``NothingDone`` or a ``UsageError`` where nothing was done, ``Lost`` where nobody
        knows, and what the server says where it says more.
        """
        body = None if question is None else encode(question)
        self._connect()
        try:
            self._connection.request(method, f"{self._mount}{PATH}{name}", body, self._headers)
            response = self._connection.getresponse()
            answer = response.read()
        except BROKEN as error:
            self._connection.close()
            raise Lost(f"{self.place} did not answer: {error or type(error).__name__}") from error
        except BaseException:
            # Interrupted: the answer to this must never be taken for that to another request.
            self._connection.close()
            raise
        self._used = self._clock.monotonic()
        if response.status != 200:
            raise refusal(response.status, response.getheader("content-type", ""), answer)
        try:
            return msgspec.msgpack.decode(answer, type=kind)
        except msgspec.MsgspecError as error:
            raise Lost(f"{self.place} answered what no perkey server does: {error}") from error

    def _connect(self) -> None:
        if self._clock.monotonic() - self._used > IDLE_S:
            self._connection.close()
        if self._connection.sock is not None:
            return
        try:
            self._connection.connect()
        except BROKEN as error:
            self._connection.close()
            raise NothingDone(f"{self.place} cannot be reached: {error}") from error
        self._used = self._clock.monotonic()

    def close(self) -> None:
        """Give the connection back."""
        self._connection.close()


def _credentials(location: Location) -> dict[str, str]:
    """The token stands where a URL has a user or a password: ``http://token:TOKEN@host``."""
    token = location.password or location.user
    if not token:
        return {}
    if not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError("the token in the URL has characters that no token has")
    return {"authorization": f"Bearer {token}"}


def refusal(status: int, media: str, answer: bytes) -> PerkeyError:
    """The error that an answer stands for, or a ``Lost`` where it is not from a perkey server."""
    if media.partition(";")[0] != "application/problem+json":
        return Lost(f"expected an answer of a perkey server, found status {status}")
    try:
        problem = json.loads(answer)
        code, detail = str(problem["code"]), str(problem["detail"])
    except (ValueError, KeyError, TypeError):
        return Lost(f"a problem of status {status} cannot be read")
    known = {"type", "title", "status", "code", "detail"}
    details = {name: value for name, value in problem.items() if name not in known}
    kind = errors.by_code().get(code)
    if kind is not None and issubclass(kind, errors.Busy):
        return NothingDone(f"the server is busy: {detail}", **details)
    if status < 500:
        # Nothing was done; what this version does not know is a wrong call.
        return (kind or UsageError)(detail, **details)
    return Lost(f"the server could not do it: {detail}")
