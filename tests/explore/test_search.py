"""The search itself: verdicts, budgets, replays, and that it never passes for more than it is."""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import Any

import msgspec
import pytest

from perkey.testing import (
    CannotFingerprint,
    Diverged,
    ExplorationFailed,
    InjectedFailure,
    LostReply,
    explore,
    register_fingerprint,
    step,
)


class Counter:
    def __init__(self) -> None:
        self.value = 0
        self.log: list[str] = []

    async def add(self) -> None:
        seen = self.value
        await step("save")
        self.value = seen + 1

    async def atomic(self) -> None:
        await step("save")
        self.value += 1


def test_every_interleaving_is_run_when_nothing_is_pruned() -> None:
    """Two callers of k moves each have (2k)! / (k! k!) schedules."""

    async def three(log: list[str]) -> None:
        for _ in range(2):
            await asyncio.sleep(0)

    result = explore(list, [three, three], prune="none", symmetric=False)
    assert result.assert_holds().schedules == 20


@pytest.mark.parametrize("prune", ["state", "none"])
@pytest.mark.parametrize("symmetric", [True, False])
def test_all_outcomes_come_with_a_schedule_that_leads_there(prune: Any, symmetric: bool) -> None:
    result = explore(
        Counter, [Counter.add] * 3, outcome=lambda c: c.value, prune=prune, symmetric=symmetric
    )
    assert set(result.outcomes) == {1, 2, 3}
    for value, replay in result.outcomes.items():
        again = explore(
            Counter, [Counter.add] * 3, check=lambda c, v=value: c.value != v, replay=replay
        )
        assert again.failure is not None


def test_symmetry_and_pruning_only_save_work() -> None:
    def states(**options: Any) -> int:
        return explore(Counter, [Counter.add] * 3, **options).assert_holds().schedules

    assert states() < states(symmetric=False) < states(symmetric=False, prune="none")


def test_a_failure_is_replayed_from_its_string() -> None:
    options: dict[str, Any] = {"check": lambda c: c.value == 3}
    failure = explore(Counter, [Counter.add] * 3, **options).assert_fails("check")
    again = explore(Counter, [Counter.add] * 3, **options, replay=failure.replay)
    assert again.assert_fails("check").story == failure.story
    assert 'await step("save")' in failure.story
    with pytest.raises(Diverged):
        explore(Counter, [Counter.add] * 2, **options, replay="0 0 0 0")


def test_a_failing_schedule_is_small() -> None:
    """Three of the five callers just run through; one loses to one."""
    failure = explore(Counter, [Counter.add] * 5, check=lambda c: c.value == 5).assert_fails()
    assert len(failure.replay.split()) <= 5 + 2


@pytest.mark.parametrize("limits", [{"limit": 3}, {"seconds": 0.0}])
def test_a_search_that_stopped_early_is_never_green(limits: Any) -> None:
    result = explore(Counter, [Counter.atomic] * 3, check=lambda c: c.value == 3, **limits)
    assert result.verdict.startswith("incomplete: ")
    assert not result.holds
    with pytest.raises(ExplorationFailed, match="incomplete"):
        result.assert_holds()
    with pytest.raises(ExplorationFailed, match="incomplete"):
        result.assert_nothing_found()


def test_a_busy_machine_stops_no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its ``seconds`` are the processor's: those that others use up do not count."""
    days = itertools.count(step=86_400.0)
    monkeypatch.setattr(time, "monotonic", lambda: next(days))
    for mode in ("all", "random"):
        result = explore(Counter, [Counter.atomic] * 3, check=lambda c: c.value == 3, mode=mode)
        assert result.incomplete == ""
        assert result.seconds >= 86_400.0
    monkeypatch.setattr(time, "process_time", lambda: next(days))
    late = explore(Counter, [Counter.atomic] * 3, seconds=3_600.0)
    assert late.verdict == "incomplete: not done after 3600 s of processor time"


def test_a_scenario_without_a_choice_proves_nothing() -> None:
    async def straight(counter: Counter) -> None:
        counter.value += 1

    result = explore(Counter, [straight] * 2)
    with pytest.raises(ExplorationFailed, match="never interleaved"):
        result.assert_holds()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"steps": ("load",)}, "step 'load' was never reached"),
        ({"lost_replies": 1}, r"no step.. with an effect"),
    ],
)
def test_what_was_declared_must_be_seen(options: Any, complaint: str) -> None:
    with pytest.raises(ExplorationFailed, match=complaint):
        explore(Counter, [Counter.atomic] * 2, **options).assert_holds()


def test_a_failure_budget_needs_a_step() -> None:
    async def plain(counter: Counter) -> None:
        await asyncio.sleep(0)

    with pytest.raises(ExplorationFailed, match=r"no step.. was reached"):
        explore(Counter, [plain] * 2, failures=1).assert_holds()


def test_unexpected_errors_fail_and_expected_ones_do_not() -> None:
    async def raising(counter: Counter) -> None:
        await step("save")
        raise KeyError("k")

    explore(Counter, [raising] * 2).assert_fails("raised")
    explore(Counter, [raising] * 2, raises=(KeyError,)).assert_holds()


def test_a_failing_step_leaves_nothing_and_a_lost_reply_does() -> None:
    ends: set[tuple[int, str]] = set()

    async def save(counter: Counter) -> None:
        def effect() -> int:
            counter.value += 1
            return counter.value

        try:
            assert await step("save", effect, error=OSError) == 1
        except OSError:
            counter.log.append("failed")
        except LostReply:
            counter.log.append("lost")

    explore(
        Counter, [save], failures=1, lost_replies=1,
        check=lambda c: ends.add((c.value, "".join(c.log))),
    ).assert_holds()  # fmt: skip
    assert ends == {(1, ""), (0, "failed"), (1, "lost")}


def test_budgets_bound_the_injections() -> None:
    async def tries(counter: Counter) -> None:
        for _ in range(3):
            try:
                await step("save")
            except InjectedFailure:
                counter.value += 1

    for budget in range(4):
        result = explore(Counter, [tries] * 2, failures=budget, outcome=lambda c: c.value)
        assert set(result.assert_holds().outcomes) == set(range(budget + 1))


def test_cancellation_strikes_the_running_the_blocked_and_the_not_started() -> None:
    class Gate:
        def __init__(self) -> None:
            self.lock = asyncio.Lock()
            self.reached: list[str] = []

        async def through(self) -> None:
            self.reached.append("started")
            async with self.lock:
                self.reached.append("inside")
                await step("work")
                self.reached.append("done")

    result = explore(
        Gate, [Gate.through] * 2, cancellations=1, outcome=lambda g: tuple(sorted(g.reached))
    ).assert_holds()
    once = ("done", "inside", "started")
    assert set(result.outcomes) == {
        tuple(sorted(2 * once)),
        once,  # one never started
        tuple(sorted((*once, "started"))),  # one was cancelled while it was blocked
        tuple(sorted((*once, "started", "inside"))),  # one was cancelled inside
    }
    assert any(point.endswith("not started") for point in result.cancel_points)
    assert any("async with self.lock:" in point for point in result.cancel_points)
    assert any('await step("work")' in point for point in result.cancel_points)


def test_a_crash_runs_no_finally_and_takes_the_tasks_of_its_process_along() -> None:
    class World:
        def __init__(self) -> None:
            self.log: list[str] = []

        async def main(self) -> None:
            child = asyncio.create_task(self.child())
            try:
                await step("work")
                await child
            finally:
                self.log.append("main over")

        async def child(self) -> None:
            try:
                await step("child")
            finally:
                self.log.append("child over")

    result = explore(World, [World.main], crashes=1, outcome=lambda w: tuple(w.log))
    assert set(result.assert_holds().outcomes) == {
        (),
        ("child over",),
        ("child over", "main over"),
    }


def test_processes_crash_together_and_restart() -> None:
    class Disk:
        def __init__(self) -> None:
            self.rows: list[str] = []

        async def writer(self) -> None:
            for row in ("a", "b"):
                await step("write", lambda row=row: self.rows.append(row))

        async def recover(self) -> None:
            await step("recover", lambda: self.rows.append("recovered"))

    result = explore(
        Disk, [Disk.writer] * 2, processes=[0, 0], crashes=1, restart=Disk.recover,
        outcome=lambda disk, ended: (ended.crashed[0], "recovered" in disk.rows),
        check=lambda disk, ended: sum(ended.crashed) != 1 or len(disk.rows) > 2,
    )  # fmt: skip
    assert set(result.assert_holds().outcomes) == {(False, False), (True, True), (False, True)}


def test_ended_tells_how_each_caller_ended() -> None:
    seen = set()

    async def one(counter: Counter) -> str:
        await step("save")
        return "fine"

    def note(counter: Counter, ended: Any) -> None:
        kind = type(ended.errors[0]).__name__
        seen.add((ended.results[0], kind, ended.crashed[0], ended.cancelled[0], ended.failed[0]))

    explore(Counter, [one], failures=1, cancellations=1, crashes=1, check=note).assert_holds()
    assert {
        ("fine", "NoneType", False, False, False),
        (None, "InjectedFailure", False, False, True),
    } <= seen
    assert {(None, "NoneType", True, False, False), (None, "NoneType", False, True, False)} <= seen


def test_timers_fire_in_order_when_idle_and_early_within_their_budget() -> None:
    async def setup() -> list[str]:
        log: list[str] = []
        for delay in (2, 1):
            asyncio.get_running_loop().call_later(delay, log.append, str(delay))
        return log

    async def slow(log: list[str]) -> None:
        await step("work")
        log.append("slow")
        await asyncio.sleep(3)

    calm = explore(setup, [slow], outcome=tuple)
    assert set(calm.assert_holds().outcomes) == {("slow", "1", "2")}
    early = explore(setup, [slow], outcome=tuple, early_timers=2)
    assert set(early.assert_holds().outcomes) == {
        ("slow", "1", "2"), ("1", "slow", "2"), ("1", "2", "slow"),
    }  # fmt: skip


def test_timers_of_one_moment_fire_in_any_order() -> None:
    async def nap(log: list[str], name: str) -> None:
        await asyncio.sleep(1)
        log.append(name)

    callers = [lambda log, name=name: nap(log, name) for name in "ab"]
    result = explore(list, callers, outcome=tuple)
    assert set(result.assert_holds().outcomes) == {("a", "b"), ("b", "a")}


def test_endless_waiting_is_a_deadlock_and_endless_running_is_cut() -> None:
    async def forever(counter: Counter) -> None:
        await asyncio.Event().wait()

    async def busy(counter: Counter) -> None:
        while True:
            counter.value += 1
            await asyncio.sleep(0)

    explore(Counter, [forever, Counter.add]).assert_fails("deadlock")
    explore(Counter, [busy], max_moves=50).assert_fails("endless")


def test_a_setup_that_hands_out_used_objects_is_found_out() -> None:
    shared: list[int] = []

    async def touch(state: list[int]) -> None:
        state.append(1)
        await step("save")

    with pytest.raises(Diverged, match="anew"):
        explore(lambda: shared, [touch] * 2)


def test_an_unknown_type_is_refused_until_it_is_taught() -> None:
    import array

    async def use(state: Any) -> None:
        await step("save")
        state.append(1)

    def setup() -> Any:
        return array.array("i")

    with pytest.raises(CannotFingerprint, match="register_fingerprint"):
        explore(setup, [use] * 2)
    explore(setup, [use] * 2, prune="none").assert_holds()
    register_fingerprint(array.array, list)
    explore(setup, [use] * 2, check=lambda a: list(a) == [1, 1]).assert_holds()


class Tally(msgspec.Struct):
    """Made in C, with fields that Python code sees."""

    count: int = 0


def test_the_fields_of_a_struct_are_part_of_the_state() -> None:
    """A lost update that is only seen if states with different counts are told apart."""

    async def add(tally: Tally) -> None:
        seen = tally.count
        await step("save")
        tally.count = seen + 1

    result = explore(Tally, [add] * 2, outcome=lambda tally: tally.count)
    assert set(result.assert_holds().outcomes) == {1, 2}


def test_one_coroutine_function_is_a_scenario() -> None:
    async def main() -> tuple[int, ...]:
        log: list[int] = []

        async def child(number: int) -> None:
            await asyncio.sleep(0)
            log.append(number)

        await asyncio.gather(child(1), child(2), child(3))
        return tuple(log)

    result = explore(main, outcome=lambda ended: ended.results[0]).assert_holds()
    assert set(result.outcomes) == set(itertools.permutations((1, 2, 3)))


async def test_it_works_inside_a_running_loop() -> None:
    result = await asyncio.to_thread(explore, Counter, [Counter.atomic] * 2)
    result.assert_holds()
    explore(Counter, [Counter.atomic] * 2).assert_holds()
    await asyncio.sleep(0)


def test_setup_and_check_may_be_async_and_background_tasks_are_left_alone() -> None:
    class Server:
        def __init__(self) -> None:
            self.queue: asyncio.Queue[asyncio.Future[str]] = asyncio.Queue()

        async def serve(self) -> None:
            while True:
                (await self.queue.get()).set_result("answer")

        async def ask(self) -> str:
            reply = asyncio.get_running_loop().create_future()
            await self.queue.put(reply)
            return await reply

    tasks = []

    async def setup() -> Server:
        server = Server()
        tasks.append(asyncio.create_task(server.serve()))
        await asyncio.sleep(0)
        return server

    async def check(server: Server, ended: Any) -> None:
        assert ended.results == ["answer", "answer"]
        assert await server.ask() == "answer"

    explore(setup, [Server.ask] * 2, check=check).assert_holds()


def test_the_certificate_names_its_bounds() -> None:
    result = explore(Counter, [Counter.atomic] * 2, failures=1, cancellations=1)
    text = str(result.assert_holds())
    assert text.startswith("exhausted")
    assert "add" not in text
    assert "1 failures, 1 cancellations" in text
    assert "pruned by fingerprint" in text
    assert result.as_dict()["states"] == result.states > 0
