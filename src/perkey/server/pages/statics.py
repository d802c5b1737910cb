"""Style sheet and scripts: ours, and the vendored ones with their licences beside them."""

from __future__ import annotations

import functools

from starlette.responses import Response

from perkey.errors import NotFound
from perkey.server.calls import Call
from perkey.server.pages.render import STATIC, fingerprint
from perkey.server.routes import Route

KINDS = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
FOREVER = "public, max-age=31536000, immutable"


@functools.cache
def names() -> frozenset[str]:
    """What there is; a name that is not among these is never looked for on disk."""
    found = (path for path in STATIC.rglob("*") if path.suffix in KINDS)
    return frozenset(path.relative_to(STATIC).as_posix() for path in found)


async def static(call: Call) -> Response:
    """A file of the page; with its fingerprint in ``?v=`` it may be kept for ever."""
    name = call.params["name"]
    if name not in names():
        raise NotFound(f"there is no file {name!r:.80}")
    path, print_ = STATIC / name, fingerprint(name)
    caching = FOREVER if call.text("v") == print_ else "no-cache"
    headers = {"cache-control": caching, "etag": f'"{print_}"'}
    if f'"{print_}"' in call.headers("if-none-match"):
        return Response(status_code=304, headers=headers)
    kind = KINDS[path.suffix]
    return Response(_read(name), headers={**headers, "content-type": kind})


@functools.cache
def _read(name: str) -> bytes:
    return (STATIC / name).read_bytes()


ROUTES = [Route("GET", "/ui/static/{name}", static, None, query=("v",), page=True)]
