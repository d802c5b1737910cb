"""The stores, and what the tests must know of each.

A new one behind a server needs an entry in ``KINDS``, and its fixture in
``tests/servers/fixtures.py``; all tests of this directory then run on it.  Those in ``LOCAL`` are
files of this machine: they meet the tests that need no server between.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import import_module

import pytest

from perkey.clock import SYSTEM
from perkey.store.abc import Backend
from perkey.store.backends.bucket import Bucket
from perkey.store.limits import Limits
from perkey.store.url import Location, open_backend, parse
from tests.servers import azure
from tests.servers.base import Server

Source = str | Callable[[Limits], Backend]


def _any(request: bytes) -> bool:
    return True


def _named(url: str, name: str) -> str:
    return f"{url}?name={name}"


@dataclass(frozen=True)
class Kind:
    """One sort of server."""

    program: str
    """``module:Class`` of a server of one's own, for tests that stop it."""
    fixture: str
    """The fixture of the server that tests share."""
    several_keys: bool = True
    """Whether one transaction may span keys."""
    locks: bool = False
    """Whether a transaction waits for others on its keys, rather than run again."""
    survives_kill: bool = True
    """Whether what was acknowledged outlives a killed server."""
    callers: int = 1
    """How many threads of a process share its commits: more where each commit takes long."""
    pace: float = 1.0
    """How much of everything else a process does: less where each commit takes long."""
    is_write: Callable[[bytes], bool] = _any
    """Which requests the proxy tampers with, by their first 64 KiB."""
    plain: str = ""
    """What a URL needs so that the proxy can tell which requests those are."""
    fresh: Callable[[str, str], str] | None = _named
    """From the server's URL and a name to the URL of an empty store on it; None where a server
    has one store only."""

    def own_server(self) -> Server:
        """A server that nobody else uses; not started."""
        module, _, name = self.program.partition(":")
        server: Server = getattr(import_module(f"tests.servers.{module}"), name)()
        return server

    def source(self, server: Server, stack: ExitStack) -> Source:
        """What the conformance suite opens; ``stack`` ends what it had to start."""
        return server.url


PROBED: set[str] = set()
"""Stores that were opened once in the ordinary way."""


class UnprobedKind(Kind):
    """Asked only once whether conditions are enforced, which takes long here."""

    def source(self, server: Server, stack: ExitStack) -> Source:
        def opened(limits: Limits) -> Backend:
            if server.url not in PROBED:
                open_backend(server.url, limits, SYSTEM).close()
                PROBED.add(server.url)
            return _unprobed(parse(server.url), limits)

        return opened


class ServedKind(Kind):
    """A server with limits of its own: what it keeps is not for its clients to say."""

    def source(self, server: Server, stack: ExitStack) -> Source:
        def opened(limits: Limits) -> Backend:
            return open_backend(served(limits), limits, SYSTEM)

        def served(limits: Limits) -> str:
            from tests.servers.perkey_http import PerkeyHttp

            options = ["--keep-versions", str(limits.keep_versions)]
            if limits.keep_s is not None:
                options += ["--keep-seconds", str(limits.keep_s)]
            if (limits.keep_versions, limits.keep_s) == (Limits().keep_versions, None):
                return server.url
            return stack.enter_context(PerkeyHttp(*options)).url

        return opened


def _http_write(request: bytes) -> bool:
    return request.startswith(b"POST /v1/store/commit ")


def _redis_write(request: bytes) -> bool:
    from perkey.store.backends.redis import COMMIT

    return COMMIT.digest.encode() in request


def _nats_write(request: bytes) -> bool:
    return b"Nats-Expected-Last-Subject-Sequence" in request


def _etcd_write(request: bytes) -> bool:
    return b"\x10\x02\x1a" in request  # a condition: on the revision, of a key


def _postgres_write(request: bytes) -> bool:
    return b"COMMIT" in request


def _postgres_database(url: str, name: str) -> str:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"'.encode())
    return f"{url.rpartition('/')[0]}/{name}"


def _put_if(request: bytes) -> bool:
    return request.startswith(b"PUT") and b"\r\nif-" in request


def _another_prefix(url: str, name: str) -> str:
    return url.replace("/tests?", f"/{name}?")


def _dynamodb_write(request: bytes) -> bool:
    return b"DynamoDB_20120810.TransactWriteItems" in request or b"DynamoDB_20120810.Put" in request


def _dynamodb_table(url: str, name: str) -> str:
    return url.replace("@perkey?", f"@{name}?")


def _gcs_write(request: bytes) -> bool:
    return b"ifGenerationMatch=" in request.partition(b"\r\n")[0]


def bucket_of(location: Location, limits: Limits) -> Bucket:
    """The bucket that a URL names, with nothing asked of it yet."""
    if location.scheme == "s3":
        from perkey.store.backends.s3_bucket import S3Bucket

        return S3Bucket(location, limits, SYSTEM)
    if location.scheme == "gs":
        from perkey.store.backends.gcs_bucket import GcsBucket

        return GcsBucket(location, limits, SYSTEM)
    from perkey.store.backends.azure_bucket import AzureBucket

    return AzureBucket(location, limits, SYSTEM)


def _unprobed(location: Location, limits: Limits) -> Backend:
    if location.scheme != "dynamodb":
        from perkey.store.backends.objects import ObjectsBackend

        return ObjectsBackend(bucket_of(location, limits), limits, SYSTEM)
    from perkey.store.backends.dynamodb import DynamoDBBackend
    from perkey.store.backends.dynamodb_client import Client

    return DynamoDBBackend(Client(location, limits, SYSTEM), limits, SYSTEM)


def _bucket(
    program: str,
    fixture: str,
    is_write: Callable[[bytes], bool],
    *,
    survives_kill: bool = True,
    callers: int = 10,
    pace: float = 0.4,
) -> Kind:
    """Records in a bucket, whoever keeps it."""
    return UnprobedKind(
        program,
        fixture,
        several_keys=False,
        survives_kill=survives_kill,
        callers=callers,
        pace=pace,
        is_write=is_write,
        fresh=_another_prefix,
    )


# tools/azurite.sh has said so where it is left out, which in CI it may not be.
_AZURE = (
    {
        "azure": _bucket(
            "azure:Azure", "azure_server", _put_if, survives_kill=False, callers=50, pace=0.1
        )
    }
    if azure.installed()
    else {}
)
KINDS = {
    **_AZURE,
    "dynamodb": UnprobedKind(
        "dynamodb:DynamoDB",
        "dynamodb_server",
        survives_kill=False,
        callers=10,
        pace=0.4,
        is_write=_dynamodb_write,
        fresh=_dynamodb_table,
    ),
    "etcd": Kind("etcd:Etcd", "etcd_server", is_write=_etcd_write),
    "gcs": _bucket("gcs:Gcs", "gcs_server", _gcs_write, callers=50, pace=0.1),
    "http": ServedKind(
        "perkey_http:PerkeyHttp",
        "perkey_server",
        callers=10,
        pace=0.4,
        is_write=_http_write,
        fresh=None,
    ),
    "nats": Kind("nats:Nats", "nats_server", is_write=_nats_write),
    "objects": _bucket("objects:Objects", "objects_server", _put_if),
    "postgres": Kind(
        "postgres:Postgres",
        "postgres_server",
        locks=True,
        is_write=_postgres_write,
        plain="?prepare=no",
        fresh=_postgres_database,
    ),
    "redis": Kind("valkey:Valkey", "valkey_server", is_write=_redis_write),
}

LOCAL = {
    "files": Kind(
        "disk:Files", "files_place", several_keys=False, callers=10, pace=0.4, fresh=None
    ),
    "sqlite": Kind("disk:Sqlite", "sqlite_place", locks=True, callers=10, fresh=None),
}
ALL = {**KINDS, **LOCAL}
everywhere = pytest.mark.parametrize("kind", ALL, indirect=True)
"""For a test that needs no server between."""
