"""Other libraries that run an operation once, or keep books: ``python -m benchmarks.ledger_peers``.

Each in a process of its own, one caller, with its own defaults; ``benchmarks.ledger`` runs them
where they are installed.  An effect here is a function that returns a small dict, so what is
measured is the price of running it once.

``perkey``, ``agent-once`` and ``justonce`` each commit and flush twice a run, before the effect
and after it.  ``perkey`` writes more in those commits: it lists the operation as open and takes
it out again, so that ``unresolved()`` need not read every receipt.

What a commit survives is part of the price, so each row says it.  ``agent-once`` and ``justonce``
set no ``synchronous``: they have what the SQLite of this Python has by default, which is asked for.
On Valkey both sides use one server of the same settings.
"""

from __future__ import annotations

import itertools
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import perkey

SECONDS = 1.5
"""How long each is measured."""


def effect(number: int) -> dict[str, int]:
    """What is to run once."""
    return {"number": number}


def rate(one: Callable[[int], object]) -> float:
    """Calls a second, the first ones left out."""
    for number in range(20):
        one(number)
    began, done = time.perf_counter(), 0
    for number in itertools.count(20):
        one(number)
        done += 1
        if time.perf_counter() - began >= SECONDS:
            break
    return done / (time.perf_counter() - began)


def perkey_external(
    folder: Path, stack: ExitStack, synchronous: str = "FULL"
) -> Callable[[int], object]:
    """A claim with a lease, the effect, its receipt: two commits."""
    url = f"sqlite:///{folder}/once.db?synchronous={synchronous}"
    once = perkey.Once(stack.enter_context(perkey.open(url)))
    return lambda n: once.run(f"key/{n}", {"n": n}, lambda context: effect(n))


def by_default() -> str:
    """What a commit in write-ahead mode waits for where nobody says so."""
    with tempfile.TemporaryDirectory() as folder, closing(sqlite3.connect(f"{folder}/d")) as plain:
        plain.execute("PRAGMA journal_mode = WAL")
        (level,) = plain.execute("PRAGMA synchronous").fetchone()
    return ("OFF", "NORMAL", "FULL", "EXTRA")[level]


def perkey_valkey(folder: Path, stack: ExitStack) -> Callable[[int], object]:
    """The same on Valkey."""
    from tests.servers.valkey import Valkey

    store = stack.enter_context(perkey.open(stack.enter_context(Valkey()).url))
    once = perkey.Once(store)
    return lambda n: once.run(f"key/{n}", {"n": n}, lambda context: effect(n))


def agent_once(folder: Path, stack: ExitStack) -> Callable[[int], object]:
    from once import Once

    once = stack.enter_context(Once(str(folder / "agent.db")))
    return lambda n: once.execute(fn=effect, key=f"key/{n}", number=n)


def justonce(folder: Path, stack: ExitStack) -> Callable[[int], object]:
    import justonce
    from justonce.stores import SqliteStore

    justonce.configure(SqliteStore(str(folder / "just.db")))
    once: Any = justonce.idempotent(key=lambda n: f"key/{n}")(effect)
    return lambda n: once(n)


def powertools(folder: Path, stack: ExitStack) -> Callable[[int], object]:
    import redis
    from aws_lambda_powertools.utilities.idempotency import (
        IdempotencyConfig,
        idempotent_function,
    )
    from aws_lambda_powertools.utilities.idempotency.persistence.redis import (
        RedisCachePersistenceLayer,
    )

    from tests.servers.valkey import Valkey

    client = redis.Redis.from_url(stack.enter_context(Valkey()).url, decode_responses=True)
    stack.callback(client.close)
    layer = RedisCachePersistenceLayer(client=client)
    config = IdempotencyConfig()
    once: Any = idempotent_function(
        lambda number: effect(number),
        data_keyword_argument="number",
        persistence_store=layer,
        config=config,
    )
    return lambda n: once(number=n)


def a_ledger(folder: Path, stack: ExitStack) -> Callable[[int], object]:
    """Two postings under a command key, one transaction each, ``synchronous=FULL``."""
    from a_ledger import Ledger
    from a_ledger.domain.journal import (
        CommandKey,
        JournalBatch,
        Post,
        PostingInput,
        SourceIdentity,
        TransactionInput,
    )
    from a_ledger.schema import install
    from a_ledger.sqlite import create_sqlite_engine, write_transaction

    with closing(sqlite3.connect(folder / "a.db")) as plain:
        plain.execute("PRAGMA journal_mode=WAL")  # as it stays, whoever opens the file
    engine = create_sqlite_engine(folder / "a.db")
    connection = stack.enter_context(engine.connect())
    with write_transaction(connection):
        install(connection)
        ledger = Ledger(connection)
        ledger.accounts.create_portfolio("main", code="main", currency="EUR")
        for name in ("one", "two"):
            ledger.accounts.create_account(name, portfolio_id="main", code=name, category="ASSET")

    def transfer(n: int) -> None:
        postings = (PostingInput("out", "one", -1), PostingInput("in", "two", 1))
        facts = TransactionInput("transfer", "2026-01-01", "2026-01-01T00:00:00Z", postings)
        action = Post("move", SourceIdentity("bench", f"key/{n}"), facts)
        batch = JournalBatch("main", CommandKey("bench", f"key/{n}"), (action,))
        with write_transaction(connection):
            Ledger(connection).journal.execute(batch)

    return transfer


PEERS = {
    "perkey": ("", perkey_external, "perkey, Once.run on SQLite FULL (claim and receipt)"),
    "agent-once": ("once", agent_once, f"agent-once on SQLite {by_default()}"),
    "justonce": ("justonce", justonce, f"justonce on SQLite {by_default()}"),
    "perkey-normal": (
        "",
        partial(perkey_external, synchronous="NORMAL"),
        "perkey, Once.run on SQLite NORMAL",
    ),
    "perkey-valkey": ("", perkey_valkey, "perkey, Once.run on Valkey"),
    "powertools": ("aws_lambda_powertools", powertools, "Powertools idempotency on Valkey"),
    "a-ledger": ("a_ledger", a_ledger, "a-ledger on SQLite FULL, one transfer a transaction"),
}
"""Name -> (module that must be there, how it is set up, what is printed)."""


def names() -> Iterator[tuple[str, str, str]]:
    """(name, module, what is printed) of every peer."""
    for name, (module, _, what) in PEERS.items():
        yield name, module, what


def main(name: str) -> int:
    """Measure one and print its rate."""
    _, make, what = PEERS[name]
    with tempfile.TemporaryDirectory(prefix="perkey-bench-") as folder, ExitStack() as stack:
        print(f"{what:<58}{rate(make(Path(folder), stack)):>10,.0f}/s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
