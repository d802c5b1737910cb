"""An engine in memory and one on each store that needs no server; the registry's guard is on."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

import perkey
from perkey.engine import guarded
from perkey.engine.engine import AsyncEngine
from tests.engine.processes import LONG


@pytest.fixture(autouse=True)
def nothing_foreign_under_the_registry_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarded, "DEBUG", True)


@pytest.fixture(autouse=True)
def threads_switch_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest_asyncio.fixture(params=["in memory", "memory store", "sqlite"])
async def engine(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[AsyncEngine]:
    """Not yet run; shut down afterwards."""
    urls = {"memory store": "memory://", "sqlite": f"sqlite:///{tmp_path}/engine.db"}
    url = urls.get(request.param)
    store = None if url is None else await perkey.aopen(url)
    engine = AsyncEngine(store, limits=LONG)
    yield engine
    await engine.shutdown(60)
    if store is not None:
        await store.close()
