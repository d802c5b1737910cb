"""Deploying: what the registry says and what the hub has open, moved together, key by key.

A process key's lock is held over a whole register or unregister, the hub included, so that no
other deployment of the same key comes in between.  The registry's lock is taken and released
inside its helpers; neither the hub nor the store is ever called under it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perkey.engine.arguments import check_definition
from perkey.engine.definitions import Definition
from perkey.engine.dispatch import Dispatcher
from perkey.engine.facts import Facts
from perkey.engine.hub import Hub
from perkey.engine.journal import Journal
from perkey.engine.lifecycle import State
from perkey.engine.registry import Registration, Registry, Version
from perkey.locks import KeyedLocks

if TYPE_CHECKING:
    from perkey.engine.engine import AsyncEngine


class Deployments:
    """Lives on the engine's loop."""

    def __init__(
        self,
        engine: AsyncEngine,
        registry: Registry,
        hub: Hub,
        journal: Journal | None,
        dispatch: Dispatcher,
        facts: Facts,
    ) -> None:
        self._engine = engine
        self._registry = registry
        self._hub = hub
        self._journal = journal
        self._dispatch = dispatch
        self._facts = facts
        self._keys = KeyedLocks()

    async def register(self, definition: Definition, manual: bool, dedupe: bool) -> Registration:
        """Give a definition its version; all or nothing, the hub included."""
        check_definition(definition)
        async with self._keys(definition.key):
            latest = self._registry.latest_locked(definition.key)
            if dedupe and latest and latest.definition.digest == definition.digest:
                return latest.registration
            version = await self._new_version(definition, manual)
            self._registry.add_locked(version)
            try:
                opened = await self._wire(definition.key)
            except BaseException:
                self._registry.remove_locked(version.registration)
                raise
        receipt = version.registration
        self._facts.tell("registered", receipt.key, receipt.version)
        await self._opened(opened)
        return receipt

    async def _new_version(self, definition: Definition, manual: bool) -> Version:
        given = self._registry.last_locked(definition.key)
        number = given + 1
        if self._journal is not None:
            number = await self._journal.give_version(definition.key, definition.digest, given)
        self._registry.take_number_locked(definition.key, number)
        receipt = Registration(
            definition.key,
            number,
            self._engine.clock.token(),
            definition.digest,
            self._engine.id,
        )
        return Version(receipt, definition, manual)

    async def unregister(self, receipt: Registration) -> None:
        """Forget a version; it stays if what is promoted cannot be opened."""
        async with self._keys(receipt.key):
            removed = self._registry.remove_locked(receipt)
            try:
                opened = await self._wire(receipt.key)
            except BaseException:
                self._registry.add_locked(removed)
                raise
        self._facts.tell("unregistered", receipt.key, receipt.version)
        await self._opened(opened)

    async def unregister_all(self, key: str) -> None:
        """Forget every version of a key."""
        async with self._keys(key):
            self._registry.remove_all_locked(key)
            await self._wire(key)
        self._facts.tell("unregistered", key)

    async def wire_all(self) -> None:
        """Open what the latest versions declare, and close what nobody declares any more."""
        opened = False
        for key in sorted({*self._registry.keys_locked(), *self._hub.keys()}):
            async with self._keys(key):
                opened |= await self._wire(key)
        await self._opened(opened)

    async def _wire(self, key: str) -> bool:
        """Open what the latest version of ``key`` declares; the caller holds its key lock."""
        if self._engine.state is State.PAUSED:
            return False
        latest = self._registry.latest_locked(key)
        return await self._hub.reconcile(key, latest.starts if latest else ())

    async def _opened(self, opened: bool) -> None:
        """Somebody may want now what nobody wanted before."""
        if opened:
            await self._dispatch.retry_waiting()
