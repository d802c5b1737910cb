"""What each kind of problem means: the page that a problem's ``type`` leads to.

Open to anybody, with or without a token: it tells what is in the source, and nothing of the store.
"""

from __future__ import annotations

from starlette.responses import Response

import perkey
from perkey.errors import NotFound, by_code
from perkey.server import problems
from perkey.server.calls import Call
from perkey.server.pages import render
from perkey.server.routes import Route


async def listed(call: Call) -> Response:
    """Every kind of problem."""
    kinds = [(code, kind.status, problems.title(kind)) for code, kind in sorted(by_code().items())]
    return render.page(call, "problems.html", here="", kinds=kinds)


async def shown(call: Call) -> Response:
    """What one kind of problem means."""
    kind = by_code().get(call.params["code"])
    if kind is None:
        raise NotFound(f"no problem has the code {call.params['code']!r:.60}")
    short = hasattr(perkey, kind.__name__)
    facts = {
        "Code": kind.code,
        "Status": str(kind.status),
        "Python": f"{'perkey' if short else kind.__module__}.{kind.__name__}",
    }
    return render.page(
        call,
        "problem.html",
        here="",
        title=problems.title(kind),
        advice=problems.advice(kind),
        facts=facts,
    )


ROUTES = [Route("GET", "/problems/", listed, None, page=True)]
"""With a slash too many; the two that a program may want to know of are in ``meta``."""
