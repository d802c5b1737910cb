"""Requests that break off half-way."""

from __future__ import annotations

import socket
import threading

from tests.servers.base import HOST


class BreaksOff:
    """Passes on what comes up to the end of the first request's head, and then hangs up."""

    def __init__(self, upstream: int, body_bytes: int) -> None:
        self._upstream, self._body = upstream, body_bytes
        self._listener = socket.create_server((HOST, 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        client, _ = self._listener.accept()
        with client, socket.create_connection((HOST, self._upstream)) as server:
            head = b""
            while b"\r\n\r\n" not in head:
                head += client.recv(65_536)
            end = head.index(b"\r\n\r\n") + 4
            while len(head) < end + self._body:
                head += client.recv(65_536)
            server.sendall(head[: end + self._body])
            server.shutdown(socket.SHUT_WR)
            while server.recv(65_536):  # until the server has made up its mind
                pass

    def close(self) -> None:
        self._listener.close()
        self._thread.join(20)
