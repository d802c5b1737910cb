"""Beats beside an effect: none for a short one, a thread for a long one, nothing left behind."""

from __future__ import annotations

import math
import os
import threading
import time

import pytest

from perkey.drivers import heartbeat
from perkey.drivers.heartbeat import Alarm, Heartbeat

PATIENCE_S = 600


@pytest.fixture
def alarm(monkeypatch: pytest.MonkeyPatch) -> Alarm:
    fresh = Alarm()
    monkeypatch.setattr(heartbeat, "ALARM", fresh)
    return fresh


def beating() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "perkey-heartbeat"]


def test_a_short_effect_starts_no_thread(alarm: Alarm) -> None:
    before = len(beating())
    for _ in range(1000):
        with Heartbeat(3600, lambda: pytest.fail("it beat")):
            assert len(beating()) == before
    assert len(alarm._due) <= 250


def test_a_long_one_beats_until_it_ends(alarm: Alarm) -> None:
    beats = threading.Semaphore(0)
    with Heartbeat(0.001, beats.release):
        for _ in range(5):
            assert beats.acquire(timeout=PATIENCE_S)
        (thread,) = [each for each in beating() if each.is_alive()]
    assert not thread.is_alive()


def test_a_beat_that_fails_is_the_last(alarm: Alarm) -> None:
    failed = threading.Event()
    beats: list[int] = []

    def beat() -> None:
        beats.append(1)
        failed.set()
        raise ValueError("the lease is lost")

    with Heartbeat(0.001, beat):
        assert failed.wait(PATIENCE_S)
        for thread in beating():
            thread.join(PATIENCE_S)
    assert beats == [1]


def test_the_end_waits_for_a_beat_that_has_begun(alarm: Alarm) -> None:
    begun, go_on = threading.Event(), threading.Event()
    ended: list[str] = []

    def beat() -> None:
        begun.set()
        assert go_on.wait(PATIENCE_S)
        ended.append("beat")

    with Heartbeat(0.001, beat):
        assert begun.wait(PATIENCE_S)
        go_on.set()
    ended.append("block")
    assert ended[-2:] == ["beat", "block"]


def test_one_that_is_due_sooner_does_not_wait_for_one_that_is_due_later(alarm: Alarm) -> None:
    beat = threading.Event()
    with Heartbeat(3600, lambda: None), Heartbeat(0.001, beat.set):
        assert beat.wait(PATIENCE_S)


def test_the_effects_error_goes_through(alarm: Alarm) -> None:
    with pytest.raises(KeyError), Heartbeat(0.001, lambda: None):
        raise KeyError("effect")


def test_a_beat_that_is_due_when_the_effect_has_just_ended_does_not_start() -> None:
    one = Heartbeat(3600, lambda: pytest.fail("it beat"))
    with one:
        pass
    one.begin()
    assert one._thread is None


def test_a_child_process_has_an_alarm_of_its_own() -> None:
    with Heartbeat(3600, lambda: None):
        child = os.fork()
        if child == 0:
            beat = threading.Event()
            with Heartbeat(0.001, beat.set):
                os._exit(0 if beat.wait(PATIENCE_S) else 1)
        assert os.waitpid(child, 0)[1] == 0


def test_short_effects_do_not_wake_the_alarm(alarm: Alarm, monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks by itself before any of them is due, even when all that it knew of are over."""
    woken: list[int] = []
    with Heartbeat(3600, lambda: None):
        pass
    while alarm._looks_at == math.inf:  # until the thread has looked
        time.sleep(0.001)
    notify = alarm._more.notify
    monkeypatch.setattr(alarm._more, "notify", lambda: (woken.append(1), notify()))
    for _ in range(500):
        with Heartbeat(3600, lambda: pytest.fail("it beat")):
            pass
    assert woken == []
    with Heartbeat(1800, lambda: None):  # sooner than that: this one it has to know
        assert woken == [1]
