"""A receipt, a definition, a key and an id are not taken for each other, in either colour."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from perkey.engine import AsyncEngine, Context, Engine, InstanceState, define, process
from perkey.errors import InvalidState, UsageError


@process("add")
async def add(ctx: Context) -> int:
    return 1


def plain(ctx: Context) -> int:
    return 1


Ask = Callable[[Any, Any, Any], Any]
"""A call of an engine of either colour, with a receipt and a handle at hand."""

MISTAKES: dict[str, tuple[Ask, str]] = {
    "start the key": (
        lambda e, r, h: e.start_process("add"),
        "expected a Registration, as register_process(...) returns it, found 'add'; "
        'to name the process by its key use start_latest("add")',
    ),
    "start the definition": (
        lambda e, r, h: e.start_process(add),
        "expected a Registration, as register_process(...) returns it, found a Definition of "
        "'add'; to name the process by its key use start_latest(\"add\")",
    ),
    "start a handle": (lambda e, r, h: e.start_process(h), "found a "),
    "start nothing": (
        lambda e, r, h: e.start_process(None),
        'found None; to name the process by its key use start_latest("key")',
    ),
    "unregister the key": (
        lambda e, r, h: e.unregister_version("add"),
        "expected a Registration, as register_process(...) returns it, found 'add'; "
        'to name the process by its key use unregister_process("add")',
    ),
    "latest of a definition": (
        lambda e, r, h: e.start_latest(add),
        "expected the key of a process as text, found a Definition of 'add'; "
        'give its key: start_latest("add")',
    ),
    "latest of a receipt": (
        lambda e, r, h: e.start_latest(r),
        "found a Registration of 'add'; give its key: start_latest(\"add\")",
    ),
    "latest of a list": (
        lambda e, r, h: e.start_latest(["add"]),
        'found a list; give its key: start_latest("key")',
    ),
    "version of a receipt": (lambda e, r, h: e.start_version(r, 1), 'start_version("add")'),
    "unregister by receipt": (lambda e, r, h: e.unregister_process(r), 'unregister_process("add")'),
    "registrations of it": (lambda e, r, h: e.registrations(r), 'registrations("add")'),
    "instances of it": (lambda e, r, h: e.instances(r), 'instances("add")'),
    "register the key": (
        lambda e, r, h: e.register_process("add"),
        "expected a definition made by @process(...), found 'add'",
    ),
    "register a receipt": (lambda e, r, h: e.register_process(r), "found a Registration of 'add'"),
    "register a function": (
        lambda e, r, h: e.register_process(plain),
        'decorate it: @process("key"), or use define("key", body)',
    ),
    "handle for an id": (
        lambda e, r, h: e.instance(h),
        "expected the id of an instance as text, found a ",
    ),
    "look up a handle": (lambda e, r, h: e.look_up(h), "Handle of 'add'; give its .id"),
    "look up a number": (lambda e, r, h: e.look_up(7), "found 7; a handle has it as .id"),
    "look behind a handle": (
        lambda e, r, h: e.look_through(after=h),
        "expected after=, the id of an instance, as text, found a ",
    ),
    "forget a handle": (
        lambda e, r, h: e.forget(h),
        "expected a list of ids of instances, found a ",
    ),
    "forget one id": (lambda e, r, h: e.forget(h.id), "give forget([handle.id, ...])"),
    "forget handles": (lambda e, r, h: e.forget([h]), "Handle of 'add'; give its .id"),
}


async def _asked(ask: Ask, engine: AsyncEngine, *given: Any) -> None:
    asked = ask(engine, *given)
    if inspect.isawaitable(asked):
        await asked


@pytest.mark.parametrize("mistake", MISTAKES)
def test_both_colours_say_what_they_expected_and_what_to_do(mistake: str) -> None:
    ask, told = MISTAKES[mistake]

    async def asynchronously() -> None:
        async with AsyncEngine() as engine:
            receipt = await engine.register_process(add)
            handle = await engine.start_process(receipt)
            await handle.wait(60)
            with pytest.raises(UsageError) as refused:
                await _asked(ask, engine, receipt, handle)
            assert told in refused.value.message
            assert await (await engine.start_latest("add")).wait(60) is InstanceState.COMPLETED

    asyncio.run(asynchronously())
    with Engine() as engine:
        receipt = engine.register_process(add)
        handle = engine.start_process(receipt)
        handle.wait(60)
        with pytest.raises(UsageError) as refused:
            ask(engine, receipt, handle)
        assert told in refused.value.message
        assert engine.start_latest("add").wait(60) is InstanceState.COMPLETED


def test_a_function_is_registered_once_it_is_a_definition() -> None:
    with Engine() as engine:
        receipt = engine.register_process(define("plain", plain))
        handle = engine.start_process(receipt)
        assert handle.wait(60) is InstanceState.COMPLETED
        engine.forget([handle.id])
        assert engine.instances("plain") == []


def test_another_engines_receipt_is_still_refused_as_such() -> None:
    with Engine() as one, Engine() as two:
        receipt = one.register_process(add)
        for ask in (two.start_process, two.unregister_version):
            with pytest.raises(InvalidState, match="by another engine"):
                ask(receipt)
        one.unregister_version(receipt)
