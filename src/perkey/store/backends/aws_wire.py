"""A connection to a service of AWS: each request is signed, with Signature Version 4.

The client libraries of AWS need five times the processor's time for one.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from perkey.clock import Clock
from perkey.store.backends import wire
from perkey.store.backends.port import NoCredentials
from perkey.store.backends.wire import query_text, quoted_path
from perkey.store.url import Location

OPTIONS = {"endpoint", "region", "timeout", "ca", "profile"}
"""``endpoint``: the URL of a server that is not AWS; ``timeout`` in seconds; ``ca`` a PEM file;
``profile`` of the AWS configuration."""


class Keys(NamedTuple):
    """What signs a request.  Not for people's eyes."""

    access: str
    secret: str
    token: str | None = None

    def __repr__(self) -> str:
        return "Keys(...)"


class Wire(wire.Wire):
    """One connection, for one thread at a time; made when it is needed."""

    def __init__(
        self, service: str, host: str, location: Location, seconds: float, clock: Clock
    ) -> None:
        """``host`` is where AWS has this service, ``{region}`` in it, if no endpoint is named."""
        self.region = region_of(location)
        endpoint = location.options.get("endpoint") or f"https://{host.format(region=self.region)}"
        super().__init__(endpoint, location, seconds, clock)
        self._location = location
        self._service = service
        self._host = host
        self._keys = _Credentials(location)
        self._signing: tuple[tuple[str, str], bytes] = (("", ""), b"")

    def another(self) -> Wire:
        return Wire(self._service, self._host, self._location, self._seconds, self._clock)

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
        path, asked = quoted_path(path), query_text(query)
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
        raise NoCredentials(
            f"no credentials: {said}; AWS's other ways need: pip install botocore"
        ) from None
    try:
        found = botocore.session.Session(profile=profile).get_credentials()
    except botocore.exceptions.BotoCoreError as error:
        raise NoCredentials(f"no credentials ({type(error).__name__}): {said}") from None
    if found is None:
        raise NoCredentials(f"no credentials: {said}")
    return found


def region_of(location: Location) -> str:
    """The region that the URL or the environment names."""
    named = location.options.get("region")
    return (
        named or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
    )


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()
