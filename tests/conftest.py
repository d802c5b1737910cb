"""Fixtures that every test can use, and settings for the drawn examples."""

from __future__ import annotations

from hypothesis import settings

pytest_plugins = ["tests.servers.fixtures", "pytester"]

# A slow machine is no failure: no drawn example has a deadline.
settings.register_profile("perkey", deadline=None)
settings.load_profile("perkey")
