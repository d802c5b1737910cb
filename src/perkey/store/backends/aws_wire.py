"""One HTTP connection to a service of AWS, or to a server that speaks its language.

Each request is signed (Signature Version 4) and sent once.  The client libraries of AWS send
requests again by themselves, and need five times the processor's time for one.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import os
import select
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

from perkey.clock import Clock
from perkey.errors import StoreUnavailable, UsageError
from perkey.store.backends.dated import DatedTime
from perkey.store.backends.port import NothingDone
from perkey.store.url import Location

OPTIONS = {"endpoint", "region", "timeout", "ca", "profile"}
"""``endpoint``: the URL of a server that is not AWS; ``timeout`` in seconds; ``ca`` a PEM file;
``profile`` of the AWS configuration."""
FAILURES = (OSError, http.client.HTTPException)


class Answer(NamedTuple):
    """What a server answered."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes


class Keys(NamedTuple):
    """What signs a request.  Not for people's eyes."""

    access: str
    secret: str
    token: str | None = None

    def __repr__(self) -> str:
        return "Keys(...)"


class Wire:
    """One connection, for one thread at a time; made when it is needed."""

    def __init__(
        self, service: str, host: str, location: Location, seconds: float, clock: Clock
    ) -> None:
        """``host`` is where AWS has this service, ``{region}`` in it, if no endpoint is named."""
        self.region = region_of(location)
        self.time = DatedTime(clock)
        self._location = location
        self._service = service
        self._host = host
        self._seconds = seconds
        self._clock = clock
        endpoint = location.options.get("endpoint") or f"https://{host.format(region=self.region)}"
        self._secure, self._server, self._port = _endpoint(endpoint)
        default = 443 if self._secure else 80
        self.place = (
            self._server if self._port in (None, default) else f"{self._server}:{self._port}"
        )
        self._tls = _tls(location) if self._secure else None
        self._keys = _Credentials(location)
        self._connection: http.client.HTTPConnection | None = None
        self._signing: tuple[tuple[str, str], bytes] = (("", ""), b"")

    def another(self) -> Wire:
        """A second connection to the same place."""
        return Wire(self._service, self._host, self._location, self._seconds, self._clock)

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
            began = self._clock.monotonic()
            connection = self._connected()
            try:
                answer = self._exchange(connection, method, path, query, headers, body)
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

    def _exchange(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: bytes,
    ) -> Answer:
        target, signed = self.prepared(method, path, query, headers, body)
        connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
        for name, value in signed.items():
            connection.putheader(name, value)
        if body or method != "GET":
            connection.putheader("content-length", str(len(body)))
        connection.endheaders(body or None)
        response = connection.getresponse()
        data = response.read()
        return Answer(response.status, response.headers, data)

    def prepared(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: bytes,
    ) -> tuple[str, dict[str, str]]:
        """(what stands behind the method, the headers with a signature).

        Source: "Signature Version 4 signing process", AWS General Reference.
        """
        keys = self._keys.now()
        path = quote(path, safe="/-_.~")
        pairs = sorted((_quoted(name), _quoted(value)) for name, value in query.items())
        asked = "&".join(f"{name}={value}" for name, value in pairs)
        moment = datetime.fromtimestamp(self.time.now_ms() / 1000, UTC).strftime("%Y%m%dT%H%M%SZ")
        digest = hashlib.sha256(body).hexdigest()
        sent = {
            "host": self.place,
            "x-amz-content-sha256": digest,
            "x-amz-date": moment,
            **({"x-amz-security-token": keys.token} if keys.token else {}),
            **{name.lower(): value for name, value in headers.items()},
        }
        names = sorted(sent)
        listed = ";".join(names)
        lines = "".join(f"{name}:{sent[name].strip()}\n" for name in names)
        canonical = f"{method}\n{path}\n{asked}\n{lines}\n{listed}\n{digest}"
        scope = f"{moment[:8]}/{self.region}/{self._service}/aws4_request"
        hashed = hashlib.sha256(canonical.encode()).hexdigest()
        text = f"AWS4-HMAC-SHA256\n{moment}\n{scope}\n{hashed}"
        signature = _hmac(self._key(keys.secret, moment[:8]), text).hex()
        sent["authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={keys.access}/{scope}, SignedHeaders={listed}, "
            f"Signature={signature}"
        )
        return (f"{path}?{asked}" if asked else path), sent

    def _key(self, secret: str, day: str) -> bytes:
        if self._signing[0] != (secret, day):
            key = f"AWS4{secret}".encode()
            for part in (day, self.region, self._service, "aws4_request"):
                key = _hmac(key, part)
            self._signing = (secret, day), key
        return self._signing[1]

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


class _Credentials:
    """From the URL, from the environment, or from wherever botocore finds some."""

    def __init__(self, location: Location) -> None:
        self._found: Any = None
        self._keys: Keys | None = None
        if location.user and location.password:
            self._keys = Keys(location.user, location.password)
        elif "profile" not in location.options and "AWS_ACCESS_KEY_ID" in os.environ:
            self._keys = Keys(
                os.environ["AWS_ACCESS_KEY_ID"],
                os.environ.get("AWS_SECRET_ACCESS_KEY", ""),
                os.environ.get("AWS_SESSION_TOKEN"),
            )
        else:
            self._found = _searched(location.options.get("profile"))

    def now(self) -> Keys:
        """The keys to sign with now: those of a role change by the hour."""
        if self._keys is not None:
            return self._keys
        frozen = self._found.get_frozen_credentials()
        return Keys(frozen.access_key, frozen.secret_key, frozen.token)


def _searched(profile: str | None) -> Any:
    said = "put them before the host, as in //key:secret@..., or into AWS_ACCESS_KEY_ID"
    try:
        import botocore.exceptions
        import botocore.session
    except ModuleNotFoundError:
        raise UsageError(
            f"no credentials: {said}; AWS's other ways need: pip install botocore"
        ) from None
    try:
        found = botocore.session.Session(profile=profile).get_credentials()
    except botocore.exceptions.BotoCoreError as error:
        raise UsageError(f"no credentials ({type(error).__name__}): {said}") from None
    if found is None:
        raise UsageError(f"no credentials: {said}")
    return found


def region_of(location: Location) -> str:
    """The region that the URL or the environment names."""
    named = location.options.get("region")
    return (
        named or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
    )


def _endpoint(endpoint: str) -> tuple[bool, str, int | None]:
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


def _tls(location: Location) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=location.options.get("ca"))
    except OSError as error:
        raise UsageError(f"the file that ca= names cannot be used: {error.strerror}") from None


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def _quoted(text: str) -> str:
    return quote(text, safe="-_.~")


def _said(error: BaseException) -> str:
    text = error.strerror if isinstance(error, OSError) else ""
    return text or type(error).__name__
