"""Stores that are files of this machine, where tests expect a server: there is nothing to start."""

from __future__ import annotations

import perkey
from tests.servers import base


class Disk(base.Server):
    """A folder of its own."""

    @staticmethod
    def version() -> str:
        return perkey.__version__

    def command(self) -> list[str]:
        raise AssertionError("there is no program")

    def ready(self) -> bool:
        return True

    def start(self) -> str:
        self.prepare()
        return self.url


class Files(Disk):
    """A file a version."""

    name = "files"

    @property
    def url(self) -> str:
        return f"file://{self.directory}/data/store"


class Sqlite(Disk):
    """One database file."""

    name = "sqlite"

    @property
    def url(self) -> str:
        return f"sqlite:///{self.directory}/data/store.db"
