"""A pooler in transaction mode before PostgreSQL, as small as can be: each transaction of a
client runs on another of the server's sessions, and nothing that a session keeps is its own.

It invents the number under which a client could cancel, as poolers do, and drops what a server
says unasked.
"""

from __future__ import annotations

import select
import socket
import struct
import threading
from collections import Counter
from types import TracebackType
from typing import Self

from tests.servers.base import HOST

SESSIONS = 3
NO_TLS = 80_877_103
STARTUP = struct.Struct("!ii")
HEAD = struct.Struct("!ci")
READY, KEY, WORD = b"Z", b"K", b"A"
INVENTED = 1_000_001


class Session:
    """One connection of the pooler to the server."""

    def __init__(self, port: int, startup: bytes) -> None:
        self.socket = socket.create_connection((HOST, port), timeout=60)
        try:
            self.greeting = self._greeted(startup)
        except OSError:
            self.socket.close()
            raise

    def _greeted(self, startup: bytes) -> bytes:
        self.socket.sendall(startup)
        greeting = b""
        while (message := read(self.socket))[:1] != READY:
            if message[:1] == KEY:
                message = HEAD.pack(KEY, 12) + struct.pack("!ii", INVENTED, 7)
            greeting += message
        return greeting + message


class Pooler:
    """``with Pooler(server.port) as pooler: ... pooler.port``"""

    def __init__(self, upstream: int) -> None:
        self.upstream = upstream
        self.used: Counter[int] = Counter()
        """How many transactions each of a client's server sessions has run."""
        self.dropped = 0
        """How many messages came that nobody had asked for."""
        self._listener = socket.create_server((HOST, 0))
        self.port = self._listener.getsockname()[1]
        self._sockets: list[socket.socket] = [self._listener]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]

    def url(self, url: str) -> str:
        """``url`` with the upstream's port replaced by the pooler's."""
        assert f":{self.upstream}" in url
        return url.replace(f":{self.upstream}", f":{self.port}", 1)

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for each in list(self._sockets):
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            each.close()
        for thread in list(self._threads):
            thread.join(30)
            assert not thread.is_alive()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._sockets.append(client)
            thread = threading.Thread(target=self._guarded, args=(client,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _guarded(self, client: socket.socket) -> None:
        sessions: list[Session] = []
        try:
            self._serve(client, sessions)
        except (OSError, ValueError):  # hung up, or closed under the hands of ``select``
            pass
        finally:
            for each in (client, *(session.socket for session in sessions)):
                each.close()

    def _serve(self, client: socket.socket, sessions: list[Session]) -> None:
        startup = read(client, STARTUP)
        while STARTUP.unpack(startup[:8])[1] == NO_TLS:
            client.sendall(b"N")
            startup = read(client, STARTUP)
        for _ in range(SESSIONS):
            sessions.append(Session(self.upstream, startup))
            self._sockets.append(sessions[-1].socket)
        client.sendall(sessions[0].greeting)
        turn = 0
        while True:
            self.used[turn] += 1
            self._transaction(client, sessions[turn].socket)
            turn = (turn + 1) % SESSIONS

    def _transaction(self, client: socket.socket, server: socket.socket) -> None:
        """Pass on questions and answers until the server is idle and has answered all of them."""
        asked, idle = 0, False
        sources = [client]
        while asked or not idle:
            for source in select.select(sources, [], [])[0]:
                message = read(source)
                if source is client:
                    server.sendall(message)
                    asked += message[:1] in b"SQ"  # the end of a question
                elif message[:1] == WORD:
                    self.dropped += 1
                else:
                    client.sendall(message)
                    if message[:1] == READY:
                        asked -= 1
                        idle = message[5:6] == b"I"
            sources = [client, server]


def read(source: socket.socket, head: struct.Struct = HEAD) -> bytes:
    """One message, its head included; a client's first has no letter."""
    start = exactly(source, head.size)
    length = head.unpack(start)[1 if head is HEAD else 0]
    return start + exactly(source, length - (4 if head is HEAD else 8))


def exactly(source: socket.socket, size: int) -> bytes:
    """That many bytes; ``ConnectionError`` where they do not come."""
    found = b""
    while len(found) < size:
        some = source.recv(size - len(found))
        if not some:
            raise ConnectionError("hung up")
        found += some
    return found
