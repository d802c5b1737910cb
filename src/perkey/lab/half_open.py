"""Half-open lifecycle: two start an engine, one deploys to it, one sends it a message."""

from __future__ import annotations

import threading
from typing import Any

from perkey.engine import AsyncEngine, define, message
from perkey.engine.definitions import Start
from perkey.errors import InvalidState
from perkey.lab.scenario import Diary, Kind, Scenario, Variant, must
from perkey.lab.worlds import io, new_lock
from perkey.testing import VirtualClock


class Machine:
    """An engine in small: a state, a hub that takes messages once it is open, timers to launch."""

    def __init__(self) -> None:
        self.diary = Diary()
        self.state = "stopped"
        self.lock = new_lock()
        self.mutex = threading.Lock()
        self.timers = 0
        self.hub_is_open = False
        self.starts = self.accepted = self.received = 0

    async def read_state(self) -> str:
        """What the machine is doing."""
        return self.state

    async def run(self) -> None:
        """Start it: "starting" is a state of its own, and each move names the one it leaves."""
        if self.swap("stopped", "starting"):
            await self.launch()
            self.swap("starting", "started")
            self.diary.say("says 'started'")

    async def launch(self) -> None:
        """Open the hub, then launch every timer; a timer asks first what state there is."""
        self.starts += 1
        self.diary.say("starts the hub")
        await io("open the hub")
        self.hub_is_open = True
        self.diary.say("the hub accepts")
        for _ in range(self.timers):
            await self.read_state()
            self.diary.say("launches a timer")

    async def deploy(self) -> None:
        """Register a timer."""
        await io("deploy")
        self.timers += 1
        self.diary.say("registers a timer")

    async def send(self) -> None:
        """Hand over a message if the machine says that it is started."""
        state = await self.read_state()
        if state != "started":
            self.diary.say(f"reads {state!r}: keeps its message")
            return
        self.diary.say("reads 'started', sends its message")
        await io("send")
        self.accepted += 1
        self.received += self.hub_is_open
        self.diary.say("it arrives" if self.hub_is_open else "no hub accepts: the message is gone")

    def arrived(self) -> int:
        """How many messages reached the hub."""
        return self.received

    def swap(self, expected: str, new: str) -> bool:
        """Move from exactly ``expected`` to ``new``."""
        with self.mutex:
            if self.state != expected:
                return False
            self.state = new
        return True

    def __str__(self) -> str:
        return f"{self.state}, hub {'open' if self.hub_is_open else 'closed'}"


def judge(machine: Machine) -> None:
    """Started once, and what was taken in as started has arrived."""
    must(machine.starts <= 1, f"it was started {machine.starts} times")
    lost = machine.accepted - machine.arrived()
    must(not lost, "a message was sent to a started engine and is gone")


class StateUnderTheLock(Machine):
    """Reading the state takes the lock that ``run`` holds across the launch."""

    async def read_state(self) -> str:
        async with self.lock:
            return self.state

    async def run(self) -> None:
        async with self.lock:
            if self.state == "stopped":
                await self.launch()
                self.state = "started"


class CheckThenSet(Machine):
    """Looks, launches, and sets the state at the end."""

    async def run(self) -> None:
        if self.state == "stopped":
            await self.launch()
            self.state = "started"


class StartedTooEarly(Machine):
    """Claims the start by saying "started" at once, so that nobody starts it again."""

    async def run(self) -> None:
        if self.swap("stopped", "started"):
            self.diary.say("says 'started'")
            await self.launch()


class Broker:
    """Where the engine's triggers are opened; each takes a while."""

    def __init__(self) -> None:
        self.opened = 0

    async def open(self, key: str, start: Start) -> None:
        """Begin to take messages."""
        await io("open the hub")
        self.opened += 1

    async def close(self, key: str, start: Start) -> None:
        """Take no more."""
        await io("close the hub")


async def _note(ctx: Any) -> None:
    """What a message starts: it has arrived, and there is nothing to do."""


ORDER = define("order", _note, [message("order")])
REPORT = define("report", _note, [message("report")])


class PerkeyEngine(Machine):
    """perkey's own engine, with one process that a message starts."""

    def __init__(self) -> None:
        super().__init__()
        self.engine = AsyncEngine(broker=Broker(), clock=VirtualClock())

    async def run(self) -> None:
        try:
            await self.engine.run()
        except InvalidState:
            return
        self.starts += 1

    async def deploy(self) -> None:
        await self.engine.register_process(REPORT)

    async def send(self) -> None:
        try:
            sent = await self.engine.publish("order", 1)
        except InvalidState:
            return
        self.accepted += sent.outcome == "started"

    def arrived(self) -> int:
        return sum(each.state == "completed" for each in self.engine.instances("order"))

    def __str__(self) -> str:
        return str(self.engine.state)


async def perkey_engine() -> PerkeyEngine:
    """Deployed, not yet started."""
    made = PerkeyEngine()
    await made.engine.register_process(ORDER)
    return made


async def run(machine: Machine) -> None:
    await machine.run()


async def deploy(machine: Machine) -> None:
    await machine.deploy()


async def send(machine: Machine) -> None:
    await machine.send()


def _variant(name: str, title: str, kind: Kind, setup: Any, **more: Any) -> Variant:
    return Variant(
        name, title, kind, setup, (run, run, deploy, send),
        ("run 1", "run 2", "deploy", "send"), judge, **more,
    )  # fmt: skip


SCENARIO = Scenario(
    "half-open",
    "Half-open lifecycle",
    "A state read waits for the lock that its own caller holds; or two runs both see 'not "
    "started'; or 'started' is said before the hub accepts.",
    "engine",
    [
        _variant(
            "state-under-the-lock", "state under the lock", "wrong", StateUnderTheLock,
            threaded=False,
            why="run holds the lock while a timer that it launches asks for the state: deadlock",
        ),
        _variant(
            "check-then-set", "check, launch, then set", "wrong", CheckThenSet,
            why="two runs check before either sets",
        ),
        _variant(
            "started-too-early", "say 'started' first", "wrong", StartedTooEarly,
            why="one run only, and whoever believes it sends to a hub that is not open",
        ),
        _variant(
            "compare-and-swap", "compare-and-swap, with 'starting'", "right", Machine,
            why="one run wins, reading never waits, and 'started' is said when it is true",
        ),
        _variant(
            "perkey-engine", "perkey: AsyncEngine", "right", perkey_engine, threaded=False,
            why="its state is such a cell; its locks are born and die in small helpers",
        ),
    ],
)  # fmt: skip
"""The fourth failure and its variants."""
