"""Every limit and choice of a server: its name, its default, and one place to change it."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, fields

from perkey.errors import UsageError

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Settings:
    """How one server listens and what it puts up with.  Times are in seconds, sizes in bytes."""

    host: str = "127.0.0.1"
    """The address to listen on.  Any other than loopback needs ``tokens``."""
    port: int = 8420
    """The port to listen on; 0 takes a free one."""
    tokens: str | None = None
    """The path of the token file; None lets every local caller do everything."""
    hosts: tuple[str, ...] = ()
    """More names that a ``Host`` header may carry, beside ``host`` and those of loopback."""
    requests: int = 512
    """How many requests may be worked on at a time; beyond it they are answered 503."""
    head_lines: int = 100
    """How many header lines a request may have."""
    head_bytes: int = 64 * 1024
    """How long a request's line and headers may be together."""
    head_s: float = 10.0
    """How long a client may take to send them."""
    body_bytes: int = 32 * MIB
    """How long one request's body may be."""
    bodies_bytes: int = 256 * MIB
    """How much of all bodies together may be in memory; beyond it requests are answered 503."""
    body_s: float = 30.0
    """How long a client may take to send its body."""
    event_clients: int = 256
    """How many event streams may be open at a time."""
    page_streams: int = 64
    """How many open pages are told at once of what happens; the others ask every few seconds."""
    event_send_s: float = 30.0
    """How long one send to an event stream may wait for its reader before it is ended."""
    ping_s: float = 15.0
    """The longest silence of an event stream."""
    spans: bool = False
    """Whether requests and transactions have OpenTelemetry spans, in the program's own provider."""
    stop_s: float = 5.0
    """How long running requests may take to finish once the server is told to stop."""
    engine_stop_s: float = 1.0
    """How long instances may take to stop after that; on a durable store they go on later."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if number and field.name != "port" and not value > 0:
                raise UsageError(f"expected {field.name} above 0, found {value!r}")
        if not 0 <= self.port <= 65_535:
            raise UsageError(f"expected a port from 0 to 65535, found {self.port}")
        if self.tokens is None and not is_loopback(self.host):
            raise UsageError(
                f"{self.host} is not loopback, and without tokens everybody who reaches it could "
                "write; name a token file (perkey token makes one), or listen on 127.0.0.1"
            )

    def knows(self, host: str) -> bool:
        """Whether a ``Host`` header may name ``host`` (without its port).

        A page of another site that had its own name resolve to this address (DNS rebinding)
        is refused by it.  A server with tokens that listens on every address knows all names.
        """
        name = host.lower().rstrip(".")
        if is_loopback(name) or name in (self.host.lower(), *map(str.lower, self.hosts)):
            return True
        everywhere = self.host in ("0.0.0.0", "::", "")
        return everywhere and self.tokens is not None and not self.hosts


def is_loopback(host: str) -> bool:
    """Whether a host name or address stays on this machine."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
