"""One thread that waits for word from the store, for as long as somebody of this process watches.

Watchers look by themselves every so often; word only makes them look sooner.  So nothing is lost
when this thread is late, cannot connect, or is not there at all.
"""

from __future__ import annotations

import threading

from perkey.errors import StoreError
from perkey.store.abc import Listener, Listens
from perkey.store.calls import Calls

IDLE_S = 30.0
"""How often it asks whether anybody still watches, in seconds."""
APART_S = 0.01
"""The shortest time between two wakings, in seconds: a busy store tells all the time."""
AGAIN_S = (0.1, 5.0)
"""The first and the longest pause before it connects again, in seconds."""


class Listening:
    """Makes the calls that watchers asked for soon after other processes have committed."""

    def __init__(self, backend: object, wakers: Calls[None]) -> None:
        self._listens = backend if isinstance(backend, Listens) else None
        self._wakers = wakers
        self._mutex = threading.Lock()
        self._thread: threading.Thread | None = None
        self._listener: Listener | None = None
        self._stop = threading.Event()

    def start(self) -> None:
        """Listen from now on, if this store can tell; may be called again and again."""
        if self._listens is None:
            return
        with self._mutex:
            if self._thread is None and not self._stop.is_set():
                thread = threading.Thread(target=self._run, name="perkey-listener", daemon=True)
                self._thread = thread
                thread.start()

    def close(self) -> None:
        """Stop listening for good, and wait until that is done."""
        with self._mutex:
            self._stop.set()
            thread = self._thread
            if self._listener is not None:
                self._listener.stop()
        if thread is not None:
            thread.join()

    # ------------------------------------------------------------- on the thread itself

    def _run(self) -> None:
        pause, longest = AGAIN_S
        while self._goes_on():
            try:
                if not self._session():
                    return
                pause = AGAIN_S[0]
            except StoreError:
                self._stop.wait(pause)
                pause = min(2 * pause, longest)

    def _goes_on(self) -> bool:
        """Whether to listen still.  If not, the next watcher starts another thread."""
        with self._mutex:
            if not self._stop.is_set() and self._wakers.kept:
                return True
            self._thread = None
            return False

    def _session(self) -> bool:
        """Listen on one connection; False where word would never come."""
        assert self._listens is not None
        listener = self._listens.listen()
        if listener is None:
            self._listens = None
            return False
        try:
            if self._begin(listener):
                self._wakers.use(
                    None
                )  # for what was committed before there was anybody to hear of it
            while not self._stop.is_set() and self._wakers.kept:
                if listener.wait(IDLE_S) and not self._stop.wait(APART_S):
                    self._wakers.use(None)
        finally:
            with self._mutex:
                self._listener = None
            listener.close()
        return True

    def _begin(self, listener: Listener) -> bool:
        with self._mutex:
            self._listener = listener
            return not self._stop.is_set()
