"""``perkey serve``: the same store over HTTP, for workers in any language.

``app.application(store, settings)`` is an ASGI application; ``run.serve`` puts one behind a
socket.  Documents are resources with strong entity tags, errors are RFC 9457 problems from
the one error tree, and every limit has a name in ``settings.Settings``.
"""

from __future__ import annotations

from perkey.errors import MissingExtra


def missing(error: ModuleNotFoundError) -> MissingExtra:
    """What to say where a package of the extra ``server`` is not installed."""
    return MissingExtra(
        f"the server needs the package {error.name!r}; install it with: "
        "pip install 'perkey[server]'"
    )
