"""Ctrl-C at any moment: every point at which CPython looks for signals, one after the other."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import perkey

SOURCE = str(Path(perkey.__file__).parent)


class Strike:
    """A block in which ``KeyboardInterrupt`` is raised at the ``at``-th such point.

    CPython looks for signals when a Python function begins and when a C function has
    returned.  Only points in perkey's own source count.  Nothing is collected meanwhile: a strike
    in a finaliser of what an earlier round left is swallowed there, by CPython itself.
    """

    def __init__(self, at: int) -> None:
        self.at = at
        self.seen = 0
        self.struck = False

    def __enter__(self) -> Strike:
        gc.disable()
        sys.setprofile(self._look)
        return self

    def __exit__(self, *exc: object) -> None:
        sys.setprofile(None)
        gc.enable()

    def _look(self, frame: FrameType, event: str, arg: Any) -> None:
        if event not in ("call", "c_return") or not frame.f_code.co_filename.startswith(SOURCE):
            return
        if self.seen == self.at:
            self.struck = True
            raise KeyboardInterrupt
        self.seen += 1


def everywhere(scenario: Callable[[Strike], None]) -> Iterator[int]:
    """Run ``scenario`` with a strike at the first point, the second ... until none is left."""
    at = 0
    while True:
        strike = Strike(at)
        scenario(strike)
        if not strike.struck:
            return
        yield at
        at += 1
