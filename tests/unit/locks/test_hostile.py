"""Keys and timeouts as they come from outside, and the wrong colour everywhere."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from perkey import errors
from perkey.locks import KeyedLocks, Sections
from tests.unit.locks.helpers import Crew, visit

MAKERS = [
    pytest.param(KeyedLocks, id="keyed"),
    pytest.param(lambda **o: KeyedLocks(profile="lean", **o), id="keyed-lean"),
    pytest.param(lambda **o: KeyedLocks(shared=True, **o), id="keyed-shared"),
    pytest.param(lambda **o: KeyedLocks(reentrant=True, **o), id="keyed-reentrant"),
    pytest.param(Sections, id="sections"),
    pytest.param(lambda **o: Sections(profile="lean", **o), id="sections-lean"),
    pytest.param(lambda **o: Sections(shared=True, **o), id="sections-shared"),
]
OF_ONE_HOME = [maker for maker in MAKERS if "shared" not in maker.id and "reent" not in maker.id]
every = pytest.mark.parametrize("make", MAKERS)
home = pytest.mark.parametrize("make", OF_ONE_HOME)

KEYS = [
    1, -1, -2, 2**61 - 1, 10**5000, 1.5, float("inf"), float("nan"), "", "\ud800", "\0", b"", (),
    (1, ("a", b"a")), None, frozenset({1}), object(),
]  # fmt: skip


async def enter(locks: Any, key: Any = "k") -> None:
    async with locks(key):
        await asyncio.sleep(0)


@every
@pytest.mark.parametrize("key", KEYS, ids=lambda key: type(key).__name__)
def test_any_hashable_key_is_a_key(make: Callable[[], Any], key: Any) -> None:
    locks = make()
    for _ in range(2):
        visit(locks, None, key)
    assert locks.try_acquire(key) is not None
    tasks = make()
    asyncio.run(enter(tasks, key))
    assert locks._table.claims == tasks._table.claims == {}


@every
@pytest.mark.parametrize("key", [[], {}, (1, [2])], ids=["list", "dict", "in a tuple"])
def test_what_has_no_hash_is_refused_and_leaves_nothing(make: Callable[[], Any], key: Any) -> None:
    locks = make()
    for use in (lambda: visit(locks, None, key), lambda: locks.try_acquire(key)):
        with pytest.raises(TypeError, match="unhashable"):
            use()
    with pytest.raises(TypeError, match="unhashable"):
        locks.many([key])
    assert locks._table.claims == {}


@pytest.mark.parametrize("name", ["fnv1a", "keyed"])
def test_the_byte_hashes_take_numbers_of_any_size(name: Any) -> None:
    sections = Sections(1 << 16, hash=name)
    big = [10**5000, -(10**5000), 10**5000 + 1, 2**1023, 2**1024]
    assert len({sections.index(key) for key in big}) == len(big)
    assert sections.index(2**1023) == sections.index(float(2**1023))


@pytest.mark.parametrize("make", [KeyedLocks, lambda: KeyedLocks(profile="lean")])
def test_equal_keys_are_one_key(make: Callable[[], Any]) -> None:
    locks = make()
    with Crew() as crew, locks(1):
        for key in (1.0, True):
            assert key in locks
            assert crew.call(locks.try_acquire, key) is None


@every
@pytest.mark.parametrize("timeout", [0, -1, -0.5, float("-inf")])
def test_no_time_left_is_no_wait(make: Callable[[], Any], timeout: Any) -> None:
    locks = make()
    visit(locks, timeout)
    with Crew() as crew, crew.holding(locks, "k"):
        for use in (lambda: visit(locks, timeout), lambda: locks.many(["k"], timeout).__enter__()):
            with pytest.raises(errors.Timeout, match="'k'") as caught:
                use()
            assert caught.value.key == "k"
    assert locks._table.claims == locks._table.queues == {}


@every
@pytest.mark.parametrize("timeout", [float("inf"), 1e300, 10**400])
def test_a_timeout_beyond_every_clock_is_none(make: Callable[[], Any], timeout: Any) -> None:
    """It waits in line like anybody, whether it blocks or is awaited."""
    locks, tasks = make(timeout=timeout), make()
    with Crew() as crew:
        with crew.holding(locks, "k"):
            waiter = Crew()
            waiter.start(visit, locks, timeout)
        waiter.join()

    async def awaited() -> None:
        async def wait() -> None:
            async with tasks("k", timeout):
                pass

        async with tasks("k"):
            waiting = asyncio.create_task(wait())
            await asyncio.sleep(0)
        await waiting

    asyncio.run(awaited())
    assert locks._table.claims == tasks._table.claims == {}


@every
@pytest.mark.parametrize("timeout", [float("nan"), "5", [1]], ids=repr)
def test_what_is_no_time_is_refused(make: Callable[..., Any], timeout: Any) -> None:
    with pytest.raises(errors.UsageError, match="number of seconds"):
        visit(make(timeout=timeout))
    locks = make()
    with pytest.raises(errors.UsageError, match="number of seconds"):
        locks.many(["k"], timeout)
    if not getattr(locks, "_lean", False):  # lean looks at it only where it waits
        with pytest.raises((errors.UsageError, TypeError), match=r"number of seconds|unhashable"):
            visit(locks, timeout)
        with pytest.raises((errors.UsageError, TypeError), match=r"number of seconds|unhashable"):
            locks("k", timeout)
        assert locks._table.claims == {}
    with Crew() as crew, crew.holding(locks, "k"):
        with pytest.raises((errors.UsageError, TypeError)):
            visit(locks, timeout)
        assert locks._table.queues == {}


@pytest.mark.parametrize("timeout", [0, -1, float("-inf")])
def test_waiting_for_idleness_knows_the_same_times(timeout: float) -> None:
    locks = KeyedLocks()
    with Crew() as crew, crew.holding(locks, "k"):
        with pytest.raises(errors.Timeout):
            locks.wait_idle(timeout)
        with pytest.raises(errors.UsageError):
            locks.wait_idle(float("nan"))
    locks.wait_idle(float("inf"))
    asyncio.run(idle(timeout))


async def idle(timeout: float) -> None:
    locks = KeyedLocks()
    async with locks("k"):
        with pytest.raises(errors.Timeout):
            await locks.wait_idle(timeout)
    await locks.wait_idle(float("inf"))


# -------------------------------------------------------------------------------- colours


@home
def test_another_thread_cannot_try_what_belongs_to_a_loop(make: Callable[[], Any]) -> None:
    """It could not wake the tasks that would wait for it."""

    async def main() -> None:
        locks = make()
        await enter(locks)
        with pytest.raises(errors.WrongColour):
            await asyncio.to_thread(locks.try_acquire, "k")
        with pytest.raises(errors.WrongColour):
            await asyncio.to_thread(visit, locks)
        with pytest.raises(errors.WrongColour):
            await asyncio.to_thread(lambda: asyncio.run(enter(locks)))
        with pytest.raises(errors.WrongColour):
            visit(locks)
        assert locks._table.claims == {}

    asyncio.run(main())


@home
def test_a_loop_cannot_enter_what_belongs_to_threads(make: Callable[[], Any]) -> None:
    locks = make()
    visit(locks)
    with pytest.raises(errors.WrongColour):
        asyncio.run(enter(locks))

    async def blocking_code_on_a_loop() -> None:
        visit(locks)
        guard = locks.try_acquire("k")
        assert guard is not None
        guard.release()

    asyncio.run(blocking_code_on_a_loop())
    assert locks._table.claims == {}


@home
def test_one_loop_after_the_other_is_fine(make: Callable[[], Any]) -> None:
    locks = make()
    for _ in range(3):
        asyncio.run(enter(locks))
    with pytest.raises(errors.WrongColour):
        visit(locks)  # what is made for tasks would let a thread pass
    asyncio.run(enter(locks))


# ------------------------------------------------------------------------- keys of one hash


class Same:
    """A key whose hash is that of all others, and whose name changes from look to look."""

    looks = itertools.count()

    def __hash__(self) -> int:
        return 7

    def __repr__(self) -> str:
        return str(next(self.looks) * 7919 % 100)


def test_groups_of_keys_with_one_hash_never_deadlock() -> None:
    locks, keys = KeyedLocks(), [Same() for _ in range(4)]
    done = []

    def visit_all(turn: int) -> None:
        for _ in range(50):
            with locks.many(keys[turn:] + keys[:turn]):
                done.append(turn)
                assert len(locks) == 4

    with Crew() as crew:
        for turn in range(4):
            crew.start(visit_all, turn)
    assert len(done) == 200
    assert locks._table.claims == {}


def test_equal_keys_that_look_different_have_one_place_in_a_group() -> None:
    """1 and 2**61 have one hash; 1 comes before it by name, and True after it."""
    locks = KeyedLocks(profile="lean")

    def visit_all(one: Any) -> None:
        for _ in range(200):
            with locks.many([one, 2**61, "x", b"x"]):
                pass

    with Crew() as crew:
        for one in (1, True, 1.0):
            crew.start(visit_all, one)
    assert locks.active_keys() == []
