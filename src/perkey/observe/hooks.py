"""Counters that are always on, and the hooks that hand events to whoever wants them."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from perkey.observe import events

Hook = Callable[[Any], None]
"""Called with each event, on whatever thread it happened; must return soon, may not raise."""

MAX_PREFIXES = 256
"""How many prefixes get conflict figures of their own; the rest share ``"(other)"``."""

_log = logging.getLogger("perkey")


class Observers:
    """Counts every event and passes it to the hooks.  A hook that raises harms nobody.

    Whatever it raises is logged and counted, ``SystemExit`` and a cancellation included.  Only
    on the main thread ``KeyboardInterrupt`` and ``SystemExit`` are kept for ``interrupted``: a
    signal, most likely, that struck while the hook ran and is meant for the program.
    """

    def __init__(self, hooks: tuple[Hook, ...] = ()) -> None:
        self._hooks = hooks
        self._mutex = threading.Lock()
        self.counts: Counter[str] = Counter()
        self.attempts: Counter[int] = Counter()
        """Commits by the number of attempts they took."""
        self._prefixes: dict[str, list[int]] = {}
        self.errors = 0
        """How many times a hook raised."""
        self._interrupt: BaseException | None = None

    def add(self, hook: Hook) -> None:
        """Call ``hook`` with every later event."""
        self._hooks = (*self._hooks, hook)

    def remove(self, hook: Hook) -> None:
        """Stop calling ``hook``."""
        self._hooks = tuple(each for each in self._hooks if each is not hook)

    def emit(self, event: events.Event) -> None:
        """Count ``event`` and hand it to each hook; raises the interrupt that struck one."""
        self.tell(event)
        self.interrupted()

    def tell(self, event: events.Event) -> None:
        """Like ``emit``, where others must be told first; then ``interrupted`` must follow."""
        with self._mutex:
            self.counts[getattr(event, "label", type(event).__name__)] += 1
            if isinstance(event, events.Conflicted):
                self._prefix(event.key)[1] += 1
        self.hand_out(event)

    @property
    def listening(self) -> bool:
        """Whether anybody would hear of an event."""
        return bool(self._hooks)

    def committed(self, attempts: Sequence[int], documents: Sequence[str]) -> None:
        """Count commits that took so many attempts each, and wrote these documents.

        Called by the committer's leader, so by one thread at a time.
        """
        self.counts["Committed"] += len(attempts)
        for number in attempts:
            self.attempts[number] += 1
        for key in documents:
            self._prefix(key)[0] += 1

    def hand_out(self, event: events.Event) -> None:
        """Hand an event that is counted already to each hook; ``interrupted`` must follow."""
        for hook in self._hooks:
            self._call(hook, event)

    def interrupted(self) -> None:
        """Raise what interrupted a hook on this thread, once everybody has been told."""
        if self._interrupt is not None and _on_main_thread():
            interrupt, self._interrupt = self._interrupt, None
            raise interrupt

    def _call(self, hook: Hook, event: events.Event) -> None:
        try:
            hook(event)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt | SystemExit) and _on_main_thread():
                self._interrupt = error
                return
            with self._mutex:
                self.errors += 1
            with suppress(Exception):  # a log filter is a stranger too
                _log.exception("an observer of perkey raised; it is ignored")

    def _prefix(self, key: str) -> list[int]:
        name, slash, _ = key.partition("/")
        name, colon, _ = name.partition(":")
        if not (slash or colon):
            name = "(none)"
        found = self._prefixes.get(name)
        if found is None:
            if len(self._prefixes) >= MAX_PREFIXES:
                name = "(other)"
            found = self._prefixes.setdefault(name, [0, 0])
        return found

    def conflict_rates(self) -> dict[str, float]:
        """Conflicts as a share of commits and conflicts, by the keys' first segment."""
        with self._mutex:
            return {
                name: conflicts / (commits + conflicts)
                # A list first, in one step: a leader may add a prefix meanwhile.
                for name, (commits, conflicts) in list(self._prefixes.items())
                if commits + conflicts
            }


def _on_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
