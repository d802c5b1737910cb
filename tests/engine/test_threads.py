"""The engine for threads: many callers at once, and bodies of both kinds."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import perkey
from perkey import InvalidState, WrongColour
from perkey.engine import Engine, InstanceState, State, define, message
from perkey.engine.contexts import Context


def at_once(calls: list[Callable[[], Any]]) -> list[Any]:
    """Run ``calls`` in threads; what each returned or raised."""
    answers: list[Any] = [None] * len(calls)

    def run(n: int) -> None:
        try:
            answers[n] = calls[n]()
        except Exception as error:
            answers[n] = error

    threads = [threading.Thread(target=run, args=(n,)) for n in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(250)
        assert not thread.is_alive()
    return answers


async def quick(ctx: Context) -> Any:
    return ctx.variables.get("n")


def test_of_many_threads_that_run_it_one_wins() -> None:
    engine = Engine()
    answers = at_once([engine.run] * 16)
    assert answers.count(None) == 1
    assert all(isinstance(each, InvalidState) for each in answers if each is not None)
    at_once([engine.shutdown] * 8)
    assert engine.state is State.STOPPED


def test_callers_that_come_while_the_loop_ends_are_answered() -> None:
    """Whoever calls as the last shutdown returns gets an answer, never a wait for ever."""
    for _ in range(30):
        engine = Engine()
        engine.register_process(define("quick", quick))
        engine.run()
        late = [lambda: engine.start_latest("quick")] * 4  # noqa: B023
        answers = at_once([*[engine.shutdown] * 6, *late])  # type: ignore[list-item]
        assert answers[:6] == [None] * 6
        assert all(
            not isinstance(each, Exception | None) or isinstance(each, InvalidState)
            for each in answers[6:]
        )
        with pytest.raises(InvalidState, match="Run: engine already stopped"):
            engine.run()


def test_a_storm_of_registrations_starts_and_reads_leaves_a_consistent_registry() -> None:
    """Three threads on each of two keys."""
    with Engine() as engine:

        def churn(key: str) -> list[int]:
            kept = []
            for n in range(6):
                receipt = engine.register_process(define(key, quick, [message(f"go {key}")]))
                latest = engine.start_latest(key, variables={"n": n})
                assert engine.state is State.STARTED
                assert latest.version >= receipt.version
                assert receipt in engine.registrations(key)
                exactly = engine.start_version(key, receipt.version, variables={"n": n})
                assert exactly.version == receipt.version
                assert {each.key for each in engine.starters()} <= {"a", "b"}
                for handle in (latest, exactly):
                    assert handle.wait(60) is InstanceState.COMPLETED
                    assert handle.result() == n
                if n % 3 == 0:
                    engine.unregister_version(receipt)
                else:
                    kept.append(receipt.version)
            return kept

        answers = at_once([partial(churn, key) for key in "ab" * 3])
        assert [each for each in answers if isinstance(each, Exception)] == []
        for key, kept in (("a", answers[::2]), ("b", answers[1::2])):
            versions = [each.version for each in engine.registrations(key)]
            assert versions == sorted(version for each in kept for version in each)
            assert len(versions) == len(set(versions)) == 12
            (starter,) = [each for each in engine.starters() if each.key == key]
            assert starter.version == versions[-1]
            receipt = engine.register_process(define(key, quick, [message(f"go {key}")]))
            assert receipt.version == 19  # none was given twice, and none was left out


def test_64_threads_with_one_idempotency_key_run_one_body() -> None:
    calls: list[int] = []

    def body(ctx: Any) -> None:
        calls.append(1)

    with Engine() as engine:
        engine.register_process(define("order", body))
        handles = at_once([lambda: engine.start_latest("order", idempotency_key="k")] * 64)
        assert len(set(handles)) == 1
        assert handles[0].wait(60) is InstanceState.COMPLETED
    assert calls == [1]


def test_a_sync_body_may_use_the_engine_and_an_async_one_is_told_how() -> None:
    with Engine() as engine:

        def sync_body(ctx: Any) -> str:
            return engine.start_latest("quick", variables={"n": 5}).wait(60)

        async def async_body(ctx: Context) -> None:
            engine.start_latest("quick")

        engine.register_process(define("quick", quick))
        engine.register_process(define("sync", sync_body))
        engine.register_process(define("async", async_body))
        handle = engine.start_latest("sync")
        assert handle.wait(60) is InstanceState.COMPLETED
        assert handle.result() == "completed"
        wrong = engine.start_latest("async")
        assert wrong.wait(60) is InstanceState.FAILED
        assert WrongColour.__name__ in wrong.error


def test_it_shares_a_store_with_its_threads(tmp_path: Any) -> None:
    with perkey.open(f"sqlite:///{tmp_path}/e.db") as store, Engine(store) as engine:
        engine.register_process(define("quick", quick))
        handle = engine.start_latest("quick", variables={"n": 7})
        assert handle.wait(60) is InstanceState.COMPLETED
        assert (handle.result(), engine.durable) == (7, True)
        store.put("after", 1, create=True)


def test_both_colours_have_the_same_methods() -> None:
    import inspect

    from perkey.engine import AsyncEngine, Handle, ThreadHandle

    internal = {"aio", "id"}
    for one, other in ((AsyncEngine, Engine), (Handle, ThreadHandle)):
        ours = {name for name in vars(one) if not name.startswith("_")} - internal
        theirs = {name for name in vars(other) if not name.startswith("_")} - internal
        assert ours == theirs
        for name in ours:
            if inspect.isfunction(vars(one)[name]):
                mine, yours = (inspect.signature(vars(each)[name]) for each in (one, other))
                assert list(mine.parameters) == list(yours.parameters)


def test_a_handle_shows_the_results_of_its_steps() -> None:
    async def body(ctx: Context) -> int:
        return int(await ctx.step("count", lambda: 3))

    engine = Engine()
    engine.register_process(define("counted", body))
    engine.run()
    try:
        handle = engine.start_latest("counted")
        handle.wait(60)
        assert (handle.steps(), handle.result()) == ({"count": 3}, 3)
    finally:
        engine.shutdown()
