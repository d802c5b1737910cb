"""The engine's state: one cell, read without a lock, moved only by compare-and-swap."""

from __future__ import annotations

import threading
from enum import StrEnum

from perkey.errors import InvalidState


class State(StrEnum):
    """What an engine is doing.  ``STOPPED`` is the end."""

    NOT_STARTED = "not started"
    STARTING = "starting"
    STARTED = "started"
    PAUSED = "paused"
    STOPPING = "stopping"
    STOPPED = "stopped"


class Cell:
    """Holds a ``State``.  Reading never waits, so callbacks, observers and helpers may read it
    whatever they hold; a write that does not know the current value does not exist."""

    __slots__ = ("_mutex", "_state")

    def __init__(self) -> None:
        self._state = State.NOT_STARTED
        self._mutex = threading.Lock()

    def get(self) -> State:
        """The current state."""
        return self._state

    def swap(self, expected: State, new: State) -> bool:
        """Move from exactly ``expected`` to ``new``; False, and nothing moved, otherwise."""
        with self._mutex:
            if self._state is not expected:
                return False
            self._state = new
            return True


def move_by_hand(cell: Cell, new: State) -> None:
    """The only moves a user may ask for: started <-> paused."""
    allowed = {State.PAUSED: State.STARTED, State.STARTED: State.PAUSED}
    if new not in allowed:
        raise InvalidState(
            f"expected a move between started and paused, found {new}; "
            "use run(), drain() or shutdown() for the others"
        )
    if not cell.swap(allowed[new], new) and cell.get() is not new:
        raise InvalidState(f"cannot move from {cell.get()} to {new}", state=str(cell.get()))
