"""What a scenario and its variants are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from perkey.testing import register_fingerprint

Kind = Literal["wrong", "costly", "right"]
"""``costly``: never wrong, at a price that is stated."""


class Diary:
    """What the callers tell about themselves; no part of the state, so no schedule depends on it.

    It also gives things numbers, for people: "lock 1", "lock 2".
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._numbers: dict[int, int] = {}
        self._kept: list[Any] = []

    def say(self, text: str) -> None:
        """Tell what the running caller just did."""
        self.lines.append(text)

    def number(self, thing: Any) -> int:
        """1 for the first thing asked about, 2 for the second, the same again for the same."""
        if id(thing) not in self._numbers:
            self._numbers[id(thing)] = len(self._numbers) + 1
            self._kept.append(thing)  # or its id could come again
        return self._numbers[id(thing)]

    def read(self) -> list[str]:
        """What was told since the last reading."""
        told, self.lines = self.lines, []
        return told


register_fingerprint(Diary, lambda diary: [])


def must(hold: bool, otherwise: str) -> None:
    """Raise what a judge finds.  No ``assert``: a test runner rewrites those, ``-O`` drops them."""
    if not hold:
        raise AssertionError(otherwise)


@dataclass(frozen=True)
class Variant:
    """One way to do the work of a scenario."""

    name: str
    title: str
    kind: Kind
    setup: Callable[[], Any]
    callers: tuple[Callable[[Any], Any], ...]
    names: tuple[str, ...]
    """The callers' names, as the drawing shows them."""
    judge: Callable[[Any], None]
    """Raises ``AssertionError`` when the world at the end of a run is wrong."""
    failures: int = 0
    cancellations: int = 0
    crashes: int = 0
    """How many of these may strike in each schedule."""
    raises: tuple[type[BaseException], ...] = ()
    """Errors that a caller may end with."""
    processes: tuple[int, ...] | None = None
    why: str = ""
    """Why it is wrong or right, in one sentence."""
    cost: Callable[[], str] | None = None
    """Measures the price of a costly variant, and says it."""
    threaded: bool = True
    """Whether the same code also runs on threads, for the stress test."""


@dataclass(frozen=True)
class Scenario:
    """One of the four failures."""

    name: str
    title: str
    happens: str
    """How it happens, in a sentence or two."""
    shared: str
    """What the last column of a drawing shows."""
    variants: Sequence[Variant]

    def variant(self, name: str) -> Variant:
        """The variant of that name; ``KeyError`` where there is none."""
        return {each.name: each for each in self.variants}[name]
