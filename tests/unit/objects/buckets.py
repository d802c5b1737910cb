"""An object store in memory, with a hook before each request and faults on order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from itertools import count
from threading import RLock

from perkey.clock import SYSTEM, Clock
from perkey.errors import StoreUnavailable
from perkey.store.backends.bucket import MISSING, Stored
from perkey.store.backends.objects import ObjectsBackend
from perkey.store.limits import Limits


class Crash(BaseException):
    """The process that makes the request ends here."""


class MemoryBucket:
    """``before`` is called with each request's kind and name; it may raise, or do other work."""

    place = "memory"

    def __init__(self, clock: Clock = SYSTEM, shared: MemoryBucket | None = None) -> None:
        self.clock = clock
        self.objects: dict[str, tuple[bytes, str]] = {} if shared is None else shared.objects
        self.lock = RLock() if shared is None else shared.lock
        self.tags = count(1) if shared is None else shared.tags
        self.before: Callable[[str, str], None] = lambda kind, name: None
        self.after_put: deque[Callable[[], None]] = deque()
        self.requests: list[tuple[str, str]] = []
        self.closed = 0

    def _ask(self, kind: str, name: str) -> None:
        self.requests.append((kind, name))
        self.before(kind, name)

    def get(self, name: str) -> Stored | None:
        self._ask("get", name)
        found = self.objects.get(name)
        return found and Stored(*found)

    def put(self, name: str, data: bytes, condition: str | None) -> bool:
        self._ask("put", name)
        with self.lock:
            found = self.objects.get(name)
            if condition is not None and condition != (MISSING if found is None else found[1]):
                return False
            self.objects[name] = data, f'"{next(self.tags)}"'
        if self.after_put:
            self.after_put.popleft()()
        return True

    def names(self, prefix: str, behind: str, limit: int) -> list[tuple[str, str]]:
        self._ask("names", prefix)
        with self.lock:
            found = sorted(self.objects.items())
        listed = [(name, tag) for name, (_, tag) in found if name > behind]
        return [each for each in listed if each[0].startswith(prefix)][:limit]

    def delete(self, name: str) -> None:
        self._ask("delete", name)
        with self.lock:
            self.objects.pop(name, None)

    def now_ms(self) -> int:
        return self.clock.now_ms()

    def not_before(self, at: int) -> None:
        """All clients have one clock here."""

    def describe(self) -> Mapping[str, str]:
        return {"address": self.place}

    def another(self) -> MemoryBucket:
        return MemoryBucket(self.clock, self)

    def close(self) -> None:
        self.closed += 1


class Ignoring(MemoryBucket):
    """Takes conditions and ignores them, as several servers do."""

    def put(self, name: str, data: bytes, condition: str | None) -> bool:
        return super().put(name, data, None)

    def another(self) -> MemoryBucket:
        return Ignoring(self.clock, self)


def lost() -> None:
    """For ``after_put``: it landed, and the reply did not come."""
    raise StoreUnavailable("the reply was lost")


def backend(
    bucket: MemoryBucket, kind: type[ObjectsBackend] = ObjectsBackend, **limits: float
) -> ObjectsBackend:
    """One more process on the same objects."""
    return kind(bucket.another(), Limits(**limits), bucket.clock)  # type: ignore[arg-type]
