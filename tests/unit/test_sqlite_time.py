"""Store time: one for all processes of a machine, and never below what was committed."""

from __future__ import annotations

from pathlib import Path

import pytest

import perkey
from perkey.clock import SYSTEM, SystemClock
from perkey.store.backends import sqlite, sqlite_time
from perkey.stores import Store
from tests.unit.sqlite_faults import url

HOUR_MS = 3_600_000


class SetClock(SystemClock):
    """The machine's clock, set wrong by ``ahead`` milliseconds."""

    def __init__(self, ahead: int) -> None:
        super().__init__()
        self.ahead = ahead

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead


class Machine:
    """Uptime and boot name, for a reboot without one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, named: bool = True) -> None:
        self.uptime = 5_000
        self.boots = 1
        self.named = named
        for module in (sqlite, sqlite_time):
            monkeypatch.setattr(module, "host_ms", lambda: self.uptime)
        monkeypatch.setattr(sqlite_time, "boot_name", lambda: f"boot {self.boots}" * self.named)

    def reboot(self) -> None:
        self.boots += 1
        self.uptime = 1_000


def opened(folder: Path, ahead: int = 0) -> Store:
    return perkey.open(url(folder), clock=SetClock(ahead))


def test_store_time_is_the_wall_clocks_at_first(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        assert abs(store.now_ms() - SYSTEM.now_ms()) < 60_000


@pytest.mark.parametrize("ahead", [HOUR_MS, -HOUR_MS])
def test_a_wall_clock_that_jumps_moves_no_store(tmp_path: Path, ahead: int) -> None:
    with opened(tmp_path) as early, opened(tmp_path, ahead) as jumped:
        first, second, third = early.now_ms(), jumped.now_ms(), early.now_ms()
        assert first <= second <= third
        assert jumped.put("k", 1, create=True).at <= early.put("k", 2, overwrite=True).at


def test_a_clock_that_jumps_an_hour_breaks_no_exclusion(tmp_path: Path) -> None:
    with opened(tmp_path) as one, opened(tmp_path, HOUR_MS) as two:
        lease = perkey.Leases(one).acquire("job", ttl=60, holder="one")
        with pytest.raises(perkey.LeaseHeld):
            perkey.Leases(two).acquire("job", ttl=60, holder="two")
        one.transact("k", lambda tx: tx.__setitem__("k", 1), fence=lease.fence)
        assert two.get("k").value == 1


def test_time_goes_on_after_a_reboot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    with opened(tmp_path) as store:
        before = store.now_ms()
    machine.reboot()
    with opened(tmp_path, 50_000) as store:
        assert store.now_ms() >= before + 49_000


@pytest.mark.parametrize("named", [True, False])
def test_time_never_falls_below_what_was_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    """The wall clock came back from its reboot an hour late, twice."""
    machine = Machine(monkeypatch, named)
    last = 0
    for boot in range(3):
        with opened(tmp_path, -boot * HOUR_MS) as store:
            for _ in range(4):
                machine.uptime += 7_000
                at = int(store.put("k", boot, overwrite=True).at.timestamp() * 1000)
                assert at >= last
                last = at
        machine.reboot()


def test_processes_of_one_boot_agree_when_one_opens_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(monkeypatch)
    with opened(tmp_path) as one:
        machine.uptime += 1_000_000
        with opened(tmp_path, -HOUR_MS) as two:
            assert one.now_ms() == two.now_ms()


def test_few_boots_are_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    for _ in range(sqlite_time.BOOTS_KEPT + 5):
        machine.reboot()
        with opened(tmp_path) as store:
            count = store.backend._connection.execute("SELECT count(*) FROM boots")  # type: ignore[attr-defined]
            assert count.fetchone()[0] <= sqlite_time.BOOTS_KEPT + 1


def test_the_boot_has_a_name_here_or_none() -> None:
    assert sqlite_time.boot_name() == sqlite_time.boot_name()
