"""A lease holder is paused for longer than its lease and wakes up convinced that it still owns.

The kind of report: locks with a lease whose late holder writes all the same, because the commit
is not fenced (so in idempotency libraries whose lease runs out after 30 s and whose effect then
"runs again, unfenced").  Here the holder is a real process, stopped with SIGSTOP.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import perkey
from perkey import Leases, Store
from tests.races.processes import Process

HOLDER = """
store = perkey.open(url)
lease = Leases(store).acquire("report", ttl=0.5, holder="holder")
say("holds", lease.token)
hear()
for act in (
    lambda: Documents(store).put("report", "late", overwrite=True, fence=lease.fence),
    lease.renew,
    lease.keep,
):
    try:
        act()
        say("accepted")
    except LeaseLost:
        say("LeaseLost")
say("released", lease.release())
"""


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/leases.db"


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with perkey.open(url) as store:
        yield store


def woken_too_late(holder: Process) -> list[str]:
    holder.signal(signal.SIGCONT)
    holder.say("go on")
    return [holder.hear() for _ in range(4)]


def test_it_is_refused_after_another_took_over(url: str, store: Store) -> None:
    with Process(HOLDER, url) as holder:
        assert holder.hear() == "holds 1"
        holder.signal(signal.SIGSTOP)
        # The same name on purpose: only the token tells the two apart.
        with Leases(store).acquire("report", ttl=600, holder="holder", wait=60) as lease:
            assert lease.token == 2
            assert woken_too_late(holder) == ["LeaseLost"] * 3 + ["released False"]
            store.put("report", "fresh", create=True, fence=lease.fence)
        assert holder.end() == 0
    assert [each.value for each in store.history("report")] == ["fresh"]


def test_it_is_refused_though_nobody_took_over(url: str, store: Store) -> None:
    with Process(HOLDER, url) as holder:
        assert holder.hear() == "holds 1"
        holder.signal(signal.SIGSTOP)
        while Leases(store).info("report").held:
            pass
        assert woken_too_late(holder) == ["LeaseLost"] * 3 + ["released False"]
    assert store.get("report", None) is None
    assert Leases(store).info("report").token == 1


def test_a_killed_holder_is_followed_when_its_time_is_over(url: str, store: Store) -> None:
    with Process(HOLDER, url) as holder:
        assert holder.hear() == "holds 1"
        holder.signal(signal.SIGKILL)
        assert holder.end() == -signal.SIGKILL
    lease = Leases(store).acquire("report", ttl=600, wait=60)
    assert lease.token == 2
