"""Processes that share a compare-and-swap store, for explorations: the real ``Optimistic``.

``Optimistic`` is blocking code, so each process runs it on a thread of its own.  Whenever it
asks the store for something it hands that to its task and stands still; the task stands at a
step point, does it, and hands the answer back.  One thread moves at a time, so a run is as
deterministic as the schedule, and what a process will do next depends on nothing but the
answers it has had: they are its fingerprint.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from queue import SimpleQueue
from typing import Any, NamedTuple

from perkey.errors import OutcomeUnknown, PerkeyError, StoreUnavailable
from perkey.store.backends.optimistic import Optimistic
from perkey.store.backends.port import NothingDone
from perkey.store.evaluate import Batch
from perkey.store.keys import TURNS, Key
from perkey.store.limits import Limits
from perkey.store.record import Record
from perkey.store.settle import settled
from perkey.store.transaction import Outcome, Transaction, declared
from perkey.testing import register_fingerprint, step
from tests.explore import stepped  # noqa: F401  # its fingerprints of keys and records

A, B = Key("d/a"), Key("d/b")


class RequestLost(StoreUnavailable):
    """The request did not arrive; perhaps it will."""


class ReplyLost(StoreUnavailable):
    """It was done, and the reply did not come."""


class Ask(NamedTuple):
    """What a process wants of the world."""

    what: str
    effect: Callable[[], Any]
    origin: tuple[int, int]
    """Whose it is, and after how many answers: that determines it."""

    def __call__(self) -> Any:
        return self.effect()


# ------------------------------------------------------------------------- the shared store


class Heads:
    """The store: what is there, and every commit that ever landed."""

    conditional = True
    compares_what_was_only_read = True

    def __init__(self) -> None:
        self.heads: dict[Key, Record] = {}
        self.log: list[tuple[Record, ...]] = []
        self.late: list[Ask] = []
        """Requests that nobody waits for any more, on their way."""

    def look(self, keys: Sequence[Key]) -> list[Record | None]:
        return [self.heads.get(key) for key in keys]

    def commit(self, expected: Mapping[Key, Record | None], writes: Sequence[Record]) -> bool:
        if not self.compares_what_was_only_read:
            written = {record.key for record in writes}
            expected = {key: head for key, head in expected.items() if key in written}
        if self.conditional and any(self.heads.get(key) != head for key, head in expected.items()):
            return False
        self.heads.update((Key(each.key), each) for each in writes)
        self.log.append(tuple(writes))
        return True

    def made(self, key: Key) -> list[Record]:
        """All versions of ``key`` in the order in which they landed."""
        return [record for commit in self.log for record in commit if record.key == key]

    def find_op(self, key: str, version: int) -> str | None:
        ops = [each.op for each in self.made(Key(key)) if each.version == version]
        return ops[-1] if ops else None


# ----------------------------------------------------------------------------- one process


class Process:
    """One process: a clock and a port of its own, the shared store behind them."""

    name = "test"
    cheap_turns = True
    guesses = True

    def __init__(
        self, number: int, store: Heads, transactions: Sequence[Transaction], settings: Settings
    ) -> None:
        self.number = number
        self.store = store
        self.transactions = transactions
        self.settings = settings
        self.atomic_keys: int | None = settings.atomic_keys
        self.commit_records: int | None = settings.commit_records
        self.several_versions = settings.several_versions
        self.trace: list[Any] = []
        """The answers so far: all that its future depends on."""
        self.outcomes: list[Outcome] | None = None
        self.losses = 0
        self.elapsed = 1_000.0
        self.abandoned = False
        self._asks: SimpleQueue[Ask | None] = SimpleQueue()
        self._answers: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        self._started = False
        _alive.append(self)

    # What follows runs on the process's own thread.

    def _run(self) -> None:
        settings = self.settings
        optimistic = settings.apply(self, settings.limits, self)
        outcomes: list[Outcome] = []
        for batch in self._batches():
            try:
                found, interrupt = settled(optimistic.apply, batch, settings.limits, self)
                assert interrupt is None
                outcomes += found
            except PerkeyError as error:
                outcomes += [Outcome(error=error)] * len(batch.transactions)
        self.outcomes = outcomes
        self._asks.put(None)

    def _batches(self) -> list[Batch]:
        if self.settings.together:
            return [Batch(list(self.transactions))]
        return [Batch([each]) for each in self.transactions]

    def ask(self, what: str, effect: Callable[[], Any]) -> Any:
        """Have ``effect`` happen at a step point of its own; its result, or its failure."""
        if self.abandoned:
            raise NothingDone("the run is over")
        self._asks.put(Ask(what, effect, (self.number, len(self.trace))))
        answer, error = self._answers.get()
        if error is not None:
            raise error
        return answer

    def look(self, keys: Sequence[Key]) -> tuple[list[Record | None], int]:
        return self.ask("look", lambda: self.store.look(keys)), 0

    def commit(self, heads: Mapping[Key, Record | None], writes: Sequence[Record]) -> bool:
        what = "turn" if writes[0].key == TURNS else "commit"
        landed: bool = self.ask(what, lambda: self.store.commit(heads, writes))
        self.losses += what == "commit" and not landed
        return landed

    def find_op(self, key: str, version: int) -> str | None:
        found: str | None = self.ask("history", lambda: self.store.find_op(key, version))
        return found

    def forget(self, key: Key) -> None:
        raise AssertionError("only the probe forgets")

    def close(self) -> None:
        """Nothing to give back."""

    def monotonic(self) -> float:
        return self.elapsed

    def now_ms(self) -> int:
        return 0

    def random(self) -> float:
        return 0.5

    def token(self) -> str:
        raise AssertionError("ops are given")

    def sleep(self, seconds: float) -> None:
        self.elapsed += max(seconds, 0.0)
        if not self.abandoned:
            self.ask("pause", lambda: None)

    # What follows runs on the loop's thread, in the process's task.

    def go_on(self, answer: Any = None, error: BaseException | None = None) -> Ask | None:
        """Let it run until it asks again; None when it is through."""
        if not self._started:
            self._started = True
            _pool.run(self._run)
        else:
            self._answers.put((answer, error))
        return self._asks.get()

    async def live(self, world: World) -> None:
        """The whole life of this process, each of its steps at a step point."""
        ask = self.go_on()
        while ask is not None:
            answer, error = None, None
            try:
                answer = await self._perform(ask)
            except StoreUnavailable as failed:
                error = failed
                if isinstance(failed, RequestLost):
                    world.store.late.append(ask)
                    world.underway.set()
            self.trace.append([ask.what, _plain(answer), type(error).__name__])
            ask = self.go_on(answer, error)

    async def _perform(self, ask: Ask) -> Any:
        if ask.what == "commit":
            return await step("commit", ask, error=RequestLost, lost=ReplyLost)
        if ask.what == "pause" and self.number in self.settings.patient:
            await asyncio.sleep(1)  # until nobody else can do anything
        else:
            await step(ask.what, error=StoreUnavailable if ask.what == "look" else None)
        return ask()

    def abandon(self) -> None:
        """Unwind the thread of a run that is over."""
        self.abandoned = True
        if self._started:
            self._answers.put((None, NothingDone("the run is over")))
            assert self._asks.get() is None


class Settings:
    """What the processes of a scenario have in common."""

    def __init__(
        self,
        *,
        atomic_keys: int | None = None,
        commit_records: int | None = None,
        several_versions: bool = True,
        together: bool = True,
        patient: Sequence[int] = (),
        backoff_s: float = 0.05,
        apply: Callable[..., Any] = Optimistic,
    ) -> None:
        self.atomic_keys = atomic_keys
        self.commit_records = commit_records
        self.several_versions = several_versions
        self.together = together
        """Whether a process submits its transactions as one batch, or one after the other."""
        self.patient = patient
        """The processes whose pauses outlast whatever the others can do meanwhile."""
        self.limits = Limits(doubt_attempts=3, backoff_s=backoff_s)
        self.apply = apply
        """Makes what applies batches, of a process, limits and a clock."""


class World:
    """The state of a scenario: a store and its processes."""

    def __init__(
        self, store: Heads, work: Sequence[Sequence[Transaction]], settings: Settings
    ) -> None:
        _clear()
        self.store = store
        self.processes = [
            Process(number, store, transactions, settings)
            for number, transactions in enumerate(work)
        ]

        self.underway = asyncio.Event()
        self.network = asyncio.get_running_loop().create_task(self._network())

    async def _network(self) -> None:
        """Requests whose sender has given up arrive, at any moment from then on, or never."""
        await self.underway.wait()
        await step("the network", error=None)
        self.deliver()

    def deliver(self) -> None:
        """What is still on its way arrives now."""
        for ask in self.store.late:
            ask()
        self.store.late.clear()


def world_of(
    work: Sequence[Sequence[Transaction]], store: type[Heads] = Heads, **settings: Any
) -> Callable[[], Any]:
    """What makes the state of a scenario: for each process the transactions that it does."""
    common = Settings(**settings)

    async def setup() -> World:
        return World(store(), work, common)

    return setup


def caller(number: int) -> Callable[[World], Any]:
    """The life of the process of this number."""

    async def process(world: World) -> None:
        await world.processes[number].live(world)

    process.__name__ = f"process {number}"
    return process


def adding(number: int, place: int, *keys: Key, attempts: int | None = None) -> Transaction:
    """Process ``number`` adds one to each key, and returns the first one's new value."""

    def add(tx: Any) -> int:
        for key in keys:
            tx[key] = tx.get(key, 0) + 1
        return int(tx[keys[0]])

    return Transaction(declared(keys), add, "me", f"{number:016}-{place}", attempts=attempts)


# -------------------------------------------------------------------------------- judging


def each_once(world: World, ended: Any) -> None:
    """Every answer is the truth, and every version builds on the one before it; also when what
    is still on its way arrives after all."""
    _judge_all(world, ended)
    if world.store.late:
        world.deliver()
        _judge_all(world, ended)


def _judge_all(world: World, ended: Any) -> None:
    log = Counter(record.op for key in (A, B) for record in world.store.made(key))
    for number, process in enumerate(world.processes):
        if ended.crashed[number]:
            told: list[Outcome | None] = [None] * len(process.transactions)
        else:
            assert process.outcomes is not None
            told = [*process.outcomes]
        for transaction, outcome in zip(process.transactions, told, strict=True):
            _judge(world.store, transaction, outcome, log[transaction.op])
    for key in (A, B):
        made = world.store.made(key)
        assert [each.version for each in made] == [*range(1, len(made) + 1)], "a version twice"
        assert [each.body for each in made] == [b"%d" % each.version for each in made], "lost"


def _judge(store: Heads, asked: Transaction, outcome: Outcome | None, landed: int) -> None:
    keys = len(asked.keys)
    assert landed in (0, keys), f"{asked.op} landed {landed} times on {keys} keys"
    if outcome is None or isinstance(outcome.error, OutcomeUnknown):
        return
    if outcome.error is not None:
        assert not landed, f"{asked.op} was refused ({outcome.error!r}) and landed"
        return
    assert landed, f"{asked.op} was acknowledged and is not there"
    (made,) = [each for each in store.made(asked.keys[0]) if each.op == asked.op]
    assert outcome.result == made.version, f"{asked.op} was told {outcome.result}"


# ---------------------------------------------------------------------------- fingerprints


def _plain(answer: Any) -> Any:
    if isinstance(answer, list):
        return [_plain(each) for each in answer]
    return _of_record(answer) if isinstance(answer, Record) else answer


def _of_record(record: Record) -> list[Any]:
    return [str(record.key), record.version, record.body, record.op, record.ops]


def _of_heads(store: Heads) -> list[Any]:
    heads = [_of_record(store.heads[key]) for key in sorted(store.heads)]
    # The order across keys decides nothing, but that of each key's own versions is judged.
    made = [_of_record(each) for key in (A, B) for each in store.made(key)]
    return [heads, made, [ask.origin for ask in store.late]]


def _of_process(process: Process) -> list[Any]:
    outcomes = [[each.result, repr(each.error)] for each in process.outcomes or ()]
    return [process.number, process.trace, outcomes, process.losses]


register_fingerprint(Heads, _of_heads)
register_fingerprint(Process, _of_process)
register_fingerprint(World, lambda world: [world.store, world.underway, *world.processes])
register_fingerprint(Ask, lambda ask: [ask.what, *ask.origin])


# -------------------------------------------------------------------------------- threads


class _Pool:
    """Threads that are used again: an exploration starts thousands of processes."""

    def __init__(self) -> None:
        self._idle: list[SimpleQueue[Callable[[], None]]] = []

    def run(self, work: Callable[[], None]) -> None:
        if not self._idle:
            inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()
            threading.Thread(target=self._serve, args=(inbox,), daemon=True).start()
            self._idle.append(inbox)
        self._idle.pop().put(work)

    def _serve(self, inbox: SimpleQueue[Callable[[], None]]) -> None:
        while True:
            inbox.get()()
            self._idle.append(inbox)


_pool = _Pool()
_alive: list[Process] = []


def _clear() -> None:
    """End what the run before left standing."""
    for process in _alive:
        if process.outcomes is None:
            process.abandon()
    _alive.clear()
