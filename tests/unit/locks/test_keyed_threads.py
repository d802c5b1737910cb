"""``KeyedLocks`` between threads."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from perkey import errors
from perkey.locks import KeyedLocks
from tests.unit.locks.helpers import Crew, eventually

PROFILES = [{}, {"profile": "lean"}, {"shared": True}, {"shared": True, "profile": "lean"}]
CHECKED = [{}, {"shared": True}, {"reentrant": True}]


@pytest.fixture
def crew() -> Iterator[Crew]:
    with Crew() as crew:
        yield crew


@pytest.mark.parametrize("options", [*PROFILES, {"reentrant": True}])
def test_an_entry_exists_exactly_while_the_key_is_held(options: dict[str, object]) -> None:
    locks = KeyedLocks(**options)
    assert locks.active_keys() == []
    with locks("a"), locks("b"):
        assert sorted(locks.active_keys()) == ["a", "b"]
        assert "a" in locks
        assert "c" not in locks
        assert len(locks) == 2
    assert locks.active_keys() == []
    assert locks._table.queues == {}


@pytest.mark.parametrize("options", [*PROFILES, {"reentrant": True}])
def test_waiters_are_served_in_the_order_in_which_they_came(
    options: dict[str, object], crew: Crew
) -> None:
    locks = KeyedLocks(**options)
    order: list[int] = []

    def visit(number: int) -> None:
        with locks("k"):
            order.append(number)

    with locks("k"):
        for number in range(6):
            crew.start(visit, number)
            eventually(lambda n=number: waiting(locks, "k") == n + 1)
    crew.join()
    assert order == [0, 1, 2, 3, 4, 5]
    assert locks.active_keys() == []
    assert locks._table.queues == {}


def waiting(locks: KeyedLocks, key: str) -> int:
    return len(locks._table.queues.get(key, ()))


@pytest.mark.parametrize("options", PROFILES)
def test_a_hog_that_comes_back_at_once_does_not_overtake(
    options: dict[str, object], crew: Crew
) -> None:
    locks = KeyedLocks(**options)
    turns: list[str] = []

    def visit() -> None:
        with locks("k"):
            turns.append("guest")

    with locks("k"):
        crew.start(visit)
        eventually(lambda: waiting(locks, "k") == 1)
    for _ in range(50):
        with locks("k"):
            turns.append("hog")
    crew.join()
    assert turns[0] == "guest"


@pytest.mark.parametrize("options", PROFILES)
def test_a_timed_out_waiter_leaves_no_trace(options: dict[str, object], crew: Crew) -> None:
    locks = KeyedLocks(**options)
    with crew.holding(locks, "k"):
        with pytest.raises(errors.Timeout) as caught, locks("k", timeout=0.01):
            raise AssertionError("entered a held key")
        assert caught.value.key == "k"
        assert waiting(locks, "k") == 0
        with pytest.raises(errors.Timeout), locks("k", timeout=0):
            raise AssertionError("entered a held key")
    with locks("k", timeout=0):
        assert locks.active_keys() == ["k"]
    assert locks.active_keys() == []


def test_a_timeout_in_the_middle_of_the_line_does_not_disturb_the_others(crew: Crew) -> None:
    locks = KeyedLocks()
    order: list[str] = []

    def visit(name: str, timeout: float | None) -> None:
        with contextlib.suppress(errors.Timeout), locks("k", timeout):
            order.append(name)

    def gave_up() -> bool:
        return locks.statistics().timeouts == 1

    with locks("k"):
        crew.start(visit, "first", None)
        eventually(lambda: waiting(locks, "k") == 1)
        crew.start(visit, "impatient", 0.05)
        # A machine that stands still may show the end of its wait before its beginning.
        eventually(lambda: waiting(locks, "k") == 2 or gave_up())
        crew.start(visit, "last", None)
        eventually(lambda: waiting(locks, "k") == 3 or gave_up())
        eventually(lambda: waiting(locks, "k") == 2 and gave_up())
    crew.join()
    assert order == ["first", "last"]
    assert locks.statistics().timeouts == 1


def test_the_registry_has_a_timeout_of_its_own(crew: Crew) -> None:
    locks = KeyedLocks(timeout=0.01)
    with crew.holding(locks, "k"), pytest.raises(errors.Timeout), locks("k"):
        raise AssertionError("entered a held key")


@pytest.mark.parametrize("options", [*PROFILES, {"reentrant": True}])
def test_try_acquire_gives_a_guard_or_none(options: dict[str, object], crew: Crew) -> None:
    locks = KeyedLocks(**options)
    guard = locks.try_acquire("k")
    assert guard is not None
    assert guard.key == "k"
    assert crew.call(locks.try_acquire, "k") is None
    guard.release()
    assert locks.active_keys() == []
    with pytest.raises(errors.UsageError):
        guard.release()
    with pytest.raises(errors.UsageError), guard:
        raise AssertionError("entered with a spent guard")


@pytest.mark.parametrize("options", PROFILES)
def test_a_guard_works_as_a_context_manager_and_when_dropped(options: dict[str, object]) -> None:
    locks = KeyedLocks(**options)
    guard = locks.try_acquire("k")
    assert guard is not None
    with guard:
        assert "k" in locks
    assert "k" not in locks
    guard = locks.try_acquire("k")
    assert "k" in locks
    del guard
    assert "k" not in locks


@pytest.mark.parametrize("options", PROFILES)
def test_an_exception_in_the_body_releases_and_passes(options: dict[str, object]) -> None:
    locks = KeyedLocks(**options)
    with pytest.raises(ZeroDivisionError), locks("k"):
        raise ZeroDivisionError
    assert locks.active_keys() == []


@pytest.mark.parametrize("options", PROFILES)
def test_a_guard_may_stand_in_an_exit_stack(options: dict[str, object]) -> None:
    locks = KeyedLocks(**options)
    with contextlib.ExitStack() as stack:
        stack.enter_context(locks("a"))
        stack.enter_context(locks("b"))
        assert len(locks) == 2
    assert len(locks) == 0


@pytest.mark.parametrize("options", [{}, {"shared": True}])
def test_re_entry_raises_instead_of_hanging(options: dict[str, object]) -> None:
    locks = KeyedLocks(**options)
    with locks("k"):
        with pytest.raises(errors.NestedSection, match="'k'"), locks("k"):
            raise AssertionError("entered twice")
        with locks("other"):
            assert len(locks) == 2
        assert locks.try_acquire("k") is None
        assert locks.active_keys() == ["k"]
    assert locks.active_keys() == []


def test_a_reentrant_key_is_free_when_the_last_guard_leaves(crew: Crew) -> None:
    locks = KeyedLocks(reentrant=True)
    outer, inner = locks("k"), locks("k")
    outer.__enter__()
    inner.__enter__()
    outer.__exit__(None, None, None)
    assert crew.call(locks.try_acquire, "k") is None
    inner.__exit__(None, None, None)
    assert locks.active_keys() == []
    with locks("k"), locks("k"):
        third = locks.try_acquire("k")
        assert third is not None
        third.release()
        assert "k" in locks
    assert "k" not in locks


@pytest.mark.parametrize("options", CHECKED)
def test_only_the_guard_that_holds_releases_and_only_once(options: dict[str, object]) -> None:
    locks = KeyedLocks(**options)
    guard = locks("k")
    with guard:
        with pytest.raises(errors.UsageError):
            locks("k").__exit__(None, None, None)
        assert "k" in locks
        with pytest.raises(errors.UsageError), guard:
            raise AssertionError("one guard, two entries")
    with pytest.raises(errors.UsageError):
        guard.__exit__(None, None, None)
    with guard:  # in turn, a guard may be used again
        assert "k" in locks


def test_many_takes_all_or_nothing(crew: Crew) -> None:
    locks = KeyedLocks()
    with locks.many(["b", "a", "b"]):
        assert sorted(locks.active_keys()) == ["a", "b"]
    with crew.holding(locks, "b"):
        with pytest.raises(errors.Timeout), locks.many(["a", "b", "c"], timeout=0.01):
            raise AssertionError("entered a held key")
        assert locks.active_keys() == ["b"]
    with locks.many([]):
        assert len(locks) == 0


def test_many_never_deadlocks_whatever_the_order_of_the_keys(crew: Crew) -> None:
    locks = KeyedLocks()
    done = []

    def visit(keys: list[str]) -> None:
        for _ in range(100):
            with locks.many(keys):
                done.append(1)

    crew.start(visit, ["a", "b", "c"])
    crew.start(visit, ["c", "b", "a"])
    crew.start(visit, ["b", "c", "a"])
    crew.join()
    assert len(done) == 300
    assert len(locks) == 0


def test_capacity_is_a_limit_that_quotes_both_numbers(crew: Crew) -> None:
    locks = KeyedLocks(capacity=2)
    with locks("a"), locks("b"):
        with pytest.raises(errors.LimitExceeded, match=r"2 .* capacity is 2"), locks("c"):
            raise AssertionError("entered beyond the capacity")
        assert crew.call(locks.try_acquire, "a") is None
    with locks("c"):
        assert len(locks) == 1


def test_wait_idle_returns_when_nothing_is_held(crew: Crew) -> None:
    locks = KeyedLocks()
    locks.wait_idle(timeout=0)
    idle = threading.Event()

    def watch() -> None:
        locks.wait_idle()
        idle.set()

    with locks("a"):
        with pytest.raises(errors.Timeout):
            locks.wait_idle(timeout=0.01)
        crew.start(watch)
        eventually(lambda: locks._table.queues != {})
        with locks("b"):
            pass
        assert not idle.is_set()
    crew.join()
    assert idle.is_set()
    assert locks._table.queues == {}


def test_statistics_count_what_happened(crew: Crew) -> None:
    locks = KeyedLocks()
    with locks("a"):
        crew.start(lambda: locks("a").__enter__().__exit__(None, None, None))
        eventually(lambda: locks.statistics().waiting == 1)
        assert locks.try_acquire("a") is None
        assert locks.statistics().active == 1
    crew.join()
    seen = locks.statistics()
    assert (seen.acquisitions, seen.contended, seen.skipped, seen.timeouts) == (2, 1, 1, 0)
    assert 0 < seen.waited_longest == seen.waited_total
    with pytest.raises(errors.NotSupported):
        KeyedLocks(profile="lean").statistics()


@pytest.mark.parametrize("options", [*PROFILES, {"reentrant": True}])
def test_no_two_threads_are_inside_at_once(options: dict[str, object]) -> None:
    locks = KeyedLocks(**options)
    counts = dict.fromkeys("abc", 0)

    def work(seed: int) -> None:
        for step in range(400):
            key = "abc"[(seed + step) % 3]
            with locks(key):
                seen = counts[key]
                pause()
                counts[key] = seen + 1

    run_all(work, range(6))
    assert sum(counts.values()) == 6 * 400
    assert len(locks) == 0
    assert locks._table.queues == {}


def pause() -> None:
    """A function call is a place where another thread may run."""


def run_all(work: Callable[[int], None], seeds: range) -> None:
    with ThreadPoolExecutor(len(seeds)) as pool:
        list(pool.map(work, seeds))


@pytest.mark.parametrize(
    "options",
    [{"profile": "quick"}, {"profile": "lean", "reentrant": True}],
)
def test_contradictory_options_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(errors.UsageError):
        KeyedLocks(**options)
