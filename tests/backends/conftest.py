"""Fixtures that run a test once on each kind of store."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import perkey
from perkey import Store
from tests.backends.kinds import ALL, KINDS, Kind
from tests.servers import azure, pgbouncer
from tests.servers.base import Server

# What no package index has; the scripts in tools/ have said so where these are left out.
collect_ignore = [
    *([] if pgbouncer.find() else ["test_pgbouncer.py"]),
    *([] if azure.installed() else ["test_azure.py"]),
]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    """Each kind of store behind a server in turn; a test may ask for ``ALL``."""
    return ALL[request.param]


@pytest.fixture
def server(kind: Kind, request: pytest.FixtureRequest) -> Server:
    """The running server of this kind; not to be stopped."""
    server: Server = request.getfixturevalue(kind.fixture)
    return server


@pytest.fixture
def own_server(kind: Kind) -> Iterator[Server]:
    """A running server of this kind that the test may stop."""
    with kind.own_server() as server:
        yield server


@pytest.fixture
def url(server: Server) -> str:
    """The shared server's URL."""
    return server.url


@pytest.fixture
def empty(kind: Kind, server: Server, request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a store of this kind with nothing in it."""
    if kind.fresh is not None:
        name = "".join(letter for letter in request.node.name if letter.isalnum())
        yield kind.fresh(server.url, name)
        return
    with kind.own_server() as own:
        yield own.url


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    """A store on the shared server."""
    with perkey.open(url) as store:
        yield store


@pytest.fixture
def prefix(request: pytest.FixtureRequest) -> str:
    """What this test's keys begin with: the server is shared."""
    return f"{request.node.name}/"
