"""``gs://bucket/prefix``: records in a bucket of Google Cloud Storage."""

from __future__ import annotations

from perkey.clock import Clock
from perkey.store.abc import Backend
from perkey.store.backends.gcs_bucket import GcsBucket
from perkey.store.backends.objects import ObjectsBackend
from perkey.store.backends.opening import opened
from perkey.store.limits import Limits
from perkey.store.url import Location


def open_backend(location: Location, limits: Limits, clock: Clock) -> Backend:
    """``gs://bucket[/prefix]``; google-auth looks for credentials where Google's tools do."""
    backend = ObjectsBackend(GcsBucket(location, limits, clock), limits, clock)
    return opened(backend, backend.check)
