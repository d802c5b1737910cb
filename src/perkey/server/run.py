"""A server on a socket: uvicorn with limits on heads, and an end that comes when it is asked for.

uvicorn alone has no limit on the number of header lines, waits for ever for a head that does
not come, and at the end waits for open streams before it tells the application to stop.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from perkey.server import missing

try:
    import httptools  # noqa: F401 (what reads the heads; uvicorn alone does without it)
    import uvicorn
except ModuleNotFoundError as error:
    raise missing(error) from error

from perkey.clock import SYSTEM
from perkey.errors import StoreUnavailable
from perkey.server.app import Application, application
from perkey.server.ending import Ending, Watch
from perkey.server.heads import protocol
from perkey.server.hosting import Processes
from perkey.server.settings import Settings
from perkey.store.limits import Limits
from perkey.store.url import open_backend
from perkey.stores import AsyncStore

BACKLOG = 1024
THREADS = "perkey-serve"
"""What the names of the threads begin with that blocking bodies run on."""
PATIENCE_S = 1.0
"""How long tasks that were cancelled are waited for at the very end, in seconds; threads too."""
PIECES = 20
"""In so many pieces: where the machine stands still for a while, only one of them is lost."""


class Server(uvicorn.Server):
    """A uvicorn that lets the application's streams end first, and leaves signals as they were."""

    def __init__(self, config: uvicorn.Config, app: Application) -> None:
        super().__init__(config)
        self._app = app
        self.watch = Watch(app)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams, then what uvicorn does; and the engine, also where nobody waits."""
        self.watch.begin()
        self._app.stop()
        await super().shutdown(sockets)
        if self.force_exit:
            # Before anything cancels its instances: for an engine that goes on, that is their end.
            await self._app.end(0)

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
            "name another with --port",
            port=settings.port,
        ) from error
    return listener


def serve(
    url: str,
    settings: Settings,
    started: Callable[[str], None],
    limits: Limits | None = None,
    processes: Processes | None = None,
    stopped: Callable[[Ending], None] = lambda ending: None,
) -> bool:
    """Serve the store at ``url`` until SIGTERM or Ctrl-C; ``started`` is called with the
    server's address once it listens, ``stopped`` with what its end came to.  With
    ``processes`` an engine runs them there.

    Returns when running requests have finished and the store is closed: True, or False where
    a process could not be stopped, and the program must end without waiting for it.
    """
    listener = listen(settings)
    try:
        store = AsyncStore(open_backend(url, limits or Limits(), SYSTEM))
        try:
            host = f"[{settings.host}]" if ":" in settings.host else settings.host
            started(f"http://{host}:{listener.getsockname()[1]}")
            app = application(store, settings, processes=processes)
            return _run(app, settings, listener, stopped)
        finally:
            store.core.close()
    finally:
        listener.close()


def _run(
    app: Application,
    settings: Settings,
    listener: socket.socket,
    stopped: Callable[[Ending], None],
) -> bool:
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
    loop = (config.get_loop_factory() or asyncio.new_event_loop)()
    asyncio.set_event_loop(loop)
    threads = ThreadPoolExecutor(thread_name_prefix=THREADS)
    loop.set_default_executor(threads)
    try:
        server = Server(config, app)
        loop.run_until_complete(server.serve(sockets=[listener]))
        if app.failure is not None:
            raise app.failure
    finally:
        threads.shutdown(wait=False, cancel_futures=True)
        ended = _ended(loop)
        asyncio.set_event_loop(None)
    ending = server.watch.end()
    if ending is not None:
        stopped(ending)
    return ended


def _ended(loop: asyncio.AbstractEventLoop) -> bool:
    """Close the loop, unless something on it or on its threads goes on in spite of everything."""
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        _, left = loop.run_until_complete(asyncio.wait(left, timeout=PATIENCE_S))
    threads = [each for each in threading.enumerate() if each.name.startswith(THREADS)]
    if left or not _joined(threads):
        return False
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()
    return True


def _joined(threads: list[threading.Thread]) -> bool:
    """Whether all of them end, given the time."""
    pieces = PIECES
    for thread in threads:
        while thread.is_alive() and pieces:
            thread.join(PATIENCE_S / PIECES)
            pieces -= 1
    return not any(thread.is_alive() for thread in threads)
