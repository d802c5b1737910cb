"""Arguments that callers from outside give: refused by name, before anything runs.

A wrong one must never reach a commit: it would fail there for every transaction that shares
the commit, or after it, when the write has landed already.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from perkey.errors import UsageError
from perkey.store.keys import Key
from perkey.store.limits import LONGEST_S
from perkey.store.transaction import Fence

TINY = 5e-324
"""The smallest number above 0."""
LARGEST = 2**63 - 1
"""The largest version, count or limit that every store can keep."""


def whole(name: str, value: object, least: int = 0) -> None:
    """``value`` is a whole number from ``least`` up, that every store can keep."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= LARGEST:
        raise UsageError(f"expected {name} as a whole number from {least} up, found {value!r:.80}")


def text(name: str, value: object) -> None:
    """``value`` is text that UTF-8 can carry; it may be empty."""
    if not isinstance(value, str):
        raise UsageError(f"expected {name} as text, found {type(value).__name__}")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise UsageError(
                f"expected {name} as text that UTF-8 can carry, found a lone surrogate at "
                f"index {error.start}"
            ) from None


def flag(name: str, value: object) -> None:
    """``value`` is True or False, not something that only counts as such."""
    if not isinstance(value, bool):
        raise UsageError(f"expected {name} as True or False, found {value!r:.80}")


def seconds(name: str, value: object, *, zero: bool = False) -> None:
    """``value`` is a time in seconds, above 0 (or from 0 up with ``zero``), at most
    ``LONGEST_S``."""
    good = isinstance(value, int | float) and not isinstance(value, bool)
    if not good or not (0 if zero else TINY) <= value <= LONGEST_S:  # type: ignore[operator]  # good says it is one
        least = "0 or more" if zero else "above 0"
        raise UsageError(
            f"expected {name} as seconds, {least}, at most {LONGEST_S:g}, found {value!r:.80}"
        )


def several(name: str, value: Any, what: str) -> None:
    """``value`` is several things, not one text that would be taken letter by letter."""
    if type(value) is list:
        return
    if isinstance(value, str) or not isinstance(value, Iterable):
        found = "one text" if isinstance(value, str) else type(value).__name__
        raise UsageError(f"expected {name} as a list of {what}, found {found}")


def lease_of(fence: object) -> list[Key]:
    """The key that a fence locks with the transaction; none without one."""
    if fence is None:
        return []
    if not isinstance(fence, Fence):
        raise UsageError(f"expected fence= as the .fence of a lease, found {type(fence).__name__}")
    return [fence.lease]
