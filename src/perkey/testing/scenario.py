"""A scenario in one function: what is shared, who comes together, what holds at the end.

    @explore(failures=1)
    def test_deposits():
        bank = Bank()                       # made anew for every schedule
        ended = yield [bank.deposit] * 3    # the callers; equal ones are interchangeable
        assert bank.balance == ended.failed.count(False)

What stands before the ``yield`` is the setup, and what stands after it the check; ``ended`` is
an ``Ended`` (None under ``explore_threads``).  ``async def`` does as well, where making or
checking the state takes an ``await``.  A plain ``async def`` without a ``yield`` is explored
whole: its tasks, however it starts them.

As decorators, ``explore`` and ``explore_threads`` make an ordinary function of it, without
arguments beyond the fixtures, so any runner can call it.
"""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

from perkey.errors import UsageError
from perkey.testing import session
from perkey.testing.certificate import ExplorationFailed, Result

Colour = Literal["tasks", "threads"]


class Bound:
    """A scenario with the arguments it is begun with; fixtures that wear out come anew."""

    def __init__(self, function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> None:
        self.function = function
        self.__name__ = function.__name__
        self._args = args
        self._kwargs = kwargs

    def __call__(self) -> Any:
        fresh = {name: session.anew(value) for name, value in self._kwargs.items()}
        return self.function(*self._args, **fresh)


def is_scenario(thing: Any) -> bool:
    """Whether ``thing`` yields its callers."""
    function = thing.function if isinstance(thing, Bound) else thing
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


# ------------------------------------------------------------ one function, taken apart


class Parts(NamedTuple):
    """What ``explore`` is given otherwise; ``setup`` and ``check`` may return a coroutine."""

    setup: Callable[[], Any]
    callers: list[Callable[..., Any]]
    check: Callable[..., Any]


class Staged:
    """The state of one run: the scenario, halted at its ``yield``, and who has not begun."""

    def __init__(self, scenario: Any, callers: Any) -> None:
        if not isinstance(callers, Sequence) or not all(map(callable, callers)):
            raise UsageError(f"expected a scenario to yield a list of callers, found {callers!r}")
        self.scenario = scenario
        self.callers: list[Any] = list(callers)

    def take(self, places: Sequence[int]) -> Callable[[], Any]:
        """The next of the callers at ``places``, which are equal."""
        place = next(place for place in places if self.callers[place] is not None)
        caller, self.callers[place] = self.callers[place], None
        found: Callable[[], Any] = caller
        return found


class Caller:
    """Stands for equal callers, in every run."""

    def __init__(self, name: str, places: Sequence[int], colour: Colour) -> None:
        self.__name__ = name
        self._places = tuple(places)
        self._colour = colour

    def __call__(self, staged: Staged) -> Any:
        made = staged.take(self._places)()
        if (self._colour == "tasks") != inspect.iscoroutine(made):
            if inspect.iscoroutine(made):
                made.close()
            raise UsageError(_COLOURS[self._colour].format(name=self.__name__))
        return made


_COLOURS = {
    "tasks": "expected {name} to be an async def; for threads there is explore_threads",
    "threads": "expected {name} to be a plain function; for async def there is explore",
}


def take_apart(
    scenario: Callable[[], Any], colour: Colour, run: Callable[[Callable[[], Any]], Any]
) -> Parts:
    """The setup, the callers and the check of ``scenario``.

    ``run(setup)`` makes one state, from which the number of callers is learnt.
    """
    begin: Callable[..., Any] = _begin
    finish: Callable[..., Any] = _finish
    if inspect.isasyncgenfunction(scenario.function if isinstance(scenario, Bound) else scenario):
        if colour == "threads":
            raise UsageError("expected a plain def; explore_threads has no loop to await on")
        begin, finish = _async_begin, _async_finish
    first: list[Any] = run(lambda: begin(scenario, None)).callers
    setup = functools.partial(begin, scenario, len(first))
    return Parts(setup, _callers(first, colour), finish)


def _begin(scenario: Callable[[], Any], count: int | None) -> Staged:
    generator = scenario()
    try:
        return _counted(Staged(generator, next(generator)), count)
    except StopIteration:
        raise UsageError("expected a scenario to yield its callers; it came to its end") from None


def _finish(staged: Staged, ended: Any) -> None:
    try:
        staged.scenario.send(ended)
    except StopIteration:
        return
    raise UsageError("expected a scenario to yield once, found a second yield")


async def _async_begin(scenario: Callable[[], Any], count: int | None) -> Staged:
    generator = scenario()
    try:
        return _counted(Staged(generator, await anext(generator)), count)
    except StopAsyncIteration:
        raise UsageError("expected a scenario to yield its callers; it came to its end") from None


async def _async_finish(staged: Staged, ended: Any) -> None:
    try:
        await staged.scenario.asend(ended)
    except StopAsyncIteration:
        return
    raise UsageError("expected a scenario to yield once, found a second yield")


def _counted(staged: Staged, count: int | None) -> Staged:
    found = len(staged.callers)
    if count not in (None, found):
        raise UsageError(f"expected {count} callers in every run, found {found} in this one")
    return staged


def _callers(yielded: Sequence[Callable[..., Any]], colour: Colour) -> list[Callable[..., Any]]:
    found: list[Callable[..., Any]] = []
    for place, caller in enumerate(yielded):
        equal = yielded.index(caller)
        if equal < place:
            found.append(found[equal])
        else:
            places = [n for n, other in enumerate(yielded) if other == caller]
            found.append(Caller(_name(caller), places, colour))
    return found


def _name(caller: Any) -> str:
    while hasattr(caller, "func"):  # a partial has no name of its own
        caller = caller.func
    return str(getattr(caller, "__name__", type(caller).__name__)).strip("<>")


# ------------------------------------------------------------ as a test


def as_test(
    search: Callable[[Callable[[], Any]], Result], expect: str, colour: Colour
) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """The decorator: a function that searches and raises ``ExplorationFailed``."""
    if expect not in EXPECTED:
        raise UsageError(f"expected expect= as one of {', '.join(EXPECTED)}; found {expect!r}")

    def decorate(function: Callable[..., Any]) -> Callable[..., None]:
        if not is_scenario(function) and not (
            colour == "tasks" and inspect.iscoroutinefunction(function)
        ):
            raise UsageError(
                f"expected {function.__name__} to yield its callers (or, for explore, to be an "
                "async def); it does neither, so there is nothing to explore"
            )

        @functools.wraps(function)
        def test(*args: Any, **kwargs: Any) -> None:
            _judge(search(Bound(function, args, kwargs)), expect)

        EXPLORED.add(test)
        return test

    return decorate


EXPLORED: weakref.WeakSet[Any] = weakref.WeakSet()
"""The tests that ``as_test`` made."""

EXPECTED = (
    "nothing wrong", "fails", "check", "always", "deadlock", "raised", "error", "endless",
)  # fmt: skip
"""What a test may expect: that nothing is wrong, or, of a planted bug, a kind of failure."""


def _judge(result: Result, expect: str) -> None:
    if result.mode == "replay":
        if result.failure is not None:
            raise ExplorationFailed(str(result), result)
    elif expect != EXPECTED[0]:
        result.assert_fails(None if expect == "fails" else expect)
    elif result.mode == "all":
        result.assert_holds()
    else:
        result.assert_nothing_found()
