"""Run a flow on asyncio, never blocking the loop."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from perkey.drivers.threads import prepare
from perkey.flows import steps
from perkey.store.core import Core

T = TypeVar("T")


async def run(flow: steps.Flow[T], core: Core) -> T:
    """Drive ``flow`` to its end on ``core`` and return its result.

    What a step raises, a cancellation included, is raised inside the flow, at its ``yield``.
    """
    send: Callable[[Any], steps.Step] = flow.send
    answer: Any = None
    while True:
        try:
            step = send(answer)
        except StopIteration as stop:
            result: T = stop.value
            return result
        try:
            if type(step) is steps.Transact:  # the one that matters most, without a detour
                answer = await core.transact_async(prepare(core, step), step.timeout)
                if answer.error is not None:
                    raise answer.error
            else:
                answer = await _PERFORM[type(step)](core, step)
            send = flow.send
        except BaseException as error:
            answer = error
            send = flow.throw


async def run_step(step: steps.Step, core: Core) -> Any:
    """``run`` for the flow of one step, without the flow."""
    if type(step) is not steps.Transact:
        return await _PERFORM[type(step)](core, step)
    outcome = await core.transact_async(prepare(core, step), step.timeout)
    if outcome.error is not None:
        raise outcome.error
    return outcome


async def _call(core: Core, step: steps.Call) -> Any:
    result = step.fn(*step.args)
    return await result if inspect.isawaitable(result) else result


async def _attend(core: Core, step: steps.Attend) -> Any:
    async def beat() -> None:
        while True:
            await asyncio.sleep(step.every)
            try:
                await run(step.beat(), core)
            except Exception:
                return

    beating = asyncio.ensure_future(beat())
    try:
        return await _call(core, steps.Call(step.fn, step.args))
    finally:
        beating.cancel()


async def _read(core: Core, step: steps.Read) -> Any:
    return await core.read_async(lambda backend: backend.read(step.keys))


async def _scan(core: Core, step: steps.Scan) -> Any:
    return await core.read_async(lambda backend: backend.scan(step.prefix, step.after, step.limit))


async def _history(core: Core, step: steps.History) -> Any:
    return await core.read_async(lambda backend: backend.history(step.key, step.after, step.limit))


async def _sleep(core: Core, step: steps.Sleep) -> None:
    await asyncio.sleep(step.seconds)


async def _now(core: Core, step: steps.Now) -> int:
    return await core.read_async(lambda backend: backend.now_ms())


async def _random(core: Core, step: steps.Random) -> float:
    return core.clock.random()


async def _token(core: Core, step: steps.Token) -> str:
    return core.clock.token()


async def _emit(core: Core, step: steps.Emit) -> None:
    core.observers.emit(step.event)


_PERFORM: dict[type, Callable[[Core, Any], Awaitable[Any]]] = {
    steps.Call: _call,
    steps.Attend: _attend,
    steps.Read: _read,
    steps.Scan: _scan,
    steps.History: _history,
    steps.Sleep: _sleep,
    steps.Now: _now,
    steps.Random: _random,
    steps.Token: _token,
    steps.Emit: _emit,
}
