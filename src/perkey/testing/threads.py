"""Threads, one at a time: every schedule of threaded code at its lock operations.

    result = explore_threads(Registry, [Registry.enter] * 3, check=Registry.is_empty)
    result.assert_holds()

The callers are plain functions, run on real threads of which only one moves at a time.  A
switch point is every operation on a lock made while the scenario runs: ``threading.Lock``,
``RLock``, ``Condition``, ``Event``, ``Semaphore`` and ``queue.Queue`` all stand on one, and so
do perkey's own locks, committer and stores.  Your code may add ``switch_point()``.  A schedule
is a choice at each of them, with at most ``preemptions`` switches away from a thread that
could have gone on; most concurrency bugs need two (Musuvathi and Qadeer, "Iterative Context
Bounding for Systematic Testing of Multithreaded Programs", 2007).  Smaller bounds are searched
first, so a failing schedule has as few preemptions as can be.

A wait with a timeout ends when nothing else can happen.  What happens between two switch
points is not interleaved: races on bare memory stay unseen, and locks made before ``setup``
ran, at import for instance, are not switch points.
"""

from __future__ import annotations

import _thread
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import Any

from perkey.testing.certificate import Failure, Result
from perkey.testing.story import Row, table

_real_lock = _thread.allocate_lock
_running: dict[int, _Actor] = {}
"""Thread id -> the actor that runs on it, while an exploration is on."""

READY, BLOCKED, DONE = range(3)


class _Abandoned(BaseException):
    """Unwinds a thread whose run is over."""


def switch_point(label: str = "") -> None:
    """Other threads may run here, while ``explore_threads`` is on; else nothing happens."""
    actor = _running.get(_thread.get_ident())
    if actor is not None:
        actor.pause(label or "switch point")


class _Actor:
    """One caller on its own thread, which moves only while it has been handed the baton."""

    def __init__(self, stage: _Stage, number: int, name: str, call: Callable[[], Any]) -> None:
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
        self.baton = _real_lock()
        self.baton.acquire()

    def start(self) -> None:
        _thread.start_new_thread(self._run, ())

    def _run(self) -> None:
        self.baton.acquire()
        _running[_thread.get_ident()] = self
        try:
            if not self.stage.over:
                self.result = self.call()
        except _Abandoned:
            pass
        except BaseException as error:
            self.error = error
        finally:
            del _running[_thread.get_ident()]
            self.state = DONE
            self.stage.baton.release()

    def pause(self, what: str) -> None:
        """Hand the baton back, and go on when it comes again."""
        if self.stage.over:
            raise _Abandoned
        self.where = f"{_source()}  {what}"
        self.stage.baton.release()
        self.baton.acquire()
        if self.stage.over:
            raise _Abandoned

    def wait_for(self, lock: CooperativeLock, timeout: bool) -> bool:
        """Block until ``lock`` was released; False when the wait timed out."""
        self.state, self.blocked_on = BLOCKED, lock
        self.may_time_out, self.timed_out = timeout, False
        self.pause("waits for a lock")
        self.state, self.blocked_on = READY, None
        return not self.timed_out


class CooperativeLock:
    """A lock whose every operation is a switch point; the interface of ``threading.Lock``."""

    def __init__(self) -> None:
        self._held = False

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Like ``threading.Lock.acquire``; a timeout ends when nothing else can happen."""
        actor = _running.get(_thread.get_ident())
        if actor is not None:
            if actor.stage.over:
                return True
            actor.pause("acquire")
        while self._held:
            if not blocking or timeout == 0:
                return False
            if actor is None:
                raise RuntimeError("setup or check would wait for a lock for ever")
            if not actor.wait_for(self, timeout > 0):
                return False
        self._held = True
        return True

    def release(self) -> None:
        """Like ``threading.Lock.release``: any thread may."""
        actor = _running.get(_thread.get_ident())
        over = actor is not None and actor.stage.over
        if not self._held and not over:
            raise RuntimeError("release unlocked lock")
        self._held = False
        if actor is not None and not over:
            actor.stage.freed(self)
            actor.pause("release")

    def locked(self) -> bool:
        """Whether somebody holds it."""
        return self._held

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *exc: object) -> None:
        self.release()

    def _at_fork_reinit(self) -> None:
        self._held = False


class _Stage:
    """One run: actors, whose turn it is, and the choices that were made."""

    def __init__(
        self, callers: Sequence[Callable[..., Any]], state: Any, choices: list[int]
    ) -> None:
        self.over = False
        self.baton = _real_lock()
        self.baton.acquire()
        self.choices = choices
        self.made: list[tuple[int, int]] = []
        """(choice, how many there were) at each point where there was more than one."""
        self.rows: list[Row] = []
        names = _names(callers)
        self.actors = [
            _Actor(self, n, names[n], lambda call=call: call(state))  # type: ignore[misc]
            for n, call in enumerate(callers)
        ]

    def freed(self, lock: CooperativeLock) -> None:
        """Whoever waits for ``lock`` may try again."""
        for actor in self.actors:
            if actor.state == BLOCKED and actor.blocked_on is lock:
                actor.state = READY

    def play(self, preemptions: int, max_moves: int) -> str:
        """Run to the end; what went wrong, or an empty text."""
        for actor in self.actors:
            actor.start()
        current: _Actor | None = None
        for _ in range(max_moves):
            options = self._options(current, preemptions)
            if not options:
                break
            chosen = options[self._choose(len(options))]
            if current is not None and chosen is not current and current.state == READY:
                preemptions -= 1
            current = chosen
            self._move(chosen)
        else:
            return f"endless: no end after {max_moves} moves"
        stuck = [actor for actor in self.actors if actor.state != DONE]
        return "deadlock" if stuck else ""

    def _options(self, current: _Actor | None, preemptions: int) -> list[_Actor]:
        """Who may move, the thread that is moving first."""
        ready = [actor for actor in self.actors if actor.state == READY]
        if not ready:
            return [each for each in self.actors if each.state == BLOCKED and each.may_time_out]
        if current is not None and current.state == READY:
            others = [actor for actor in ready if actor is not current]
            return [current, *others] if preemptions > 0 else [current]
        return ready

    def _choose(self, count: int) -> int:
        if count == 1:
            return 0
        place = len(self.made)
        choice = self.choices[place] if place < len(self.choices) else 0
        if choice >= count:
            raise ValueError("this replay does not belong to this scenario")
        self.made.append((choice, count))
        return choice

    def _move(self, actor: _Actor) -> None:
        if actor.state == BLOCKED:
            actor.timed_out = True
        actor.baton.release()
        self.baton.acquire()
        ended = f"! {actor.error!r}" if actor.error else "ends"
        self.rows.append((actor.number, [ended if actor.state == DONE else actor.where]))

    def close(self) -> None:
        """Unwind every thread that has not ended."""
        self.over = True
        for actor in self.actors:
            while actor.state != DONE:
                actor.baton.release()
                self.baton.acquire()


def explore_threads(
    setup: Callable[[], Any],
    callers: Sequence[Callable[..., Any]],
    *,
    check: Callable[[Any], Any] | None = None,
    raises: tuple[type[BaseException], ...] = (),
    preemptions: int = 2,
    limit: int = 100_000,
    seconds: float = 60.0,
    max_moves: int = 10_000,
    replay: str | None = None,
) -> Result:
    """Run threaded callers under every schedule with at most ``preemptions`` switches.

    ``setup()`` makes the state, with the locks in it; each caller is called with it on a thread
    of its own; ``check(state)`` fails by raising or by returning False.  A caller may end with
    one of ``raises``; any other exception, a deadlock, and a run without end fail too.
    """
    search = _Search(setup, callers, check, raises, max_moves)
    result = Result(_names(callers), {"preemptions": preemptions}, pruned=False)
    started = monotonic()
    if replay is not None:
        result.mode = "replay"
        most, _, digits = replay.removeprefix("t").partition(".")
        choices = [int(each) for each in digits.split("-") if each]
        search.run(choices, int(most), result)
        return result
    for bound in range(preemptions + 1):
        search.exhaust(bound, result, limit, started + seconds)
        if result.failure is not None or result.incomplete:
            break
    result.seconds = monotonic() - started
    if result.failure is None and len(callers) > 1 and not search.branched:
        result.unseen.append("no switch point was reached: were the locks made in setup()?")
    return result


class _Search:
    def __init__(
        self,
        setup: Callable[[], Any],
        callers: Sequence[Callable[..., Any]],
        check: Callable[[Any], Any] | None,
        raises: tuple[type[BaseException], ...],
        max_moves: int,
    ) -> None:
        self._setup = setup
        self._callers = callers
        self._check = check
        self._raises = raises
        self._max_moves = max_moves
        self.branched = False

    def exhaust(self, bound: int, result: Result, limit: int, end: float) -> None:
        """Every schedule with at most ``bound`` preemptions, depth first, by running again."""
        choices: list[int] | None = []
        while choices is not None:
            if result.schedules >= limit:
                result.incomplete = f"the limit of {limit:,} schedules was reached"
                return
            if monotonic() > end:
                result.incomplete = "the time was up"
                return
            made = self.run(choices, bound, result)
            if result.failure is not None:
                return
            choices = _next(made)

    def run(self, choices: list[int], bound: int, result: Result) -> list[tuple[int, int]]:
        """One schedule; its choices."""
        with _cooperative_locks():
            state = self._setup()
            stage = _Stage(self._callers, state, choices)
            try:
                wrong = stage.play(bound, self._max_moves)
                wrong, error = self._judge(stage, state, wrong)
            finally:
                stage.close()
        result.schedules += 1
        result.moves += len(stage.rows)
        result.longest = max(result.longest, len(stage.rows))
        self.branched = self.branched or len(stage.rows) > len(stage.actors)
        if wrong:
            result.failure = _failure(stage, bound, wrong, error)
        return stage.made

    def _judge(self, stage: _Stage, state: Any, wrong: str) -> tuple[str, BaseException | None]:
        if wrong:
            return wrong, None
        for actor in stage.actors:
            if actor.error is not None and not isinstance(actor.error, self._raises):
                return f"raised: {actor.name} raised {actor.error!r}", actor.error
        try:
            if self._check is not None and self._check(state) is False:
                return "check: it returned False", None
        except Exception as error:
            return f"check: {type(error).__name__}: {error}", error
        return "", None


def _next(made: list[tuple[int, int]]) -> list[int] | None:
    """The choices of the next schedule, or None after the last one."""
    while made:
        choice, count = made.pop()
        if choice + 1 < count:
            return [each for each, _ in made] + [choice + 1]
    return None


def _failure(stage: _Stage, bound: int, wrong: str, error: BaseException | None) -> Failure:
    kind, _, message = wrong.partition(": ")
    names = [actor.name for actor in stage.actors]
    story = table(stage.rows, names)
    if kind == "deadlock":
        stuck = [actor for actor in stage.actors if actor.blocked_on is not None]
        message = "; ".join(f"{actor.name} waits at {actor.where}" for actor in stuck)
        message = message or "nobody can go on"
    choices = "-".join(str(choice) for choice, _ in stage.made)
    return Failure(kind, message, f"t{bound}.{choices}", story, error)


def _names(callers: Sequence[Callable[..., Any]]) -> list[str]:
    plain = [getattr(call, "__name__", type(call).__name__) for call in callers]
    return [
        f"{name}#{plain[: n + 1].count(name)}" if plain.count(name) > 1 else name
        for n, name in enumerate(plain)
    ]


def _source() -> str:
    """Where the code under test stands: the innermost line outside this module and threading."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_filename in _INSIDE:
        frame = frame.f_back
    name = frame.f_code.co_filename.rpartition("/")[2]
    return f"{name}:{frame.f_lineno} {frame.f_code.co_name}"


_INSIDE = frozenset({__file__, threading.__file__})


@contextmanager
def _cooperative_locks() -> Iterator[None]:
    """Every lock that is made within is a cooperative one."""
    threads: Any = threading
    saved = {name: getattr(threads, name) for name in ("Lock", "RLock", "_allocate_lock")}
    bound = [
        module
        for name, module in list(sys.modules.items())
        if name.startswith("perkey.") and getattr(module, "allocate_lock", None) is _real_lock
    ]
    threads.Lock = threads._allocate_lock = CooperativeLock
    threads.RLock = threads._PyRLock
    for module in bound:
        module.allocate_lock = CooperativeLock  # type: ignore[attr-defined]
    try:
        yield
    finally:
        for name, value in saved.items():
            setattr(threads, name, value)
        for module in bound:
            module.allocate_lock = _real_lock  # type: ignore[attr-defined]
