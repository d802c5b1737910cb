"""Instances: one run of one version, and what came for it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from perkey.engine.segments import Segment


class InstanceState(StrEnum):
    """What an instance is doing."""

    PENDING = "pending"
    """Tracked; runs when the engine is resumed."""
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        return self is not InstanceState.RUNNING and self is not InstanceState.PENDING


class Delivered(msgspec.Struct, frozen=True):
    """A message as an instance gets it."""

    name: str
    payload: Any
    message_id: str = ""

    @property
    def mark(self) -> Mark | None:
        """What tells a redelivery, if it has a message id."""
        return (self.name, self.message_id) if self.message_id else None


Mark = tuple[str, ...]
"""What tells a message from every other: its name and its message id."""


def timeout_of(step: str) -> str:
    """Where it is kept that ``step`` waited in vain."""
    return f"{step}:timeout"


@dataclass(slots=True, eq=False)
class Instance:
    """One run of one version.  Touched on the engine's loop only."""

    id: str
    key: str
    version: int
    variables: dict[str, Any]
    business_key: str
    correlation: str | None
    trigger: Delivered | None
    started_ms: int
    unique: tuple[str, str] | None = None
    """(process, idempotency key) it was started with, while it is the one for them."""
    segment: Segment | None = None
    """What its id is of, where this engine started it on a store."""
    state: InstanceState = InstanceState.PENDING
    result: Any = None
    error: str = ""
    results: dict[str, Any] = field(default_factory=dict)
    """Step name -> what it returned."""
    inbox: list[Delivered] = field(default_factory=list)
    task: asyncio.Task[None] | None = None
    begun: bool = False
    """Its task has run some of its own code, and so will see its end."""
    arrived: asyncio.Future[None] | None = None
    """Done when something came into the inbox, since it was made."""
    waiters: list[asyncio.Future[None]] | None = None
    """Whoever waits for its end: one future each, so that one who leaves disturbs no other."""
    boxes: tuple[str, ...] = ()
    """Names of messages for which a box on the store says that it waits there."""
    waiting_for: str = ""
    """What it waits for right now: ``step pay``, ``message paid``, ``timer``; else empty."""
    elsewhere: bool = False
    """Another engine on the same store runs it; here is only what its record said last."""

    @property
    def address(self) -> str:
        """Where messages for it go: its correlation key, else its business key, else its id."""
        return self.correlation or self.business_key or self.id

    def wake(self) -> None:
        """Something came into the inbox."""
        if self.arrived is not None and not self.arrived.done():
            self.arrived.set_result(None)

    def finish(self, state: InstanceState, result: Any = None, error: str = "") -> None:
        """End; whoever waits is told."""
        self.state, self.result, self.error = state, result, error
        self.waiting_for = ""
        for waiter in self.waiters or ():
            if not waiter.done():
                waiter.set_result(None)
        self.waiters = None

    async def wait_ended(self) -> None:
        """Return when the instance has ended."""
        if self.state.ended:
            return
        if self.waiters is None:
            self.waiters = []
        waiter = asyncio.get_running_loop().create_future()
        self.waiters.append(waiter)
        try:
            await waiter
        finally:
            if self.waiters is not None:
                self.waiters.remove(waiter)
