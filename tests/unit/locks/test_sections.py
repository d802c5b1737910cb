"""``Sections``: the array, its hashes, its verbs in both colours, and nested entry."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from perkey import errors
from perkey.locks import Sections
from perkey.locks.hashing import fnv1a
from tests.unit.locks.helpers import Crew, eventually

KINDS = [{}, {"profile": "lean"}, {"shared": True}]
CHECKED = [{}, {"shared": True}]


@pytest.fixture
def crew() -> Iterator[Crew]:
    with Crew() as crew:
        yield crew


def same_section(sections: Sections) -> tuple[str, str]:
    """Two keys that share a section, and their luck."""
    seen: dict[int, str] = {}
    for number in range(10_000):
        key = f"key-{number}"
        other = seen.setdefault(sections.index(key), key)
        if other != key:
            return other, key
    raise AssertionError("no collision")


def other_section(sections: Sections, key: str) -> str:
    return next(k for k in map(str, range(1000)) if sections.index(k) != sections.index(key))


# ------------------------------------------------------------------------------ the hashes


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0x811C9DC5),
        ("a", 0xE40C292C),
        ("b", 0xE70C2DE5),
        ("foobar", 0xBF9CF968),
        ("hello", 0x4F9F2CAB),
        ("chongo was here!\n", 0xD49930D5),
    ],
)
def test_fnv1a_gives_the_published_values(text: str, value: int) -> None:
    assert fnv1a(text.encode()) == value
    assert Sections(256, hash="fnv1a").index(text) == value % 256


@pytest.mark.parametrize("name", ["fast", "fnv1a", "keyed"])
def test_equal_keys_share_a_section_whatever_their_types(name: Any) -> None:
    sections = Sections(1 << 16, hash=name)
    assert sections.index(1) == sections.index(1.0) == sections.index(True)
    assert sections.index(("a", 1)) == sections.index(("a", 1.0))
    assert sections.index(2**70) == sections.index(float(2**70))
    assert sections(1).index == sections(1.0).index == sections(True).index


@pytest.mark.parametrize("name", ["fast", "keyed"])
@pytest.mark.parametrize(
    "keys",
    [
        pytest.param([i * 4096 for i in range(10_000)], id="page offsets"),
        pytest.param([(i << 22) | 5 for i in range(10_000)], id="snowflake ids"),
        pytest.param([float(i << 20) for i in range(10_000)], id="floats"),
        pytest.param([f"device-{i}" for i in range(10_000)], id="text"),
        pytest.param([("tenant", i << 8) for i in range(10_000)], id="tuples"),
    ],
)
def test_structured_keys_spread(name: Any, keys: list[Any]) -> None:
    sections = Sections(256, hash=name)
    counts = Counter(map(sections.index, keys))
    assert len(counts) == 256
    assert max(counts.values()) < 100  # 39 would be even


def test_arrays_are_salted_apart_and_fnv1a_is_not() -> None:
    keys = [f"key-{i}" for i in range(200)]

    def layout(name: Any) -> list[int]:
        sections = Sections(256, hash=name)
        return [sections.index(key) for key in keys]

    assert layout("fast") != layout("fast")
    assert layout("keyed") != layout("keyed")
    assert layout("fnv1a") == layout("fnv1a")
    assert layout(len) == [len(key) for key in keys]


def test_the_byte_hashes_keep_keys_apart_that_differ() -> None:
    sections = Sections(1 << 20, hash="keyed")
    keys = ["1", 2, b"x", ("a", "b"), ("ab",), (("a",), "b"), 1.5, "\ud800"]
    assert len({sections.index(key) for key in keys}) == len(keys)
    with pytest.raises(errors.InvalidKey):
        sections.index(frozenset())


@pytest.mark.parametrize("n", [0, -1, 3, 100, 2.0, "256", 1 << 21])
def test_the_number_of_sections_is_a_power_of_two(n: Any) -> None:
    with pytest.raises(errors.UsageError, match="power of two"):
        Sections(n)


@pytest.mark.parametrize("options", [{"hash": "md5"}, {"profile": "x"}])
def test_unknown_options_are_refused(options: Any) -> None:
    with pytest.raises(errors.UsageError):
        Sections(**options)
    with pytest.raises(errors.UsageError):
        Sections(profile="lean", shared=True)


# --------------------------------------------------------------------------------- threads


@pytest.mark.parametrize("options", KINDS)
def test_one_thread_at_a_time_is_in_a_section(options: Any, crew: Crew) -> None:
    sections = Sections(4, **options)
    counts = [0] * 4

    def work(seed: int) -> None:
        for step in range(300):
            key = seed * 1000 + step
            with sections(key):
                index = sections.index(key)
                seen = counts[index]
                str(seen)
                counts[index] = seen + 1

    for seed in range(6):
        crew.start(work, seed)
    crew.join()
    assert sum(counts) == 1800
    assert sections._table.claims == {}


@pytest.mark.parametrize("options", CHECKED)
def test_blocked_threads_are_served_in_order(options: Any, crew: Crew) -> None:
    sections, order = Sections(1, **options), []

    def visit(number: int) -> None:
        with sections(number):
            order.append(number)

    with sections("first"):
        for number in range(5):
            crew.start(visit, number)
            eventually(lambda n=number: len(sections._table.queues.get(0, ())) == n + 1)
    crew.join()
    assert order == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("options", KINDS)
def test_a_timeout_raises_and_leaves_no_trace(options: Any, crew: Crew) -> None:
    sections = Sections(1, **options)
    with crew.holding(sections, "a"):
        for timeout in (0.01, 0):
            with pytest.raises(errors.Timeout), sections("b", timeout=timeout):
                raise AssertionError("entered a taken section")
        with pytest.raises(errors.Timeout), sections.many(["b"], timeout=0.01):
            raise AssertionError("entered a taken section")
        assert sections._table.queues == {}
    with sections("b", timeout=0):
        pass


@pytest.mark.parametrize("options", KINDS)
def test_try_acquire_never_waits(options: Any, crew: Crew) -> None:
    sections = Sections(1, **options)
    with crew.holding(sections, "a"):
        assert sections.try_acquire("b") is None
    guard = sections.try_acquire("b")
    assert guard is not None
    guard.release()
    with pytest.raises(errors.UsageError):
        guard.release()
    with sections("a"):
        pass


@pytest.mark.parametrize("options", KINDS)
def test_many_enters_each_section_once_and_leaves_all(options: Any, crew: Crew) -> None:
    sections = Sections(8, **options)
    keys = [f"key-{i}" for i in range(40)]
    with sections.many(keys):
        assert crew.call(lambda: [sections.try_acquire(k) for k in keys]) == [None] * 40
    with sections.many([]):
        pass
    with sections.many(keys):
        pass
    assert sections._table.claims == {}


@pytest.mark.parametrize("options", KINDS)
def test_many_is_all_or_nothing(options: Any, crew: Crew) -> None:
    sections = Sections(8, hash=int, **options)
    with crew.holding(sections, 5):
        with pytest.raises(errors.Timeout), sections.many([6, 5, 4], timeout=0.01):
            raise AssertionError("entered a taken section")
        assert crew_free(sections, [4, 6])


def crew_free(sections: Sections, keys: list[int]) -> bool:
    guards = []
    for key in keys:
        with contextlib.closing(Releasing(sections.try_acquire(key))) as guard:
            guards.append(guard.got)
    return all(guards)


class Releasing:
    def __init__(self, guard: Any) -> None:
        self.guard, self.got = guard, guard is not None

    def close(self) -> None:
        if self.got:
            self.guard.release()


def test_statistics_name_the_hottest_sections(crew: Crew) -> None:
    sections = Sections(8, hash=int)
    for key in [3, 3, 3, 5, 5, 1]:
        with sections(key):
            pass
    with crew.holding(sections, 3), pytest.raises(errors.Timeout), sections(3, timeout=0.01):
        raise AssertionError("entered a taken section")
    with crew.holding(sections, 2):
        assert sections.try_acquire(2) is None
    seen = sections.statistics()
    assert (seen.acquisitions, seen.contended, seen.timeouts, seen.skipped) == (8, 1, 1, 1)
    assert seen.waited_longest > 0
    assert seen.hottest[:2] == ((3, 4), (5, 2))
    with pytest.raises(errors.NotSupported):
        Sections(profile="lean").statistics()


# -------------------------------------------------------------------------- nested entry


@pytest.mark.parametrize("options", CHECKED)
@pytest.mark.parametrize("collide", [True, False])
def test_a_second_section_raises_and_names_both(options: Any, collide: bool) -> None:
    sections = Sections(256, **options)
    first, second = same_section(sections)
    if not collide:
        second = other_section(sections, first)
    with sections(first):
        for _ in range(2):
            with pytest.raises(errors.NestedSection) as caught, sections(second):
                raise AssertionError("entered a second section")
        with pytest.raises(errors.NestedSection):
            sections.try_acquire(second)
        with pytest.raises(errors.NestedSection), sections.many([second]):
            raise AssertionError("entered a second section")
    error = caught.value
    assert (error.first_key, error.key) == (first, second)
    assert (error.first_section, error.section) == (sections.index(first), sections.index(second))
    for part in (repr(first), repr(second), str(error.first_section), str(error.section)):
        assert part in str(error)
    assert "test_a_second_section_raises_and_names_both (test_sections.py:" in error.first_taken
    with sections(second):
        assert len(sections._table.claims) == 1
    assert sections._table.claims == {}


@pytest.mark.parametrize("options", CHECKED)
def test_re_entry_from_a_callback_is_caught_and_told_where(options: Any) -> None:
    """The case that hurts: a callback, far from the code that holds the section."""
    sections = Sections(256, **options)

    class Feed:
        def publish(self) -> None:
            with contextlib.suppress(KeyError), sections("unit-1"):
                self.notify()

        def notify(self) -> None:
            with open(__file__), sections("unit-2"):
                raise AssertionError("entered a second section")

    with pytest.raises(errors.NestedSection) as caught:
        Feed().publish()
    assert "Feed.publish (test_sections.py:" in caught.value.first_taken


@pytest.mark.parametrize("options", CHECKED)
async def test_a_task_may_not_enter_a_second_section_but_other_tasks_may(options: Any) -> None:
    sections = Sections(256, **options)
    other = other_section(sections, "a")

    async def enter(key: str) -> int:
        async with sections(key):
            await asyncio.sleep(0)
            return len(sections._table.claims)

    async with sections("a"):
        with pytest.raises(errors.NestedSection) as caught:
            await enter(other)
        assert await asyncio.create_task(enter(other)) == 2
        with pytest.raises(errors.NestedSection):
            sections.try_acquire(other)
    assert "test_sections.py" in caught.value.first_taken
    assert await enter("a") == 1
    assert sections._table.claims == {}
    assert sections.inside == {}


def test_what_holds_a_section_in_another_way_is_nested_too() -> None:
    sections = Sections()
    with contextlib.ExitStack() as stack:
        stack.enter_context(sections("a"))
        with pytest.raises(errors.NestedSection), sections("b"):
            raise AssertionError("entered a second section")
    entry = sections("a")
    entry.__enter__()
    with pytest.raises(errors.NestedSection), sections("b"):
        raise AssertionError("entered a second section")
    entry.__exit__(None, None, None)
    with pytest.raises(errors.UsageError):
        entry.__exit__(None, None, None)

    def walk() -> Iterator[int]:
        with sections("a"):
            yield 1

    walker = walk()
    next(walker)
    with pytest.raises(errors.NestedSection), sections("b"):
        raise AssertionError("entered a second section")
    walker.close()
    with sections("b"):
        pass


# --------------------------------------------------------------------------------- tasks


@pytest.mark.parametrize("options", KINDS)
async def test_one_task_at_a_time_is_in_a_section_in_order(options: Any) -> None:
    sections, order = Sections(1, **options), []
    inside = 0

    async def visit(number: int) -> None:
        nonlocal inside
        async with sections(number):
            inside += 1
            assert inside == 1
            order.append(number)
            await asyncio.sleep(0)
            inside -= 1

    await asyncio.gather(*(visit(number) for number in range(50)))
    assert order == list(range(50))
    assert sections._table.claims == {}


@pytest.mark.parametrize("options", KINDS)
async def test_cancelled_and_timed_out_tasks_leave_no_trace(options: Any) -> None:
    sections = Sections(1, **options)

    async def visit(timeout: float | None) -> None:
        async with sections("k", timeout):
            await asyncio.sleep(0)

    async with sections("k"):
        waiting = [asyncio.create_task(visit(None)) for _ in range(3)]
        late = asyncio.create_task(visit(0.001))
        with pytest.raises(errors.Timeout):
            await late
        waiting[1].cancel()
        await asyncio.wait([waiting[1]])
    waiting[0].cancel()  # it has the section, and does not know yet
    await asyncio.wait_for(waiting[2], 60)
    assert sections._table.claims == {}
    assert sections._table.queues == {}
    assert sections.inside == {}


@pytest.mark.parametrize("options", KINDS)
async def test_many_waits_for_all_its_sections(options: Any) -> None:
    sections = Sections(8, hash=int, **options)

    async def all_of(keys: list[int]) -> None:
        async with sections.many(keys):
            await asyncio.sleep(0)

    async def one() -> None:
        async with sections(2):
            task = asyncio.create_task(all_of([1, 2, 3]))
            other = asyncio.create_task(all_of([3, 2, 1]))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert not task.done()
            other.cancel()
        await task
        await asyncio.wait([other])

    await asyncio.create_task(one())
    assert sections._table.claims == {}
    assert sections._table.queues == {}


# -------------------------------------------------------------------------------- colours


@pytest.mark.parametrize("options", [{}, {"profile": "lean"}])
def test_an_array_belongs_to_threads_or_to_one_loop(options: Any) -> None:
    async def enter(sections: Sections) -> None:
        async with sections("k"):
            pass

    threads = Sections(**options)
    with threads("k"):
        pass
    for timeout in (None, 1):
        with pytest.raises(errors.WrongColour, match="threads"):
            asyncio.run(enter(lambda key, t=timeout: threads(key, t)))  # type: ignore[arg-type]

    async def main() -> None:
        tasks = Sections(**options)
        await enter(tasks)
        with pytest.raises(errors.WrongColour, match="event loop"), tasks("k"):
            raise AssertionError("entered with the wrong colour")
        with pytest.raises(errors.WrongColour, match="event loop"):
            await asyncio.to_thread(lambda: asyncio.run(enter(tasks)))

    asyncio.run(main())


def test_advice() -> None:
    assert Sections.advise(1).sections == 1
    advice = Sections.advise(holders=8, keys=1000)
    assert advice.sections == 1024
    assert 0.006 < advice.false_contention < 0.007
    assert Sections.advise(holders=1000, keys=2, at_most=0.3).sections == 4
    assert Sections.advise(100, at_most=0.1).sections == 1024
    with pytest.raises(errors.UsageError):
        Sections.advise(0)


# ---------------------------------------------------------------------- what is remembered


@pytest.mark.parametrize("options", KINDS)
def test_a_hold_taken_before_the_first_use_is_as_good_as_a_later_one(options: Any) -> None:
    sections = Sections(**options)
    early = sections.hold
    with early("k"):
        pass
    assert type(early("k")) is type(sections.hold("k"))
    with (
        early("k", timeout=1),
        pytest.raises(errors.NestedSection)
        if "profile" not in options
        else (contextlib.nullcontext()),
        sections("k", 1),
    ):
        pass


def test_an_array_remembers_few_keys_and_finds_the_others_again() -> None:
    sections = Sections(2)
    for key in range(1000):
        with sections(key):
            assert sections.hold.cache_info().currsize <= 16
    assert sections.statistics().acquisitions == 1000


@pytest.mark.parametrize("options", KINDS)
async def test_the_time_left_of_one_group_is_not_that_of_another(options: Any) -> None:
    """The entries that an array remembers are everybody's; a limit on them would be, too."""
    sections = Sections(4, hash=int, **options)

    async def wait_long() -> None:
        async with sections.many([1], timeout=60):
            pass

    async def hold() -> None:
        async with sections(1):
            patient = asyncio.create_task(wait_long())
            await asyncio.sleep(0)
            with pytest.raises(errors.Timeout):
                await asyncio.create_task(enter_many(sections, [1], 0.01))
        await patient

    await asyncio.create_task(hold())
    assert sections._table.claims == {}


async def enter_many(sections: Sections, keys: list[int], timeout: float) -> None:
    async with sections.many(keys, timeout=timeout):
        raise AssertionError("entered a taken section")


@pytest.mark.parametrize("options", KINDS)
async def test_entries_may_stand_in_exit_stacks(options: Any) -> None:
    """``ExitStack`` asks the class for the methods, not the object."""
    tasks = Sections(**options)
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(tasks("a"))
        assert await asyncio.create_task(tries(tasks, "a"))

    def threads() -> None:
        sections = Sections(**options)
        for timeout in (None, 1):
            with contextlib.ExitStack() as stack:
                stack.enter_context(sections("a", timeout))
                with Crew() as crew:
                    assert crew.call(sections.try_acquire, "a") is None
        with sections("a"):
            pass

    await asyncio.to_thread(threads)


async def tries(sections: Sections, key: str) -> bool:
    return sections.try_acquire(key) is None


async def test_what_is_awaited_uncontended_may_be_awaited_in_any_way() -> None:
    locks = Sections()
    for use in (asyncio.wait_for(locks("k").__aenter__(), 1), asyncio.ensure_future(once(locks))):
        await use
        await locks("k").__aexit__(None, None, None)


async def once(locks: Any) -> None:
    await locks("k").__aenter__()
