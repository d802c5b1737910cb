"""The line that does in a shell what a page shows: ``perkey`` where it can, else ``curl``."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from urllib.parse import quote

from perkey.server.calls import Call
from perkey.server.pages.render import root


@dataclass(frozen=True, slots=True)
class Command:
    """One line for a shell, and what it does."""

    about: str
    line: str


def perkey(call: Call, about: str, *words: str) -> Command:
    """A ``perkey`` command on this server as its store."""
    said = " ".join(map(shlex.quote, words))
    return Command(about, f"perkey {said} --store {_store(call)}")


def export(call: Call) -> str:
    """The line after which every ``perkey`` command of a shell goes to this server."""
    return f"export PERKEY_STORE={_store(call)}"


def curl(call: Call, about: str, path: str, also: str = "") -> Command:
    """A ``curl`` line; ``path`` is percent-encoded; ``also``: more of the line, as it is."""
    parts = ["curl", "-s", shlex.quote(_url(call) + path)]
    if call.services.settings.tokens is not None:
        parts.append('-H "Authorization: Bearer $PERKEY_TOKEN"')
    return Command(about, " ".join([*parts, *([also] if also else [])]))


def segment(text: str) -> str:
    """A key as one segment of a path."""
    return quote(text, safe="")


def _store(call: Call) -> str:
    """This server as a store's URL, for a shell; the token stays in its variable."""
    scheme, host = _address(call)
    if call.services.settings.tokens is None:
        return _url(call)
    return f'"{scheme}://token:$PERKEY_TOKEN@{host}{root(call)}"'


def _url(call: Call) -> str:
    scheme, host = _address(call)
    return f"{scheme}://{host}{root(call)}"


def _address(call: Call) -> tuple[str, str]:
    """How the browser reached this server.  The host has been checked; the scheme a proxy may
    say, and it is only shown."""
    forwarded = call.headers("x-forwarded-proto")
    scheme = "https" if "https" in (call.scope.get("scheme"), *forwarded) else "http"
    return scheme, call.header("host") or ""
