"""What a transaction refuses: functions that run later, and keys that were not declared."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

import perkey
from perkey import Documents, Leases, UndeclaredKey, UsageError
from perkey.store.transaction import Tx, check_fn


async def coroutine(tx: Any, more: int = 0) -> None: ...


def generator(tx: Any, more: int = 0) -> Iterator[None]:
    yield


async def async_generator(tx: Any) -> AsyncIterator[None]:
    yield


def plain(tx: Any, more: int = 0) -> None: ...


class AsyncCall:
    async def __call__(self, tx: Any) -> None: ...


class GeneratorCall:
    def __call__(self, tx: Any) -> Iterator[None]:
        yield


class PlainCall:
    def __call__(self, tx: Any) -> None: ...


class Method:
    async def later(self, tx: Any) -> None: ...

    def now(self, tx: Any) -> None: ...


LATER: dict[str, Callable[..., Any]] = {
    "async def": coroutine,
    "generator": generator,
    "async generator": async_generator,
    "async lambda": lambda tx: coroutine(tx),  # only its result shows it
    "partial": functools.partial(coroutine, more=1),
    "partial of a generator": functools.partial(generator, more=1),
    "partial of a partial": functools.partial(functools.partial(coroutine), more=1),
    "async __call__": AsyncCall(),
    "generator __call__": GeneratorCall(),
    "partial of an async __call__": functools.partial(AsyncCall()),
    "async method": Method().later,
    "partial of an async method": functools.partial(Method().later),
}
NOW: dict[str, Callable[..., Any]] = {
    "def": plain,
    "partial": functools.partial(plain, more=1),
    "__call__": PlainCall(),
    "partial of a __call__": functools.partial(PlainCall()),
    "method": Method().now,
    "class": list,
    "built in": len,
    "type of ours": PlainCall,
    "class of async objects": AsyncCall,
}


@pytest.mark.parametrize("name", LATER)
def test_what_runs_later_is_refused_with_the_reason(name: str) -> None:
    with perkey.open("memory://") as store:
        with pytest.raises(UsageError, match=r"expected a plain function|runs only after"):
            store.transact("a", LATER[name])
        assert store.get("a", None) is None


@pytest.mark.parametrize("name", [name for name in LATER if name != "async lambda"])
def test_it_is_refused_before_anything_runs(name: str) -> None:
    with pytest.raises(UsageError, match="async function or a generator"):
        check_fn(LATER[name])
    docs = Documents(perkey.open("memory://"))
    with pytest.raises(UsageError, match="async function or a generator"):
        docs.update("a", LATER[name], default={})
    with pytest.raises(UsageError, match="async function or a generator"):
        docs.rule("a", LATER[name])


@pytest.mark.parametrize("name", NOW)
def test_what_runs_now_is_not(name: str) -> None:
    check_fn(NOW[name])


# ---------------------------------------------------------------------------- undeclared keys


def read(tx: Tx) -> None:
    tx["other"]


def read_softly(tx: Tx) -> None:
    tx.get("other")


def write(tx: Tx) -> None:
    tx["other"] = 1


def erase(tx: Tx) -> None:
    del tx["other"]


def look(tx: Tx) -> None:
    tx.version("other")


def contains(tx: Tx) -> None:
    assert "other" not in tx


@pytest.mark.parametrize("touch", [read, read_softly, write, erase, look, contains])
def test_an_undeclared_key_is_named_as_its_caller_wrote_it(touch: Callable[[Tx], None]) -> None:
    with perkey.open("memory://") as store:
        fence = Leases(store).acquire("the lease", ttl=60).fence
        with pytest.raises(UndeclaredKey) as caught:
            store.transact(["a", "b"], touch, idempotency_key="k", fence=fence)
    assert str(caught.value) == (
        "this transaction declared 'a', 'b', 'the lease', but its function touched 'other'; "
        "declare every key in transact(keys, ...)"
    )
    assert caught.value.details == {"key": "other"}


def test_of_many_declared_keys_the_first_are_named() -> None:
    with perkey.open("memory://") as store:
        with pytest.raises(UndeclaredKey, match=r"declared 'k0', .*'k7' and 2 more, but"):
            store.transact([f"k{n}" for n in range(10)], write)
        with pytest.raises(UndeclaredKey, match="declared no key, but"):
            store.transact([], write)


def test_a_key_that_is_no_text_is_refused_as_such() -> None:
    with perkey.open("memory://") as store, pytest.raises(perkey.InvalidKey, match="found int"):
        store.transact("a", lambda tx: tx.get(7))  # type: ignore[arg-type]
