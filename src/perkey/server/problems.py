"""Errors as RFC 9457 problems.

The ``type`` of a problem is ``/problems/CODE`` on the server that sent it, which is a page
(``pages.kinds``) that says what it means.
"""

from __future__ import annotations

import math
import re
from typing import Any

import msgspec
from starlette.responses import Response

from perkey import errors
from perkey.errors import PerkeyError
from perkey.server import refusals

MEDIA = "application/problem+json"
WAIT_S = 1
"""What ``Retry-After`` says where the error knows no better, in seconds."""
_FIXED = {"type", "title", "status", "detail", "code", "instance"}

_NEXT: list[tuple[type[PerkeyError], str]] = [
    (errors.ConditionRequired, "Read the document, then repeat the write with If-Match and the "
     "ETag you got; create with If-None-Match: *; If-Match: * overwrites whatever is there, "
     "and something must be there."),
    (errors.Conflict, "Read the current version, redo the change on it, and write with its ETag. "
     "With Prefer: merge a write is merged with what others changed elsewhere in the document."),
    (errors.Unauthorised, "Send Authorization: Bearer TOKEN. perkey token makes one."),
    (errors.Forbidden, "Use a token with the role and the key prefixes that this needs."),
    (errors.InProgress, "Wait as long as Retry-After says and send the same request again."),
    (errors.KeyReused, "Use a new Idempotency-Key for another request."),
    (errors.UsageError, "Nothing was done. Change the request; the same one will fail again."),
    (errors.Refused, "Nothing was changed. Read the current state, then decide."),
    (errors.Busy, "Nothing was done. Send the same request again, later."),
    (errors.OutcomeUnknown, "Read the key and its history before you repeat the write."),
    (errors.StoreError, "Look at the server and its store; nothing was reported as done."),
    (PerkeyError, "Read what the detail says."),
]  # fmt: skip


_TITLES: dict[type[PerkeyError], str] = {
    errors.ConditionRequired:
        "A write says what it was made from: If-Match with a tag, or If-None-Match: *.",
}  # fmt: skip
"""Where a class says in Python what HTTP says otherwise."""
_HEADERS = {"if_match": "If-Match", "by": "Perkey-By", "key": "Idempotency-Key"}
"""Arguments of the library that are header lines here; the others are members of the body."""
_PHRASES = {
    "create(tasks) makes one": "PUT /v1/boards/RUN makes one",
    "(Ledger.open_account(), or perkey ledger open)": "(PUT /v1/accounts/NAME)",
}
_ARGUMENT = re.compile(
    r"""(?<!\w)'(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*" | (?<![\w?])([a-z_]+)=(?=[\s,;]|[A-Z]|$)""",
    re.VERBOSE,
)
"""What is quoted, which is the caller's own and stays; or an argument's name as Python has it."""


def spoken(message: str) -> str:
    """What an error of the library says, in the words of HTTP: ``if_match=`` is a header."""
    for python, http in _PHRASES.items():
        message = message.replace(python, http)

    def told(found: re.Match[str]) -> str:
        name = found[1]
        if name is None:
            return found[0]
        colon = ": " if message[found.end() : found.end() + 1].isalpha() else ""
        return _HEADERS.get(name, f'"{name}"') + colon

    return _ARGUMENT.sub(told, message)


def answer(error: PerkeyError, root: str = "") -> Response:
    """The problem document for an error; ``root`` is the path that the server is mounted at."""
    body: dict[str, Any] = {
        "type": f"{root}/problems/{error.code}",
        "title": title(type(error)),
        "status": error.status,
        "code": error.code,
        "detail": spoken(error.message),
    }
    body |= {name: value for name, value in error.details.items() if name not in _FIXED}
    return Response(
        msgspec.json.encode(body, enc_hook=str),
        error.status,
        headers={"cache-control": "no-store", **_headers(error)},
        media_type=MEDIA,
    )


def _headers(error: PerkeyError) -> dict[str, str]:
    found: dict[str, str] = {}
    if isinstance(error, errors.Busy | errors.InProgress | errors.LeaseHeld):
        wait = error.details.get("retry_after", WAIT_S)
        found["retry-after"] = str(max(1, math.ceil(wait)))
    if isinstance(error, errors.Unauthorised):
        found["www-authenticate"] = 'Bearer realm="perkey"'
    if isinstance(error, refusals.MethodNotAllowed):
        found["allow"] = error.details.get("allow", "")
    if isinstance(error, refusals.UnsupportedMedia):
        found["accept"] = error.details.get("accepted", "")
    return found


def title(kind: type[PerkeyError]) -> str:
    """What a kind of error means, whatever the case: its docstring, in the words of HTTP."""
    return _TITLES.get(kind) or " ".join((kind.__doc__ or "").split())


def advice(kind: type[PerkeyError]) -> str:
    """What to do next about a kind of error."""
    return next(text for parent, text in _NEXT if issubclass(kind, parent))
