"""What the explorer may let happen next, and its short notation in replay strings."""

from __future__ import annotations

from typing import NamedTuple

STEP, CALLBACK, TIMER, FAIL, LOSE, CANCEL, CRASH, EARLY = range(8)
"""Kinds of move.  From ``FAIL`` on they are injections, and each has a budget."""


class Move(NamedTuple):
    """One choice of the search: what happens, and to which task, process or timer."""

    kind: int
    number: int


def describe(move: Move) -> str:
    """A move as one short word, for replay strings: ``2``, ``2f``, ``0c``, ``k``, ``t0``."""
    return {
        STEP: f"{move.number}",
        CALLBACK: "k",
        TIMER: f"t{move.number}",
        FAIL: f"{move.number}f",
        LOSE: f"{move.number}l",
        CANCEL: f"{move.number}c",
        CRASH: f"{move.number}x",
        EARLY: f"e{move.number}",
    }[move.kind]


def parse(word: str) -> Move:
    """The inverse of ``describe``."""
    if word == "k":
        return Move(CALLBACK, 0)
    if word[0] in "te":
        return Move(TIMER if word[0] == "t" else EARLY, int(word[1:]))
    kind = {"f": FAIL, "l": LOSE, "c": CANCEL, "x": CRASH}.get(word[-1])
    return Move(STEP, int(word)) if kind is None else Move(kind, int(word[:-1]))
