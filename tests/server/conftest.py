"""Fixtures: a server in this process on a fresh store."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

import perkey
from perkey import AsyncStore
from perkey.server.app import application
from tests.server.client import Client


@pytest.fixture
async def store() -> AsyncIterator[AsyncStore]:
    """A store in memory."""
    async with await perkey.aopen("memory://") as store:
        yield store


@pytest.fixture
async def client(store: AsyncStore) -> Client:
    """A local caller of a server without tokens."""
    return Client(application(store))
