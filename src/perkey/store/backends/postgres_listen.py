"""Word from PostgreSQL that another process has committed: a reason to look, and nothing more.

A listener holds a shared advisory lock for as long as its session lives.  Who commits tries that
lock: where nobody holds it, nobody is told and nothing is paid for.  What was committed, and in
which order, only the history says; word that is lost costs a watcher the rest of its pause.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Callable
from contextlib import suppress

from perkey.store.backends.postgres_link import Link
from perkey.store.backends.postgres_queries import ATTEND, LISTEN


class PostgresListener:
    """``store.abc.Listener`` on a connection of its own."""

    def __init__(self, link: Link, own: Callable[[], int]) -> None:
        """``own`` tells the server's process behind our own commits, of which we know already."""
        self._link = link
        self._own = own
        with link.translating():
            self._connection = link.connected()
            if not link.pooled:
                self._connection.execute(LISTEN)
                self._connection.execute(ATTEND)
        self._near, self._far = socket.socketpair()

    @property
    def hears(self) -> bool:
        """False behind a pooler, which lends sessions out and keeps none for us."""
        return not self._link.pooled

    def wait(self, seconds: float) -> bool:
        with self._link.translating():
            server = self._connection.pgconn.socket
            ready, _, _ = select.select([server, self._near.fileno()], [], [], seconds)
            return server in ready and self._heard()

    def _heard(self) -> bool:
        """Read what has arrived; whether some of it is from others."""
        pgconn = self._connection.pgconn
        pgconn.consume_input()
        heard = False
        while (word := pgconn.notifies()) is not None:
            heard = heard or word.be_pid != self._own()
        return heard

    def stop(self) -> None:
        with suppress(OSError):
            self._far.send(b"x")

    def close(self) -> None:
        self._link.hang_up()
        self._near.close()
        self._far.close()


def listener(link: Link, own: Callable[[], int]) -> PostgresListener | None:
    """A listener, or None where word would not arrive."""
    if not link.listens:
        return None
    made = PostgresListener(link, own)
    if made.hears:
        return made
    made.close()
    return None
