"""Signing in: a token through a form into a cookie, and out again."""

from __future__ import annotations

from starlette.responses import Response

from perkey.errors import Unauthorised
from perkey.server.calls import Call
from perkey.server.pages import render, session
from perkey.server.routes import Route


async def form(call: Call) -> Response:
    """Ask for a token."""
    return _form(call, call.text("next"))


def _form(call: Call, wanted: str, wrong: str = "") -> Response:
    status = 401 if wrong else 200
    return render.page(call, "login.html", status, here="", wanted=wanted, wrong=wrong)


async def sign_in(call: Call) -> Response:
    """Keep the token in a cookie and go on to the page that was wanted."""
    fields = session.form(call)
    wanted = fields.get("next", "")
    try:
        _, cookie = session.login(call, fields.get("token", "").strip())
    except Unauthorised:
        return _form(call, wanted, "No such token. perkey token NAME --file FILE makes one.")
    return render.redirect(_inside(call, wanted), cookie)


def _inside(call: Call, wanted: str) -> str:
    """``wanted`` where it is a page of this server, else the first one: no form may send its
    reader elsewhere."""
    first = render.link(call)
    inside = wanted == first or wanted.startswith((f"{first}/", f"{first}?"))
    plain = wanted.isascii() and wanted.isprintable() and "\\" not in wanted and " " not in wanted
    return wanted if inside and plain else first


async def sign_out(call: Call) -> Response:
    """Forget the cookie."""
    return render.redirect(render.link(call, "/login"), session.logout(call))


ROUTES = [
    Route("GET", "/ui/login", form, None, query=("next",), page=True),
    Route("POST", "/ui/login", sign_in, None, page=True),
    Route("POST", "/ui/logout", sign_out, None, page=True),
]
