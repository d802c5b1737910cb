"""A transaction: declared keys plus a pure function, and what became of it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import AsyncGeneratorType, CodeType, FunctionType, GeneratorType
from typing import Any, NoReturn

import msgspec

from perkey.errors import NotFound, UndeclaredKey, UsageError
from perkey.store import codec
from perkey.store.keys import DOCUMENTS, Key, keeps_history, names_of, stored
from perkey.store.record import Record

Fn = Callable[["Tx"], Any]

_PLAIN = frozenset({type(None), bool, int, float, str, dict, list, tuple})
_LAZY = inspect.CO_COROUTINE | inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR


@dataclass(frozen=True, slots=True)
class Fence:
    """A lease that must still be held, with this token, when the transaction commits."""

    lease: Key
    token: int


class Claim(msgspec.Struct, frozen=True):
    """The receipt that makes a transaction run once: same key, same fingerprint, same answer."""

    key: Key
    fingerprint: str
    fields: dict[str, str] = {}
    """A checksum per top-level field, to name the one that differs."""
    expires: int | None = None
    """When the stored result may be dropped, in ms of store time after the commit."""


class Transaction(msgspec.Struct):
    """What a caller hands to the committer.  ``fn`` may run more than once."""

    keys: tuple[Key, ...]
    """Every key that ``fn`` may touch, the lease's and the receipt's too; sorted, no doubles."""
    fn: Fn
    by: str = ""
    op: str = ""
    """The id of the write, minted by the driver where the caller has none."""
    fence: Fence | None = None
    claim: Claim | None = None
    strict: bool = False
    attempts: int | None = None
    """How often it may meet a newer version before ``ConflictExhausted``, on stores that can only
    compare-and-swap; None: until its time is up."""
    timeout: float | None = None
    """Seconds to wait for its turn; None: ``Limits.timeout_s``."""
    deadline: float | None = None
    """By ``Clock.monotonic``: when its time is up.  Set by the committer."""
    foreseen: bool = False
    """Its keys are most likely new, or this process wrote them last: a store that compares and
    swaps may try it without a look.  It never decides anything."""
    stands_for: Callable[[Any], int] | None = None
    """How many transactions one with this result is counted as; None: one."""


class Outcome(msgspec.Struct):
    """What became of a transaction: ``result`` or ``error``, never both."""

    result: Any = None
    error: BaseException | None = None
    writes: tuple[Record, ...] = ()
    replayed: bool = False
    """The result is the stored one of an earlier commit with the same idempotency key."""
    attempts: int = 1
    seconds: float = 0.0
    """How long ``fn`` ran."""


class Tx:
    """What ``fn`` sees: the current values of its declared keys, and a place for new ones.

    Behaves like a dictionary over those keys.  Values are copies, so changing one without
    assigning it changes nothing.  Touching any other key raises ``UndeclaredKey``.
    """

    __slots__ = ("_heads", "_puts", "appends", "by", "now", "restored")

    def __init__(self, heads: dict[Key, Record | None], by: str, now: int) -> None:
        """``heads`` has exactly the declared keys."""
        self._heads: dict[Key, Record | None] | None = heads
        self._puts: dict[Key, tuple[bytes | None, int | None]] = {}
        self.appends: dict[Key, bytes] = {}
        self.restored: list[Record] = []
        self.by = by
        """The author of this transaction's writes."""
        self.now = now
        """The store's time, in milliseconds since the epoch."""

    def __getitem__(self, key: str) -> Any:
        body = self.body(key)
        if body is None:
            raise NotFound(f"there is nothing at {key!r}; use tx.get(key) to allow that", key=key)
        return codec.decode(body)

    def get(self, key: str, default: Any = None) -> Any:
        """A fresh copy of the current value, or ``default`` where there is none."""
        body = self.body(key)
        return default if body is None else codec.decode(body)

    def __contains__(self, key: str) -> bool:
        return self.body(key) is not None

    def __setitem__(self, key: str, value: Any) -> None:
        self.put_body(key, codec.encode(value))

    def __delitem__(self, key: str) -> None:
        if key not in self:
            raise NotFound(f"there is nothing at {key!r} to delete", key=key)
        self.put_body(key, None)

    def version(self, key: str) -> int:
        """The version at the start of this transaction; 0 if the key was never written."""
        head = self.record(key)
        return 0 if head is None else head.version

    def record(self, key: str) -> Record | None:
        """The whole record at the start of this transaction, a tombstone included."""
        try:
            # What is declared was checked then; a key that was not is checked by ``_missing``.
            return self._heads[key if type(key) is Key else DOCUMENTS + key]  # type: ignore[index]
        except (KeyError, TypeError):
            return self._missing(key)

    def body(self, key: str) -> bytes | None:
        """The encoded current value: what was assigned here, else what the store has."""
        try:
            name = key if type(key) is Key else DOCUMENTS + key
            head = self._heads[name]  # type: ignore[index]
        except (KeyError, TypeError):
            return self._missing(key)
        if self._puts and name in self._puts:
            return self._puts[name][0]  # type: ignore[index]
        return None if head is None else head.body

    def _missing(self, key: str) -> NoReturn:
        if type(key) is not Key:
            stored(key)
        raise self._refusal(key)

    def put_body(self, key: str, body: bytes | None, base: int | None = None) -> None:
        """Assign JSON that is already encoded; None deletes.

        ``base`` is the version the author had read, where it is not the current one.
        """
        try:
            name = key if type(key) is Key else Key(DOCUMENTS + key)
            if name not in self._heads:  # type: ignore[operator]
                self._missing(key)
        except TypeError:
            self._missing(key)
        self._puts[name] = (body, base)

    def append(self, key: Key, body: bytes) -> None:
        """Write a *new* record, encoded JSON, at a key that was not declared.

        Only for numbered streams: the number must come from a declared record that this
        transaction advances, so that nobody else can ever write the same key.
        """
        if self._heads is None:
            raise self._refusal(key)
        self.appends[key] = body

    def restore(self, record: Record) -> None:
        """Write ``record`` as it is: version, author, time, op and fence.

        Only for moving a store.  A key goes forward, never back, and a key with history goes
        on with the next version, or begins with any.  The transaction writes nothing else.
        """
        key = Key(record.key)
        before = [each for each in self.restored if each.key == key]
        head = before[-1] if before else self.record(key)
        if head is not None:
            follows = record.version == head.version + 1
            if not follows and (keeps_history(key) or record.version <= head.version):
                raise UsageError(
                    f"{key.name!r} stands at version {head.version}; version {record.version} "
                    "cannot be restored on top of it"
                )
        self.restored.append(record)

    def _refusal(self, key: str) -> UsageError:
        if self._heads is None:
            return UsageError("this transaction is over; tx cannot be used after its function")
        named = [repr(name) for name in names_of(self._heads)]
        declared = ", ".join(named[:8]) + (f" and {len(named) - 8} more" if named[8:] else "")
        touched = key.name if type(key) is Key else str(key)
        return UndeclaredKey(
            f"this transaction declared {declared or 'no key'}, but its function touched "
            f"{touched!r}; declare every key in transact(keys, ...)",
            key=touched,
        )

    def finish(self) -> dict[Key, tuple[bytes | None, int | None]]:
        """End the function's access and return what it assigned."""
        self._heads = None
        return self._puts


def check_fn(fn: object) -> None:
    """Refuse what cannot be a pure function: coroutines and generators run later, outside."""
    if not callable(fn):
        raise UsageError(f"expected a function of one argument, found {type(fn).__name__}")
    if runs_later(fn):
        raise UsageError(
            "expected a plain function, found an async function or a generator: it may run "
            "again and must not wait for anything; do the waiting first and pass its result in"
        )


def runs_later(fn: Callable[..., object]) -> bool:
    """Whether calling ``fn`` only makes a coroutine or a generator: a ``partial`` and an object
    with ``__call__`` are judged by what they call."""
    if type(fn) is FunctionType and not fn.__dict__:  # nor is it marked as a coroutine's
        return bool(fn.__code__.co_flags & _LAZY)
    while True:
        if isinstance(fn, functools.partial):
            fn = fn.func
            continue
        code = getattr(fn, "__code__", None)
        if isinstance(code, CodeType):
            return bool(code.co_flags & _LAZY) or inspect.iscoroutinefunction(fn)
        call = getattr(type(fn), "__call__", None)  # noqa: B004, not whether it has one
        if isinstance(fn, type) or not isinstance(call, FunctionType | functools.partial):
            return inspect.iscoroutinefunction(fn)
        fn = call


def check_result(result: object) -> None:
    """Refuse a result that would only run after the commit."""
    kind: Any = type(result)
    if kind in _PLAIN or not _may_run_later(kind):
        return
    if inspect.iscoroutine(result) or inspect.isgenerator(result):
        result.close()
    elif not (inspect.isawaitable(result) or inspect.isasyncgen(result)):
        return
    raise UsageError(
        f"the transaction's function returned a {kind.__name__}, which runs only after "
        "the commit; nothing was written: return plain data"
    )


@functools.lru_cache(maxsize=256)
def _may_run_later(kind: type) -> bool:
    """Whether what ``check_result`` refuses can be of this type."""
    return hasattr(kind, "__await__") or issubclass(kind, GeneratorType | AsyncGeneratorType)


def declared(keys: str | Sequence[str], *extra: Key) -> tuple[Key, ...]:
    """The stored keys a transaction locks: checked, sorted, without doubles."""
    if isinstance(keys, str):
        if not extra:
            return (stored(keys),)
        keys = [keys]
    return tuple(sorted({*map(stored, keys), *extra}))
