"""Threads that a test starts, joins and asks."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

LONG = 60.0  # seconds after which a test that should have finished says so


def eventually(condition: Callable[[], bool]) -> None:
    """Wait for what another thread is about to do."""
    end = time.monotonic() + LONG
    while not condition():
        if time.monotonic() > end:
            raise AssertionError("it never came true")
        time.sleep(0.0005)


def visit(locks: Any, timeout: float | None = None, key: Any = "k") -> None:
    """Enter and leave."""
    with locks(key, timeout):
        pass


class Crew:
    """Threads whose exceptions fail the test."""

    def __init__(self) -> None:
        self.threads: list[threading.Thread] = []
        self.errors: list[BaseException] = []

    def start(self, work: Callable[..., Any], *args: Any) -> None:
        def run() -> None:
            try:
                work(*args)
            except BaseException as error:
                self.errors.append(error)

        thread = threading.Thread(target=run, daemon=True)
        self.threads.append(thread)
        thread.start()

    def join(self) -> None:
        for thread in self.threads:
            thread.join(LONG)
            assert not thread.is_alive(), "a thread hangs"
        self.threads.clear()
        if self.errors:
            raise self.errors[0]

    def call(self, work: Callable[..., Any], *args: Any) -> Any:
        """What another thread gets from a call."""
        results: list[Any] = []
        self.start(lambda: results.append(work(*args)))
        self.join()
        return results[0]

    @contextlib.contextmanager
    def holding(self, locks: Any, key: Any) -> Iterator[None]:
        """While another thread holds the key."""
        inside, leave = threading.Event(), threading.Event()

        def hold() -> None:
            with locks(key):
                inside.set()
                assert leave.wait(LONG)

        self.start(hold)
        assert inside.wait(LONG)
        try:
            yield
        finally:
            leave.set()
            self.join()

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *error: object) -> None:
        self.join()
