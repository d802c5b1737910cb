"""The pages of ``perkey serve``: what goes on in a store, for people.

Server-rendered; htmx and uPlot come with the package.  Nothing here imports jinja2 before the
first page is asked for.
"""

from __future__ import annotations

from perkey.server.pages import (
    compare,
    documents,
    engine,
    following,
    kinds,
    ledger,
    overview,
    process,
    runs,
    signing,
    statics,
)
from perkey.server.routes import Route

UNDER = b"/ui"
"""What the paths of all pages begin with."""

ROUTES: list[Route] = [
    *overview.ROUTES,
    *documents.ROUTES,
    *compare.ROUTES,
    *runs.ROUTES,
    *ledger.ROUTES,
    *engine.ROUTES,
    *process.ROUTES,
    *following.ROUTES,
    *signing.ROUTES,
    *kinds.ROUTES,
    *statics.ROUTES,
]
