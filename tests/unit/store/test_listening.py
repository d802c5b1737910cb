"""The thread that waits for a store's word: it wakes, starts again, gives up, and ends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

import pytest

from perkey.errors import StoreUnavailable
from perkey.store import listening
from perkey.store.calls import Calls
from perkey.store.listening import Listening

PATIENCE = 60.0


class Mouth:
    """A backend that speaks when it is told to: ``say(True)``, ``say(False)``, ``say(error)``."""

    def __init__(self) -> None:
        self.words: SimpleQueue[bool | Exception] = SimpleQueue()
        self.opened = 0
        self.closed = 0
        self.deaf = False
        self.away = 0
        """How many attempts to listen fail."""

    def listen(self) -> Mouth | None:
        self.opened += 1
        if self.opened <= self.away:
            raise StoreUnavailable
        return None if self.deaf else self

    def wait(self, seconds: float) -> bool:
        word = self.words.get()
        if isinstance(word, Exception):
            raise word
        return word

    def stop(self) -> None:
        self.words.put(False)

    def close(self) -> None:
        self.closed += 1


class Watcher:
    """Somebody who counts how often it was woken."""

    def __init__(self, wakers: Calls[None]) -> None:
        self.woken = woken = threading.Semaphore(0)
        self.leave = wakers.add(self, lambda _: woken.release() and None)

    def wait(self, times: int = 1) -> None:
        for _ in range(times):
            assert self.woken.acquire(timeout=PATIENCE)

    def rests(self) -> bool:
        return not self.woken.acquire(blocking=False)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "AGAIN_S", (0.001, 0.002))


def begun(mouth: Mouth) -> tuple[Listening, Watcher]:
    wakers = Calls[None]()
    watcher = Watcher(wakers)
    ears = Listening(mouth, wakers)
    ears.start()
    return ears, watcher


def test_word_wakes_and_silence_does_not() -> None:
    mouth = Mouth()
    ears, watcher = begun(mouth)
    watcher.wait()  # for what came before there was anybody to hear of it
    mouth.words.put(False)
    mouth.words.put(True)
    watcher.wait()
    ears.close()
    assert watcher.rests()
    assert (mouth.opened, mouth.closed) == (1, 1)


@pytest.mark.usefixtures("quick")
def test_a_store_that_is_away_is_tried_until_it_is_back() -> None:
    mouth = Mouth()
    mouth.away = 5
    ears, watcher = begun(mouth)
    watcher.wait()
    assert mouth.opened == 6
    ears.close()


@pytest.mark.usefixtures("quick")
def test_a_connection_that_breaks_is_made_again_and_everybody_looks() -> None:
    mouth = Mouth()
    ears, watcher = begun(mouth)
    watcher.wait()
    mouth.words.put(StoreUnavailable("gone"))
    watcher.wait()
    assert (mouth.opened, mouth.closed) == (2, 1)
    ears.close()
    assert mouth.closed == 2


def test_a_store_without_word_is_asked_once() -> None:
    mouth = Mouth()
    mouth.deaf = True
    ears, watcher = begun(mouth)
    ended(ears)
    for _ in range(3):
        ears.start()
    ears.close()
    assert mouth.opened == 1
    assert watcher.rests()


def test_a_backend_that_cannot_speak_has_no_thread() -> None:
    ears = Listening(object(), Calls[None]())
    ears.start()
    assert ears._thread is None
    ears.close()


def test_it_ends_with_the_last_watcher_and_begins_again_with_the_next() -> None:
    mouth = Mouth()
    wakers = Calls[None]()
    first = Watcher(wakers)
    ears = Listening(mouth, wakers)
    ears.start()
    first.wait()
    first.leave()
    mouth.words.put(False)
    ended(ears)
    assert mouth.closed == 1
    second = Watcher(wakers)
    ears.start()
    second.wait()
    ears.close()
    assert (mouth.opened, mouth.closed) == (2, 2)


@pytest.mark.parametrize("after", [lambda ears: ears.start(), lambda ears: ears.close()])
def test_closed_it_stays_closed(after: Callable[[Listening], None]) -> None:
    mouth = Mouth()
    ears, watcher = begun(mouth)
    watcher.wait()
    ears.close()
    after(ears)
    assert mouth.opened == 1
    assert not [each for each in threading.enumerate() if each.name == "perkey-listener"]


@pytest.mark.usefixtures("quick")
def test_closing_does_not_wait_for_a_store_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "AGAIN_S", (1e6, 1e6))
    mouth = Mouth()
    mouth.away = 1_000_000
    ears, _ = begun(mouth)
    ears.close()
    assert mouth.opened <= 1


def ended(ears: Listening) -> None:
    """Wait for the end of its thread."""
    thread = ears._thread
    if thread is not None:
        thread.join(PATIENCE)
        assert not thread.is_alive()
