"""What an engine has to do with the other engines on its store.

It keeps its own lease, takes over what dead engines left, hears what others did to its
instances, and follows or cancels instances that others run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from perkey.engine.instances import Instance, InstanceState
from perkey.engine.journal import Journal
from perkey.engine.lifecycle import State
from perkey.engine.mail import CANCEL, Mail
from perkey.engine.records import Stored, refresh, thaw
from perkey.engine.registry import Registry
from perkey.engine.tidying import Tidier
from perkey.errors import LeaseLost, NotFound, PerkeyError, StoreClosed

if TYPE_CHECKING:
    from perkey.engine.runner import Runner

POLL_S = 0.25
"""How often an engine looks for what other engines on its store did, in seconds."""

RECOVER = 100
"""How many orphans one look takes over."""


class Neighbours:
    """Lives on the engine's loop; its tasks run from ``start`` to ``stop``."""

    def __init__(
        self, runner: Runner, registry: Registry, journal: Journal, mail: Mail, tidier: Tidier
    ) -> None:
        self._runner = runner
        self._registry = registry
        self._journal = journal
        self._mail = mail
        self._tidier = tidier
        self._stopped = False
        self._tasks: list[asyncio.Task[None]] = []
        self._ending: asyncio.Task[None] | None = None

    # ------------------------------------------------------------------------- keeping up

    def start(self, lease_s: float, lost: Callable[[], asyncio.Task[None]]) -> None:
        """Keep the lease and look around; ``lost`` is called if the lease is gone."""
        loop = asyncio.get_running_loop()
        every_s = lease_s / 3
        self._stopped = False
        self._tasks = [
            loop.create_task(self._keep(every_s, lost)),
            loop.create_task(self._look(every_s)),
        ]

    def stop(self) -> None:
        """Look no more, also where a cancellation came too late to be heard."""
        self._stopped = True
        self._journal.keeps_lease = False
        for task in self._tasks:
            task.cancel()

    async def _keep(self, every_s: float, lost: Callable[[], asyncio.Task[None]]) -> None:
        """Renew the lease; by itself, so that nothing else can make it late."""
        while not self._stopped:
            pause = every_s
            try:
                await self._journal.renew_lease()
            except (LeaseLost, StoreClosed):
                # Others may own our instances by now; nothing that we do would be stored.
                self._runner.facts.tell("engine", detail="lost its lease")
                self._ending = lost()
                return
            except PerkeyError as trouble:  # the store may come back before the lease is over
                self._runner.facts.tell("engine", detail=trouble.code)
                pause = min(POLL_S, every_s)
            await asyncio.sleep(pause)

    async def _look(self, every_s: float) -> None:
        """Hear what others did, and now and then look for what dead engines left."""
        clock = self._runner.engine.clock
        recover_at = clock.monotonic()
        while not self._stopped:
            try:
                await self.hear()
                await self._journal.drop_spent()
                if clock.monotonic() >= recover_at:
                    more = await self.recover()
                    await self._tidier.look()
                    recover_at = clock.monotonic() + (0 if more else every_s)
            except (LeaseLost, StoreClosed):
                return  # whoever renews the lease finds out, and says so
            except PerkeyError as trouble:
                self._runner.facts.tell("engine", detail=trouble.code)
            await asyncio.sleep(min(POLL_S, every_s))

    async def hear(self) -> None:
        """Act on what other engines told this one."""
        for instance_id, what in await self._mail.notices():
            instance = self._runner.running(instance_id)
            if instance is None:
                continue
            if what == CANCEL:
                self._runner.cancel(instance)
            else:
                instance.wake()

    # --------------------------------------------------------------------------- recovery

    async def recover(self) -> bool:
        """Take over instances whose engine is gone, and go on with them; whether there is more
        than one look takes."""
        engine = self._runner.engine
        if engine.state is not State.STARTED or engine.draining:
            return False
        taken = 0
        for owner, instance_id in await self._journal.orphans(RECOVER):
            stored = await self._journal.take_over(owner, instance_id)
            if stored is not None:
                taken += 1
                await self._go_on(stored)
        return taken == RECOVER

    async def _go_on(self, stored: Stored) -> None:
        instance = thaw(stored)
        version = self._registry.version_locked(stored.key, stored.version)
        if stored.cancel:
            await self._runner.settle(instance, InstanceState.CANCELLED)
        elif version is None or version.registration.digest != stored.digest:
            await self._runner.settle(instance, InstanceState.FAILED, missing(instance))
        else:
            self._runner.begin(instance, version, "recovered")

    # -------------------------------------------------------------------------- elsewhere

    async def follow(self, instance: Instance) -> None:
        """Return when an instance that another engine runs has ended, by its record."""
        while not instance.state.ended:
            stored = await self._journal.load(instance.id)
            if stored is None:
                raise NotFound(f"instance {instance.id!r} has gone", key=instance.id)
            refresh(instance, stored)
            if not instance.state.ended:
                await asyncio.sleep(POLL_S)

    async def cancel(self, instance: Instance) -> None:
        """Ask the engine that runs an instance for its end."""
        here = self._runner.running(instance.id)  # taken over meanwhile
        if here is not None:
            self._runner.cancel(here)
        else:
            await self._mail.cancel(instance.id)


def missing(instance: Instance) -> str:
    """Why an instance whose version is not there fails."""
    return (
        f"version {instance.version} of {instance.key!r}, which this instance is pinned to, is "
        "not registered in this engine with the same content"
    )
