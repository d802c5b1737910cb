"""``perkey doctor``: what a store is, what it promises, what was tried, how fast it answers."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from cyclopts import Parameter

from perkey.cli import exits, output
from perkey.cli.options import Json, StoreUrl
from perkey.clock import SYSTEM
from perkey.errors import UsageError
from perkey.store import checkup
from perkey.store.abc import Backend
from perkey.store.examine import Found, examine, place
from perkey.store.limits import Limits
from perkey.store.url import open_backend, parse
from perkey.store.watch import POLL_S

Url = Annotated[str, Parameter(name="URL", help="The store; the same as --store.")]
Number = Annotated[
    int, Parameter(name="--n", metavar="N", help="How many reads and commits are timed.")
]
Create = Annotated[
    bool, Parameter(negative="", help="Make the store, or bring its schema up to date.")
]
MOST = 10_000
Facts = dict[str, Any]


def doctor(
    url: Url = "", /, *, n: Number = 50, create: Create = False, store: StoreUrl = "",
    json: Json = False,
) -> int:  # fmt: skip
    """Look a store over: its promises, whether it keeps them, and settings that may lose writes.

    Makes nothing where nothing is, unless --create.  Writes one scratch record, which no caller
    and no watcher sees.  Exit code 0: all is well; 1: something to know, see the warnings, or
    there is no store yet; 3: it cannot be used.

    For example:

        perkey doctor sqlite:///work.db
        perkey doctor postgresql://app@db/work --n 500 --json
    """
    wanted = url or store
    if not wanted:
        raise UsageError("no store is named; give its URL, --store or PERKEY_STORE")
    if not 1 <= n <= MOST:
        raise UsageError(f"expected --n from 1 to {MOST}, found {n}")
    parse(wanted)
    found = examine(wanted, Limits(), SYSTEM)
    if found is not None and found.steps and not create:
        told = _before(wanted, found)
    else:
        told = _opened(wanted, n, found)
    output.as_json(told) if json else _show(told)
    return exits.REFUSED if told["warnings"] else exits.DONE


def _before(url: str, found: Found) -> Facts:
    """What is to be said where opening would make or migrate something."""
    if found.exists:
        state = "old"
        warning = (
            f"the schema is at step {found.schema} of {found.known}; the next program that opens "
            "the store takes the rest by itself, and --create takes it now"
        )
    else:
        state = "absent"
        warning = f"there is no store here: opening it, or --create, makes {found.makes}"
    return {"url": place(url), "state": state, "schema": _schema(found), "warnings": [warning]}


def _schema(found: Found | None) -> Facts:
    if found is None:
        return {"taken": 0, "known": 0, "to_run": 0}
    return {"taken": found.schema, "known": found.known, "to_run": found.steps}


def _opened(url: str, n: int, found: Found | None) -> Facts:
    began = SYSTEM.monotonic()
    backend = open_backend(url, Limits(), SYSTEM)
    try:
        opened_ms = (SYSTEM.monotonic() - began) * 1000
        probed = [f"opened in {opened_ms:.1f} ms; what opening probes was as it should be"]
        if backend.blocking:  # a store in memory has one connection
            count = checkup.race(backend, lambda: open_backend(url, Limits(), SYSTEM), SYSTEM)
            racers = f"{checkup.RACERS} connections raced to change one record"
            probed.append(f"{racers}: all {count} changes arrived")
        reads, commits = checkup.latencies(backend, n, SYSTEM)
        skew = backend.now_ms() - SYSTEM.now_ms()
        return {
            "url": place(url),
            "state": "open",
            "store": {"name": backend.name, **checkup.described(backend)},
            "promises": _promises(backend),
            "schema": _schema(found and examine(url, Limits(), SYSTEM)),
            "probed": probed,
            "latency": {"read": asdict(reads), "commit": asdict(commits)},
            "clock_ahead_ms": skew,
            "warnings": backend.concerns(),
        }
    finally:
        backend.close()


def _promises(backend: Backend) -> Facts:
    return {
        "atomic_keys": backend.atomic_keys,
        "durability": backend.durability,
        "clock": backend.time_source,
        "watch": f"every kept version in order; other processes' commits within {POLL_S} s",
        "longest_value": backend.limits.value_bytes,
    }


def _show(told: Facts) -> None:
    output.say(told["url"], style="bold")
    if told["state"] == "open":
        output.say()
        output.table(["store", ""], told["store"].items())
        promises = dict(told["promises"])
        several = promises.pop("atomic_keys")
        keys = "any number" if several is None else several
        longest = f"{promises.pop('longest_value'):,} bytes"
        rows = [("keys in one commit", keys), *promises.items(), ("longest value", longest)]
        output.say()
        output.table(["promise", ""], rows)
        output.say()
        timed = [
            (name, f"{each['median_ms']:.2f} ms", f"{each['p99_ms']:.2f} ms", each["n"])
            for name, each in told["latency"].items()
        ]
        output.table(["latency", "median", "p99", "of"], timed)
        output.say()
        for line in told["probed"]:
            output.prose(f"tried: {line}")
        ahead = told["clock_ahead_ms"]
        side = "behind" if ahead < 0 else "ahead of"
        output.say(f"its clock is {abs(ahead)} ms {side} this machine's")
    schema = told["schema"]
    if schema["known"]:
        output.say(f"schema: {schema['taken']} of {schema['known']} steps taken")
    for warning in told["warnings"]:
        output.prose(f"warning: {warning}", style="yellow")
    if not told["warnings"]:
        output.say("all is well", style="green")
