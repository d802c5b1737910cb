"""The stream of a NATS store: how it must be set up."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

from perkey.errors import SchemaMismatch, StoreError, UsageError
from perkey.store.backends.nats_client import Wire, again
from perkey.store.url import Location

NOT_FOUND = 10059
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def exists(wire: Wire, name: str) -> bool:
    """Whether there is such a stream; ``StoreUnavailable`` where nobody answers."""
    answer = again(lambda: wire.api(f"STREAM.INFO.{name}"))
    return "error" not in answer


def find_or_make(wire: Wire, name: str, location: Location) -> dict[str, Any]:
    """The stream's configuration; it is made where it is missing."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"expected name= of letters, digits, _ and - in the URL, found {name!r}")
    replicas = int(location.option("replicas", ("1", "3", "5"), "1"))
    answer = again(lambda: wire.api(f"STREAM.INFO.{name}"))
    if answer.get("error", {}).get("err_code") == NOT_FOUND:
        wanted = _wanted(name, replicas)
        # Making it twice the same way is harmless: others may be opening the store as well.
        answer = again(lambda: wire.api(f"STREAM.CREATE.{name}", wanted))
    if "error" in answer:
        said = answer["error"].get("description", "no reason given")
        raise StoreError(f"NATS at {wire.place} does not give the stream {name!r}: {said}")
    config: dict[str, Any] = answer["config"]
    _check(name, config)
    return config


def _wanted(name: str, replicas: int) -> dict[str, Any]:
    return {
        "name": name,
        "subjects": [f"{name}.>"],
        "retention": "limits",
        "storage": "file",
        "discard": "new",
        "max_consumers": -1,
        "max_msgs": -1,
        "max_bytes": -1,
        "max_msgs_per_subject": -1,
        "max_age": 0,
        "num_replicas": replicas,
        "allow_direct": True,
        "allow_rollup_hdrs": True,
        "allow_atomic": True,  # servers before 2.12 do not know it, and leave it out
    }


def _check(name: str, config: dict[str, Any]) -> None:
    """Refuse a stream that is somebody else's, or that would drop records by itself."""
    unlimited = all(config.get(limit, -1) in (-1, 0) for limit in ("max_msgs", "max_age"))
    unlimited = unlimited and config.get("max_msgs_per_subject", -1) in (-1, 0)
    unlimited = unlimited and (config.get("max_bytes", -1) == -1 or config["discard"] == "new")
    open_to_us = config.get("allow_direct") and config.get("allow_rollup_hdrs")
    if config.get("subjects") != [f"{name}.>"] or not unlimited or not open_to_us:
        raise SchemaMismatch(
            f"the stream {name!r} is not set up as a perkey store: expected the subject {name}.>, "
            "no limits that drop messages, allow_direct and allow_rollup_hdrs; choose another name="
        )


def concerns(config: dict[str, Any]) -> list[str]:
    """What may lose acknowledged writes of a stream with this configuration."""
    found = []
    if config.get("storage") == "memory":
        found.append("the stream is in the server's memory: gone when it restarts; use file")
    if config.get("num_replicas", 1) == 1:
        found.append(
            "one server has the stream, and it flushes to the disk every two minutes unless its "
            "sync_interval says otherwise: a power cut may lose what came after; set "
            "jetstream { sync_interval: always }, or use three replicas"
        )
    return found


def milliseconds(told: str) -> float:
    """Milliseconds since the epoch of a time in RFC 3339 with nanoseconds."""
    seconds, _, fraction = told.rstrip("Z").partition(".")
    whole = datetime.fromisoformat(f"{seconds}+00:00").timestamp()
    return whole * 1000 + int((fraction + "000")[:3])
