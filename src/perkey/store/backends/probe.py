"""Does this store enforce conditions?  Asked when it is opened, because many do not.

Several S3-compatible servers, and proxies that strip headers, accept a conditional write and
ignore its condition; two writers would both be told that they won.  A scratch record is
created twice, replaced on a stale head, and raced for; a store that lets a loser win is
refused, not trusted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from perkey.clock import Clock
from perkey.errors import BackendNotConditional
from perkey.store.backends.port import Port
from perkey.store.keys import Key
from perkey.store.record import Record

RACERS = 4
ROUNDS = 3


def probe(port: Port, rival: Callable[[], Port], clock: Clock) -> None:
    """Raise ``BackendNotConditional`` unless stale writes are refused and races have one winner.

    ``rival`` opens one more connection.  The only threads that a backend ever starts are the
    racers, and they have ended when this returns.
    """
    key, other = (Key(f"q/probe/{clock.token()}") for _ in range(2))
    try:
        _in_turn(port, key)
        if port.atomic_keys != 1:
            _together(port, key, other)
        ports = [port, *(rival() for _ in range(RACERS - 1))]
        try:
            for _ in range(ROUNDS):
                _race(ports, key)
        finally:
            for racer in ports[1:]:
                racer.close()
    finally:
        port.forget(key)
        port.forget(other)


def _in_turn(port: Port, key: Key) -> None:
    """One writer, conditions that hold and conditions that do not."""
    nothing = _look(port, key)
    first = _record(key, 1, "first")
    _expect(port, nothing is None and _commit(port, nothing, first), "a first write to land")
    _expect(port, not _commit(port, None, _record(key, 1, "second")), "a second create to fail")
    head = _look(port, key)
    _expect(port, head == first, "the first write to be there")
    _expect(port, _commit(port, head, _record(key, 2, "third")), "a fresh condition to hold")
    _expect(port, not _commit(port, head, _record(key, 2, "fourth")), "a stale condition to fail")


def _together(port: Port, key: Key, other: Key) -> None:
    """Two keys in one commit: one that has moved, written or only compared, stops both."""
    head = _look(port, key)
    stale = {other: None, key: None}
    both = [_record(other, 1, "fifth"), _record(key, 3, "fifth")]
    _expect(port, not port.commit(stale, both), "one stale key of two to stop the commit")
    _expect(port, not port.commit(stale, both[:1]), "a stale key to count though it is not written")
    _expect(port, port.look([key, other])[0] == [head, None], "nothing of that to be there")
    _expect(port, port.commit({other: None, key: head}, both), "two fresh keys to land together")
    _expect(port, port.look([key, other])[0] == both[::-1], "both writes to be there")


def _race(ports: list[Port], key: Key) -> None:
    """All replace the same head at once: exactly one may win."""
    heads = [_look(port, key) for port in ports]
    won: list[str] = []
    failed: list[Exception] = []
    gate = threading.Barrier(len(ports))

    def race(port: Port, head: Record | None, name: str) -> None:
        try:
            gate.wait()
            assert head is not None
            if _commit(port, head, _record(key, head.version + 1, name)):
                won.append(name)
        except Exception as error:
            failed.append(error)
            gate.abort()

    threads = [
        threading.Thread(target=race, args=(port, head, f"racer{n}"), daemon=True)
        for n, (port, head) in enumerate(zip(ports, heads, strict=True))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    head = _look(ports[0], key)
    _expect(ports[0], head is not None and won == [head.op], f"one winner, found {len(won)}")


def _look(port: Port, key: Key) -> Record | None:
    return port.look([key])[0][0]


def _commit(port: Port, head: Record | None, record: Record) -> bool:
    return port.commit({record.key: head}, [record])  # type: ignore[dict-item]  # it is a Key


def _record(key: Key, version: int, op: str) -> Record:
    return Record(key, version, b'"probe"', "perkey", 0, op)


def _expect(port: Port, holds: bool, what: str) -> None:
    if not holds:
        raise BackendNotConditional(
            f"this {port.name} store does not enforce the conditions of writes: the probe "
            f"expected {what}. Updates would be lost; use a server that supports conditional writes"
        )
