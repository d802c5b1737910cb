"""The suite of every backend, over a real PostgreSQL."""

from __future__ import annotations

import pytest

from perkey.testing.conformance import CHECKS, check_backend
from tests.servers.postgres import Postgres


@pytest.mark.parametrize("name", CHECKS)
def test_postgres(name: str, postgres_server: Postgres) -> None:
    report = check_backend(postgres_server.url, only=[name]).raise_if_failed()
    (result,) = report.results
    assert result.status == "passed"
