"""``s3://bucket/prefix``: records in a bucket of S3, or of a server that speaks its language."""

from __future__ import annotations

from perkey.clock import Clock
from perkey.store.abc import Backend
from perkey.store.backends.objects import ObjectsBackend
from perkey.store.backends.opening import opened
from perkey.store.backends.s3_bucket import S3Bucket
from perkey.store.limits import Limits
from perkey.store.url import Location


def open_backend(location: Location, limits: Limits, clock: Clock) -> Backend:
    """``s3://[key:secret@]bucket[/prefix]``; without a key, boto3 looks where it always does."""
    backend = ObjectsBackend(S3Bucket(location, limits, clock), limits, clock)
    return opened(backend, backend.check)
