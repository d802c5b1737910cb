"""A server on a socket: uvicorn with limits on heads, and an end that comes when it is asked for.

uvicorn alone has no limit on the number of header lines, waits for ever for a head that does
not come, and at the end waits for open streams before it tells the application to stop.
"""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn

from perkey.clock import SYSTEM
from perkey.errors import StoreUnavailable
from perkey.server.app import Application, application
from perkey.server.heads import protocol
from perkey.server.settings import Settings
from perkey.store.limits import Limits
from perkey.store.url import open_backend
from perkey.stores import AsyncStore

BACKLOG = 1024


class Server(uvicorn.Server):
    """A uvicorn that lets the application's streams end first, and leaves signals as they were."""

    def __init__(self, config: uvicorn.Config, app: Application) -> None:
        super().__init__(config)
        self._app = app

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams, then what uvicorn does."""
        self._app.stop()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """SIGTERM and Ctrl-C end the server; a second one does not wait for running requests.

        Unlike uvicorn's own, they are not raised again: a server that was told to stop and
        stopped has succeeded.
        """
        wanted = (signal.SIGINT, signal.SIGTERM)
        former = {number: signal.signal(number, self.handle_exit) for number in wanted}
        try:
            yield
        finally:
            for number, handler in former.items():
                signal.signal(number, handler)


def listen(settings: Settings) -> socket.socket:
    """The socket, bound; ``StoreUnavailable`` where the address is taken."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((settings.host, settings.port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise StoreUnavailable(
            f"cannot listen on {settings.host} port {settings.port}: {error.strerror}; "
            "name another with --port"
        ) from error
    return listener


def serve(
    url: str,
    settings: Settings,
    started: Callable[[str], None],
    limits: Limits | None = None,
) -> None:
    """Serve the store at ``url`` until SIGTERM or Ctrl-C; ``started`` is called with the
    server's address once it listens.

    Returns when running requests have finished and the store is closed.
    """
    listener = listen(settings)
    try:
        store = AsyncStore(open_backend(url, limits or Limits(), SYSTEM))
        try:
            host = f"[{settings.host}]" if ":" in settings.host else settings.host
            started(f"http://{host}:{listener.getsockname()[1]}")
            _run(application(store, settings), settings, listener)
        finally:
            store.core.close()
    finally:
        listener.close()


def _run(app: Application, settings: Settings, listener: socket.socket) -> None:
    config = uvicorn.Config(
        app,
        http=protocol(settings),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,  # paths hold keys
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=int(settings.stop_s) or 1,
        timeout_keep_alive=65,  # longer than a reverse proxy's, so that it never meets a close
    )
    Server(config, app).run(sockets=[listener])
