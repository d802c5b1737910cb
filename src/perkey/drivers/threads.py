"""Run a flow, blocking the calling thread."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from perkey.drivers.heartbeat import Heartbeat
from perkey.errors import UsageError
from perkey.flows import steps
from perkey.store.core import Core

T = TypeVar("T")


def run(flow: steps.Flow[T], core: Core) -> T:
    """Drive ``flow`` to its end on ``core`` and return its result.

    What a step raises is raised inside the flow, at its ``yield``.
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
            answer = _PERFORM[type(step)](core, step)
            send = flow.send
        except BaseException as error:
            answer = error
            send = flow.throw


def prepare(core: Core, step: steps.Transact) -> steps.Transact:
    """Give a transaction what its flow does not know: an id, and the store's strictness."""
    if not step.op:
        step.op = core.clock.token()
    step.strict = core.strict
    return step


def _transact(core: Core, step: steps.Transact) -> Any:
    outcome = core.transact(prepare(core, step), step.timeout)
    if outcome.error is not None:
        raise outcome.error
    return outcome


def _call(core: Core, step: steps.Call) -> Any:
    result = step.fn(*step.args)
    if inspect.iscoroutine(result):
        result.close()
        raise UsageError(
            "expected a plain function here, found an async one; use the Async... class with it"
        )
    return result


def _attend(core: Core, step: steps.Attend) -> Any:
    with Heartbeat(step.every, lambda: run(step.beat(), core)):
        return _call(core, steps.Call(step.fn, step.args))


_PERFORM: dict[type, Callable[[Core, Any], Any]] = {
    steps.Transact: _transact,
    steps.Call: _call,
    steps.Attend: _attend,
    steps.Read: lambda core, step: core.read(lambda backend: backend.read(step.keys)),
    steps.Scan: lambda core, step: core.read(
        lambda backend: backend.scan(step.prefix, step.after, step.limit)
    ),
    steps.History: lambda core, step: core.read(
        lambda backend: backend.history(step.key, step.after, step.limit)
    ),
    steps.Sleep: lambda core, step: core.clock.sleep(step.seconds),
    steps.Now: lambda core, step: core.read(lambda backend: backend.now_ms()),
    steps.Random: lambda core, step: core.clock.random(),
    steps.Token: lambda core, step: core.clock.token(),
    steps.Emit: lambda core, step: core.observers.emit(step.event),
}
