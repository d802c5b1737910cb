"""What a store that can only compare and swap must be able to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from perkey.errors import StoreUnavailable
from perkey.store.keys import Key
from perkey.store.record import Record


class NothingDone(StoreUnavailable):
    """The store could not be reached, or refused the request as a whole; nothing was done."""

    code = "nothing-done"


class NoCredentials(NothingDone):
    """Nobody said who asks the store; nothing was done."""

    code = "no-credentials"


class Port(Protocol):
    """The store behind ``Optimistic``.  Used by one thread at a time."""

    name: str
    atomic_keys: int | None
    """How many keys one commit can compare and write; None: no limit."""
    commit_records: int | None
    """How many records, each version of a key counted, one commit can write; None: no limit."""
    several_versions: bool
    """Whether one commit can write several versions of one key."""
    cheap_turns: bool
    """Whether one more key in ``look`` costs next to nothing."""
    guesses: bool
    """Whether ``commit`` compares versions and ops alone: no ``look`` need have returned them."""

    def look(self, keys: Sequence[Key]) -> tuple[list[Record | None], int]:
        """The heads of these keys in one consistent look, and the store's time in ms."""

    def commit(self, heads: Mapping[Key, Record | None], writes: Sequence[Record]) -> bool:
        """Write all of ``writes`` if every key of ``heads`` still has that very head.

        ``heads`` are records that ``look`` has returned; the versions of one key in
        ``writes`` ascend.  A write whose key is not in ``heads`` is a new record of a
        numbered stream.  False: a key has moved, nothing was written.  A ``UsageError`` or
        ``NothingDone`` also means that nothing was written; after any other exception the write
        may have landed, may land later, or never.  Never sends anything twice.
        """

    def find_op(self, key: str, version: int) -> str | None:
        """The op that made this version, from history; None where it is not kept."""

    def forget(self, key: Key) -> None:
        """Remove a scratch record, which has no history, for good; not conditional."""

    def close(self) -> None:
        """Give everything back; more than once is harmless."""


def swaps(backend: object) -> bool:
    """Whether a backend can only compare and swap: whatever shares a commit there shares its
    conflicts too."""
    return hasattr(backend, "guesses")
