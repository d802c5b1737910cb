"""Threads at every line or bytecode of chosen modules: races on bare memory."""

from __future__ import annotations

import sys
import threading
import types
import weakref

import pytest

from perkey.errors import UsageError
from perkey.testing import explore_threads

HERE = sys.modules[__name__]


class Counter:
    """No lock at all, and one line or two for it."""

    def __init__(self) -> None:
        self.n = 0

    def in_two_lines(self) -> None:
        seen = self.n
        self.n = seen + 1

    def in_one_line(self) -> None:
        self.n += 1


@pytest.mark.parametrize(
    ("caller", "lines", "opcodes", "found"),
    [
        (Counter.in_two_lines, [], [], False),
        (Counter.in_two_lines, [HERE], [], True),
        (Counter.in_one_line, [HERE], [], False),
        (Counter.in_one_line, [], [HERE], True),
    ],
)
def test_a_lost_update_between_two_lines_or_within_one(
    caller: object, lines: list[types.ModuleType], opcodes: list[types.ModuleType], found: bool
) -> None:
    result = explore_threads(
        Counter, [caller] * 2, check=lambda c: c.n == 2, lines=lines, opcodes=opcodes
    )
    assert (result.failure is not None) is found
    if found:
        failure = result.assert_fails("check")
        assert "self.n" in failure.story  # the source line
        again = explore_threads(
            Counter, [caller] * 2, check=lambda c: c.n == 2, lines=lines, opcodes=opcodes,
            replay=failure.replay,
        )  # fmt: skip
        assert again.assert_fails().story == failure.story


class WeakLocks:
    """One lock per key in a ``WeakValueDictionary``, so that unused ones go by themselves.

    Popular, and wrong with threads: ``setdefault`` looks first and stores then.
    """

    def __init__(self) -> None:
        self.locks: weakref.WeakValueDictionary[str, threading.Lock] = weakref.WeakValueDictionary()
        self.inside = self.most = 0

    def work(self) -> None:
        with self.locks.setdefault("k", threading.Lock()):
            self.hold()

    def hold(self) -> None:
        self.inside += 1
        self.most = max(self.most, self.inside)
        self.inside -= 1


class GuardedWeakLocks(WeakLocks):
    """Right: one guard around the look and the store."""

    def __init__(self) -> None:
        super().__init__()
        self.guard = threading.Lock()

    def work(self) -> None:
        with self.guard:
            lock = self.locks.setdefault("k", threading.Lock())
        with lock:
            self.hold()


def one_at_a_time(state: WeakLocks) -> bool:
    return state.most == 1


def test_the_weak_dictionary_of_locks_is_found_and_the_guarded_one_holds() -> None:
    found = explore_threads(
        WeakLocks, [WeakLocks.work] * 2, check=one_at_a_time, lines=[weakref, HERE]
    )
    assert "weakref.py" in found.assert_fails("check").story
    explore_threads(
        GuardedWeakLocks, [GuardedWeakLocks.work] * 2, check=one_at_a_time,
        lines=[weakref, HERE], preemptions=1,
    ).assert_holds()  # fmt: skip


def test_without_the_modules_lines_it_is_not_seen() -> None:
    """What the page on limits says: memory between two switch points is not interleaved."""
    explore_threads(WeakLocks, [WeakLocks.work] * 2, check=one_at_a_time).assert_holds()


def test_only_modules_with_a_file_can_be_named() -> None:
    for wrong in (sys, "weakref"):
        with pytest.raises(UsageError, match="an imported module that has a file"):
            explore_threads(Counter, [Counter.in_one_line], lines=[wrong])
