"""What ``Once`` is told must mean something, or nothing runs and nothing is stored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import perkey
from perkey import Once, Store, UsageError

NAN, INF = float("nan"), float("inf")


@pytest.fixture
def store() -> Iterator[Store]:
    with perkey.open("memory://") as store:
        yield store


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        *(("lease", bad) for bad in (NAN, INF, 0, -1, True, "5", None)),
        *(("wait", bad) for bad in (NAN, INF, -1, True, "5", None)),
        *(("keep", bad) for bad in (NAN, INF, 0, -1, True, "5")),
        *(("remember", bad) for bad in (ValueError, [ValueError], (5,), (BaseException,))),
        *(("by", bad) for bad in (5, None, "x" * 201)),
    ],
)
def test_an_option_that_means_nothing_is_refused_by_name(store: Store, name: str, bad: Any) -> None:
    ran: list[object] = []
    with pytest.raises(UsageError, match=f"expected {name}="):
        Once(store).run("k", None, ran.append, **{name: bad})
    assert ran == []
    # The key is free: nothing was claimed.
    assert Once(store).run("k", None, lambda context: 1).replayed is False


@pytest.mark.parametrize("bad", [NAN, INF, 0, -5, True, "x"])
def test_how_long_an_answer_is_kept_is_seconds(store: Store, bad: Any) -> None:
    with pytest.raises(UsageError, match="expected keep= as seconds, above 0"):
        Once(store).transact("k", "a", lambda tx: 1, keep=bad)
    assert Once(store).transact("k", "a", lambda tx: 1, keep=60).replayed is False


@pytest.mark.parametrize("bad", [NAN, INF, -1, True, "x", None])
def test_an_age_is_seconds(store: Store, bad: Any) -> None:
    with pytest.raises(UsageError, match="expected older_than= as seconds, 0 or more"):
        Once(store).unresolved(older_than=bad)


@pytest.mark.parametrize("bad", [0, -1, 0.5, True, "x", None])
def test_a_limit_is_a_whole_number(store: Store, bad: Any) -> None:
    with pytest.raises(UsageError, match="expected limit= as a whole number from 1 up"):
        Once(store).unresolved(limit=bad)
    assert Once(store).unresolved(older_than=0, limit=1) == []
