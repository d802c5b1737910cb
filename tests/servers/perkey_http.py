"""``perkey serve`` itself, on a SQLite file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import perkey
from tests.servers import base

SOURCE = Path(perkey.__file__).resolve().parents[1]


class PerkeyHttp(base.Server):
    """One server process, as ``perkey serve`` starts it; ``options`` go on its command line."""

    name = "perkey"

    def __init__(self, *options: str, store: str = "") -> None:
        super().__init__()
        self.options = options
        self.store = store or f"sqlite:///{self.directory}/data/store.db"

    @property
    def url(self) -> str:
        return f"http://{base.HOST}:{self.port}"

    @staticmethod
    def version() -> str:
        return perkey.__version__

    def command(self) -> list[str]:
        program = [sys.executable, "-W", "error", "-m", "perkey.cli", "serve", self.store]
        return [*program, "--port", str(self.port), *self.options]

    def popen_options(self) -> dict[str, Any]:
        return {"env": {"PYTHONPATH": str(SOURCE), "PATH": "/usr/bin:/bin"}}

    def ready(self) -> bool:
        """Its store answers, too."""
        status, _ = base.http_get(self.port, "/readyz", base.PROBE_SECONDS)
        return status == 200
