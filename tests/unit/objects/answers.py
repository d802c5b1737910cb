"""An HTTP server that gives the answers that a test queues, and keeps what it was asked."""

from __future__ import annotations

import threading
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import NamedTuple, Self

DATE = "Tue, 14 Nov 2023 22:13:20 GMT"
DATE_MS = 1_700_000_000_000


class Asked(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Answers:
    """``with Answers() as server``; ``server.give(status, body, **headers)`` for each request."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self._queue: deque[tuple[int, bytes, dict[str, str]] | None] = deque()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                headers = {name.lower(): value for name, value in self.headers.items()}
                outer.asked.append(Asked(self.command, self.path, headers, body))
                given = outer._queue.popleft()
                if given is None:
                    self.close_connection = True
                    return
                status, data, more = given
                self.send_response_only(status)
                for name, value in {"Date": DATE, "Content-Length": str(len(data)), **more}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_PUT = do_DELETE = do_POST = answer

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def give(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        """The answer to the next request for which none was given yet."""
        self._queue.append((status, body, headers or {}))

    def refuse(self, status: int, code: str, headers: dict[str, str] | None = None) -> None:
        self.give(status, f"<Error><Code>{code}</Code></Error>".encode(), headers)

    def hang_up(self) -> None:
        """No answer: the connection ends."""
        self._queue.append(None)

    @property
    def used_up(self) -> bool:
        return not self._queue

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
