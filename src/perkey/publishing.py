"""``Publisher``: ordered publishing of what a key looks like now.

Two paths publish the same keys: events as they happen, and a sweep that repairs what an event
missed.  Each pass loads the snapshot, decides, sends and records *inside the key's section*.
``publish`` waits its turn; ``sweep`` only tries, and skips a section that is held, because a
later sweep reads a state at least as new.

Three assumptions make that enough: all producers are in this process, ``send`` returns in the
order in which it delivers, and the transport keeps that order.  Where one of them does not
hold, let the messages carry the record's version and give each subscriber a ``Latest``.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import threading
from collections.abc import Callable, Hashable, Iterable
from typing import Any

from perkey.broadcast import Broadcast, Dropped, Message, Subscription
from perkey.errors import Timeout, UsageError
from perkey.flows.publishing import (
    Call,
    Group,
    Groups,
    Latest,
    Outcome,
    Plan,
    Remembered,
    Sweep,
    Tally,
    differs,
    one_pass,
)
from perkey.locks import Sections
from perkey.locks.table import limit

__all__ = [
    "AsyncPublisher",
    "Broadcast",
    "Dropped",
    "Latest",
    "Message",
    "Publisher",
    "Subscription",
    "Sweep",
]

Keys = Iterable[Any] | Callable[[], Iterable[Any]]


class _Base:
    def __init__(
        self,
        load: Callable[..., Any],
        send: Callable[..., Any],
        changed: Callable[[Any, Any], bool] | None = None,
        record: Callable[..., Any] | None = None,
        sections: Sections | None = None,
        send_timeout: float | None = None,
        remember: int = 65_536,
    ) -> None:
        """``load(key)`` reads the snapshot, ``send(key, snapshot)`` delivers it.

        ``changed(last_sent, snapshot)`` says whether to send (default: they differ);
        ``record(key, snapshot)`` runs after a send.  ``send_timeout`` is in seconds.
        ``remember`` bounds the table of what was sent last; a key that fell out is sent again.
        """
        self._plan = Plan(load, send, changed or differs, record, Remembered(remember))
        self._sections = Sections() if sections is None else sections
        self._timeout = limit(send_timeout)
        if self._timeout is not None and self._timeout <= 0:
            raise UsageError(f"send_timeout is above 0 seconds or None, not {send_timeout!r}")
        self._groups = Groups()
        self._stopped = threading.Event()
        self._late: dict[Any, threading.Thread] = {}  # sends that outlived their timeout

    def forget(self, key: Hashable) -> None:
        """Drop what was sent last for this key: the next pass sends, changed or not."""
        self._plan.sent.forget(key)

    def statistics(self) -> dict[str, int]:
        """Passes by what became of them, and ``remembered`` keys.

        ``shared`` calls of ``publish`` were served by a pass that another call ran.
        """
        return {**self._plan.counts, "remembered": len(self._plan.sent)}

    def stop(self) -> None:
        """End ``run`` after the pass it is in."""
        self._stopped.set()

    def _done(self, outcome: Outcome) -> Outcome:
        self._plan.counts[outcome] += 1
        return outcome

    def _swept(self, tally: Tally) -> Sweep:
        self._plan.counts["skipped"] += tally.skipped
        return tally.sweep()

    def _share(self, group: Group) -> Outcome | None:
        if group.outcome is not None:
            self._plan.counts["shared"] += 1
        return group.outcome

    def _failed(self, error: BaseException) -> None:
        self._plan.counts["failed"] += 1
        self._plan.counts["timeouts"] += isinstance(error, TimeoutError)


class Publisher(_Base):
    """Ordered publishing for threads."""

    def publish(self, key: Hashable) -> Outcome:
        """Send what the key looks like now, if it changed; waits for the key's section.

        Calls that wait for one key share a pass that begins after all of them asked.  What
        ``load``, ``send`` or ``record`` raise is raised here, and nothing is recorded.
        """
        group = self._groups.join(key)
        try:
            with self._sections(key):
                shared = self._share(group)
                if shared is None:
                    self._groups.close(key, group)
                    shared = group.outcome = self._run(key)
                return shared
        except BaseException:
            self._groups.close(key, group)
            raise

    def sweep(self, keys: Iterable[Any]) -> Sweep:
        """Look at every key whose section is free; one that fails does not stop the others."""
        tally = Tally()
        for key in keys:
            guard = self._sections.try_acquire(key)
            if guard is None:
                tally.skipped += 1
                continue
            with guard:
                try:
                    tally.add(self._run(key))
                except Exception as error:
                    tally.failed[key] = error
        return self._swept(tally)

    def run(self, interval: float, keys: Keys) -> None:
        """Sweep every ``interval`` seconds until ``stop``; ``keys`` may be a function.

        What fails is counted and tried again in the next pass.
        """
        while True:
            try:
                self.sweep(keys() if callable(keys) else keys)
            except Exception as error:
                self._failed(error)
            if self._stopped.wait(interval):
                return

    def _run(self, key: Hashable) -> Outcome:
        flow = one_pass(self._plan, key)
        try:
            call = next(flow)
            while True:
                if call.bounded and self._timeout is not None:
                    answer = self._send(key, call, self._timeout)
                else:
                    answer = _plain(call.fn(*call.args))
                call = flow.send(answer)
        except StopIteration as stop:
            return self._done(stop.value)
        except Exception as error:
            self._failed(error)
            raise

    def _send(self, key: Hashable, call: Call, timeout: float) -> Any:
        """Send on a thread of its own, for nothing else can give up on a call that blocks."""
        late = self._late.get(key)
        if late is not None:
            # It may still deliver.  A newer send beside it could be overtaken by it.
            late.join(timeout)
            if late.is_alive():
                raise Timeout(f"an earlier send for {key!r} has not returned yet", key=key)
            del self._late[key]
        result: list[Any] = []
        failure: list[BaseException] = []

        def work() -> None:
            try:
                result.append(call.fn(*call.args))
            except BaseException as error:
                failure.append(error)

        context = contextvars.copy_context()
        thread = threading.Thread(target=context.run, args=(work,), name="perkey-send", daemon=True)
        thread.start()
        thread.join(timeout)
        if thread.is_alive():
            self._late = {old: one for old, one in self._late.items() if one.is_alive()}
            self._late[key] = thread
            raise Timeout(f"send for {key!r} took longer than {timeout} s", key=key)
        if failure:
            raise failure[0]
        return _plain(result[0])


class AsyncPublisher(_Base):
    """Ordered publishing on asyncio; ``load``, ``send`` and ``record`` may be async."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._running: set[asyncio.Event] = set()

    async def publish(self, key: Hashable) -> Outcome:
        """Send what the key looks like now, if it changed; waits for the key's section.

        Calls that wait for one key share a pass that begins after all of them asked.  What
        ``load``, ``send`` or ``record`` raise is raised here, and nothing is recorded.
        """
        group = self._groups.join(key)
        try:
            async with self._sections(key):
                shared = self._share(group)
                if shared is None:
                    self._groups.close(key, group)
                    shared = group.outcome = await self._run(key)
                return shared
        except BaseException:
            self._groups.close(key, group)
            raise

    async def sweep(self, keys: Iterable[Any]) -> Sweep:
        """Look at every key whose section is free; one that fails does not stop the others."""
        tally = Tally()
        for key in keys:
            guard = self._sections.try_acquire(key)
            if guard is None:
                tally.skipped += 1
                continue
            with guard:
                try:
                    tally.add(await self._run(key))
                except Exception as error:
                    tally.failed[key] = error
        return self._swept(tally)

    async def run(self, interval: float, keys: Keys) -> None:
        """Sweep every ``interval`` seconds until ``stop``; ``keys`` may be a function.

        What fails is counted and tried again in the next pass.
        """
        stopped = asyncio.Event()
        self._running.add(stopped)
        try:
            while not self._stopped.is_set():
                try:
                    await self.sweep(keys() if callable(keys) else keys)
                except Exception as error:
                    self._failed(error)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(interval):
                        await stopped.wait()
        finally:
            self._running.discard(stopped)

    def stop(self) -> None:
        """End ``run`` after the pass it is in.  Call it on the loop of ``run``."""
        super().stop()
        for stopped in self._running:
            stopped.set()

    async def _run(self, key: Hashable) -> Outcome:
        flow = one_pass(self._plan, key)
        try:
            call = next(flow)
            while True:
                if call.bounded and self._timeout is not None:
                    answer = await self._send(key, call, self._timeout)
                else:
                    answer = await _awaited(call.fn(*call.args))
                call = flow.send(answer)
        except StopIteration as stop:
            return self._done(stop.value)
        except Exception as error:
            self._failed(error)
            raise

    async def _send(self, key: Hashable, call: Call, timeout: float) -> Any:
        try:
            async with asyncio.timeout(timeout) as limit:
                return await _awaited(call.fn(*call.args))
        except TimeoutError:
            if not limit.expired():
                raise
            raise Timeout(f"send for {key!r} took longer than {timeout} s", key=key) from None


async def _awaited(result: Any) -> Any:
    return await result if inspect.isawaitable(result) else result


def _plain(result: Any) -> Any:
    if inspect.iscoroutine(result):
        result.close()
        raise UsageError("expected a plain function, found an async one; use AsyncPublisher")
    return result
