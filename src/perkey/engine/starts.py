"""Starts: at most one instance of what is unique, tracked before it runs.

In memory a start is a look and an assignment, with no await between them.  On a store it is one
commit of the journal, and only an instance that is in there is tracked and runs.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from perkey.engine.guarded import outside
from perkey.engine.handles import Handle
from perkey.engine.instances import Delivered, Instance, Mark
from perkey.engine.journal import Journal, Tick
from perkey.engine.lifecycle import State
from perkey.engine.registry import Version
from perkey.engine.rounds import Answer
from perkey.engine.runner import Runner
from perkey.errors import InvalidState, OutcomeUnknown, PerkeyError
from perkey.store import codec

if TYPE_CHECKING:
    from perkey.engine.engine import AsyncEngine

Unique = tuple[str, str]
"""(process, idempotency key)."""


class Begun(NamedTuple):
    """What a start came to."""

    id: str
    found: str
    """Empty if it is new, else which unique key named an earlier one: ``m`` a message id,
    ``s`` an idempotency key, ``k`` a correlation key."""
    instance: Instance | None = None
    """Always there for a new one and for an idempotency key."""


class Starts:
    """Lives on the engine's loop."""

    def __init__(self, engine: AsyncEngine, runner: Runner, journal: Journal | None) -> None:
        self._engine = engine
        self._runner = runner
        self._journal = journal
        self._asides: set[asyncio.Task[None]] = set()

    def check(self) -> None:
        """Refuse a start of an engine that is not started, or drains."""
        outside("an instance was started")
        engine = self._engine
        if engine.draining:
            raise InvalidState("the engine is draining; it starts nothing more")
        if engine.state not in (State.STARTED, State.PAUSED):
            raise InvalidState(
                f"expected a started engine, found it {engine.state}", state=str(engine.state)
            )

    def handle(self, begun: Begun) -> Handle:
        """The handle on what a start by hand came to."""
        assert begun.instance is not None
        return Handle(self._runner, begun.instance, replayed=begun.found == "s")

    async def start(
        self,
        version: Version,
        variables: dict[str, Any],
        business_key: str = "",
        idempotency_key: str | None = None,
        *,
        correlation: str | None = None,
        trigger: Delivered | None = None,
        tick: Tick | None = None,
    ) -> Begun:
        """Track a new instance and let it run, unless a unique key names an earlier one."""
        runner, receipt, journal = self._runner, version.registration, self._journal
        unique = None if idempotency_key is None else (receipt.key, idempotency_key)
        known = runner.idempotent.get(unique) if unique else None
        if known is not None:
            return Begun(known.id, "s", known)
        if variables:
            codec.encode(variables)
        runner.make_room()
        clock, segment = self._engine.clock, None
        if journal is None:
            name = clock.token()
        else:
            name, segment = journal.segments.give()
        instance = Instance(
            name,
            receipt.key,
            receipt.version,
            variables,
            business_key,
            correlation,
            trigger,
            clock.now_ms(),
            unique,
            segment,
        )
        mark = trigger.mark if trigger else None
        if journal is None:
            earlier = self._look(instance, mark)
            if earlier is not None:
                return Begun(earlier, "m")
        else:
            runner.starting += 1
            try:
                written = journal.start(instance, receipt, _uniques(instance, mark), tick)
                name, kind, instance.started_ms = await written
            except asyncio.CancelledError:
                # It may be committed all the same, and then nobody but this engine would run it.
                written.leave(partial(self._left, journal, instance, version))
                raise
            except Exception as error:
                self._left(journal, instance, version, (None, error))
                raise
            finally:
                runner.starting -= 1
            if kind:
                journal.ended(instance)
                return Begun(name, kind, await runner.known(name) if kind == "s" else None)
            journal.began(instance)
        runner.begin(instance, version)
        return Begun(instance.id, "", instance)

    def _look(self, instance: Instance, mark: Mark | None) -> str | None:
        """The instance in memory that has this message, else note that the new one lives."""
        if self._runner.stopping:  # whoever waited for a key's lock may come after the shutdown
            state = self._engine.state
            raise InvalidState(f"the engine is {state}", state=str(state))
        local = self._runner.local
        earlier = local.holder(mark)
        if earlier is None and (mark is not None or instance.correlation is not None):
            local.began(instance, mark)
        return earlier

    def _left(self, journal: Journal, instance: Instance, version: Version, answer: Answer) -> None:
        """What became of a start that nobody waits for, or whose reply was lost."""
        result, error = answer
        if isinstance(error, OutcomeUnknown):
            self._aside(journal, instance, version)
        elif error is not None or result[1]:
            journal.ended(instance)
        else:
            instance.started_ms = result[2]
            journal.began(instance)
            self._runner.begin(instance, version)

    def _aside(self, journal: Journal, instance: Instance, version: Version) -> None:
        adopting = self._adopt(journal, instance, version)
        task = asyncio.get_running_loop().create_task(adopting)
        self._asides.add(task)
        task.add_done_callback(self._asides.discard)

    async def _adopt(self, journal: Journal, instance: Instance, version: Version) -> None:
        try:
            if await journal.landed(instance) and self._runner.find(instance.id) is None:
                journal.began(instance)
                self._runner.begin(instance, version)
            # Else its id stays given out, so that it is found if it should land later.
        except PerkeyError as error:  # the lease is gone or will be: another engine adopts it
            self._runner.facts.tell("engine", instance=instance.id, detail=error.code)


def _uniques(instance: Instance, mark: Mark | None) -> dict[str, tuple[str, ...]]:
    """What there may be only one instance of on the store, by kind of record."""
    uniques: dict[str, tuple[str, ...]] = {}
    if mark is not None:
        uniques["m"] = mark
    if instance.unique is not None:
        uniques["s"] = instance.unique
    if instance.correlation is not None:
        uniques["k"] = (instance.key, instance.correlation)
    return uniques
