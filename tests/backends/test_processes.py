"""Real processes on one store, and servers that go away."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

import perkey
from perkey import Change, Leases, Store, StoreUnavailable, Synced
from tests.backends.crew import crew
from tests.backends.kinds import KINDS, Kind, everywhere
from tests.races.processes import Process, finished
from tests.servers.base import Server

PROCESSES, EACH = 8, 250

pytestmark = pytest.mark.timeout(900)  # a busy machine is slow, and no failure

COUNTER = """
from concurrent.futures import ThreadPoolExecutor

key, count, callers = arguments[0], int(arguments[1]), int(arguments[2])
store = perkey.open(url)

def add(tx):
    tx[key] = tx.get(key, 0) + 1
    return tx[key]

def call(n):
    told = [store.transact(key, add, timeout=600) for _ in range(count // callers)]
    assert told == sorted(set(told))
    return told

say("ready")
hear()
with ThreadPoolExecutor(callers) as pool:
    told = [each for mine in pool.map(call, range(callers)) for each in mine]
assert len(set(told)) == count
store.close()
"""


@everywhere
def test_processes_count_to_the_last_one(kind: Kind, url: str, store: Store, prefix: str) -> None:
    assert EACH % kind.callers == 0
    with crew(COUNTER, url, [(prefix, EACH, kind.callers)] * PROCESSES) as counters:
        finished(counters)
    record = store.get(prefix)
    total = PROCESSES * EACH
    assert (record.value, record.version) == (total, total)
    kept = store.history(prefix, limit=total + 1)
    assert [each.value for each in kept] == list(range(1, total + 1))


SURVIVOR = """
key, count = arguments[0], int(arguments[1])
store = perkey.open(url)

def add(tx):
    tx[key] = tx.get(key, 0) + 1

acknowledged = unknown = 0
say("ready")
hear()
while acknowledged < count:
    try:
        store.transact(key, add)
        acknowledged += 1
    except StoreUnavailable:
        pass
    except OutcomeUnknown:
        unknown += 1
    if acknowledged % 20 == 10:
        say("at", acknowledged)
say("done", acknowledged, unknown)
"""


ENDS = [(name, "stop") for name in KINDS] + [
    (name, "kill") for name, kind in KINDS.items() if kind.survives_kill
]


@pytest.mark.parametrize(("kind", "end"), ENDS, indirect=["kind"])
def test_a_restarted_server_loses_nothing(
    own_server: Server, kind: Kind, prefix: str, end: str
) -> None:
    count = max(20, int(100 * kind.pace))
    with perkey.open(own_server.url) as store, store.watch(prefix, after="") as watch:
        with crew(SURVIVOR, own_server.url, [(prefix, count)] * 3) as writers:
            for writer in writers:
                assert writer.hear() == "at 10"
            getattr(own_server, end)()
            own_server.start()
            told = [last_words(writer) for writer in writers]
            finished(writers)
        acknowledged, unknown = (sum(column) for column in zip(*told, strict=True))
        assert acknowledged == 3 * count
        final = patiently(lambda: store.get(prefix))
        assert acknowledged <= final.value <= acknowledged + unknown
        assert list(seen(watch, final.version)) == list(range(1, final.version + 1))


def last_words(writer: Process) -> tuple[int, int]:
    while (line := writer.hear()).startswith("at"):
        pass
    _, acknowledged, unknown = line.split()
    return int(acknowledged), int(unknown)


def patiently(read: object) -> object:
    """Read, though a connection may still be broken."""
    while True:
        try:
            return read()  # type: ignore[operator]
        except StoreUnavailable:
            continue


def seen(watch: object, last: int) -> Iterator[int]:
    """The values that a watcher sees, up to version ``last``; it goes on after the restart."""
    while True:
        item = next(watch)  # type: ignore[call-overload]
        if isinstance(item, Change):
            yield item.document.value
            if item.document.version == last:
                return
        else:
            assert isinstance(item, Synced)


HOLDER = """
key = arguments[0]
store = perkey.open(url)
lease = Leases(store).acquire(key, ttl=0.5, holder="holder")
say("holds", lease.token)
hear()
for act in (
    lambda: Documents(store).put(key, "late", overwrite=True, fence=lease.fence),
    lease.renew,
):
    try:
        act()
        say("accepted")
    except LeaseLost:
        say("LeaseLost")
"""


@everywhere
@pytest.mark.parametrize("taken_over", [True, False])
def test_a_paused_lease_holder_is_refused(
    url: str, store: Store, prefix: str, taken_over: bool
) -> None:
    with Process(HOLDER, url, prefix) as holder:
        assert holder.hear() == "holds 1"
        holder.signal(signal.SIGSTOP)
        if taken_over:
            lease = Leases(store).acquire(prefix, ttl=600, holder="holder", wait=60)
            assert lease.token == 2
            store.put(prefix, "fresh", create=True, fence=lease.fence)
        else:
            while Leases(store).info(prefix).held:
                pass
        holder.signal(signal.SIGCONT)
        holder.say("go on")
        assert [holder.hear(), holder.hear()] == ["LeaseLost"] * 2
    assert [each.value for each in store.history(prefix)] == ["fresh"] * taken_over


def test_a_store_says_where_it_cannot_go(own_server: Server) -> None:
    """A server that is gone is a plain error, at open and later; it comes back by itself."""
    url = own_server.url
    with perkey.open(url) as store:
        store.put("a", 1, create=True)
        own_server.stop()
        for act in (lambda: store.get("a"), lambda: store.put("a", 2, overwrite=True)):
            with pytest.raises(StoreUnavailable):
                act()
        with pytest.raises(StoreUnavailable):
            perkey.open(url)
        own_server.start()
        assert patiently(lambda: store.get("a")).value == 1  # type: ignore[attr-defined]
