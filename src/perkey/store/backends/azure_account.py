"""Whose container it is and with what right it is asked: from the URL or the environment."""

from __future__ import annotations

import base64
import binascii
import os
from typing import NamedTuple
from urllib.parse import parse_qsl, urlsplit

from perkey.errors import UsageError
from perkey.store.url import Location

CONNECTION = "AZURE_STORAGE_CONNECTION_STRING"
ACCOUNTS = ("AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_ACCOUNT_NAME")
KEYS = ("AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCESS_KEY")
SIGNATURE = "AZURE_STORAGE_SAS_TOKEN"


class Account(NamedTuple):
    """A storage account.  Not for people's eyes."""

    name: str
    key: bytes = b""
    signature: tuple[tuple[str, str], ...] = ()
    """A shared access signature: what goes into each query."""
    endpoint: str = ""
    in_path: bool = False
    """Whether the account stands in the path, as on a server that is not Azure's."""

    def __repr__(self) -> str:
        return f"Account({self.name!r}, ...)"


def account(location: Location) -> Account:
    """The account that the URL names, or else the environment."""
    named = location.options.get("endpoint", "")
    in_path = location.option("addressing", ("path", "virtual"), "path" if named else "virtual")
    if location.user:
        found = _with_secret(location.user, location.password or _secret_of(location.user))
    else:
        found = _from_environment()
    name = found.name
    if not (name.isascii() and name.isalnum()):
        raise UsageError("an Azure storage account has letters and digits in its name, no others")
    if named or not found.endpoint:
        endpoint = named or f"https://{name}.blob.core.windows.net"
        return found._replace(endpoint=endpoint, in_path=in_path == "path")
    return found


def _from_environment() -> Account:
    connection = os.environ.get(CONNECTION, "")
    if connection:
        return _connected(connection)
    name = _first(ACCOUNTS)
    if not name:
        raise UsageError(
            "whose container is it? say az://account@container or az://account:KEY@container, or "
            f"set {ACCOUNTS[0]} or {CONNECTION}"
        )
    return _with_secret(name, _secret_of(name))


def _secret_of(name: str) -> str:
    """What the environment has for this account; a key of another one would only be refused."""
    if _first(ACCOUNTS) not in ("", name):
        return ""
    return _first(KEYS) or os.environ.get(SIGNATURE, "")


def _connected(connection: str) -> Account:
    """Source: "Configure Azure Storage connection strings", Azure Storage documentation."""
    parts = dict(part.partition("=")[::2] for part in connection.split(";") if part)
    name = parts.get("AccountName", "")
    secret = parts.get("AccountKey") or parts.get("SharedAccessSignature", "")
    endpoint = urlsplit(parts.get("BlobEndpoint", ""))
    if not name and endpoint.hostname:
        name = endpoint.path.strip("/") or endpoint.hostname.partition(".")[0]
    if not name:
        raise UsageError(f"{CONNECTION} names no account: expected AccountName=...;AccountKey=...")
    found = _with_secret(name, secret)
    if endpoint.hostname:
        place = f"{endpoint.scheme}://{endpoint.netloc}"
        return found._replace(endpoint=place, in_path=bool(endpoint.path.strip("/")))
    scheme = parts.get("DefaultEndpointsProtocol", "https")
    suffix = parts.get("EndpointSuffix", "core.windows.net")
    return found._replace(endpoint=f"{scheme}://{name}.blob.{suffix}")


def _with_secret(name: str, secret: str) -> Account:
    if "sig=" in secret:
        return Account(name, signature=tuple(parse_qsl(secret.lstrip("?"))))
    try:
        return Account(name, base64.b64decode(secret, validate=True))
    except (binascii.Error, ValueError):
        raise UsageError(
            "the account's key cannot be read: expected base64, in a URL with %2F for / and %2B "
            "for +, or a shared access signature"
        ) from None


def _first(names: tuple[str, ...]) -> str:
    return next((os.environ[name] for name in names if os.environ.get(name)), "")
