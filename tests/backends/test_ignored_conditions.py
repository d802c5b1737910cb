"""A server that takes conditions and ignores them is refused when it is opened, whatever its kind.

The real servers do keep them, so the condition is taken out of each request on its way: what they
then see is what such a server goes by.  (``test_files`` has a folder without hard links.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

import perkey
from perkey import BackendNotConditional
from perkey.store.backends import dynamodb_items, etcd_messages, nats, redis, redis_scripts
from perkey.store.backends.azure_bucket import AzureBucket
from perkey.store.backends.gcs_bucket import GcsBucket
from perkey.store.backends.redis_client import Script
from perkey.store.backends.s3_bucket import S3Bucket
from tests.backends.kinds import KINDS
from tests.servers.base import Server

Patch = pytest.MonkeyPatch


def _etcd(patch: Patch) -> None:
    right = etcd_messages.writes

    def writes(conditions: Iterable[bytes], *rest: Iterable[bytes]) -> bytes:
        return right([], *rest)

    patch.setattr(etcd_messages, "writes", writes)


def _nats(patch: Patch) -> None:
    patch.setattr(nats, "EXPECTED", "X-Expected")


def _redis(patch: Patch) -> None:
    patch.setattr(redis, "COMMIT", Script(redis_scripts.COMMIT.replace("return 0", "")))


def _dynamodb(patch: Patch) -> None:
    always = {"ConditionExpression": "attribute_exists(p) OR attribute_not_exists(p)"}
    patch.setattr(dynamodb_items, "condition", lambda base: always)


def _bucket(kind: Any) -> Callable[[Patch], None]:
    right = kind._putting

    def putting(self: Any, name: str, data: bytes, condition: str | None) -> Any:
        return right(self, name, data, None)

    return lambda patch: patch.setattr(kind, "_putting", putting)


IGNORING = {
    "azure": _bucket(AzureBucket),
    "dynamodb": _dynamodb,
    "etcd": _etcd,
    "gcs": _bucket(GcsBucket),
    "nats": _nats,
    "objects": _bucket(S3Bucket),
    "redis": _redis,
}
PROBED = sorted(IGNORING.keys() & KINDS.keys())


@pytest.mark.parametrize("kind", PROBED, indirect=True)
def test_a_server_that_ignores_conditions_is_refused(
    server: Server, monkeypatch: Patch, request: pytest.FixtureRequest
) -> None:
    IGNORING[request.node.callspec.params["kind"]](monkeypatch)
    with pytest.raises(BackendNotConditional, match="does not enforce the conditions"):
        perkey.open(server.url)


def test_every_store_that_is_told_conditions_is_here() -> None:
    """PostgreSQL locks what it writes, and a perkey server is known to compare."""
    assert {*KINDS} - {*IGNORING} == {"postgres", "http"}
