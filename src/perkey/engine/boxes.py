"""Letter boxes: where a message and the instance that waits for it meet, whoever is first.

One box per (message name, address).  An instance's address is its correlation key, else its
business key, else its id.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from perkey.engine.instances import Delivered, Instance


@dataclass(slots=True)
class _Box:
    waiting: Instance | None = None
    letters: deque[tuple[float, Delivered]] = field(default_factory=deque)
    """(until when it waits, message), oldest first."""


class Boxes:
    """The boxes of an engine in memory.  A box exists only while something is in it."""

    def __init__(self) -> None:
        self._boxes: dict[tuple[str, str], _Box] = {}
        self.count = 0
        """How many letters wait in all boxes together."""

    def waiting(self, name: str, address: str) -> Instance | None:
        """The instance that waits for this message right now."""
        box = self._boxes.get((name, address))
        return box.waiting if box and box.waiting and not box.waiting.state.ended else None

    def leave(self, name: str, address: str, message: Delivered, until: float) -> None:
        """Put a letter in, to wait until ``until``."""
        box = self._boxes.setdefault((name, address), _Box())
        box.letters.append((until, message))
        self.count += 1

    def open(self, name: str, instance: Instance, now: float) -> Delivered | None:
        """The oldest letter that still waits; else note that ``instance`` waits for one."""
        place = (name, instance.address)
        box = self._boxes.setdefault(place, _Box())
        while box.letters:
            until, message = box.letters.popleft()
            self.count -= 1
            if now < until:
                self._tidy(place)
                return message
        box.waiting = instance
        return None

    def close(self, name: str, instance: Instance) -> None:
        """``instance`` no longer waits."""
        place = (name, instance.address)
        box = self._boxes.get(place)
        if box is not None and box.waiting is instance:
            box.waiting = None
            self._tidy(place)

    def sweep(self, now: float) -> None:
        """Drop every letter whose time is over."""
        for place, box in list(self._boxes.items()):
            kept = deque(each for each in box.letters if now < each[0])
            self.count -= len(box.letters) - len(kept)
            box.letters = kept
            self._tidy(place)

    def _tidy(self, place: tuple[str, str]) -> None:
        box = self._boxes[place]
        if box.waiting is None and not box.letters:
            del self._boxes[place]
