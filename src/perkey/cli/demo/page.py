"""The run on its page: a server process beside the workers, that stays when they have ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from types import TracebackType
from typing import Self
from urllib.parse import quote

from perkey.errors import MissingExtra

PORTS = ("8420", "0")
"""The usual one, and where it is taken any that is free."""
NEEDED = ("starlette", "jinja2", "uvicorn")
"""What perkey[server] brings that the server cannot do without."""
END_S = 10.0
"""How long the server may take to end, in seconds."""


def path(board: str) -> str:
    """The path of a run's page; ``board`` is the run's key."""
    return f"/ui/run?run={quote(board, safe='')}"


def check() -> None:
    """``MissingExtra`` where no server can be started; without importing one."""
    for package in NEEDED:
        if find_spec(package) is None:
            raise MissingExtra(
                f"perkey demo --serve needs the package {package!r}; install it with: "
                "pip install 'perkey[server]'"
            )


class Page:
    """A server on the demo's store, if one is wanted; ``with`` ends it.

    The store's URL goes through the environment: an argument could be read by everyone on the
    machine.
    """

    def __init__(self, url: str, *, wanted: bool) -> None:
        self._process: subprocess.Popen[str] | None = None
        self.address = ""
        """Empty where no server is up."""
        for port in PORTS if wanted else ():
            if self._start(url, port):
                return

    def _start(self, url: str, port: str) -> bool:
        process = subprocess.Popen(
            [sys.executable, "-m", "perkey", "serve", "--port", port, "--json"],
            env={**os.environ, "PERKEY_STORE": url},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert process.stdout is not None
        self._process = process
        try:
            line = process.stdout.readline()
            self.address = json.loads(line)["url"] if line else ""
        except BaseException:
            self._end()
            raise
        if not self.address:
            self._end()
        return bool(self.address)

    def stay(self) -> None:
        """Serve until Ctrl-C, or until the server is told to end."""
        if self._process is None:
            return
        try:
            self._process.wait()
        except KeyboardInterrupt:
            pass  # what was waited for: it ends the page, and the demo has succeeded before

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()
