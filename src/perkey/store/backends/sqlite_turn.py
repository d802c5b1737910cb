"""A fair queue of processes in front of one SQLite file.

SQLite's own busy handler sleeps longer the longer it has waited, so a process that is always
there beats one that waits: of six writers one may get a single commit in seconds.  Here, only
the process that holds the advisory lock on a side file competes for SQLite's write lock, and
it gives the side lock up as soon as it has that; so the next in line is already chosen while
a commit runs, and whoever has just committed stands behind it.

Only fairness rests on this.  The side lock vanishes with its holder; where it cannot be had
at all, or its holder sleeps, writers compete for SQLite's lock directly.
"""

from __future__ import annotations

import os
import weakref
from contextlib import suppress

from perkey.clock import Clock
from perkey.errors import Timeout

try:
    import fcntl
except ImportError:  # not a POSIX system: there is no queue
    fcntl = None  # type: ignore[assignment]

PATIENCE_S = 2.0
"""How long the queue may stand still before a waiter stops believing in it."""
SHUN_S = 10.0
"""How long it is not asked again after that."""
FIRST_PAUSE_S = 0.0002
LAST_PAUSE_S = 0.002


class Turn:
    """This process's place in the queue of one file."""

    def __init__(self, path: str, clock: Clock) -> None:
        self._clock = clock
        self._shunned_until = 0.0
        self._file = -1
        if fcntl is not None:
            with suppress(OSError):
                self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
                _open_turns.add(self)

    def enter(self, deadline: float) -> None:
        """Wait to be the next writer; raises ``Timeout`` at ``deadline``."""
        if self._file < 0 or self._try():
            return
        began = now = self._clock.monotonic()
        if now < self._shunned_until:
            return
        pause = FIRST_PAUSE_S
        while now < deadline:
            self._clock.sleep(min(pause, deadline - now))
            if self._file < 0 or self._try():
                return
            now = self._clock.monotonic()
            if now - began > PATIENCE_S:
                self._shunned_until = now + SHUN_S
                return
            pause = min(pause * 1.5, LAST_PAUSE_S)
        raise waited_in_vain()

    def _try(self) -> bool:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:  # this file system has no such locks
            self.close()
        return True

    def leave(self) -> None:
        """Let the next one in; harmless for a process that is not in."""
        if self._file >= 0:
            with suppress(OSError):
                fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        """Give the side file back; it stays, since removing it would split the queue."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)


def waited_in_vain() -> Timeout:
    return Timeout("other processes kept the SQLite file locked until the deadline; nothing done")


_open_turns: weakref.WeakSet[Turn] = weakref.WeakSet()


def _after_fork() -> None:
    # The child's copy of the descriptor would keep its parent's place when the parent dies.
    for turn in list(_open_turns):
        turn.close()


os.register_at_fork(after_in_child=_after_fork)
