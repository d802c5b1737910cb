"""What a process is: a callable with a key and the triggers that start it."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

from perkey.engine.cron import Cron, interval_ms, interval_text
from perkey.errors import UsageError
from perkey.store.keys import check_name

Body = Callable[..., Any]
"""``async def body(ctx)`` on the engine's loop, or ``def body(ctx)`` on a thread."""


@dataclass(frozen=True, slots=True)
class Message:
    """Starts one instance per message, or one per correlation key while it lives."""

    name: str
    key: str | Callable[[Any], Any] | None = field(default=None, compare=False)
    """Where the correlation key is in the payload: a field's name, or a function of it."""

    @property
    def trigger(self) -> str:
        return f"message:{self.name}"

    def correlation(self, payload: Any) -> str | None:
        """The correlation key of ``payload``; raises where it cannot be read."""
        if self.key is None:
            return None
        value = self.key(payload) if callable(self.key) else payload[self.key]
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise UsageError(
                f"expected the correlation key as text or a whole number, found {value!r:.80}"
            )
        check_name(str(value))
        return str(value)


@dataclass(frozen=True, slots=True)
class Signal:
    """Starts one instance per signal, in every process that declares it."""

    name: str

    @property
    def trigger(self) -> str:
        return f"signal:{self.name}"


@dataclass(frozen=True, slots=True)
class Every:
    """Starts one instance at each multiple of an interval."""

    ms: int

    @property
    def trigger(self) -> str:
        return f"every:{self.ms}"

    def next_ms(self, after_ms: int) -> int:
        """The first due time after ``after_ms``."""
        return (after_ms // self.ms + 1) * self.ms


@dataclass(frozen=True, slots=True)
class At:
    """Starts one instance at each time a cron expression is due, in UTC."""

    text: str

    @property
    def trigger(self) -> str:
        return f"cron:{self.text}"

    def next_ms(self, after_ms: int) -> int:
        """The first due time after ``after_ms``."""
        return Cron(self.text).next_ms(after_ms)


Start = Message | Signal | Every | At
Timer = Every | At


def spoken(trigger: str) -> str:
    """A trigger as people say it: ``every 5m`` for ``every:300000``; the others as they are."""
    kind, _, ms = trigger.partition(":")
    return f"every {interval_text(int(ms))}" if kind == "every" else trigger


def message(name: str, key: str | Callable[[Any], Any] | None = None) -> Message:
    """Start by message ``name``; with ``key`` at most one live instance per key."""
    check_name(name)
    return Message(name, key)


def signal(name: str) -> Signal:
    """Start by signal ``name``."""
    check_name(name)
    return Signal(name)


def every(interval: str | float) -> Every:
    """Start every ``"30s"``, ``"5m"``, ``"1h"`` (or so many seconds)."""
    return Every(interval_ms(interval))


def cron(text: str) -> At:
    """Start when a cron expression of five fields is due, in UTC."""
    At(text).next_ms(0)
    return At(text)


@dataclass(frozen=True)
class Definition:
    """A process definition.  Registering it gives it a version."""

    key: str
    body: Body
    starts: tuple[Start, ...] = ()
    digest: str = ""
    on_loop: bool = False
    """The body is a coroutine function; else it runs on a thread."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the body directly, as in a unit test."""
        return self.body(*args, **kwargs)


def process(key: str, starts: Sequence[Start] = ()) -> Callable[[Body], Definition]:
    """Make a callable a process definition: ``@process("order", starts=[message("placed")])``."""

    def decorate(body: Body) -> Definition:
        return define(key, body, starts)

    return decorate


def define(key: str, body: Body, starts: Sequence[Start] = ()) -> Definition:
    """Check a definition; a bad one is refused here, before any engine sees it."""
    check_name(key)
    if not callable(body):
        raise UsageError(f"expected a callable as the body of {key!r}, found {body!r:.80}")
    for start in starts:
        if not isinstance(start, Message | Signal | Every | At):
            raise UsageError(
                f"expected message(...), signal(...), every(...) or cron(...), found {start!r:.80}"
            )
    triggers = [start.trigger for start in starts]
    if len(set(triggers)) != len(triggers):
        raise UsageError(f"process {key!r} declares the same start twice: {triggers}")
    digest = _digest(key, body, triggers)
    return Definition(key, body, tuple(starts), digest, inspect.iscoroutinefunction(body))


def _digest(key: str, body: Body, triggers: Sequence[str]) -> str:
    """A digest of what the definition says: the body's source, else its byte code.

    The same in every process that has the same code.
    """
    try:
        text = inspect.getsource(body)
    except (OSError, TypeError):
        code = getattr(body, "__code__", None)
        text = _byte_code(code) if code else f"{type(body).__module__}.{type(body).__qualname__}"
    whole = "\0".join([key, text, *triggers])
    return hashlib.blake2b(whole.encode("utf-8", "replace"), digest_size=16).hexdigest()


def _byte_code(code: CodeType) -> str:
    """What code does, without where it is in memory."""
    constants = [
        _byte_code(each) if isinstance(each, CodeType) else repr(each) for each in code.co_consts
    ]
    return repr((code.co_code, code.co_names, code.co_varnames, constants))
