"""``az://account@container/prefix``: records in a container of Azure Blob Storage."""

from __future__ import annotations

from perkey.clock import Clock
from perkey.store.abc import Backend
from perkey.store.backends.azure_bucket import AzureBucket
from perkey.store.backends.objects import ObjectsBackend
from perkey.store.backends.opening import opened
from perkey.store.limits import Limits
from perkey.store.url import Location


def open_backend(location: Location, limits: Limits, clock: Clock) -> Backend:
    """``az://[account[:key]@]container[/prefix]``; without a key, azure-identity looks for one."""
    backend = ObjectsBackend(AzureBucket(location, limits, clock), limits, clock)
    return opened(backend, backend.check)
