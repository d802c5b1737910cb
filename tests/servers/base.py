"""What every server has in common: ports, a data directory, a log, and a life by pid."""

from __future__ import annotations

import http.client
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

import psutil

from tests.servers import guard

HOST = "127.0.0.1"
START_SECONDS = 60.0
STOP_SECONDS = 60.0
ANSWER_SECONDS = 60.0
"""How long an answer may take; what asks whether a server is ready yet asks again sooner."""
PROBE_SECONDS = 2.0
POLL_SECONDS = 0.02
STANDING = (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE)


class ServerFailed(RuntimeError):
    """A server did not start or stop; the message ends with the tail of its log."""


class Server(ABC):
    """One server process with its own ports and data directory.

    ``start`` returns the URL once the server answers; ``restart`` and ``kill`` followed by
    ``start`` keep ports and data; ``stop`` keeps the data too, ``close`` removes it.
    """

    name: ClassVar[str]
    ports_needed: ClassVar[int] = 1
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix=f"perkey-{self.name}-"))
        self.ports: list[int] = []
        self.started_in = 0.0
        self._process: subprocess.Popen[bytes] | None = None

    # ---------------------------------------------------------------- for each server

    @abstractmethod
    def command(self) -> list[str]:
        """The command line; called once the ports are known."""

    def prepare(self) -> None:
        """Make the data directory ready; called before each start, so it must be idempotent."""
        (self.directory / "data").mkdir(mode=0o700, exist_ok=True)

    @abstractmethod
    def ready(self) -> bool:
        """True when the server answers; OSError counts as "not yet"."""

    @property
    @abstractmethod
    def url(self) -> str:
        """What ``perkey.open`` takes."""

    @staticmethod
    @abstractmethod
    def version() -> str:
        """The server's own words."""

    def popen_options(self) -> dict[str, Any]:
        """More arguments for ``subprocess.Popen``."""
        return {}

    # ------------------------------------------------------------------------- life

    @property
    def port(self) -> int:
        """The port that clients connect to."""
        return self.ports[0]

    @property
    def pid(self) -> int:
        """The pid of the running server."""
        assert self._process is not None, f"{self.name} is not running"
        return self._process.pid

    @property
    def log(self) -> Path:
        """Everything the server printed, over all its starts."""
        return self.directory / "server.log"

    def start(self) -> str:
        """Start and wait until it answers; a port lost in a race is replaced, at first start."""
        assert self._process is None, f"{self.name} is running"
        attempts = 1 if self.ports else 3
        for attempt in range(attempts):
            if attempts > 1:
                self.ports = free_ports(self.ports_needed)
            try:
                began = time.monotonic()
                self._launch()
                self._wait_ready()
                self.started_in = time.monotonic() - began
                return self.url
            except ServerFailed:
                self.kill()
                if attempt == attempts - 1:
                    raise
        raise AssertionError("unreachable")

    def stop(self) -> None:
        """Ask it to end, wait, and kill it if it does not; the data stays."""
        if self._process is None:
            return
        self.resume()
        self._process.send_signal(self.stop_signal)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ServerFailed(f"{self.name} did not stop\n{self.log_tail()}") from None
        self._gone()

    def kill(self) -> None:
        """SIGKILL the server and its children, as a crash would; the data stays."""
        if self._process is None:
            return
        victims = guard.tree(self._process.pid)
        guard.kill_tree(self._process.pid)
        self._process.wait(STOP_SECONDS)
        psutil.wait_procs(victims, timeout=STOP_SECONDS)
        self._gone()

    def restart(self) -> str:
        """Stop and start on the same ports and data."""
        self.stop()
        return self.start()

    def pause(self) -> None:
        """SIGSTOP the server and its children: connections stay open, nothing answers.

        Returns once all of them stand still, those too that were born meanwhile.
        """
        deadline = time.monotonic() + STOP_SECONDS
        while not self._signal(signal.SIGSTOP):
            if time.monotonic() > deadline:
                raise ServerFailed(f"{self.name} does not pause")
            time.sleep(POLL_SECONDS)

    def resume(self) -> None:
        """SIGCONT what ``pause`` stopped."""
        self._signal(signal.SIGCONT)

    def close(self) -> None:
        """Stop, and remove the data directory."""
        try:
            self.stop()
        finally:
            shutil.rmtree(self.directory, ignore_errors=True)

    def log_tail(self, lines: int = 40) -> str:
        """The last lines of the log."""
        try:
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        except FileNotFoundError:
            return "(no log)"

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _launch(self) -> None:
        self.prepare()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.directory,
                start_new_session=True,
                **self.popen_options(),
            )
        guard.watch(self._process.pid, self.directory)

    def _wait_ready(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            code = self._process.poll()
            if code is not None:
                raise ServerFailed(f"{self.name} ended with {code}\n{self.log_tail()}")
            try:
                if self.ready():
                    return
            except (OSError, http.client.HTTPException):
                pass
            time.sleep(POLL_SECONDS)
        raise ServerFailed(f"{self.name} does not answer\n{self.log_tail()}")

    def _signal(self, number: signal.Signals) -> bool:
        """Signal the server and its children; True if all of them stood still before."""
        still = True
        for process in guard.tree(self.pid):
            try:
                still = process.status() in STANDING and still
                process.send_signal(number)
            except psutil.NoSuchProcess:
                continue
        return still

    def _gone(self) -> None:
        assert self._process is not None
        guard.unwatch(self._process.pid, self.directory)
        self._process = None


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, below the ephemeral range.

    An ephemeral port could be taken by an outgoing connection while its server is down for a
    restart.
    """
    low, high = 15_000, _ephemeral_start()
    chosen: list[int] = []
    while len(chosen) < count:
        port = random.SystemRandom().randrange(low, high)
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
        if port not in chosen:
            chosen.append(port)
    return chosen


def _ephemeral_start() -> int:
    try:
        low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except OSError:
        low = 32_768
    return low if low > 16_000 else 32_768


def http_get(port: int, path: str, timeout: float = ANSWER_SECONDS) -> tuple[int, bytes]:
    """One GET on loopback: status and body."""
    connection = http.client.HTTPConnection(HOST, port, timeout=timeout)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def ask(port: int, question: bytes) -> bytes:
    """Connect, send, and return the first bytes of the answer."""
    with socket.create_connection((HOST, port), timeout=PROBE_SECONDS) as connection:
        if question:
            connection.sendall(question)
        return connection.recv(65_536)


def output_of(*command: str | os.PathLike[str]) -> str:
    """The first line that a command prints."""
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=ANSWER_SECONDS
    )
    return (done.stdout or done.stderr).strip().splitlines()[0]
