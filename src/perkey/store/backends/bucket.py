"""What an object store must be able to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

MISSING = ""
"""The condition that there must be no object of this name."""


class Stored(NamedTuple):
    """An object as it was read."""

    data: bytes
    tag: str
    """Changes with each write; the condition of the next one."""


class Bucket(Protocol):
    """Objects under one prefix of one bucket.  Used by several threads when it is probed.

    Reading may be asked twice behind the caller's back, writing never is.
    """

    place: str
    """For people; no credential in it."""

    def get(self, name: str) -> Stored | None:
        """One object; None where there is none."""

    def put(self, name: str, data: bytes, condition: str | None) -> bool:
        """Write an object if its tag is still ``condition``; None writes in any case.

        False: it is not, nothing was written.  ``NothingDone`` says the same for another
        reason; after any other error it may have been written, or may be later.
        """

    def names(self, prefix: str, behind: str, limit: int) -> list[tuple[str, str]]:
        """(name, tag) of up to ``limit`` objects, in order of the names' bytes."""

    def delete(self, name: str) -> None:
        """Remove an object, whatever it is; none there is no error."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch; never goes back."""

    def not_before(self, at: int) -> None:
        """Let the time go on from ``at``, which another client has written."""

    def describe(self) -> Mapping[str, str]:
        """Facts for a person."""

    def another(self) -> Bucket:
        """A second one on the same objects, for another thread; it ends with this one."""

    def close(self) -> None:
        """Give everything back; more than once is harmless."""
