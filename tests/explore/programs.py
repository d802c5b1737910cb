"""Random small concurrent programs, as Python source, for the differential fuzz."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from perkey.testing import InjectedFailure, step


class Shared:
    """What the callers of a random program share."""

    def __init__(self) -> None:
        self.x = 0
        self.y = 1
        self.lock = asyncio.Lock()
        self.event = asyncio.Event()
        self.queue: asyncio.Queue[int] = asyncio.Queue(1)
        self.semaphore = asyncio.Semaphore(1)
        self.condition = asyncio.Condition()
        self.slots: dict[str, Any] = {}


async def give(value: int) -> int:
    """A value that takes a step to come."""
    await asyncio.sleep(0)
    return value


@dataclass(frozen=True)
class RandomProgram:
    """Its source, its callers, and the budgets it is explored with."""

    source: str
    callers: list[Callable[[Shared], Any]]
    budgets: dict[str, int]


class Writer:
    """Writes statements from a seeded source of choices."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance

    def block(self, depth: int, most: int) -> list[str]:
        return [line for _ in range(self.chance.randint(1, most)) for line in self.statement(depth)]

    def indented(self, depth: int) -> list[str]:
        return ["    " + line for line in self.block(depth - 1, 2)]

    def statement(self, depth: int) -> list[str]:
        simple = [
            self.pause, self.add, self.on_the_stack, self.through_a_local, self.event,
            self.queue, self.step, self.maybe_bound, self.generator, self.attribute,
            self.on_the_stack, self.between_two_pauses,
        ]  # fmt: skip
        nested = [self.locked, self.branch, self.loop, self.guarded, self.spawned, self.limited]
        return self.chance.choice(simple + nested * 2 if depth else simple)(depth)

    def pause(self, depth: int) -> list[str]:
        return ["await asyncio.sleep(0)"]

    def add(self, depth: int) -> list[str]:
        return [self.chance.choice(["s.x += 1", "s.x = s.x * 2 + s.y", "s.y = s.x", "s.y ^= 1"])]

    def on_the_stack(self, depth: int) -> list[str]:
        """The left operand waits on the value stack, in no variable."""
        return [
            self.chance.choice(["s.x = s.x + await give(1)", "s.y = (s.x, await give(s.y))[0]"])
        ]

    def through_a_local(self, depth: int) -> list[str]:
        return ["t = s.x", "await asyncio.sleep(0)", "s.x = t + 1"]

    def between_two_pauses(self, depth: int) -> list[str]:
        """Two places that only the position tells apart."""
        change = self.chance.choice(["s.x += 1", "s.x *= 2", "s.y = s.x"])
        return ["await asyncio.sleep(0)", change, "await asyncio.sleep(0)"]

    def event(self, depth: int) -> list[str]:
        return [self.chance.choice(["s.event.set()", "s.event.clear()", "await s.event.wait()"])]

    def queue(self, depth: int) -> list[str]:
        return [self.chance.choice(["await s.queue.put(s.x)", "s.x = s.y + await s.queue.get()"])]

    def step(self, depth: int) -> list[str]:
        return [self.chance.choice(['await step("a")', 's.x = await step("b", lambda: s.x + 1)'])]

    def maybe_bound(self, depth: int) -> list[str]:
        """Which of two names is bound is part of the state; their values look alike."""
        return [
            "if s.x % 2:", "    p = 7", "    r = None; del r", "else:", "    r = 7",
            "    p = None; del p", "await asyncio.sleep(0)", "s.x += 3 if 'p' in locals() else 1",
        ]  # fmt: skip

    def generator(self, depth: int) -> list[str]:
        return ["s.x += sum([i + await give(i) for i in range(2)])"]

    def attribute(self, depth: int) -> list[str]:
        return [self.chance.choice(["s.slots['k'] = s.x", "s.slots.pop('k', None)"])]

    def locked(self, depth: int) -> list[str]:
        what = self.chance.choice(["s.lock", "s.semaphore", "s.condition"])
        return [f"async with {what}:", *self.indented(depth)]

    def branch(self, depth: int) -> list[str]:
        return ["if s.x % 2:", *self.indented(depth), "else:", *self.indented(depth)]

    def loop(self, depth: int) -> list[str]:
        return ["for _ in range(2):", *self.indented(depth)]

    def guarded(self, depth: int) -> list[str]:
        error = self.chance.choice(["InjectedFailure", "asyncio.CancelledError"])
        return [
            "try:", *self.indented(depth), f"except {error}:", "    s.y += 5",
            "finally:", "    s.x += 1",
        ]  # fmt: skip

    def spawned(self, depth: int) -> list[str]:
        return [
            "child = asyncio.ensure_future(give(s.x))",
            *self.block(depth - 1, 1),
            "s.y += await child",
        ]

    def limited(self, depth: int) -> list[str]:
        return [
            "try:", "    async with asyncio.timeout(1):",
            *("    " + line for line in self.indented(depth)),
            "except TimeoutError:", "    s.y += 3",
        ]  # fmt: skip


def make(seed: int) -> RandomProgram:
    """The program of this seed."""
    chance = random.Random(seed)
    writer = Writer(chance)
    kinds = chance.choice([1, 2, 2, 2, 3])
    lines = []
    for kind in range(kinds):
        lines += [f"async def caller{kind}(s):", *("    " + x for x in writer.block(1, 3)), ""]
    source = "\n".join(lines)
    names = {"asyncio": asyncio, "give": give, "step": step, "InjectedFailure": InjectedFailure}
    exec(compile(source, f"<program {seed}>", "exec"), names)
    callers = [names[f"caller{kind}"] for kind in range(kinds)]
    if kinds == 1 or (kinds == 2 and chance.random() < 0.3):
        callers.append(callers[0])
    budgets = dict.fromkeys(
        ("failures", "lost_replies", "cancellations", "early_timers", "crashes"), 0
    )
    if chance.random() < 0.4:
        budgets[chance.choice(list(budgets))] = 1
    return RandomProgram(source, callers, budgets)


def outcome(shared: Shared, ended: Any) -> Any:
    """All that can be seen at the end; interchangeable callers in no order."""
    ends = zip(
        (type(error).__name__ for error in ended.errors),
        ended.crashed, ended.cancelled, ended.failed, ended.waiting, strict=True,
    )  # fmt: skip
    return (
        shared.x, shared.y, shared.event.is_set(), shared.queue.qsize(), shared.lock.locked(),
        tuple(sorted(shared.slots.items())), tuple(sorted(ends)),
    )  # fmt: skip
