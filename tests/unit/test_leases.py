"""Leases: exclusion by store time, tokens that only grow, and late writers that are refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import perkey
from perkey import AsyncLeases, Conflict, LeaseHeld, LeaseLost, Leases, UsageError
from perkey.observe import events
from perkey.store.backends import sqlite
from perkey.stores import Store
from tests.unit.manual_clock import ManualClock, async_memory_store, memory_store


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> Iterator[Store]:
    with memory_store(clock) as store:
        yield store


@pytest.fixture
def leases(store: Store) -> Leases:
    return Leases(store)


def test_one_holder_at_a_time(leases: Leases) -> None:
    mine = leases.acquire("report", ttl=30, holder="ann")
    with pytest.raises(LeaseHeld, match="held by 'ann'") as refused:
        leases.acquire("report", ttl=30, holder="ben")
    assert refused.value.retry_after_ms == 30_000
    assert (refused.value.holder, refused.value.token) == ("ann", mine.token)
    leases.acquire("other", ttl=30, holder="ben")


def test_the_same_name_does_not_enter_twice(leases: Leases) -> None:
    """Two processes may call themselves the same; only the token tells them apart."""
    leases.acquire("report", ttl=30, holder="ann")
    with pytest.raises(LeaseHeld):
        leases.acquire("report", ttl=30, holder="ann")


def test_the_token_grows_with_every_acquisition_and_survives_release(
    leases: Leases, clock: ManualClock
) -> None:
    tokens = []
    for holder in ["ann", "ann", "ben", "ann"]:
        with leases.acquire("report", ttl=30, holder=holder) as lease:
            lease.renew()
            tokens.append(lease.token)
    leases.acquire("report", ttl=1)
    clock.elapsed += 1
    tokens.append(leases.acquire("report", ttl=1).token)
    assert tokens == [1, 2, 3, 4, 6]


def test_the_longest_lease_is_a_leap_year(leases: Leases) -> None:
    leases.acquire("report", ttl=366 * 86_400)
    with pytest.raises(UsageError, match="at most 31622400 seconds"):
        leases.acquire("other", ttl=366 * 86_400 + 1)


def test_a_lease_ends_at_its_ttl_exactly(leases: Leases, clock: ManualClock) -> None:
    leases.acquire("report", ttl=0.5)
    clock.elapsed += 0.499
    with pytest.raises(LeaseHeld) as refused:
        leases.acquire("report", ttl=1)
    assert refused.value.retry_after_ms == 1
    clock.elapsed += 0.001
    assert leases.acquire("report", ttl=1).token == 2


def test_a_wall_clock_that_jumps_an_hour_moves_no_lease(
    leases: Leases, store: Store, clock: ManualClock
) -> None:
    mine = leases.acquire("report", ttl=30)
    for jump in [3_600_000, -7_200_000]:
        clock.wall += jump
        with pytest.raises(LeaseHeld):
            leases.acquire("report", ttl=30)
        store.put("report", "mine", overwrite=True, fence=mine.fence)


def test_a_write_is_refused_when_the_lease_ran_out_even_if_nobody_took_it(
    leases: Leases, store: Store, clock: ManualClock
) -> None:
    lease = leases.acquire("report", ttl=5)
    store.put("report", "in time", create=True, fence=lease.fence)
    clock.elapsed += 5
    with pytest.raises(LeaseLost, match="ran out 0 ms ago"):
        store.put("report", "late", overwrite=True, fence=lease.fence)
    with pytest.raises(LeaseLost):
        lease.renew()
    assert store.get("report").value == "in time"
    assert leases.info("report").held is False


def test_a_late_holder_is_refused_after_another_took_over(
    leases: Leases, store: Store, clock: ManualClock
) -> None:
    late = leases.acquire("report", ttl=5, holder="ann")
    clock.elapsed += 6
    # The same name again: a check of the holder instead of the token would let it in.
    fresh = leases.acquire("report", ttl=5, holder="ann")
    for act in [
        lambda: store.put("report", "late", create=True, fence=late.fence),
        late.renew,
        late.keep,
    ]:
        with pytest.raises(LeaseLost, match="found token 2 of 'ann'"):
            act()
    assert late.release() is False
    store.put("report", "fresh", create=True, fence=fresh.fence)


def test_release_frees_at_once_and_only_once(leases: Leases, store: Store) -> None:
    lease = leases.acquire("report", ttl=30)
    assert lease.release() is True
    assert lease.release() is False
    with pytest.raises(LeaseLost):
        store.put("report", "after release", create=True, fence=lease.fence)
    assert leases.acquire("report", ttl=30).token == 2


def test_renew_extends_and_never_shortens(leases: Leases, clock: ManualClock) -> None:
    lease = leases.acquire("report", ttl=30)
    first = lease.expires
    clock.elapsed += 10
    assert lease.renew() == lease.expires == first + 10_000
    assert lease.renew(1) == first + 10_000
    assert lease.renew(60) == first + 40_000


def test_keep_renews_only_when_a_third_is_over(leases: Leases, clock: ManualClock) -> None:
    lease = leases.acquire("report", ttl=30)
    first = lease.expires
    clock.elapsed += 9
    assert lease.keep() == first
    clock.elapsed += 1
    assert lease.keep() == lease.expires == first + 10_000


def test_leaving_the_block_says_when_the_lease_was_lost(leases: Leases, clock: ManualClock) -> None:
    def work(seconds: float, failure: Exception | None = None) -> None:
        with leases.acquire("report", ttl=5):
            clock.elapsed += seconds
            if failure:
                raise failure

    work(4)
    with pytest.raises(LeaseLost, match="lost before its block ended"):
        work(5)
    with pytest.raises(ZeroDivisionError):
        work(5, ZeroDivisionError())
    with leases.acquire("report", ttl=5) as lease:
        lease.release()
    assert leases.info("report").held is False


def test_waiting_gets_it_when_it_is_released(leases: Leases, clock: ManualClock) -> None:
    first = leases.acquire("report", ttl=30, holder="ann")
    clock.on_sleep = lambda: first.release() if len(clock.slept) == 3 else None
    second = leases.acquire("report", ttl=30, holder="ben", wait=20)
    assert second.token == 2
    assert clock.slept == [0.01, 0.02, 0.04]


def test_waiting_gets_it_the_moment_it_runs_out(leases: Leases, clock: ManualClock) -> None:
    leases.acquire("report", ttl=1.3)
    began = clock.elapsed
    leases.acquire("report", ttl=1, wait=20)
    assert clock.elapsed - began == pytest.approx(1.3, abs=0.002)
    assert max(clock.slept) <= 0.75


def test_waiting_is_bounded(leases: Leases, clock: ManualClock) -> None:
    leases.acquire("report", ttl=3600)
    began = clock.elapsed
    with pytest.raises(LeaseHeld) as refused:
        leases.acquire("report", ttl=1, wait=2)
    assert clock.elapsed - began == pytest.approx(2, abs=0.002)
    assert refused.value.retry_after_ms == pytest.approx(3_598_000, abs=2)


@pytest.mark.parametrize("ttl", [0, -1, float("nan"), float("inf"), True, "30"])
def test_what_is_no_length_is_refused(leases: Leases, ttl: object) -> None:
    with pytest.raises(UsageError, match="expected a lease of more than 0"):
        leases.acquire("report", ttl=ttl)  # type: ignore[arg-type]


@pytest.mark.parametrize("wait", [-1, float("nan")])
def test_what_is_no_wait_is_refused(leases: Leases, wait: float) -> None:
    with pytest.raises(UsageError, match="expected wait="):
        leases.acquire("report", ttl=1, wait=wait)


def test_info(leases: Leases, clock: ManualClock) -> None:
    assert leases.info("report") == leases.info("report")
    assert (leases.info("report").token, leases.info("report").held) == (0, False)
    leases.acquire("report", ttl=30, holder="ann")
    clock.elapsed += 10
    found = leases.info("report")
    assert (found.holder, found.token, found.held) == ("ann", 1, True)
    assert found.remaining_ms == 20_000


def test_a_lease_never_meets_a_document_of_the_same_name(leases: Leases, store: Store) -> None:
    store.put("report", 1, create=True)
    leases.acquire("report", ttl=30)
    assert store.get("report").value == 1
    assert [each.key for each in store.scan()] == ["report"]
    with pytest.raises(Conflict):
        store.put("report", 2, create=True)


def test_each_change_is_told(leases: Leases, store: Store, clock: ManualClock) -> None:
    heard: list[tuple[str, int, str]] = []

    def listen(event: object) -> None:
        if isinstance(event, events.LeaseChanged):
            heard.append((event.holder, event.token, event.change))

    store.observe(listen)
    lease = leases.acquire("report", ttl=5, holder="ann")
    lease.renew()
    lease.release()
    leases.acquire("report", ttl=5, holder="ben")
    clock.elapsed += 5
    leases.acquire("report", ttl=5, holder="cy")
    assert heard == [
        ("ann", 1, "acquired"),
        ("ann", 1, "renewed"),
        ("ann", 1, "released"),
        ("ben", 2, "acquired"),
        ("cy", 3, "taken over"),
    ]
    assert store.statistics()["events"]["LeaseChanged"] == 5


async def test_the_same_for_asyncio(clock: ManualClock) -> None:
    async with async_memory_store(clock) as store:
        leases = AsyncLeases(store)
        async with await leases.acquire("report", ttl=30, holder="ann") as lease:
            with pytest.raises(LeaseHeld):
                await leases.acquire("report", ttl=30, holder="ben")
            await store.put("report", 1, create=True, fence=lease.fence)
            assert await lease.renew(40) == await lease.keep() == lease.expires
        assert (await leases.info("report")).held is False
        async with await leases.acquire("report", ttl=30) as again:
            assert again.token == 2
            assert await again.release() is True
        with pytest.raises(LeaseLost, match="lost before its block"):
            async with await leases.acquire("report", ttl=5):
                clock.elapsed += 5


def test_a_second_opener_sees_the_same_leases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two stores on one file stand for two processes."""
    url = f"sqlite:///{tmp_path}/leases.db"
    with perkey.open(url) as one, perkey.open(url) as two:
        mine = Leases(one).acquire("report", ttl=600, holder="ann")
        with pytest.raises(LeaseHeld):
            Leases(two).acquire("report", ttl=30, holder="ben")
        later = sqlite.host_ms() + 601_000
        monkeypatch.setattr(sqlite, "host_ms", lambda: later)
        theirs = Leases(two).acquire("report", ttl=30, holder="ben")
        assert theirs.token == mine.token + 1
        with pytest.raises(LeaseLost):
            one.put("report", "late", create=True, fence=mine.fence)
