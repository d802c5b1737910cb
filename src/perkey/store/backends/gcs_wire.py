"""A connection to Google Cloud Storage, and who asks there."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from datetime import UTC
from pathlib import Path
from typing import Any, NamedTuple

from perkey.clock import Clock
from perkey.errors import UsageError
from perkey.store.backends import wire
from perkey.store.backends.bearer import Bearer, Fixed, Token
from perkey.store.backends.port import NoCredentials
from perkey.store.backends.wire import query_text
from perkey.store.url import Location

SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"
ENDPOINT = "https://storage.googleapis.com"
EMULATOR = "STORAGE_EMULATOR_HOST"
"""Where Google's own libraries look for a server that is not Google's, and asks for no name."""
FETCH_S = 30.0


class Wire(wire.Wire):
    """One connection, for one thread at a time; made when it is needed."""

    def __init__(
        self,
        location: Location,
        seconds: float,
        clock: Clock,
        bearer: Bearer | Fixed | None = None,
    ) -> None:
        super().__init__(_endpoint(location), location, seconds, clock)
        self._location = location
        self._bearer = bearer or _bearer(location, clock)

    def another(self) -> Wire:
        return Wire(self._location, self._seconds, self._clock, self._bearer)

    def prepared(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: bytes,
    ) -> tuple[str, dict[str, str]]:
        """``path`` is taken as it is: a slash in an object's name is percent-encoded there."""
        asked = query_text(query)
        sent = {"host": self.place, **headers}
        token = self._bearer.now()
        if token:
            sent["authorization"] = f"Bearer {token}"
        return (f"{path}?{asked}" if asked else path), sent


def _endpoint(location: Location) -> str:
    named = location.options.get("endpoint")
    if named:
        return named
    emulator = os.environ.get(EMULATOR, "")
    if emulator and "://" not in emulator:
        emulator = f"http://{emulator}"
    return emulator or ENDPOINT


def _bearer(location: Location, clock: Clock) -> Bearer | Fixed:
    """From the URL, or from wherever Google's own libraries look."""
    token = location.password or location.user
    if token:
        if not token.isascii() or not token.isprintable() or " " in token:
            raise UsageError("the token in the URL has characters that no token has")
        return Fixed(token)
    emulated = bool(os.environ.get(EMULATOR)) and "endpoint" not in location.options
    anonymous = "none" if emulated else "default"
    if location.option("auth", ("default", "none"), anonymous) == "none":
        return Fixed("")
    return Bearer(_Found(location.options.get("credentials")), clock)


class _Found:
    """What google-auth finds: a file, the user who is logged in, or the machine itself."""

    def __init__(self, file: str | None) -> None:
        said = (
            "name a file with credentials=/path in the URL or in GOOGLE_APPLICATION_CREDENTIALS, "
            "or an access token, as in gs://token:TOKEN@bucket"
        )
        try:
            import google.auth
            import google.auth.exceptions
        except ModuleNotFoundError:
            raise NoCredentials(
                f"no credentials: {said}; the first two need: pip install 'perkey[gcs]'"
            ) from None
        try:
            if file is None:
                self._found, _ = google.auth.default(scopes=[SCOPE], request=_fetched)
            else:
                self._found = _read(file)
        except (google.auth.exceptions.GoogleAuthError, OSError, ValueError) as error:
            raise NoCredentials(f"no credentials ({type(error).__name__}): {said}") from None

    def __call__(self) -> Token:
        self._found.refresh(_fetched)
        ends = self._found.expiry
        ends_ms = int(ends.replace(tzinfo=UTC).timestamp() * 1000) if ends else 1 << 62
        return Token(str(self._found.token), ends_ms)


def _read(file: str) -> Any:
    """What a file holds: the key of a service account, or a user who has logged in."""
    from google.oauth2 import credentials, service_account

    told = json.loads(Path(file).read_text())
    kind = told.get("type") if isinstance(told, dict) else None
    if kind == "service_account":
        return service_account.Credentials.from_service_account_info(told, scopes=[SCOPE])
    if kind == "authorized_user":
        return credentials.Credentials.from_authorized_user_info(told, scopes=[SCOPE])
    raise ValueError("other kinds are found by way of GOOGLE_APPLICATION_CREDENTIALS")


class _Reply(NamedTuple):
    """What google-auth expects of an answer."""

    status: int
    headers: Any
    data: bytes


def _fetched(
    url: str,
    method: str = "GET",
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    timeout: float | None = None,
    **_: Any,
) -> _Reply:
    """A request for a token, as google-auth makes it."""
    from google.auth.exceptions import TransportError

    asked = urllib.request.Request(url, body, dict(headers or {}), method=method)
    try:
        with urllib.request.urlopen(asked, timeout=timeout or FETCH_S) as answer:
            return _Reply(answer.status, answer.headers, answer.read())
    except urllib.error.HTTPError as refused:
        with refused:
            return _Reply(refused.code, refused.headers, refused.read())
    except OSError as error:
        raise TransportError(type(error).__name__) from None
