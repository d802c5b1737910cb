"""Object names: their order is the keys', and every server takes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perkey.errors import StoreCorrupt
from perkey.store.backends import object_names as names

texts = st.text(st.sampled_from("\0ab~/é\U0001f600\U0010ffff"), min_size=1, max_size=9)
long = st.builds(lambda a, n, b: a * n + b, texts, st.sampled_from([1, 1, 29, 115, 200]), texts)


def test_two_names() -> None:
    assert names.head("d/report") == "h/d/E9IN0RRIEG"
    assert names.run("d/report", 1, 40).endswith("/000000000000040-000000000000001")


@given(long)
def test_a_name_has_three_parts_that_every_server_takes(key: str) -> None:
    made = names.head(f"d/{key}")
    assert made.count("/") == 2
    assert len(made.rpartition("/")[2]) <= 255
    assert made.isascii()
    assert len(names.runs(f"d/{key}").split("/")[2]) == 52


@given(long)
def test_a_short_name_is_its_key(key: str) -> None:
    found = names.key_of(names.head(f"d/{key}"))
    assert found == (f"d/{key}" if len(key.encode()) <= names.STEM_BYTES else None)


@given(long, long)
def test_different_keys_have_different_names_in_key_order(one: str, other: str) -> None:
    first, second = names.head(f"d/{one}"), names.head(f"d/{other}")
    assert (first == second) == (one == other)
    if names.stem(first) != names.stem(second):  # else only the objects themselves tell
        assert (first < second) == (one.encode() < other.encode())


@given(long, long)
def test_a_prefix_covers_all_its_keys(prefix: str, rest: str) -> None:
    key = f"d/{prefix}{rest}"
    assert names.head(key).startswith(names.under(f"d/{prefix}"))
    assert names.head(key).startswith(names.under("d/"))


@given(long, long)
def test_what_is_above_comes_behind(after: str, key: str) -> None:
    if key.encode() > after.encode():
        assert names.head(f"d/{key}") > names.behind(f"d/{after}")


@given(st.integers(1, 10**14), st.integers(1, 10**6), st.integers(1, 10**14))
def test_a_listing_begins_with_the_run_that_holds_a_version(
    first: int, length: int, version: int
) -> None:
    last = first + length - 1
    name = names.run("d/a", first, last)
    assert names.ends(name) == (first, last)
    assert (name > names.run_at("d/a", version)) == (last >= version)
    assert name.startswith(names.runs("d/a"))


@pytest.mark.parametrize("name", ["h/d/E9!", "h/d/a", "h/d/VVVVVVVV"])
def test_a_foreign_name_is_told(name: str) -> None:
    with pytest.raises(StoreCorrupt, match="no object of a perkey store"):
        names.key_of(name)
