"""The parsed repository is kept for the tests of this folder only."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.tidy import repo


@pytest.fixture(scope="package", autouse=True)
def what_was_parsed_is_dropped_at_the_end() -> Iterator[None]:
    """Else the collector would walk through it again and again for every later test."""
    yield
    repo.sources.cache_clear()
    repo.parse.cache_clear()
