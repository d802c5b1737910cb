"""Calls that somebody asked for and that go with them: no one who was dropped stays listed."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Calls(Generic[T]):
    """Functions of one argument, each kept for as long as its owner lives.

    There is no lock: the collector may take an owner away in the middle of any statement, on
    the very thread that would hold it.  Each step on the dictionary is one that no other
    thread can see half done.
    """

    def __init__(self) -> None:
        self.kept: dict[int, Callable[[T], None]] = {}
        self._numbers = itertools.count()

    def add(self, owner: object, call: Callable[[T], None]) -> Callable[[], object]:
        """Keep ``call``, which must not refer to ``owner``; returns what takes it away again."""
        number = next(self._numbers)
        self.kept[number] = call
        undo = weakref.finalize(owner, self.kept.pop, number, None)
        undo.atexit = False
        return undo

    def use(self, argument: T) -> None:
        """Call each."""
        for call in list(self.kept.copy().values()):
            call(argument)

    def use_up(self, argument: T) -> None:
        """Call each, and keep none of those; interrupted, it keeps what it had not called."""
        for number, call in self.kept.copy().items():
            call(argument)
            self.kept.pop(number, None)
