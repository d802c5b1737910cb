"""Whose line a story tells: the user's, else perkey's; the explorer's never."""

from __future__ import annotations

import asyncio
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import perkey
from perkey import AsyncOnce
from perkey.lab import catalogue
from perkey.lab.examine import search
from perkey.testing import SteppedStore, explore, where
from perkey.testing.pytest_plugin import _place

PACKAGE = Path(perkey.__file__).parent


def files(story: str) -> set[str]:
    """The source files that a story names."""
    return set(re.findall(r"\w+\.py(?=:\d)", story))


async def counted() -> SteppedStore:
    store = SteppedStore()
    await store.put("n", 0, create=True)
    return store


async def blind(store: SteppedStore) -> None:
    seen = (await store.get("n")).value
    await store.put("n", seen + 1, overwrite=True)


async def charge(store: SteppedStore) -> None:
    await AsyncOnce(store).run("k", 1, lambda context: 8)


def never(state: Any) -> bool:
    return False


@pytest.mark.parametrize(
    ("file", "whose"),
    [
        (__file__, where.USERS),
        (str(PACKAGE.with_name("perkey_app") / "main.py"), where.USERS),
        (str(PACKAGE / "lab" / "double_move.py"), where.USERS),
        (str(PACKAGE / "stores.py"), where.PERKEYS),
        (str(PACKAGE / "store" / "core.py"), where.PERKEYS),
        (str(PACKAGE / "testing" / "loop.py"), where.OURS),
        (asyncio.__file__, where.OURS),
        ("<string>", where.OURS),
    ],
)
def test_whose_a_file_is(file: str, whose: int) -> None:
    assert where.whose(file) == whose


def test_the_frame_to_tell_is_the_innermost_of_the_nearest_kind() -> None:
    user, perkeys, ours = __file__, str(PACKAGE / "stores.py"), asyncio.__file__
    assert where.innermost([ours, user, perkeys, user, perkeys, ours]) == 3
    assert where.innermost([ours, perkeys, perkeys, ours]) == 2
    assert where.innermost([ours, ours]) == 1


def test_a_story_over_a_stepped_store_is_told_in_the_users_lines() -> None:
    found = explore(counted, [blind] * 2, check=lambda store: store.value("n") == 2)
    story = found.assert_fails("check").story
    assert files(story) == {"test_where.py"}
    assert story.count("seen = (await store.get") == 2
    assert story.count('await store.put("n", seen + 1') == 4  # reached, and gone through
    moves = [line for line in story.splitlines() if re.match(r" +\d+ ", line)]
    assert len(moves) == 6


def test_a_users_line_that_goes_on_inside_perkey_says_with_which_step() -> None:
    async def purge(store: SteppedStore) -> None:
        async for _ in store.scan():
            pass

    async def setup() -> SteppedStore:
        return SteppedStore()

    story = explore(setup, [purge], check=never).assert_fails().story
    lines = [line.strip() for line in story.splitlines()]
    assert files(story) == {"test_where.py"}
    assert "(read)" in lines
    assert "async for _ in store.scan():" in lines[lines.index("(read)") - 1]


def test_a_step_that_fails_is_told_once() -> None:
    story = explore(SteppedStore, [charge], failures=1).assert_fails("raised").story
    assert "! commit fails" in story
    assert "(commit)" not in story


def test_where_no_user_stands_on_the_stack_perkeys_lines_are_told() -> None:
    def put(value: int, store: SteppedStore) -> Any:
        return store.put("n", value, overwrite=True)

    found = explore(counted, [partial(put, 1), partial(put, 2)], check=never)
    story = found.assert_fails("check").story
    assert {"stores.py", "records.py"} <= files(story)
    assert not files(story) & {"loop.py", "points.py", "stepped.py"}  # the explorer's own


def test_an_error_inside_perkey_is_placed_at_the_users_line() -> None:
    async def create(store: SteppedStore) -> None:
        await store.put("n", 1, create=True)

    error = explore(SteppedStore, [create] * 2).assert_fails("raised").error
    (place,) = _place(error, str(Path(__file__).parent))
    assert re.fullmatch(r'at test_where\.py:\d+  await store\.put\("n", 1, create=True\)', place)
    (place,) = _place(error, str(PACKAGE))
    assert place.startswith(f"at {__file__}:")


def test_an_error_of_perkeys_alone_is_placed_in_perkey() -> None:
    def put(store: SteppedStore) -> Any:
        return store.put("n", 1, create=True)

    error = explore(SteppedStore, [put] * 2).assert_fails("raised").error
    (place,) = _place(error, str(PACKAGE))
    assert place.startswith("at flows/records.py:")


def test_a_deadlock_names_the_users_lines() -> None:
    async def both(locks: perkey.KeyedLocks, first: str, second: str) -> None:
        async with locks(first):
            await asyncio.sleep(0)
            async with locks(second):
                pass

    async def forth(locks: perkey.KeyedLocks) -> None:
        await both(locks, "a", "b")

    async def back(locks: perkey.KeyedLocks) -> None:
        await both(locks, "b", "a")

    story = explore(perkey.KeyedLocks, [forth, back]).assert_fails("deadlock").story
    assert re.search(r"forth waits at test_where.py:\d+  async with locks\(second\)", story)
    assert re.search(r"back waits at test_where.py:\d+  async with locks\(second\)", story)


@pytest.mark.parametrize(
    "chosen",
    [each for each in catalogue.choose([]) if catalogue.find(each)[1].kind == "wrong"],
    ids="/".join,
)
def test_the_labs_variants_show_their_lines(chosen: tuple[str, str]) -> None:
    failure = search(catalogue.find(chosen)[1])[0].failure
    assert failure is not None
    assert f"{chosen[0].replace('-', '_')}.py" in files(failure.story)
