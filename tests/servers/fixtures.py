"""One server of each kind per test process, started by the first test that asks for it.

Under xdist every worker has its own; nothing is shared, so nothing has to be coordinated.
A test that stops, kills or pauses a server starts one of its own instead (``with Postgres()``).
The servers' packages are imported by the fixtures, so that other tests do without them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.servers.azure import Azure
    from tests.servers.disk import Files, Sqlite
    from tests.servers.dynamodb import DynamoDB
    from tests.servers.etcd import Etcd
    from tests.servers.gcs import Gcs
    from tests.servers.nats import Nats
    from tests.servers.objects import Objects
    from tests.servers.perkey_http import PerkeyHttp
    from tests.servers.postgres import Postgres
    from tests.servers.valkey import Valkey


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """A running PostgreSQL."""
    from tests.servers.postgres import Postgres

    with Postgres() as server:
        yield server


@pytest.fixture(scope="session")
def valkey_server() -> Iterator[Valkey]:
    """A running Valkey with ``appendfsync always``."""
    from tests.servers.valkey import Valkey

    with Valkey() as server:
        yield server


@pytest.fixture(scope="session")
def etcd_server() -> Iterator[Etcd]:
    """A running etcd."""
    from tests.servers.etcd import Etcd

    with Etcd() as server:
        yield server


@pytest.fixture(scope="session")
def nats_server() -> Iterator[Nats]:
    """A running NATS with JetStream."""
    from tests.servers.nats import Nats

    with Nats() as server:
        yield server


@pytest.fixture(scope="session")
def objects_server() -> Iterator[Objects]:
    """A running SeaweedFS with the bucket ``perkey``."""
    from tests.servers.objects import Objects

    with Objects() as server:
        yield server


@pytest.fixture(scope="session")
def gcs_server() -> Iterator[Gcs]:
    """A running fake-gcs-server with the bucket ``perkey``, all in memory."""
    from tests.servers.gcs import GcsInMemory

    with GcsInMemory() as server:
        yield server


@pytest.fixture(scope="session")
def azure_server() -> Iterator[Azure]:
    """A running Azurite with the container ``perkey``."""
    from tests.servers.azure import Azure

    with Azure() as server:
        yield server


@pytest.fixture(scope="session")
def dynamodb_server() -> Iterator[DynamoDB]:
    """A running moto: DynamoDB, and an S3 that does not check signatures."""
    from tests.servers.dynamodb import DynamoDB

    with DynamoDB() as server:
        yield server


@pytest.fixture(scope="session")
def perkey_server() -> Iterator[PerkeyHttp]:
    """A running ``perkey serve``."""
    from tests.servers.perkey_http import PerkeyHttp

    with PerkeyHttp() as server:
        yield server


@pytest.fixture(scope="session")
def files_place() -> Iterator[Files]:
    """A folder for a store of files."""
    from tests.servers.disk import Files

    with Files() as place:
        yield place


@pytest.fixture(scope="session")
def sqlite_place() -> Iterator[Sqlite]:
    """A folder for a SQLite file."""
    from tests.servers.disk import Sqlite

    with Sqlite() as place:
        yield place
