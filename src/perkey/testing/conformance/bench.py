"""What every check works with: fresh keys, opened backends, and words for what was wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from perkey.clock import SYSTEM
from perkey.errors import StoreUnavailable
from perkey.store.abc import Backend
from perkey.store.evaluate import Batch, Unit
from perkey.store.keys import Key
from perkey.store.limits import Limits
from perkey.store.record import Page, Record
from perkey.store.settle import settled
from perkey.store.transaction import Claim, Fence, Fn, Outcome, Transaction, declared
from perkey.store.url import open_backend
from perkey.stores import Store

Source = str | Callable[[Limits], Backend]
"""A store's URL, or a function that opens a backend with the limits it is given."""


class CheckFailed(AssertionError):
    """A backend broke its contract; the message says what was expected and what was found."""


class Bench:
    """One check's access to the store under test.  Closes whatever it opened."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._opened: list[Backend] = []
        self._stores: list[Store] = []
        self.token = SYSTEM.token()
        """In every key of this check, so that a store may be used by others meanwhile."""

    def open(self, **limits: Any) -> Backend:
        """One more connection to the store; ``limits`` are fields of ``Limits``."""
        wanted = Limits(**limits)
        if isinstance(self._source, str):
            backend = open_backend(self._source, wanted, SYSTEM)
        else:
            backend = self._source(wanted)
        self._opened.append(backend)
        return backend

    def open_shared(self, count: int) -> list[Backend]:
        """``count`` connections to the same records; only one where each open is a new store."""
        first = self.open()
        mark = self.key("shared")
        put(first, mark, b"1")
        second = self.open()
        if second.read([mark])[0] is None:
            return [first]
        return [first, second, *(self.open() for _ in range(count - 2))]

    def key(self, text: str, space: str = "d/") -> Key:
        """A key that no other check uses."""
        return Key(f"{space}{self.token}/{text}")

    @property
    def prefix(self) -> str:
        """The prefix of all this check's documents."""
        return self.key("")

    def store(self, backend: Backend) -> Store:
        """The store over one of this bench's connections: one, since two would both use it."""
        for store in self._stores:
            if store.backend is backend:
                return store
        self._stores.append(Store(backend))
        return self._stores[-1]

    def close(self) -> None:
        for store in self._stores:
            store.close()
        for backend in self._opened:
            backend.close()


# ------------------------------------------------------------------------------ writing


def transaction(
    keys: Key | Sequence[Key],
    fn: Fn,
    *,
    by: str = "",
    fence: Fence | None = None,
    claim: Claim | None = None,
) -> Transaction:
    """A transaction as the library's own flows build it."""
    extra = [each for each in (fence and fence.lease, claim and claim.key) if each]
    return Transaction(declared(keys, *extra), fn, by, SYSTEM.token(), fence, claim)


def batch_of(backend: Backend, *transactions: Transaction) -> Batch:
    """A batch as the committer builds it."""
    batch = Batch(list(transactions))
    batch.value_bytes = backend.limits.value_bytes
    return batch


def commit(backend: Backend, *transactions: Transaction) -> list[Outcome]:
    """Commit one batch, as the committer does."""
    return settle(backend, batch_of(backend, *transactions), backend.apply)


def settle(
    backend: Backend, batch: Batch, apply: Callable[[Batch], list[Outcome]]
) -> list[Outcome]:
    """Apply ``batch`` through ``apply`` until its fate is known."""
    outcomes, interrupt = settled(apply, batch, backend.limits, SYSTEM)
    if interrupt is not None:
        raise interrupt
    return outcomes


def done(outcome: Outcome) -> Outcome:
    """``outcome``, its error raised."""
    if outcome.error is not None:
        raise outcome.error
    return outcome


def putting(key: Key, body: bytes | None, by: str = "") -> Transaction:
    """A transaction that writes ``body`` whatever is there; None deletes."""
    return transaction(key, lambda tx: tx.put_body(key, body), by=by)


def put(backend: Backend, key: Key, body: bytes | None, by: str = "") -> Record:
    """Write ``body`` and return the record; None deletes."""
    return done(commit(backend, putting(key, body, by))[0]).writes[0]


def head(backend: Backend, key: Key) -> Record | None:
    """The head of one key."""
    return backend.read([key])[0]


def held(backend: Backend, key: Key) -> Record:
    """The head of one key, which must exist."""
    found = head(backend, key)
    expect(found is not None, f"expected a record at {key!r}, found none")
    assert found is not None
    return found


# --------------------------------------------------------------------------- lost replies


def lose_after(backend: Backend, before_the_retry: Callable[[], object] = lambda: None) -> Lossy:
    """An ``apply`` whose first commit lands and whose reply is lost."""
    return Lossy(backend, lands=True, before_the_retry=before_the_retry)


def lose_before(backend: Backend, before_the_retry: Callable[[], object] = lambda: None) -> Lossy:
    """An ``apply`` whose first commit never arrives."""
    return Lossy(backend, lands=False, before_the_retry=before_the_retry)


@dataclass
class Lossy:
    """Fails once, with the commit in doubt; then does what the backend does."""

    backend: Backend
    lands: bool
    before_the_retry: Callable[[], object]
    calls: int = 0

    def __call__(self, batch: Batch) -> list[Outcome]:
        self.calls += 1
        if self.calls > 1:
            if self.calls == 2:
                self.before_the_retry()
            return self.backend.apply(batch)
        if self.lands:
            outcomes = self.backend.apply(batch)
            unit = Unit([record for each in outcomes for record in each.writes], outcomes)
        else:
            heads = dict(zip(batch.keys, self.backend.read(batch.keys), strict=True))
            unit = batch.evaluate(heads, self.backend.now_ms(), lambda key, version: None)
        batch.committing = unit
        raise StoreUnavailable("the reply to this commit was lost, for the sake of the check")


# ------------------------------------------------------------------------------- reading


def all_changes(
    backend: Backend, prefix: str, cursor: str = "", limit: int = 100
) -> tuple[list[Record], list[str], str, bool]:
    """Every change after ``cursor``: (records, cursors, the last cursor, a gap was told)."""
    records: list[Record] = []
    cursors: list[str] = []
    gap = False
    for _ in range(10_000):
        page: Page = backend.changes(prefix, cursor, limit)
        same(len(page.cursors), len(page.records), "cursors on a page of changes")
        expect(len(page.records) <= limit, f"a page of {limit} had {len(page.records)} changes")
        records += page.records
        cursors += page.cursors
        gap = gap or page.gap
        cursor = page.cursor
        if page.live:
            return records, cursors, cursor, gap
    raise CheckFailed("changes() never said that it was live")


def scanned(backend: Backend, prefix: str, limit: int = 100, after: str = "") -> list[Record]:
    """Everything under ``prefix``, page by page."""
    found: list[Record] = []
    while page := backend.scan(prefix, after, limit):
        expect(len(page) <= limit, f"a scan of {limit} returned {len(page)} records")
        found += page
        expect(page[-1].key > after, f"a scan did not go on behind {after!r}")
        after = page[-1].key
    return found


# -------------------------------------------------------------------------------- words


def expect(holds: object, otherwise: str) -> None:
    """Fail with ``otherwise`` unless ``holds``.  Not an assert: those vanish under -O."""
    if not holds:
        raise CheckFailed(otherwise)


def same(found: object, expected: object, what: str) -> None:
    """Fail unless ``found == expected``."""
    if found != expected:
        raise CheckFailed(f"{what}: expected {expected!r:.400}, found {found!r:.400}")


def versions(records: Sequence[Record]) -> list[int]:
    """The versions of these records."""
    return [record.version for record in records]


def raises(kind: type[Exception], use: Callable[[], object], what: str) -> Exception:
    """Fail unless ``use()`` raises ``kind``; returns what it raised."""
    try:
        found = use()
    except kind as error:
        return error
    raise CheckFailed(f"{what}: expected {kind.__name__}, found the result {found!r:.200}")
