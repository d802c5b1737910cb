"""An interrupt at any point of any role: nothing half, nothing twice, nobody left waiting."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import perkey
from perkey.store.transaction import Tx
from perkey.stores import AsyncStore
from tests.unit.interrupts import Strike, everywhere

PATIENCE = 60.0


class Rig:
    """A store, and threads that each append their name to one document."""

    def __init__(self, url: str) -> None:
        self.store = perkey.open(url)
        self.heard: list[object] = []
        self.store.observe(self.heard.append)
        self.sent: list[str] = []
        self.got: list[str] = []
        self.errors: list[BaseException] = []
        self.threads: list[threading.Thread] = []

    def append(self, name: str, inside: Callable[[], None] = lambda: None) -> None:
        def fn(tx: Tx) -> None:
            inside()
            tx["log"] = [*tx.get("log", []), name]
            tx["copy"] = [*tx.get("copy", []), name]

        self.sent.append(name)
        self.store.transact(["log", "copy"], fn)
        self.got.append(name)

    def on_thread(self, name: str, inside: Callable[[], None] = lambda: None) -> None:
        def run() -> None:
            try:
                self.append(name, inside)
            except BaseException as error:
                self.errors.append(error)

        thread = threading.Thread(target=run, daemon=True)
        self.threads.append(thread)
        thread.start()

    def wait_for_queue(self, length: int, give_up: threading.Event | None = None) -> None:
        """Until so many callers are queued; the committer says so itself."""
        pause = give_up or threading.Event()
        for _ in range(10_000):
            if self.store.statistics()["waiting"] >= length or pause.wait(0.001):
                return
        raise AssertionError("the queue did not grow")

    def check(self) -> None:
        """Everyone came back, the store still works, and nothing is half or twice."""
        for thread in self.threads:
            thread.join(PATIENCE)
            assert not thread.is_alive(), "a caller was left waiting"
        assert self.errors == []
        self.threads.clear()
        self.on_thread(f"check {len(self.sent)}")
        self.threads.pop().join(PATIENCE)
        assert self.got[-1] == self.sent[-1], "the store is wedged"
        log = self.store.get("log")
        assert log.value == self.store.get("copy").value
        assert len(set(log.value)) == len(log.value) == log.version
        assert set(self.got) <= set(log.value) <= set(self.sent)

    def finish(self) -> None:
        """All that was written shows in every view, the last round's writes too."""
        self.check()
        log = self.store.get("log")
        history = self.store.history("log", limit=100_000)
        assert [each.value for each in history] == [log.value[: n + 1] for n in range(log.version)]
        assert [each.key for each in self.store.scan()] == ["copy", "log"]
        with self.store.watch("log", after="") as watch:
            changes = [watch.next(PATIENCE) for _ in range(log.version)]
        assert [each.document.version for each in changes] == list(range(1, log.version + 1))
        self.store.close()


@pytest.fixture(params=["memory://", "sqlite:///"])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Rig:
    url = (
        request.param
        if request.param == "memory://"
        else f"sqlite:///{tmp_path}/s.db?synchronous=OFF"
    )
    return Rig(url)


def struck(strike: Strike, use: Callable[[], object]) -> None:
    try:
        with strike:
            use()
    except KeyboardInterrupt:
        assert strike.struck


def test_a_lone_caller(rig: Rig) -> None:
    def scenario(strike: Strike) -> None:
        struck(strike, lambda: rig.append(f"main {strike.at}"))

    for _ in everywhere(scenario):
        rig.check()
    rig.finish()


def test_a_leader_with_followers(rig: Rig) -> None:
    """Struck before, while and after it commits for two others that wait for it."""

    def scenario(strike: Strike) -> None:
        def followers_arrive() -> None:
            if not rig.threads:
                rig.on_thread(f"first {strike.at}")
                rig.on_thread(f"second {strike.at}")
                rig.wait_for_queue(2)

        def lead() -> None:
            rig.append(f"main {strike.at}", followers_arrive)

        struck(strike, lead)

    for _ in everywhere(scenario):
        rig.check()
    rig.finish()


@pytest.mark.parametrize("other_first", [True, False])
def test_a_follower(rig: Rig, other_first: bool) -> None:
    """Struck while queued, when it is handed over, and when it is made the leader."""

    def scenario(strike: Strike) -> None:
        entered, go = threading.Event(), threading.Event()

        def hold() -> None:
            entered.set()
            go.wait(PATIENCE)

        rig.on_thread(f"leader {strike.at}", hold)
        assert entered.wait(PATIENCE)

        def release() -> None:
            rig.wait_for_queue(1 + other_first, go)
            go.set()

        if other_first:
            rig.on_thread(f"other {strike.at}")
            rig.wait_for_queue(1)
        helper = threading.Thread(target=release, daemon=True)
        helper.start()
        struck(strike, lambda: rig.append(f"main {strike.at}"))
        go.set()  # where the strike came before it was queued
        helper.join(PATIENCE)

    rounds = 0
    for _ in everywhere(scenario):
        rig.check()
        rounds += 1
    assert rounds > 20
    rig.finish()


def test_closing() -> None:
    """A close that was struck can be done again, and no caller hangs meanwhile."""

    def scenario(strike: Strike) -> None:
        store = perkey.open("memory://")
        entered, go = threading.Event(), threading.Event()
        outcomes: list[str] = []

        def fn(tx: Tx) -> None:
            entered.set()
            go.wait(PATIENCE)

        def run(use: Callable[[Tx], None]) -> None:
            try:
                store.transact("a", use)
                outcomes.append("done")
            except perkey.StoreClosed:
                outcomes.append("closed")

        threads = [threading.Thread(target=run, args=(fn,), daemon=True)]
        threads[0].start()
        assert entered.wait(PATIENCE)
        threads.append(threading.Thread(target=run, args=(lambda tx: None,), daemon=True))
        threads[1].start()
        pause = threading.Event()
        while store.statistics()["waiting"] < 1:
            pause.wait(0.001)
        threads.append(threading.Thread(target=go.set, daemon=True))
        threads[2].start()
        struck(strike, store.close)
        store.close()
        for thread in threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()
        assert sorted(outcomes) == ["closed", "done"] or outcomes == ["done", "done"]
        with pytest.raises(perkey.StoreClosed):
            store.get("a")

    assert len(list(everywhere(scenario))) > 10


def test_on_a_loop(rig: Rig) -> None:
    """Struck while an asyncio caller leads on the loop, or waits for a worker."""

    def scenario(strike: Strike) -> None:
        def fn(tx: Tx) -> None:
            tx["log"] = [*tx.get("log", []), f"main {strike.at}"]
            tx["copy"] = [*tx.get("copy", []), f"main {strike.at}"]

        async def main() -> None:
            store = AsyncStore.__new__(AsyncStore)
            store.core = rig.store.core
            await store.transact(["log", "copy"], fn)

        rig.sent.append(f"main {strike.at}")
        struck(strike, lambda: asyncio.run(main()))

    for _ in everywhere(scenario):
        rig.check()
    rig.finish()


# A signal that meets a weak reference's callback is swallowed there, by CPython itself.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_real_signals(rig: Rig) -> None:
    """A storm of signals, by the clock of the processor, while others use the store too."""
    inside = False

    def handler(number: int, frame: object) -> None:
        if inside:
            raise KeyboardInterrupt

    stop = threading.Event()

    def others(n: int) -> None:
        k = 0
        while not stop.is_set():
            rig.append(f"other {n} {k}")
            k += 1

    before = signal.signal(signal.SIGPROF, handler)
    threads = [threading.Thread(target=others, args=(n,), daemon=True) for n in range(2)]
    for thread in threads:
        thread.start()
    interrupted = 0
    try:
        for n in range(150):
            signal.setitimer(signal.ITIMER_PROF, 0.0001 + (n % 30) * 0.0001)
            try:
                inside = True
                for k in range(5):
                    rig.append(f"main {n} {k}")
                inside = False
            except KeyboardInterrupt:
                inside = False
                interrupted += 1
    finally:
        inside = False
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
        stop.set()
        for thread in threads:
            thread.join(PATIENCE)
            assert not thread.is_alive(), "a caller was left waiting"
    assert interrupted > 0
    rig.check()
    rig.finish()
