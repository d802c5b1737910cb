"""Which stores a URL may name, and what is said of those that it may not."""

from __future__ import annotations

import pytest

import perkey
from perkey.clock import SYSTEM
from perkey.errors import UsageError
from perkey.store.limits import Limits
from perkey.store.url import BACKENDS, SPELT, open_backend


@pytest.mark.parametrize(
    ("scheme", "expected"),
    [
        ("gcs", "gs://bucket/prefix"),
        ("azure", "az://account@container/prefix"),
        ("abfs", "az://account@container/prefix"),
        ("abfss", "az://account@container/prefix"),
        ("wasb", "az://account@container/prefix"),
        ("wasbs", "az://account@container/prefix"),
    ],
)
def test_another_spelling_is_told_the_right_one(scheme: str, expected: str) -> None:
    with pytest.raises(UsageError) as caught:
        perkey.open(f"{scheme}://user:s3cr3t@bucket/prefix")
    assert str(caught.value) == f"no store is called {scheme}://; say {expected}"
    assert scheme in SPELT


def test_an_unknown_store_is_told_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"no store is called ftp://; known are .*file://.*s3://"):
        open_backend("ftp://host", Limits(), SYSTEM)


def test_no_scheme_is_both() -> None:
    assert not BACKENDS.keys() & SPELT.keys()


@pytest.mark.parametrize("url", ["work.db", "", "sqlite:/x", None, 7])
def test_what_is_no_url_is_told_what_one_is(url: object) -> None:
    with pytest.raises(UsageError, match="expected a store URL like sqlite:///"):
        open_backend(url, Limits(), SYSTEM)  # type: ignore[arg-type]


def test_a_part_of_a_url_that_nobody_reads_is_refused() -> None:
    with pytest.raises(UsageError, match="write %23"):
        open_backend("sqlite:///a#b", Limits(), SYSTEM)
    with pytest.raises(UsageError, match="cannot be read"):
        open_backend("redis://host:port/0", Limits(), SYSTEM)


@pytest.mark.parametrize("url", ["az://acc:YWJj@box", "gs://token:T@box", "s3://k:s@box"])
def test_an_option_that_nobody_reads_is_told_the_known_ones(url: str) -> None:
    scheme = url.partition(":")[0]
    with pytest.raises(UsageError, match=f"^{scheme}:// has no option 'foo'; it knows .*endpoint"):
        perkey.open(f"{url}/x?foo=1")
