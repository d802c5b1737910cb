"""How long one request to a server may take, on every store that has one."""

from __future__ import annotations

import pytest

from perkey.errors import UsageError
from perkey.store.limits import Limits
from perkey.store.url import REQUEST_S, parse

SCHEMES = ["redis", "etcd", "nats", "http", "dynamodb", "s3"]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_it_outlasts_a_machine_that_stands_still_and_never_the_stores_own_time(scheme: str) -> None:
    at = parse(f"{scheme}://h/x")
    assert at.request_s(Limits()) == REQUEST_S > 10
    assert at.request_s(Limits(timeout_s=2)) == 2


def test_the_url_has_the_last_word() -> None:
    assert parse("redis://h/0?timeout=2.5").request_s(Limits()) == 2.5
    assert parse("redis://h/0?timeout=50").request_s(Limits(timeout_s=2)) == 50
    for wrong in ("0", "-1", "3600", "nan", "soon"):
        with pytest.raises(UsageError, match="timeout= in seconds, above 0"):
            parse(f"redis://h/0?timeout={wrong}").request_s(Limits())
