"""A connection to Azure Blob Storage, and who asks there."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64encode
from collections.abc import Mapping
from email.utils import formatdate

from perkey.clock import Clock
from perkey.errors import UsageError
from perkey.store.backends import wire
from perkey.store.backends.azure_account import Account
from perkey.store.backends.bearer import Bearer, Token
from perkey.store.backends.port import NoCredentials
from perkey.store.backends.wire import query_text, quoted_path
from perkey.store.url import Location

VERSION = "2026-02-06"
"""Of the REST interface: the first whose listings may begin in the middle."""
SCOPE = "https://storage.azure.com/.default"
_SIGNED = (
    "content-encoding",
    "content-language",
    "content-length",
    "content-md5",
    "content-type",
    "date",
    "if-modified-since",
    "if-match",
    "if-none-match",
    "if-unmodified-since",
    "range",
)


class Wire(wire.Wire):
    """One connection, for one thread at a time; made when it is needed."""

    def __init__(
        self,
        account: Account,
        location: Location,
        seconds: float,
        clock: Clock,
        bearer: Bearer | None = None,
    ) -> None:
        super().__init__(account.endpoint, location, seconds, clock)
        self.account = account
        self._location = location
        self._bearer = bearer
        if bearer is None and not account.key and not account.signature:
            if not self._secure:
                raise UsageError(
                    "expected a key or a shared access signature where the endpoint is http://: "
                    "a token of Microsoft Entra would be read by others on the way"
                )
            self._bearer = Bearer(_Found(), clock, ADVICE)

    def another(self) -> Wire:
        return Wire(self.account, self._location, self._seconds, self._clock, self._bearer)

    def prepared(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: bytes,
    ) -> tuple[str, dict[str, str]]:
        """(what stands behind the method, the headers, signed where there is a key)."""
        path = quoted_path(path)
        query = {**query, **dict(self.account.signature)}
        sent = {
            "host": self.place,
            "x-ms-date": formatdate(self.time.now_ms() // 1000, usegmt=True),
            "x-ms-version": VERSION,
            **headers,
        }
        if self._bearer is not None:
            sent["authorization"] = f"Bearer {self._bearer.now()}"
        elif self.account.key:
            text = _to_sign(self.account.name, method, path, query, sent, len(body))
            signed = hmac.new(self.account.key, text.encode(), hashlib.sha256).digest()
            said = f"{self.account.name}:{b64encode(signed).decode()}"
            sent["authorization"] = f"SharedKey {said}"
        asked = query_text(query)
        return (f"{path}?{asked}" if asked else path), sent


def _to_sign(
    account: str,
    method: str,
    path: str,
    query: Mapping[str, str],
    headers: Mapping[str, str],
    length: int,
) -> str:
    """Source: "Authorize with Shared Key", Azure Storage REST API reference."""
    known = {**headers, "content-length": str(length) if length else ""}
    standard = "".join(f"{known.get(name, '')}\n" for name in _SIGNED)
    own = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers) if name[:5] == "x-ms-")
    asked = sorted((name.lower(), value) for name, value in query.items())
    return f"{method}\n{standard}{own}/{account}{path}" + "".join(
        f"\n{name}:{value}" for name, value in asked
    )


SAID = "say az://account:KEY@container, or set AZURE_STORAGE_KEY or AZURE_STORAGE_SAS_TOKEN"
ADVICE = f"log in (az login), or {SAID}"
"""Where Microsoft Entra gives no token."""


class _Found:
    """What azure-identity finds: a service principal, a managed identity, or who is logged in."""

    def __init__(self) -> None:
        try:
            from azure.identity import DefaultAzureCredential
        except ModuleNotFoundError:
            raise NoCredentials(
                f"no credentials: {SAID}; Microsoft Entra needs: pip install 'perkey[azure]'"
            ) from None
        self._found = DefaultAzureCredential()

    def __call__(self) -> Token:
        from azure.core.exceptions import ClientAuthenticationError

        try:
            token = self._found.get_token(SCOPE)
        except ClientAuthenticationError as error:
            # Its words are a page, and may quote what was sent.
            raise NoCredentials(f"no credentials ({type(error).__name__}): {ADVICE}") from None
        return Token(token.token, token.expires_on * 1000)
