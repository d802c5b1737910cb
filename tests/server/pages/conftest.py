"""Fixtures of the pages: what they show, and a Chromium to look at them with."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perkey import AsyncStore
from perkey.server import identity
from perkey.server.app import Application, application
from perkey.server.settings import Settings
from tests.server.client import Client
from tests.server.pages import chromium

# tools/chromium.sh has said that these are left out; where CI is set they fail instead.
collect_ignore = [] if chromium.find() or os.environ.get("CI") else ["test_browser.py"]


class Guarded:
    """A server with tokens: ``boss`` sees all, ``agent`` what begins with ``runs/``."""

    def __init__(self, store: AsyncStore, path: Path) -> None:
        made = {
            "boss": identity.make("boss", "admin", [""]),
            "reader": identity.make("reader", "read", [""]),
            "agent": identity.make("agent", "write", ["runs/"]),
        }
        self.tokens = {name: token for name, (token, _) in made.items()}
        path.write_text("\n".join(entry for _, entry in made.values()))
        self.app: Application = application(store, Settings(host="0.0.0.0", tokens=str(path)))
        self.anybody = Client(self.app)

    def signed_in(self, name: str) -> Client:
        """A browser that has that token in its cookie."""
        return Client(self.app, cookie=f"perkey_token={self.tokens[name]}")


@pytest.fixture
async def guarded(store: AsyncStore, tmp_path: Path) -> Guarded:
    return Guarded(store, tmp_path / "tokens.toml")
