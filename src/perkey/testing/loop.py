"""A deterministic event loop: the explorer, not the machine, decides what happens next.

Unmodified asyncio runs on it: tasks, futures, locks, queues, timeouts, task groups.  Time is
virtual, there is no selector and no thread.  One *move* runs one task step (from one ``await``
that suspends to the next), the oldest plain callback, or one timer; or it injects something.
Task steps may happen in any order; plain callbacks keep the order asyncio promises them.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import types
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from perkey.testing.moves import (
    CALLBACK,
    CANCEL,
    EARLY,
    FAIL,
    LOSE,
    STEP,
    TIMER,
    Move,
    describe,
)
from perkey.testing.points import Point

_Base: Any = asyncio.AbstractEventLoop


class Diverged(Exception):
    """The scenario did not do the same again under the same schedule."""


class Handle(asyncio.Handle):
    """A callback that waits for its turn."""

    __slots__ = ("process",)

    def __init__(
        self,
        callback: Callable[..., Any],
        args: tuple[Any, ...],
        context: contextvars.Context,
        process: int | None,
    ) -> None:
        # The base class's own initialiser formats sources and asks for debug mode.
        self._callback: Any = callback
        self._args: Any = args
        self._context = context
        self._cancelled = False
        self.process = process

    def cancel(self) -> None:
        self._cancelled = True
        self._callback = self._args = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._callback!r}>"


class Timer(Handle):
    """A callback that waits for a moment of virtual time."""

    __slots__ = ("_when", "fired")

    def __init__(
        self,
        when: float,
        callback: Callable[..., Any],
        args: tuple[Any, ...],
        context: contextvars.Context,
        process: int | None,
    ) -> None:
        Handle.__init__(self, callback, args, context, process)
        self._when = when
        self.fired = False

    def when(self) -> float:
        return self._when


class Loop(_Base):  # type: ignore[misc]  # dozens of abstract methods are about sockets
    """See the module; ``moves`` says what may happen now, ``make`` lets one of them happen."""

    def __init__(self, callers: int = 0) -> None:
        self.now = 0.0
        self.clock_was_read = False
        self.tasks: list[Any] = [None] * callers
        """Every task by number; the callers come first and are filled in by ``start``."""
        self.numbers: dict[Any, int] = {}
        self.contexts: list[Any] = [None] * callers
        self.processes: list[int | None] = [None] * callers
        self.ready: dict[int, tuple[Callable[..., Any], tuple[Any, ...]]] = {}
        """The tasks that can take a step, with the callback that takes it."""
        self.callbacks: deque[Handle] = deque()
        self.timers: list[tuple[float, int, Timer]] = []
        self.points: dict[int, Point] = {}
        self.dead: set[int | None] = set()
        self.problems: list[dict[str, Any]] = []
        self.last: int | None = None
        self.closing = False
        self._process: int | None = None
        self._slot: int | None = None
        self._scheduled = 0
        self._factory: Any = None

    # ------------------------------------------------------------ what asyncio asks of a loop

    def call_soon(
        self,
        callback: Callable[..., Any],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> Handle:
        task = _task_of(callback)
        if task is not None:
            number = self.numbers.get(task)
            if number is None:
                number = self._enrol(task, context)
            if self.processes[number] not in self.dead:
                self.ready[number] = (callback, args)
            return _STEP_HANDLE
        handle = Handle(callback, args, context or contextvars.copy_context(), self._process)
        if not self.closing:
            self.callbacks.append(handle)
        return handle

    def call_soon_threadsafe(
        self,
        callback: Callable[..., Any],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> Handle:
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self,
        delay: float,
        callback: Callable[..., Any],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> Timer:
        return self.call_at(self.now + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[..., Any],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> Timer:
        timer = Timer(when, callback, args, context or contextvars.copy_context(), self._process)
        self._scheduled += 1
        heapq.heappush(self.timers, (when, self._scheduled, timer))
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Cancelled timers are dropped when they come to the front."""

    def time(self) -> float:
        self.clock_was_read = True
        return self.now

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Any,
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
        **more: Any,
    ) -> asyncio.Task[Any]:
        # asyncio's own default names count on for ever, so they would tell two runs apart.
        name = name or f"Task-{len(self.tasks) + 1}"
        if self._factory is not None:
            task: asyncio.Task[Any] = self._factory(self, coro, context=context, **more)
            task.set_name(name)
            return task
        context = context or contextvars.copy_context()
        return asyncio.Task(coro, loop=self, name=name, context=context, **more)

    def set_task_factory(self, factory: Any) -> None:
        self._factory = factory

    def get_task_factory(self) -> Any:
        return self._factory

    def run_in_executor(
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Run ``func`` whole, as one move of its own, at any time from now on."""

        async def job() -> Any:
            return func(*args)

        return self.create_task(job(), name=getattr(func, "__name__", "job"))

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self.closing:
            self.problems.append(context)

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)

    def get_exception_handler(self) -> None:
        return None

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    async def shutdown_asyncgens(self) -> None:
        """Nothing is kept of them."""

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """There is none."""

    # ------------------------------------------------------------ tasks and processes

    def _enrol(self, task: Any, context: contextvars.Context | None) -> int:
        number = self._slot
        if number is None:
            number = len(self.tasks)
            self.tasks.append(None)
            self.contexts.append(None)
            self.processes.append(None)
        self.numbers[task] = number
        self.tasks[number] = task
        self.contexts[number] = context or contextvars.copy_context()
        self.processes[number] = self._process
        # What is abandoned on purpose is no news when it is collected.
        task._log_destroy_pending = False
        return number

    def start(
        self,
        coro: Coroutine[Any, Any, Any],
        name: str,
        process: int | None = None,
        slot: int | None = None,
    ) -> asyncio.Task[Any]:
        """Create a task in a process of its own; what it creates belongs to it."""
        before, self._process = self._process, process
        self._slot = slot
        try:
            return self.create_task(coro, name=name)
        finally:
            self._process = before
            self._slot = None

    def current(self) -> int | None:
        """The number of the task that runs now."""
        task = asyncio.current_task(self)
        return None if task is None else self.numbers.get(task)

    def is_dead(self, number: int) -> bool:
        return self.processes[number] in self.dead

    # ------------------------------------------------------------ moves

    def moves(self) -> list[Move]:
        """What may happen next without an injection; the task that ran last comes first."""
        found = [Move(STEP, number) for number in sorted(self.ready)]
        last = self.last
        if last is not None and last in self.ready:
            first = Move(STEP, last)
            found.remove(first)
            found.insert(0, first)
        if self.callbacks:
            self._drop_callbacks()
        if self.callbacks:
            found.append(Move(CALLBACK, 0))
        due = self.due()
        if due and (not found or due[0]._when <= self.now):
            found += [Move(TIMER, index) for index in range(len(due))]
        return found

    def next_in_order(self) -> Move | None:
        """What plain asyncio would do next: first come, first served."""
        found = self.moves()
        if not found:
            return None
        if found[-1].kind != STEP:
            return next(move for move in found if move.kind != STEP)
        return Move(STEP, next(iter(self.ready)))

    def due(self) -> list[Timer]:
        """The timers that come next: all with the earliest moment, or all that are overdue."""
        timers = self.timers
        while timers and (timers[0][2]._cancelled or timers[0][2].process in self.dead):
            heapq.heappop(timers)
        if not timers:
            return []
        limit = max(timers[0][0], self.now)
        if len(timers) == 1:
            return [timers[0][2]]
        return [
            timer
            for when, _, timer in sorted(timers)
            if when <= limit and not timer._cancelled and timer.process not in self.dead
        ]

    def _drop_callbacks(self) -> None:
        while self.callbacks:
            head = self.callbacks[0]
            if not head._cancelled and head.process not in self.dead:
                return
            self.callbacks.popleft()

    def make(self, move: Move) -> None:
        """Let ``move`` happen; raises ``Diverged`` when it is not possible now."""
        kind, number = move
        try:
            if kind == STEP:
                self._step(number)
            elif kind in (FAIL, LOSE):
                self.points[number].chosen = True
                self._step(number)
            elif kind == CALLBACK:
                self._drop_callbacks()
                self._run(self.callbacks.popleft())
            elif kind in (TIMER, EARLY):
                self._fire(self.due()[number])
            elif kind == CANCEL:
                self.tasks[number].cancel()
            else:
                self._crash(number)
        except (KeyError, IndexError):
            raise Diverged(describe(move)) from None

    def _step(self, number: int) -> None:
        callback, args = self.ready.pop(number)
        self.last = number
        self._process = self.processes[number]
        self.contexts[number].run(callback, *args)
        self._process = None

    def follow(self, moves: Iterable[Move]) -> None:
        """``make`` each of ``moves``; the common ones without a call each."""
        ready, contexts, processes, number = self.ready, self.contexts, self.processes, 0
        try:
            for kind, number in moves:
                if kind == STEP:
                    callback, args = ready.pop(number)
                    self._process = processes[number]
                    contexts[number].run(callback, *args)
                    self.last = number
                else:
                    self._process = None
                    self.make(Move(kind, number))
            self._process = None
        except KeyError:
            raise Diverged(describe(Move(STEP, number))) from None

    def _fire(self, timer: Timer) -> None:
        self.timers.remove(next(entry for entry in self.timers if entry[2] is timer))
        heapq.heapify(self.timers)
        self.now = max(self.now, timer._when)
        timer.fired = True
        self._run(timer)

    def _run(self, handle: Handle) -> None:
        callback, args = handle._callback, handle._args
        self._process = handle.process
        try:
            handle._context.run(callback, *args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self.problems.append({"message": f"a callback raised {error!r}", "exception": error})
        finally:
            self._process = None

    def _crash(self, process: int) -> None:
        """Power cut: nothing of this process runs again, no ``finally`` and no ``except``."""
        self.dead.add(process)
        for number in [n for n in self.ready if self.processes[n] == process]:
            del self.ready[number]

    # ------------------------------------------------------------ the end of a run

    def dispose(self) -> None:
        """Close what is suspended.  Its ``finally`` blocks run now, when nobody looks any more."""
        self.closing = True
        for task in self.tasks:
            if task is not None and not task.done():
                _close(task.get_coro())
        self.ready.clear()
        self.callbacks.clear()
        self.timers.clear()
        # Fewer cycles for the garbage collector, which has thousands of runs to clear away.
        self.tasks.clear()
        self.numbers.clear()
        self.contexts.clear()


def _task_of(callback: Any) -> Any:
    """The task that this callback steps or wakes; None for all other callbacks."""
    kind = type(callback)
    if kind is types.BuiltinFunctionType:
        return callback.__self__ if callback.__name__ == "task_wakeup" else None
    if kind.__name__ == "TaskStepMethWrapper":
        return callback.__self__
    if kind is types.MethodType and callback.__name__ in ("__step", "__wakeup"):
        return callback.__self__ if isinstance(callback.__self__, asyncio.Future) else None
    return None


_STEP_HANDLE = Handle(print, (), contextvars.Context(), None)
"""Tasks throw away the handles of their own steps, so all get this one."""


def _close(coro: Any) -> None:
    """Close a coroutine, also one that awaits while it is being closed."""
    for _ in range(100):
        try:
            coro.close()
            return
        except BaseException:
            continue
