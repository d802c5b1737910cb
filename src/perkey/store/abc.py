"""The waist: what every backend provides, and nothing more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from perkey.store.evaluate import Batch
from perkey.store.keys import Key
from perkey.store.limits import Limits
from perkey.store.record import Page, Record, Walk
from perkey.store.transaction import Outcome


@runtime_checkable
class Backend(Protocol):
    """Where records live.  Called by one thread at a time; owns no locks, starts no threads.

    Every method may raise ``StoreError`` or one of its kinds; none returns a guess.
    """

    name: str
    """What a person calls it: ``"sqlite"``."""
    atomic_keys: int | None
    """How many keys one commit can span; None: as many as ``Limits`` allows."""
    blocking: bool
    """Whether a call may wait for a disk or a network, so that a loop must not make it."""
    durability: str
    """What is promised when ``apply`` has returned, in a sentence."""
    time_source: str
    """Whose clock ``now_ms`` is: ``"store"``, ``"host"`` or ``"client"``."""
    limits: Limits

    def now_ms(self) -> int:
        """Milliseconds since the epoch by the store's time; never goes back."""

    def read(self, keys: Sequence[Key]) -> list[Record | None]:
        """The heads of these keys in one consistent look, tombstones included."""

    def apply(self, batch: Batch) -> list[Outcome]:
        """Commit these transactions, each all or nothing, in order.

        Reads the heads of ``batch.keys`` so that nothing can change them before the commit
        (a lock, or versions compared on writing), calls ``batch.evaluate``, writes the
        unit's records and their history, and returns its outcomes.  ``batch.committing``
        holds the unit from just before a commit until its reply is known; if it is still
        set when this raises, the caller asks again by calling ``apply`` with the unit in
        ``batch.doubts``, and ``batch.evaluate`` finds out.
        """

    def scan(self, prefix: str, after: str, limit: int) -> list[Record]:
        """Up to ``limit`` live heads whose key has ``prefix`` and is above ``after``, in order
        of their UTF-8 bytes; no tombstones."""

    def history(self, key: str, after: int, limit: int) -> list[Record]:
        """Up to ``limit`` kept versions of ``key`` above ``after``, ascending, tombstones
        included.  A first version above ``after + 1`` says that retention dropped some."""

    def changes(self, prefix: str, cursor: str, limit: int) -> Page:
        """Up to ``limit`` kept versions under ``prefix`` that came after ``cursor``.

        Each key's versions come in order.  ``""`` begins with the oldest kept.
        """

    def cursor(self, prefix: str) -> str:
        """The cursor behind everything that has been committed so far."""

    def walk(self, cursor: str, limit: int) -> Walk:
        """About ``limit`` heads of *all* spaces, tombstones included, from ``cursor`` on.

        For whoever moves a whole store.  ``""`` begins.  The order is the backend's own; each
        key that is there from the first page to the last is met at least once, in whatever
        version it has then.  A page may be empty before the end.
        """

    def reader(self) -> Backend | None:
        """A second connection for reads beside a running commit, or None to share this one."""

    def describe(self) -> dict[str, str]:
        """Facts for a person (``perkey doctor``); never a credential."""

    def concerns(self) -> list[str]:
        """What in the store's settings may lose acknowledged writes, a sentence each with what
        to do about it; never a credential."""

    def close(self) -> None:
        """Give everything back; more than once is harmless."""


class Listener(Protocol):
    """Word that other processes have committed something: a reason to look, nothing to rely on.

    ``wait`` and ``close`` belong to one thread, ``stop`` may be called by any.
    """

    def wait(self, seconds: float) -> bool:
        """Whether word came within ``seconds``; returns early after ``stop``.

        Raises ``StoreUnavailable`` when none can come any more.
        """

    def stop(self) -> None:
        """Let ``wait`` return."""

    def close(self) -> None:
        """Give everything back."""


@runtime_checkable
class Restores(Protocol):
    """A backend that signs what is written, unless it is told that records are restored."""

    def restoring(self) -> None:
        """From now on records are written as they are, their authors too.

        Raises ``Forbidden`` where that is not allowed.
        """


@runtime_checkable
class Listens(Protocol):
    """A backend that can do better than to be asked again and again."""

    def listen(self) -> Listener | None:
        """A new listener on a connection of its own; None where none can be relied on.

        May be called by any thread.  Raises ``StoreError``.
        """
