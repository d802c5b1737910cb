"""Any two versions of a document side by side."""

from __future__ import annotations

from collections import Counter

from starlette.responses import Response

from perkey.flows import lookback, steps
from perkey.flows.diff import ABSENT, diff
from perkey.server.calls import Call
from perkey.server.pages import commands, render
from perkey.server.pages.sides import side_by_side
from perkey.server.routes import Route
from perkey.store.views import Document


async def compare(call: Call) -> Response:
    """Two versions of one document, the older one on the left."""
    key = call.text("key")
    call.caller.need_key(key)
    old, new = call.whole("from", None, 1), call.whole("to", None, 1)
    before, after = await call.services.store.run(_both(key, old, new))
    values = [ABSENT if each.deleted else each.value for each in (before, after)]
    rows, cut = side_by_side(*values)
    kinds = Counter(change.kind for change in diff(*values))
    return render.page(
        call,
        "compare.html",
        here="documents",
        key=key,
        before=before,
        after=after,
        rows=rows,
        cut=cut,
        kinds=kinds,
        commands=[
            commands.perkey(call, "The same, path by path", "doc", "diff", key, str(old), str(new))
        ],
    )


def _both(key: str, old: int, new: int) -> steps.Flow[tuple[Document, Document]]:
    before = yield from lookback.at(key, old)
    after = yield from lookback.at(key, new)
    return before, after


ROUTES = [Route("GET", "/ui/compare", compare, query=("key", "from", "to"), page=True)]
