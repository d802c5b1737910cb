"""A refusal as a page: what was expected, what was found, what to do."""

from __future__ import annotations

from urllib.parse import quote

from starlette.responses import Response

from perkey.errors import MissingExtra, PerkeyError, Unauthorised
from perkey.server import problems
from perkey.server.calls import Call
from perkey.server.pages import render


def answer(error: PerkeyError, call: Call) -> Response:
    """The page; who is not known is sent to the form that asks for a token."""
    if isinstance(error, MissingExtra):
        return problems.answer(error, render.root(call))
    if isinstance(error, Unauthorised) and call.method == "GET":
        return _login(call)
    made = render.page(
        call,
        "refused.html",
        error.status,
        here="",
        title=problems.title(type(error)),
        detail=error.message,
        code=error.code,
        advice=problems.advice(type(error)),
    )
    for name, value in problems.answer(error).headers.items():
        if name in ("allow", "retry-after"):
            made.headers[name] = value
    return made


def _login(call: Call) -> Response:
    address = render.link(call, "/login", next=_wanted(call))
    if call.headers("hx-request"):
        # A part of a page was asked for: the whole of it has to go.
        return Response(status_code=401, headers={**render.HEADERS, "hx-redirect": address})
    return render.redirect(address)


def _wanted(call: Call) -> str:
    """The page that was asked for, to come back to."""
    path = quote(str(call.scope["path"]), safe="/")
    query = call.scope["query_string"].decode("latin-1")
    return f"{path}?{query}" if query else path
