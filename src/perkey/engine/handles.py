"""Handles: what is seen of an instance from outside, and what can be asked of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from perkey.engine.facts import Observer, Subscription
from perkey.engine.instances import Instance, InstanceState
from perkey.errors import StillRunning, Timeout, UsageError

if TYPE_CHECKING:
    from perkey.engine.runner import Runner


class Look:
    """What every view of an instance shows."""

    __slots__ = ("_instance",)

    def __init__(self, instance: Instance) -> None:
        self._instance = instance

    @property
    def id(self) -> str:
        return self._instance.id

    @property
    def key(self) -> str:
        """The process's key."""
        return self._instance.key

    @property
    def version(self) -> int:
        """The version it runs, whatever was deployed since."""
        return self._instance.version

    @property
    def business_key(self) -> str:
        return self._instance.business_key


class Seen(Look):
    """What a handle shows, in either colour; equal to every other of its colour on the same
    instance."""

    __slots__ = ("replayed",)

    def __init__(self, instance: Instance, replayed: bool = False) -> None:
        super().__init__(instance)
        self.replayed = replayed
        """The start that gave this handle began nothing: its idempotency key had an instance."""

    @property
    def variables(self) -> dict[str, Any]:
        """What it was started with; a copy."""
        return dict(self._instance.variables)

    @property
    def address(self) -> str:
        """What to give ``publish`` as ``key=`` to reach it: its correlation key, else its
        business key, else its id."""
        return self._instance.address

    @property
    def state(self) -> InstanceState:
        return self._instance.state

    @property
    def error(self) -> str:
        """What a failed instance raised."""
        return self._instance.error

    @property
    def waiting_for(self) -> str:
        """What it waits for right now, or an empty text."""
        return self._instance.waiting_for

    def result(self) -> Any:
        """What a completed instance returned; ``UsageError`` while it runs or if it did not."""
        if self._instance.state is not InstanceState.COMPLETED:
            detail = f": {self._instance.error}" if self._instance.error else ""
            raise UsageError(f"instance {self.id} is {self._instance.state}{detail}")
        return self._instance.result

    def steps(self) -> dict[str, Any]:
        """The finished steps and what they returned; a copy."""
        return dict(self._instance.results)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other._instance.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.key} v{self.version} {self.id} {self.state}>"


class Handle(Seen):
    """A view of one instance, equal to every other handle on it."""

    __slots__ = ("_runner",)

    def __init__(self, runner: Runner, instance: Instance, replayed: bool = False) -> None:
        super().__init__(instance, replayed)
        self._runner = runner

    async def wait(self, timeout: float | None = None) -> InstanceState:
        """Wait until it has ended; ``Timeout`` after ``timeout`` seconds.

        If another engine runs it, this follows its record in the store.
        """
        instance = self._instance
        if timeout is None and not instance.elsewhere:
            await instance.wait_ended()
            return instance.state
        try:
            async with asyncio.timeout(timeout):
                if instance.elsewhere and self._runner.neighbours is not None:
                    await self._runner.neighbours.follow(instance)
                else:
                    await instance.wait_ended()
        except TimeoutError:
            raise Timeout(f"instance {self.id} is still {self.state} after {timeout} s") from None
        return self._instance.state

    async def cancel(self, timeout: float | None = 10.0) -> InstanceState:
        """Ask it to stop and wait until it has; ``StillRunning`` after ``timeout`` seconds.

        If another engine runs it, that engine is asked through the store.
        """
        if self._instance.elsewhere and self._runner.neighbours is not None:
            await self._runner.neighbours.cancel(self._instance)
        else:
            self._runner.cancel(self._instance)
        try:
            return await self.wait(timeout)
        except Timeout:
            raise StillRunning(f"instance {self.id} did not stop in time", ids=[self.id]) from None

    def observe(self, observer: Observer, *, limit: int = 256) -> Subscription:
        """Send the facts about this instance, from now on, to ``observer``."""
        return self._runner.facts.observe(observer, limit, self.id)
