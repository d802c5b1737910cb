"""The redis-py client, set up so that nothing is ever sent twice behind our back."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import redis
from redis import exceptions
from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.retry import Retry

from perkey.errors import UsageError
from perkey.store.limits import Limits
from perkey.store.url import Location

T = TypeVar("T")

OPTIONS = {"name", "timeout", "cluster", "ca", "cert", "key", "verify"}
"""``name`` tells stores on one server apart; ``timeout`` in seconds; ``cluster=yes``; ``ca``,
``cert`` and ``key`` are PEM files and ``verify=no`` trusts any certificate, with TLS."""

REFUSED = (
    exceptions.ResponseError,
    exceptions.AuthenticationError,
    exceptions.BusyLoadingError,
    exceptions.ClusterError,
    exceptions.MaxConnectionsError,
)
"""The server answered, and the script wrote nothing: it fails on its first write if at all."""

ALWAYS = "flushed to the server's disk before the call returns; a failover may lose the last ones"
EVERYSEC = "NOT flushed at once: a crash of the server may lose the last second"
NEVER = "NOT flushed: a crash of the server may lose what the system had not written yet"
NONE = "NOT kept on disk beyond snapshots: a crash of the server loses acknowledged writes"
UNKNOWN = "unknown: the server does not tell its configuration"


_EMPTY = ("unknown", "never")
"""What an empty answer means; no points at which to save is one."""


class Script:
    """Lua that is sent once and called by its digest."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.digest = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()

    def run(self, client: Any, keys: Sequence[Any], arguments: Sequence[Any] = ()) -> Any:
        """Call it; the source is sent where the server says that it does not know it."""
        try:
            return client.execute_command("EVALSHA", self.digest, len(keys), *keys, *arguments)
        except exceptions.NoScriptError:
            return client.execute_command("EVAL", self.source, len(keys), *keys, *arguments)


def connect(location: Location, limits: Limits) -> Any:
    """A client that raises instead of sending a command again."""
    seconds = location.request_s(limits)
    settings: dict[str, Any] = {
        "host": location.host or "localhost",
        "port": location.port or 6379,
        "username": location.user or None,
        "password": location.password,
        "socket_timeout": seconds,
        "socket_connect_timeout": seconds,
        "socket_keepalive": True,
        "protocol": 2,
        "client_name": "perkey",
        "retry": Retry(NoBackoff(), 0),
        **_tls(location),
    }
    if location.option("cluster", ("yes", "no"), "no") == "yes":
        return RedisCluster(**settings)
    return redis.Redis(db=_database(location), retry_on_error=[], max_connections=4, **settings)


def _database(location: Location) -> int:
    if not location.path:
        return 0
    if not location.path.isdecimal():
        raise UsageError(f"expected the number of a database in the URL, found {location.path!r}")
    return int(location.path)


def _tls(location: Location) -> dict[str, Any]:
    names = {"ca": "ssl_ca_certs", "cert": "ssl_certfile", "key": "ssl_keyfile"}
    given = {names[name]: location.options[name] for name in names if name in location.options}
    trusting = location.option("verify", ("yes", "no"), "yes") == "no"
    if location.scheme not in ("rediss", "valkeys"):
        if given or trusting:
            raise UsageError("ca, cert, key and verify in the URL need rediss:// (TLS)")
        return {}
    if trusting:
        return {"ssl": True, "ssl_cert_reqs": "none", "ssl_check_hostname": False, **given}
    return {"ssl": True, **given}


def again(ask: Callable[[], T]) -> T:
    """``ask()``, once more on a new connection if the old one turns out to be gone."""
    try:
        return ask()
    except exceptions.ConnectionError:
        return ask()


def facts(client: Any) -> dict[str, str]:
    """What the server is and how it keeps its data, as far as it tells."""
    told: dict[str, str] = {}
    try:
        info = client.info("server")
        for field in ("valkey_version", "redis_version"):
            if field in info:
                told["server"] = f"{field.partition('_')[0]} {info[field]}"
                break
    except exceptions.ResponseError:
        told["server"] = "unknown"
    for name in ("appendonly", "appendfsync", "save", "maxmemory-policy"):
        try:
            told[name] = _text(client.execute_command("CONFIG GET", name)) or _EMPTY[name == "save"]
        except exceptions.ResponseError:  # managed servers hide their configuration
            told[name] = "unknown"
    return told


def concerns(told: dict[str, str]) -> list[str]:
    """What may lose acknowledged writes of a server that told this."""
    found = []
    if told.get("maxmemory-policy", "").startswith("allkeys"):
        found.append(
            f"maxmemory-policy {told['maxmemory-policy']} throws records away when memory is "
            "short; set it to noeviction"
        )
    if told.get("appendonly") == "no":
        found.append(
            f"appendonly is no: a crash loses every write since the last snapshot (save "
            f"{told.get('save') or 'never'}); set appendonly yes and appendfsync always"
        )
    elif told.get("appendonly") == "yes" and told.get("appendfsync") != "always":
        lost = "the last second" if told.get("appendfsync") == "everysec" else "the last writes"
        found.append(
            f"appendfsync is {told.get('appendfsync')}: a crash of the machine loses {lost}; "
            "set it to always"
        )
    if told.get("appendonly") == "unknown":
        found.append(
            "the server does not tell how it keeps its data: ask its operator for appendonly yes, "
            "appendfsync always and maxmemory-policy noeviction"
        )
    return found


def _text(answer: Any) -> str:
    """The value in the answer to ``CONFIG GET``, which the client may have parsed."""
    if isinstance(answer, dict):
        answer = next(iter(answer.items()), ())
    value = answer[1] if len(answer) > 1 else ""
    return value.decode() if isinstance(value, bytes) else str(value)


def durability(told: dict[str, str]) -> str:
    """What is promised when a commit has returned."""
    if told.get("appendonly") == "unknown":
        return UNKNOWN
    if told.get("appendonly") != "yes":
        return NONE
    return {"always": ALWAYS, "everysec": EVERYSEC}.get(told.get("appendfsync", ""), NEVER)
