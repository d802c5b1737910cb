"""Looking a store over: whether racing writers lose anything, and how fast it answers.

It writes one scratch record, in the store's own space, which no caller and no watcher sees.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from perkey.clock import Clock
from perkey.errors import BackendNotConditional, PerkeyError
from perkey.store import codec
from perkey.store.abc import Backend
from perkey.store.evaluate import Batch
from perkey.store.keys import TURNS, Key
from perkey.store.settle import settled
from perkey.store.transaction import Fn, Transaction, Tx

SCRATCH = Key("q/doctor")
RACERS = 4
ROUNDS = 5
BODY = codec.encode({"checkup": "x" * 200})


@dataclass(frozen=True, slots=True)
class Latency:
    """How long one kind of call takes, in milliseconds, over ``n`` calls."""

    n: int
    median_ms: float
    p99_ms: float
    """The slowest where there are fewer than a hundred."""


def commit(backend: Backend, fn: Fn, clock: Clock, key: Key = SCRATCH) -> object:
    """One transaction over ``key``, until its fate is known; returns the function's result."""
    transaction = Transaction((key,), fn, "perkey", clock.token(), attempts=1_000)
    batch = Batch([transaction], value_bytes=backend.limits.value_bytes, clock=clock)
    (outcome,), interrupt = settled(backend.apply, batch, backend.limits, clock)
    if interrupt is not None:
        raise interrupt
    if outcome.error is not None:
        raise outcome.error
    return outcome.result


def described(backend: Backend) -> dict[str, str]:
    """What the store says about itself; what this module leaves there is none of its records."""
    facts = dict(backend.describe())
    own = sum(each is not None for each in backend.read([SCRATCH, TURNS]))
    if facts.get("records", "").isdecimal():
        facts["records"] = str(int(facts["records"]) - own)
    return facts


def race(backend: Backend, rival: Callable[[], Backend], clock: Clock) -> int:
    """Let several connections add to one number at once; returns how many additions there were.

    Raises ``BackendNotConditional`` where one is lost.  ``rival`` opens one more connection.
    """
    before = _number(commit(backend, _add(0), clock))
    rivals = [rival() for _ in range(RACERS)]
    failed: list[BaseException] = []
    gate = threading.Barrier(RACERS)

    def run(mine: Backend) -> None:
        try:
            gate.wait()
            for _ in range(ROUNDS):
                commit(mine, _add(1), clock)
        except BaseException as error:
            failed.append(error)
            gate.abort()

    threads = [threading.Thread(target=run, args=(each,), daemon=True) for each in rivals]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for each in rivals:
        each.close()
    if failed:
        real = [error for error in failed if isinstance(error, PerkeyError)]
        raise (real or failed)[0]
    after = _number(commit(backend, _add(0), clock))
    if after - before != RACERS * ROUNDS:
        raise BackendNotConditional(
            f"{RACERS} connections added {RACERS * ROUNDS} to one record of this {backend.name} "
            f"store and {after - before} arrived: it does not enforce the conditions of writes"
        )
    return RACERS * ROUNDS


def latencies(backend: Backend, n: int, clock: Clock) -> tuple[Latency, Latency]:
    """How long ``n`` reads and ``n`` commits take, one after the other on one connection."""

    def write() -> None:
        commit(backend, lambda tx: tx.put_body(SCRATCH, BODY), clock)

    write()
    reads = _timed(lambda: backend.read([SCRATCH]), n, clock)
    return reads, _timed(write, n, clock)


def _timed(call: Callable[[], object], n: int, clock: Clock) -> Latency:
    took = []
    for _ in range(n):
        began = clock.monotonic()
        call()
        took.append((clock.monotonic() - began) * 1000)
    took.sort()
    return Latency(n, took[n // 2], took[min(n - 1, n * 99 // 100)])


def _add(step: int) -> Fn:
    def add(tx: Tx) -> int:
        value = tx.get(SCRATCH, 0)
        number = value if isinstance(value, int) else 0
        if step or number is not value:
            tx[SCRATCH] = number + step
        return number + step

    return add


def _number(value: object) -> int:
    assert isinstance(value, int)
    return value
