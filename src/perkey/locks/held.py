"""Guards that already hold: what ``try_acquire`` returns, and ``many``."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from perkey import errors
from perkey.clock import Clock


class Held:
    """A key that is held.  Released once: by ``release``, by a ``with``, or when dropped."""

    __slots__ = ("_guard", "key")

    def __init__(self, key: Hashable, guard: Any) -> None:
        self.key = key
        self._guard = guard

    def release(self) -> None:
        """Let the next one in.  Never waits.  A second call raises ``UsageError``."""
        guard, self._guard = self._guard, None
        if guard is None:
            raise errors.UsageError(f"{self.key!r} was already released by this guard")
        guard.__exit__(None, None, None)

    def __enter__(self) -> Held:
        if self._guard is None:
            raise errors.UsageError(f"{self.key!r} was already released by this guard")
        return self

    def __exit__(self, *error: object) -> None:
        if self._guard is not None:
            self.release()

    async def __aenter__(self) -> Held:
        return self.__enter__()

    async def __aexit__(self, *error: object) -> None:
        self.__exit__()

    def __del__(self) -> None:
        if self._guard is not None:
            self.release()


class Group:
    """Several guards, entered in one canonical order: all or none."""

    __slots__ = ("_clock", "_entered", "_guards", "_timeout")

    def __init__(self, guards: Sequence[Any], timeout: float | None, clock: Clock) -> None:
        self._guards = guards
        self._timeout = timeout
        self._clock = clock
        self._entered: list[Any] = []

    def _deadline(self) -> float | None:
        if self._entered:
            raise errors.UsageError("this group of keys is already held; make one for each entry")
        return None if self._timeout is None else self._clock.monotonic() + self._timeout

    def _left(self, deadline: float | None) -> float | None:
        return None if deadline is None else max(0.0, deadline - self._clock.monotonic())

    def __enter__(self) -> Group:
        deadline = self._deadline()
        try:
            for guard in self._guards:
                guard.timeout = self._left(deadline)
                guard.__enter__()
                self._entered.append(guard)
        except BaseException:
            self.__exit__()
            raise
        return self

    async def __aenter__(self) -> Group:
        deadline = self._deadline()
        try:
            for guard in self._guards:
                guard.timeout = self._left(deadline)
                await guard.__aenter__()
                self._entered.append(guard)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        while self._entered:
            self._entered.pop().__exit__(None, None, None)

    async def __aexit__(self, *error: object) -> None:
        self.__exit__()

    def __del__(self) -> None:
        self.__exit__()
