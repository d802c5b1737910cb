"""Who calls: bearer tokens from a file that holds only their hashes.

A token's name becomes the author of every write made with it; a caller may say more about
itself behind a slash (``agent`` as ``agent/step-3``), never less.  The file is read again
when it changes, so that taking a token out of it needs no restart.
"""

from __future__ import annotations

import hashlib
import logging
import os
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from perkey.clock import Clock, secret
from perkey.errors import Forbidden, Unauthorised, UsageError
from perkey.store.backends.http_wire import author

ROLES = ("read", "write", "admin")
"""Each includes those before it."""
MAX_NAME = 100
MAX_BY = 200
RELOAD_S = 1.0
"""How often the token file is looked at, in seconds."""
PREFIX = "pk_"

_log = logging.getLogger("perkey.server")


@dataclass(frozen=True, slots=True)
class Caller:
    """Somebody, and what that somebody may do."""

    name: str = ""
    """Empty for a local caller of a server without tokens."""
    role: str = "admin"
    prefixes: tuple[str, ...] = ("",)
    """What the keys it may touch begin with."""

    def need(self, role: str) -> None:
        """Raise ``Forbidden`` unless this caller has that role."""
        if ROLES.index(self.role) < ROLES.index(role):
            raise Forbidden(
                f"this needs the role {role}, and the token of {self.name!r} has {self.role}"
            )

    @property
    def everywhere(self) -> bool:
        """Whether it may touch every key."""
        return "" in self.prefixes

    def covers(self, key: str) -> bool:
        """Whether it may touch this key, or all keys under this prefix."""
        return key.startswith(self.prefixes)

    def need_key(self, key: str) -> None:
        """Raise ``Forbidden`` unless it may touch this key (or all under this prefix)."""
        if not self.covers(key):
            shown = ", ".join(map(repr, self.prefixes)) or "none"
            raise Forbidden(
                f"the token of {self.name!r} may touch keys that begin with {shown}, "
                f"found {key!r:.80}"
            )

    def author(self, claimed: str) -> str:
        """Who a write is by: the token's name, and what the caller adds behind a slash."""
        by = author(self.name, claimed)
        if len(by) > MAX_BY:
            raise UsageError(f"expected an author of at most {MAX_BY} characters, found {len(by)}")
        return by


LOCAL = Caller()
"""Every caller of a server without tokens, which listens on loopback only."""


def digest(token: str) -> str:
    """What the file holds of a token.  Tokens are 256 random bits, so one round suffices."""
    return "sha256:" + hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def make(name: str, role: str, prefixes: Sequence[str]) -> tuple[str, str]:
    """A new token, and its entry for the file."""
    _caller({"name": name, "role": role, "prefixes": list(prefixes)}, 1)
    token = PREFIX + secret()
    lines = [
        "[[token]]",
        f"name = {_toml(name)}",
        f"role = {_toml(role)}",
        f"prefixes = [{', '.join(map(_toml, prefixes))}]",
        f"hash = {_toml(digest(token))}",
    ]
    return token, "\n".join(lines) + "\n"


def _toml(text: str) -> str:
    escaped = "".join(c if c.isprintable() and c not in '"\\' else f"\\U{ord(c):08x}" for c in text)
    return f'"{escaped}"'


def parse(text: str) -> dict[str, Caller]:
    """The callers of a token file by the digest of their tokens."""
    try:
        entries = tomllib.loads(text).get("token", [])
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"the token file is not TOML: {error}") from None
    if not isinstance(entries, list):
        raise UsageError("expected [[token]] tables in the token file, found something else")
    callers: dict[str, Caller] = {}
    for number, entry in enumerate(entries, 1):
        if not isinstance(entry, dict):
            raise UsageError(f"token {number}: expected a [[token]] table")
        known = entry.get("hash")
        if not isinstance(known, str) or not known.startswith("sha256:") or len(known) != 71:
            raise UsageError(f'token {number}: expected hash = "sha256:" and 64 hex digits')
        if known in callers:
            raise UsageError(f"token {number}: this hash is in the file twice")
        callers[known] = _caller(entry, number)
    return callers


def _caller(entry: dict[str, Any], number: int) -> Caller:
    unknown = entry.keys() - {"name", "role", "prefixes", "hash"}
    name, role, prefixes = entry.get("name"), entry.get("role"), entry.get("prefixes")
    if unknown:
        raise UsageError(f"token {number}: unknown entry {min(unknown)!r}")
    if not isinstance(name, str) or not 1 <= len(name) <= MAX_NAME or not name.isprintable():
        raise UsageError(f"token {number}: expected a name of 1 to {MAX_NAME} printable characters")
    if "/" in name:
        raise UsageError(f"token {number}: a name has no slash; what follows one is the caller's")
    if role not in ROLES:
        raise UsageError(f"token {number}: expected a role of {', '.join(ROLES)}, found {role!r}")
    if not isinstance(prefixes, list) or not all(isinstance(each, str) for each in prefixes):
        raise UsageError(f'token {number}: expected prefixes = ["runs/", ...]; [""] is every key')
    return Caller(name, role, tuple(prefixes))


class Tokens:
    """The token file, and who may call; without a file everybody is ``LOCAL``."""

    def __init__(self, path: str | None, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._callers: dict[str, Caller] = {}
        self._seen: tuple[int, int, int] | None = None
        self._looked = 0.0
        if path is not None:
            self._seen = self._look()
            self._callers = parse(self._read())
            self._looked = clock.monotonic()

    def caller(self, headers: Sequence[bytes]) -> Caller:
        """Who sent these ``Authorization`` header values; ``Unauthorised`` for nobody known."""
        if self._path is None:
            return LOCAL
        self._refresh()
        if len(headers) != 1:
            raise Unauthorised("expected one Authorization: Bearer TOKEN header")
        scheme, _, token = headers[0].decode("latin-1").partition(" ")
        found = self._callers.get(digest(token.strip()))
        if scheme.lower() != "bearer" or found is None:
            raise Unauthorised("expected Authorization: Bearer TOKEN with a token of this server")
        return found

    def _refresh(self) -> None:
        """Read the file again when it has changed; a broken one changes nothing."""
        now = self._clock.monotonic()
        if now - self._looked < RELOAD_S:
            return
        self._looked = now
        try:
            seen = self._look()
            if seen != self._seen:
                self._callers = parse(self._read())
                self._seen = seen
        except UsageError as error:
            _log.error("the token file cannot be used, the former tokens stay: %s", error)

    def _look(self) -> tuple[int, int, int]:
        assert self._path is not None
        try:
            found = os.stat(self._path)
        except OSError as error:
            raise UsageError(f"cannot read the token file: {error.strerror}") from None
        return found.st_mtime_ns, found.st_size, found.st_ino

    def _read(self) -> str:
        assert self._path is not None
        try:
            with open(self._path, encoding="utf-8") as file:
                return file.read()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"cannot read the token file: {error}") from None
