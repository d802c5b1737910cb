"""Limits: each is a whole number or seconds, checked before anything is opened."""

from __future__ import annotations

import asyncio
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

import perkey
from perkey import Limits, UsageError
from perkey.testing import FaultyStore

COUNTS = [field.name for field in fields(Limits) if not field.name.endswith("_s")]
SECONDS = [field.name for field in fields(Limits) if field.name.endswith("_s")]


def test_each_limit_is_of_one_of_the_two_kinds() -> None:
    assert COUNTS == [
        "value_bytes",
        "transaction_keys",
        "batch",
        "queue",
        "attempts",
        "doubt_attempts",
        "keep_versions",
    ]
    assert SECONDS == ["backoff_s", "timeout_s", "slow_fn_s", "keep_s"]


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("bad", [0.5, 2.0, 0, -1, True, "7", None, 2**63, float("inf")])
def test_a_count_is_a_whole_number(name: str, bad: Any) -> None:
    with pytest.raises(UsageError, match=f"expected {name} as a whole number above 0, found"):
        Limits(**{name: bad})
    with pytest.raises(UsageError, match=name):
        replace(Limits(), **{name: bad})


@pytest.mark.parametrize("name", SECONDS)
@pytest.mark.parametrize("bad", [0, -1, True, "7", float("inf"), float("nan"), 1e10, 10**400])
def test_a_time_is_seconds(name: str, bad: Any) -> None:
    with pytest.raises(UsageError, match=f"expected {name} as seconds above 0"):
        Limits(**{name: bad})


def test_good_limits_pass() -> None:
    assert Limits(**dict.fromkeys(COUNTS, 1)).batch == 1
    assert Limits(**dict.fromkeys(COUNTS, 2**63 - 1)).batch == 2**63 - 1
    assert Limits(**dict.fromkeys(SECONDS, 1e9)).timeout_s == 1e9
    assert Limits(keep_s=None, timeout_s=1).keep_s is None
    with pytest.raises(TypeError, match="watch_queue"):  # nobody ever read it
        Limits(watch_queue=1)  # type: ignore[call-arg]


@pytest.mark.parametrize("bad", ["x", {}, 0, False, {"batch": 1}, Limits])
def test_limits_are_limits(tmp_path: Path, bad: Any) -> None:
    url = f"sqlite:///{tmp_path}/s.db"
    with pytest.raises(UsageError, match=r"expected limits= as perkey\.Limits"):
        perkey.open(url, limits=bad)
    with pytest.raises(UsageError, match=r"expected limits= as perkey\.Limits"):
        asyncio.run(perkey.aopen(url, limits=bad))
    with pytest.raises(UsageError, match=r"expected limits= as perkey\.Limits"):
        FaultyStore(url, limits=bad)
    assert not (tmp_path / "s.db").exists()


def test_the_other_options_are_checked_too(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/s.db"
    with pytest.raises(UsageError, match="strict= as True or False"):
        perkey.open(url, strict="no")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="observers= as a list"):
        perkey.open(url, observers=print)  # type: ignore[arg-type]
    assert not (tmp_path / "s.db").exists()


@pytest.mark.parametrize("bad", ["nan", "inf", "-1", "soon", "1e10"])
def test_a_busy_timeout_is_seconds(tmp_path: Path, bad: str) -> None:
    with pytest.raises(UsageError, match="busy_timeout= in seconds"):
        perkey.open(f"sqlite:///{tmp_path}/s.db?busy_timeout={bad}")


@pytest.mark.parametrize("url", ["memory://", "sqlite:///"])
def test_the_largest_limits_work(tmp_path: Path, url: str) -> None:
    place = url if url == "memory://" else f"{url}{tmp_path}/s.db"
    limits = Limits(**dict.fromkeys(COUNTS, 2**63 - 1), **dict.fromkeys(SECONDS, 1e9))
    with perkey.open(place, limits=limits) as store:
        store.put("a", 1, create=True)
        assert store.put("a", 2, if_match=1, timeout=float("inf")).version == 2
        assert [each.version for each in store.history("a")] == [1, 2]
