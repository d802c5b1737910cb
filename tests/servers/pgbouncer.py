"""pgbouncer in transaction mode before a PostgreSQL, from Debian's package."""

from __future__ import annotations

import os
import shutil
import signal
from typing import Any

from tests.servers import base
from tests.servers.postgres import answers_login, unprivileged

SESSIONS = 3
"""How many of the server's sessions its clients share."""


def find() -> str | None:
    """Where pgbouncer is, or None; a user's path often leaves the folder for servers out."""
    return shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


class PgBouncer(base.Server):
    """``with PgBouncer(postgres.port) as pooler: perkey.open(pooler.url)``"""

    name = "pgbouncer"
    stop_signal = signal.SIGKILL
    """It keeps nothing.  At SIGINT newer ones wait until all clients have left, and SIGQUIT is
    ignored by whatever a shell without job control has started in the background."""

    def __init__(self, upstream: int) -> None:
        super().__init__()
        self.upstream = upstream

    @property
    def url(self) -> str:
        return f"postgresql://perkey@{base.HOST}:{self.port}/postgres"

    @staticmethod
    def version() -> str:
        return base.output_of(_program(), "--version").splitlines()[0]

    def popen_options(self) -> dict[str, Any]:
        return unprivileged()

    def prepare(self) -> None:
        config = f"""
            [databases]
            * = host={base.HOST} port={self.upstream} user=perkey
            [pgbouncer]
            listen_addr = {base.HOST}
            listen_port = {self.port}
            unix_socket_dir =
            auth_type = any
            pool_mode = transaction
            default_pool_size = {SESSIONS}
        """
        path = self.directory / "pgbouncer.ini"
        path.write_text("\n".join(line.strip() for line in config.splitlines()))
        path.chmod(0o644)
        self.directory.chmod(0o755)

    def command(self) -> list[str]:
        return [_program(), str(self.directory / "pgbouncer.ini")]

    def ready(self) -> bool:
        """It lets somebody in, which takes a session with the server."""
        return answers_login(self.port)


def _program() -> str:
    found = find()
    assert found is not None, "pgbouncer is not installed: apt-get install pgbouncer"
    return found
