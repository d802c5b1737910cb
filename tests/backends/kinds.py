"""The stores behind a server, and what the tests must know of each.

A new one needs an entry here, and its fixture in ``tests/servers/fixtures.py``; all tests of
this directory then run on it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from tests.servers.base import Server


def _any(request: bytes) -> bool:
    return True


@dataclass(frozen=True)
class Kind:
    """One sort of server."""

    program: str
    """``module:Class`` of a server of one's own, for tests that stop it."""
    fixture: str
    """The fixture of the server that tests share."""
    several_keys: bool = True
    """Whether one transaction may span keys."""
    locks: bool = False
    """Whether a transaction waits for others on its keys, rather than run again."""
    survives_kill: bool = True
    """Whether what was acknowledged outlives a killed server."""
    is_write: Callable[[bytes], bool] = _any
    """Which requests the proxy tampers with, by their first 64 KiB."""

    def own_server(self) -> Server:
        """A server that nobody else uses; not started."""
        module, _, name = self.program.partition(":")
        server: Server = getattr(import_module(f"tests.servers.{module}"), name)()
        return server


def _redis_write(request: bytes) -> bool:
    from perkey.store.backends.redis import COMMIT

    return COMMIT.digest.encode() in request


def _nats_write(request: bytes) -> bool:
    return b"Nats-Expected-Last-Subject-Sequence" in request


def _etcd_write(request: bytes) -> bool:
    return b"\x10\x02\x1a" in request  # a condition: on the revision, of a key


KINDS = {
    "etcd": Kind("etcd:Etcd", "etcd_server", is_write=_etcd_write),
    "nats": Kind("nats:Nats", "nats_server", is_write=_nats_write),
    "redis": Kind("valkey:Valkey", "valkey_server", is_write=_redis_write),
}
