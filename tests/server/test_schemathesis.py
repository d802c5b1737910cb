"""The description of the server is true of what it does, whatever is sent (schemathesis)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import Case, GenerationMode
from schemathesis.checks import load_all_checks
from schemathesis.specs.openapi.checks import positive_data_acceptance

from perkey.server.app import routes
from tests.servers.perkey_http import PerkeyHttp

load_all_checks()

PROCESSES = Path(__file__).parent / "hosted.py"

EXAMPLES = 6
APART = ("/v1/events", "/v1/store")
"""A stream that does not end, and messages that are no JSON; they have tests of their own."""
OPERATIONS = [(r.method, r.path) for r in routes() if not r.path.startswith(APART)]


@pytest.fixture(scope="module")
def server() -> Iterator[PerkeyHttp]:
    """A server on a store in memory."""
    with PerkeyHttp("--engine", str(PROCESSES), store="memory://") as server:
        yield server


@pytest.fixture(scope="module")
def schema(server: PerkeyHttp) -> schemathesis.BaseSchema:
    """The server's description, as its users read it."""
    return schemathesis.openapi.from_url(f"{server.url}/openapi.json")


@pytest.mark.parametrize("mode", GenerationMode)
@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_nothing_that_is_sent_breaks_it(
    schema: schemathesis.BaseSchema,
    server: PerkeyHttp,
    method: str,
    path: str,
    mode: GenerationMode,
) -> None:
    """Whatever the description allows, and much that it does not: no error of the server's own,
    no status that is not described, no answer of another type than it says.

    (Whether what is allowed is also accepted depends on what is there: a write may be stale.)
    """
    operation = schema[path][method]
    sent: list[Case] = []

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def send(case: Case) -> None:
        sent.append(case)
        response = case.call(base_url=server.url)
        case.validate_response(response, excluded_checks=[positive_data_acceptance])

    try:
        send()
    except Exception as error:
        if "Unsatisfiable" not in type(error).__name__ or mode is GenerationMode.POSITIVE:
            raise
        return  # an operation without parameters has nothing that could be wrong
    assert sent
