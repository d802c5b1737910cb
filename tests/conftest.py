"""Fixtures that every test can use, and settings for the drawn examples and the explorations."""

from __future__ import annotations

from hypothesis import settings

from perkey.testing import explore, explore_threads, shrink

pytest_plugins = ["tests.servers.fixtures", "pytester"]

# A slow machine is no failure: no drawn example has a deadline,
settings.register_profile("perkey", deadline=None)
settings.load_profile("perkey")

# and what is to be explored, or made small, is so to its end.  pytest's own limit is behind it.
for search in (explore, explore_threads):
    assert search.__kwdefaults__["seconds"] == 60.0
    search.__kwdefaults__["seconds"] = 280.0
shrink.SECONDS = 60.0
