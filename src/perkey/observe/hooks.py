"""Counters that are always on, and the hooks that hand events to whoever wants them."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from perkey.observe import events

Hook = Callable[[Any], None]
"""Called with each event, on whatever thread it happened; must return soon, may not raise."""

MAX_PREFIXES = 256
"""How many prefixes get conflict figures of their own; the rest share ``"(other)"``."""

_log = logging.getLogger("perkey")


class Observers:
    """Counts every event and passes it to the hooks.  A hook that raises harms nobody."""

    def __init__(self, hooks: tuple[Hook, ...] = ()) -> None:
        self._hooks = hooks
        self._mutex = threading.Lock()
        self.counts: Counter[str] = Counter()
        self.attempts: Counter[int] = Counter()
        """Commits by the number of attempts they took."""
        self._prefixes: dict[str, list[int]] = {}
        self.errors = 0
        """How many times a hook raised."""

    def add(self, hook: Hook) -> None:
        """Call ``hook`` with every later event."""
        self._hooks = (*self._hooks, hook)

    def remove(self, hook: Hook) -> None:
        """Stop calling ``hook``."""
        self._hooks = tuple(each for each in self._hooks if each is not hook)

    def emit(self, event: events.Event) -> None:
        """Count ``event`` and hand it to each hook."""
        with self._mutex:
            self.counts[getattr(event, "label", type(event).__name__)] += 1
            if isinstance(event, events.Conflicted):
                self._prefix(event.key)[1] += 1
        for hook in self._hooks:
            self._call(hook, event)

    def committed(self, keys: Sequence[str], by: str, op: str, attempts: int, batch: int) -> None:
        """Count a commit; the event itself is built only where somebody listens.

        ``keys`` in their stored form.  Called by the committer's leader, so by one thread at
        a time.
        """
        self.counts["Committed"] += 1
        self.attempts[attempts] += 1
        # Only documents can conflict: leases, boards and receipts would thin the rate.
        for key in keys:
            if key.startswith("d/"):
                self._prefix(key[2:])[0] += 1
        if self._hooks:
            names = tuple(key[2:] for key in keys)
            event = events.Committed(names, by, op, batch, attempts)
            for hook in self._hooks:
                self._call(hook, event)

    def _call(self, hook: Hook, event: events.Event) -> None:
        try:
            hook(event)
        except Exception:
            self.errors += 1
            _log.exception("an observer of perkey raised; it is ignored")

    def _prefix(self, key: str) -> list[int]:
        name, slash, _ = key.partition("/")
        name = name.partition(":")[0] if slash or ":" in key else "(none)"
        if name not in self._prefixes and len(self._prefixes) >= MAX_PREFIXES:
            name = "(other)"
        return self._prefixes.setdefault(name, [0, 0])

    def conflict_rates(self) -> dict[str, float]:
        """Conflicts as a share of commits and conflicts, by the keys' first segment."""
        with self._mutex:
            return {
                name: conflicts / (commits + conflicts)
                # A list first, in one step: a leader may add a prefix meanwhile.
                for name, (commits, conflicts) in list(self._prefixes.items())
                if commits + conflicts
            }
