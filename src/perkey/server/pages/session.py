"""Who looks at a page: a bearer token as in the API, or one that a form put into a cookie.

Only pages read the cookie.  It is ``SameSite=Strict`` and ``HttpOnly``, and a page's form must
be sent from a page of this very server, so no other site can act in its name.
"""

from __future__ import annotations

from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl

from starlette.types import Scope

from perkey.errors import Unauthorised
from perkey.server.calls import Call
from perkey.server.identity import Caller, Tokens
from perkey.server.refusals import BadRequest, CrossOrigin

COOKIE = "perkey_token"
FORM = "application/x-www-form-urlencoded"
MAX_FIELDS = 20


def caller(scope: Scope, tokens: Tokens) -> Caller:
    """Who asks for a page; ``Unauthorised`` for nobody known."""
    given = [value for name, value in scope["headers"] if name == b"authorization"]
    if not given:
        token = _cookie(scope)
        given = [b"Bearer " + token.encode("latin-1", "replace")] if token else []
    return tokens.caller(given)


def _cookie(scope: Scope) -> str:
    lines = [value.decode("latin-1") for name, value in scope["headers"] if name == b"cookie"]
    try:
        found = SimpleCookie("; ".join(lines)).get(COOKIE)
    except CookieError:
        return ""
    return "" if found is None else found.value


def check_form(scope: Scope) -> None:
    """Refuse a form that does not say it comes from this server's own page.

    That the ``Origin`` is this server's has been checked for every write; programs other than
    browsers may leave it out there, and have no business with a form.
    """
    if not any(name == b"origin" for name, _ in scope["headers"]):
        raise CrossOrigin("a form is sent from a page of this server, with an Origin; use /v1/")


def form(call: Call) -> dict[str, str]:
    """The fields of a form that was sent."""
    call.media(FORM)
    try:
        pairs = parse_qsl(
            call.body.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=bool(call.body),
            errors="strict",
            max_num_fields=MAX_FIELDS,
        )
    except (UnicodeError, ValueError):
        raise BadRequest("expected the fields of a form, percent-encoded") from None
    return dict(pairs)


def login(call: Call, token: str) -> tuple[Caller, str]:
    """Whose token it is, and the ``Set-Cookie`` that keeps it; ``Unauthorised`` for nobody's."""
    if not token.isascii() or not token.isprintable():
        raise Unauthorised("a token is made of letters, digits, - and _")
    found = call.services.tokens.caller([b"Bearer " + token.encode()])
    return found, _set(call, token)


def logout(call: Call) -> str:
    """The ``Set-Cookie`` that forgets the token."""
    return _set(call, "", "; Max-Age=0")


def _set(call: Call, token: str, more: str = "") -> str:
    path = str(call.scope.get("root_path", "")).rstrip("/") or "/"
    # A browser says how it reached the server; a proxy in between may speak plain HTTP.
    secure = (call.header("origin") or "").startswith("https://")
    more += "; Secure" if secure else ""
    return f"{COOKIE}={token}; Path={path}; HttpOnly; SameSite=Strict{more}"
