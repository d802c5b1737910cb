"""A store that can only compare and swap, in memory, with faults on order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence

from perkey.errors import LimitExceeded, StoreUnavailable
from perkey.store.backends.optimistic import Optimistic
from perkey.store.backends.port import NothingDone
from perkey.store.evaluate import Batch
from perkey.store.keys import TURNS, Key
from perkey.store.limits import Limits
from perkey.store.record import Record, following
from perkey.store.settle import settled
from perkey.store.transaction import Fn, Outcome, Transaction, declared
from tests.unit.manual_clock import ManualClock


class MemoryPort:
    """Each commit does the next of ``faults``, then what it should."""

    name = "test"
    cheap_turns = True
    guesses = True

    def __init__(
        self,
        atomic_keys: int | None = None,
        commit_records: int | None = None,
        *,
        several_versions: bool = True,
        commit_bytes: int | None = None,
    ) -> None:
        self.atomic_keys = atomic_keys
        self.commit_records = commit_records
        self.several_versions = several_versions
        self.commit_bytes = commit_bytes
        self.heads: dict[Key, Record] = {}
        self.log: list[list[Record]] = []
        self.faults: deque[Callable[[Callable[[], bool]], bool]] = deque()
        self.late: list[Callable[[], bool]] = []
        self.before_commit: Callable[[], None] = lambda: None
        self.looks = 0

    def look(self, keys: Sequence[Key]) -> tuple[list[Record | None], int]:
        self.looks += 1
        return [self.heads.get(key) for key in keys], 1_000

    def commit(self, heads: Mapping[Key, Record | None], writes: Sequence[Record]) -> bool:
        self.before_commit()
        if self.commit_bytes and sum(len(each.body or b"") for each in writes) > self.commit_bytes:
            raise LimitExceeded("too long for one commit")

        def land() -> bool:
            if any(self.heads.get(key) != head for key, head in heads.items()):
                return False
            self.heads.update((Key(each.key), each) for each in writes)
            self.log.append(list(writes))
            return True

        ordered = self.faults and TURNS not in heads
        return self.faults.popleft()(land) if ordered else land()

    def find_op(self, key: str, version: int) -> str | None:
        for record in (record for commit in self.log for record in commit):
            if (record.key, record.version) == (key, version):
                return record.op
        return None

    def forget(self, key: Key) -> None:
        self.heads.pop(key, None)

    def close(self) -> None:
        """Nothing to give back."""

    # ------------------------------------------------------------------ faults

    def lose_reply(self, land: Callable[[], bool]) -> bool:
        land()
        raise StoreUnavailable("the reply was lost")

    def lose_request(self, land: Callable[[], bool]) -> bool:
        raise StoreUnavailable("the request was lost")

    def arrive_late(self, land: Callable[[], bool]) -> bool:
        """The request is still on its way when its sender gives up."""
        self.late.append(land)
        raise StoreUnavailable("no reply yet")

    def never_send(self, land: Callable[[], bool]) -> bool:
        raise NothingDone("connection refused")

    def interrupt_after(self, land: Callable[[], bool]) -> bool:
        land()
        raise KeyboardInterrupt

    def interrupt_before(self, land: Callable[[], bool]) -> bool:
        raise KeyboardInterrupt

    def fine(self, land: Callable[[], bool]) -> bool:
        return land()

    def overtaken(self, *keys: Key) -> Callable[[Callable[[], bool]], bool]:
        """Another process writes ``keys`` between this one's look and its commit."""

        def fault(land: Callable[[], bool]) -> bool:
            for key in keys:
                self.write(key)
            return land()

        return fault

    def write(self, key: Key, op: str = "") -> None:
        """Another process adds 100."""
        head = self.heads.get(key)
        version, ops, fence = following(head)
        value = 100 + (0 if head is None or head.body is None else int(head.body))
        record = Record(key, version, b"%d" % value, "other", 0, op or f"x{version}", ops, fence)
        self.heads[key] = record
        self.log.append([record])

    def value(self, key: Key) -> int:
        body = self.heads[key].body
        assert body is not None
        return int(body)


class Rig:
    """A port, the shared ``apply`` on top, and shorthand."""

    def __init__(self, port: MemoryPort | None = None, **limits: float) -> None:
        self.port = port or MemoryPort()
        self.clock = ManualClock()
        self.limits = Limits(**limits)  # type: ignore[arg-type]
        self.optimistic = Optimistic(self.port, self.limits, self.clock)
        self.interrupt: BaseException | None = None

    def run(self, *transactions: Transaction) -> list[Outcome]:
        """Apply them as the committer does."""
        batch = Batch(list(transactions))
        outcomes, self.interrupt = settled(self.optimistic.apply, batch, self.limits, self.clock)
        return outcomes

    def adding(self, *keys: Key, attempts: int | None = None) -> Transaction:
        """Add one to each key and return the first one's new value."""

        def add(tx: object) -> int:
            for key in keys:
                tx[key] = tx.get(key, 0) + 1  # type: ignore[index, attr-defined]
            return int(tx[keys[0]])  # type: ignore[index]

        return self.doing(add, *keys, attempts=attempts)

    def doing(self, fn: Fn, *keys: Key, attempts: int | None = None) -> Transaction:
        return Transaction(declared(keys), fn, "me", self.clock.token(), attempts=attempts)


def kinds(outcomes: Sequence[Outcome]) -> list[str]:
    """Each outcome's error by name, or "ok"."""
    return [type(each.error).__name__ if each.error else "ok" for each in outcomes]
