"""One run of threaded code: real threads of which only one moves, and the locks they wait on."""

from __future__ import annotations

import _thread
import functools
import gc
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import CodeType, FrameType, ModuleType
from typing import Any

from perkey.errors import UsageError
from perkey.testing.story import Row
from perkey.testing.where import USERS, line, whose

_real_lock = _thread.allocate_lock
_running: dict[int, _Actor] = {}
"""Thread id -> the actor that runs on it, while an exploration is on."""
_directing: list[int] = []
"""Threads that explore, once for each time; with the actors the only ones whose locks are
cooperative."""
_ordinary: list[tuple[Any, str, Any]] = []
"""What is patched while anybody explores: where, its name, and what stands there else."""
_patching = _real_lock()

READY, BLOCKED, DONE = range(3)


class _Abandoned(BaseException):
    """Unwinds a thread whose run is over."""


def switch_point(label: str = "") -> None:
    """Other threads may run here, while ``explore_threads`` is on; else nothing happens."""
    actor = _running.get(_thread.get_ident())
    if actor is not None:
        actor.pause(label or "switch point")
        actor.note(actor.where)


class _Actor:
    """One caller on its own thread, which moves only while it has the baton.

    Whoever ends a move decides who makes the next one; most often that is the same caller, which
    then just goes on: two threads that change places cost more than most moves.
    """

    def __init__(self, stage: Stage, number: int, name: str, call: Callable[[], Any]) -> None:
        self.stage = stage
        self.number = number
        self.name = name
        self.call = call
        self.state = READY
        self.blocked_on: CooperativeLock | None = None
        self.may_time_out = False
        self.timed_out = False
        self.error: BaseException | None = None
        self.result: Any = None
        self.where = ""
        """The operation that it stands before or, after a release, behind."""
        self.onward = ""
        """What is told of a move from there that does nothing else."""
        self.did: list[str] = []
        """What it did in this move, each noted when it was done."""
        self.begun = False
        self.started = False
        self.baton = _real_lock()
        self.baton.acquire()
        self.ended = _real_lock()
        """Released when its thread has done its last."""
        self.ended.acquire()

    def start(self) -> None:
        _thread.start_new_thread(self._run, ())
        self.started = True

    def _run(self) -> None:
        self.baton.acquire()
        _running[_thread.get_ident()] = self
        try:
            if not self.stage.over:
                self.stage.grain.watch(self)
                self.result = self.call()
        except _Abandoned:
            pass
        except BaseException as error:
            self.error = error
        finally:
            sys.settrace(None)
            del _running[_thread.get_ident()]
            self.state = DONE
            self.stage.hand_on(self._successor())
            self.ended.release()

    def _successor(self) -> _Actor | None:
        """Who moves after the last move of this caller.  What goes wrong here, an error that
        cannot be shown for one, is for whoever has called ``play``: nobody else would hear it."""
        try:
            return self.stage.next()
        except BaseException as error:
            self.stage.error = error
            return None

    def pause(self, what: str, done: bool = False) -> None:
        """End the move, and go on when it is this caller's turn; ``done`` notes ``what`` before."""
        if self.stage.over:
            raise _Abandoned
        self.where, self.onward = _source(what)
        if done:
            self.note(self.where)
        chosen = self.stage.next()
        if chosen is self:
            return
        self.stage.hand_on(chosen)
        self.baton.acquire()
        if self.stage.over:
            raise _Abandoned

    def note(self, told: str) -> None:
        """Write down what this move did; a line that took several operations stands once."""
        if self.did[-1:] != [told]:
            self.did.append(told)

    def wait_for(self, lock: CooperativeLock, timeout: bool) -> bool:
        """Block until ``lock`` was released; False when the wait timed out."""
        tried, onward = self.where, self.onward
        self.state, self.blocked_on = BLOCKED, lock
        self.may_time_out, self.timed_out = timeout, False
        self.did.append("  (waits)")
        self.pause("waits for a lock")
        self.state, self.blocked_on = READY, None
        self.where, self.onward = tried, onward
        self.note(tried)
        return not self.timed_out


class Grain:
    """Which files have a switch point at every line, and which at every bytecode."""

    def __init__(self, lines: Sequence[ModuleType], opcodes: Sequence[ModuleType]) -> None:
        self._lines = frozenset(_file(module) for module in lines)
        self._opcodes = frozenset(_file(module) for module in opcodes)

    def watch(self, actor: _Actor) -> None:
        """From here on, this thread's steps through these files are switch points."""
        if not self._lines and not self._opcodes:
            return

        def local(frame: FrameType, event: str, arg: Any) -> Any:
            if event in ("line", "opcode"):
                actor.pause("")
                actor.note(actor.where)
            return local

        def trace(frame: FrameType, event: str, arg: Any) -> Any:
            if frame.f_code.co_filename in self._opcodes:
                frame.f_trace_opcodes = True
                frame.f_trace_lines = False
                return local
            return local if frame.f_code.co_filename in self._lines else None

        sys.settrace(trace)


def _file(module: ModuleType) -> str:
    if not isinstance(module, ModuleType) or not getattr(module, "__file__", None):
        raise UsageError(f"expected an imported module that has a file, found {module!r}")
    return str(module.__file__)


class CooperativeLock:
    """A lock whose every operation is a switch point; the interface of ``threading.Lock``.

    A thread that has nothing to do with an exploration, such as one of a library, gets a real
    lock instead: it must be able to wait. It may have looked this class up before the exploration
    ended and ask for the lock after, so nothing but the asking thread decides.
    """

    def __new__(cls) -> Any:
        me = _thread.get_ident()
        if me not in _directing and me not in _running:
            return _real_lock()
        return super().__new__(cls)

    def __init__(self) -> None:
        self._held = False

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Like ``threading.Lock.acquire``; a timeout ends when nothing else can happen."""
        actor = _running.get(_thread.get_ident())
        if actor is not None:
            if actor.stage.over:
                return True
            actor.pause("acquire")
            actor.note(actor.where)
        while self._held:
            if not blocking or timeout == 0:
                return self._refused(actor, "is held")
            if actor is None:
                raise RuntimeError("setup or check would wait for a lock for ever")
            if not actor.wait_for(self, timeout > 0):
                return self._refused(actor, "timed out")
        self._held = True
        return True

    def _refused(self, actor: _Actor | None, why: str) -> bool:
        within = actor is not None and actor.where == actor.onward
        if actor is not None and not (within and why == "is held"):  # which nobody but us asked
            actor.did.append(f"  ({why})")
        return False

    def release(self) -> None:
        """Like ``threading.Lock.release``: any thread may."""
        actor = _running.get(_thread.get_ident())
        over = actor is not None and actor.stage.over
        if not self._held and not over:
            raise RuntimeError("release unlocked lock")
        self._held = False
        if actor is not None and not over:
            actor.stage.freed(self)
            actor.pause("release", done=True)

    def locked(self) -> bool:
        """Whether somebody holds it."""
        return self._held

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *exc: object) -> None:
        self.release()

    def _at_fork_reinit(self) -> None:
        self._held = False


class Stage:
    """One run: actors, whose turn it is, and the choices that were made."""

    def __init__(
        self,
        callers: Sequence[Callable[..., Any]],
        state: Any,
        choices: list[int],
        symmetric: bool,
        grain: Grain,
    ) -> None:
        self.grain = grain
        self.over = False
        self.baton = _real_lock()
        self.baton.acquire()
        self.choices = choices
        self.made: list[tuple[int, int]] = []
        """(choice, how many there were) at each point where there was more than one."""
        self.rows: list[Row] = []
        called = names(callers)
        self.actors = [
            _Actor(self, n, called[n], lambda call=call: call(state))  # type: ignore[misc]
            for n, call in enumerate(callers)
        ]
        self._twins = [callers.index(call) if symmetric else n for n, call in enumerate(callers)]
        self._current: _Actor | None = None
        self._place = ""
        """What is told of the move that is being made, if it does nothing."""
        self._preemptions = self._moves_left = 0
        self._wrong = ""
        self.error: BaseException | None = None

    def freed(self, lock: CooperativeLock) -> None:
        """Whoever waits for ``lock`` may try again."""
        for actor in self.actors:
            if actor.state == BLOCKED and actor.blocked_on is lock:
                actor.state = READY

    def play(self, preemptions: int, max_moves: int) -> str:
        """Run to the end; what went wrong, or an empty text."""
        self._preemptions, self._moves_left, self._max_moves = preemptions, max_moves, max_moves
        for actor in self.actors:
            actor.start()
        collects = gc.isenabled()
        gc.disable()  # a finaliser that takes a lock would move while it is decided who moves
        try:
            self.hand_on(self.next())
            self.baton.acquire()
        finally:
            if collects:
                gc.enable()
        if self.error is not None:
            raise self.error
        stuck = [actor for actor in self.actors if actor.state != DONE]
        return self._wrong or ("deadlock" if stuck else "")

    def next(self) -> _Actor | None:
        """Write down the move that is over, and whose turn it is; None at the end of the run.

        Called by whoever has the baton; who is named may move from then on.  A caller that is in
        too deep a recursion for this meets that itself, as it would anywhere else.
        """
        if self.over:
            return None
        self._told()
        if not self._moves_left:
            self._wrong = f"endless: no end after {self._max_moves} moves"
            return None
        self._moves_left -= 1
        current = self._current
        options = self._options(current)
        if not options:
            return None
        try:
            chosen = options[self._choose(len(options))]
        except ValueError as error:  # for whoever has called play
            self.error = error
            return None
        if current is not None and chosen is not current and current.state == READY:
            self._preemptions -= 1
        if chosen.state == BLOCKED:
            chosen.timed_out = True
        self._place = chosen.onward if chosen.begun else "begins"
        chosen.begun, chosen.did = True, []
        self._current = chosen
        return chosen

    def hand_on(self, chosen: _Actor | None) -> None:
        """Let ``chosen`` move; at the end of a run, the stage itself."""
        if chosen is not None:
            with suppress(RuntimeError):  # close has let it already
                chosen.baton.release()
        elif not self.over:
            self.baton.release()

    def _told(self) -> None:
        actor = self._current
        if actor is None:
            return
        if actor.state == DONE:
            actor.did.append(f"! {actor.error!r}" if actor.error else "ends")
        self.rows.append((actor.number, actor.did or [self._place]))

    def _options(self, current: _Actor | None) -> list[_Actor]:
        """Who may move, the thread that is moving first."""
        if current is not None and current.state == READY and not self._preemptions:
            return [current]
        ready = [actor for actor in self.actors if actor.state == READY and self._first(actor)]
        if not ready:
            return [each for each in self.actors if each.state == BLOCKED and each.may_time_out]
        if current is not None and current.state == READY:
            others = [actor for actor in ready if actor is not current]
            return [current, *others]
        return ready

    def _first(self, actor: _Actor) -> bool:
        """Whether it has begun, or is the first of its twins that has not."""
        twin = self._twins[actor.number]
        return actor.begun or all(
            other.begun
            for other in self.actors[: actor.number]
            if self._twins[other.number] == twin
        )

    def _choose(self, count: int) -> int:
        if count == 1:
            return 0
        place = len(self.made)
        choice = self.choices[place] if place < len(self.choices) else 0
        if choice >= count:
            raise ValueError("this replay does not belong to this scenario")
        self.made.append((choice, count))
        return choice

    def close(self) -> None:
        """Unwind every thread that has not ended, one after the other.

        Whoever calls may have been interrupted at any moment, so nothing tells whether somebody
        still moves but who would: that one ends its move first.
        """
        self.over = True
        for actor in sorted(self.actors, key=lambda each: each is not self._current):
            if actor.started and actor.state != DONE:
                self.hand_on(actor)
                actor.ended.acquire()


def names(callers: Sequence[Callable[..., Any]]) -> list[str]:
    plain = [getattr(call, "__name__", type(call).__name__) for call in callers]
    return [
        f"{name}#{plain[: n + 1].count(name)}" if plain.count(name) > 1 else name
        for n, name in enumerate(plain)
    ]


def _source(what: str) -> tuple[str, str]:
    """Where the code under test stands, and what is told of a move from there that does nothing.

    That is the user's innermost line: where it does ``what`` itself, its function and that; where
    perkey or the standard library does it inside, the line alone, whatever it takes there.
    """
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_filename in _INSIDE:
        frame = frame.f_back
    user = _users(frame) if what else frame
    if not what or user is not frame:
        told = _line(user.f_code, user.f_lineno)
        return told, told if what else f"{told.partition('  ')[0]}  goes on"
    name = frame.f_code.co_filename.rpartition("/")[2]
    place = f"{name}:{frame.f_lineno} {frame.f_code.co_name}"
    return f"{place}  {what}", f"{place}  goes on"


def _users(frame: FrameType) -> FrameType:
    """The innermost frame of the user's own code from here outwards; this one if there is none."""
    outer: FrameType | None = frame
    while outer is not None:
        if whose(outer.f_code.co_filename) == USERS:
            return outer
        outer = outer.f_back
    return frame


@functools.cache
def _line(code: CodeType, number: int) -> str:
    return line(code.co_filename, number)


_INSIDE = frozenset({__file__, threading.__file__})


@contextmanager
def cooperative_locks() -> Iterator[None]:
    """Every lock that this thread and the actors make within is a cooperative one."""
    me = _thread.get_ident()
    with _patching:
        _directing.append(me)
        if len(_directing) == 1:
            _patch()
    try:
        yield
    finally:
        with _patching:
            _directing.remove(me)
            if not _directing:
                _restore()


def _patch() -> None:
    threads: Any = threading
    makers = {
        "Lock": CooperativeLock,
        "_allocate_lock": CooperativeLock,
        "RLock": threads._PyRLock,
    }
    for name, maker in makers.items():
        _ordinary.append((threads, name, getattr(threads, name)))
        setattr(threads, name, maker)
    for name, module in list(sys.modules.items()):
        if name.startswith("perkey.") and getattr(module, "allocate_lock", None) is _real_lock:
            _ordinary.append((module, "allocate_lock", _real_lock))
            module.allocate_lock = CooperativeLock  # type: ignore[attr-defined]


def _restore() -> None:
    while _ordinary:
        module, name, maker = _ordinary.pop()
        setattr(module, name, maker)
