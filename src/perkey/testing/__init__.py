"""Test concurrent code by running every schedule of it.

``explore`` takes plain ``async def`` code, unmodified, and runs it on a deterministic event
loop under *every* interleaving of its callers; with failures, lost replies, cancellations,
crashes and early timers injected at every place where they can strike, as far as their
budgets allow.  It returns a certificate, or the smallest failing schedule it can make, told
in source lines.

    import asyncio
    from perkey.testing import explore, step

    class Bank:                                # the shared state; made anew for every run
        def __init__(self):
            self.balance, self.lock = 0, asyncio.Lock()

        async def deposit(self):               # one caller
            async with self.lock:
                seen = self.balance
                await step("save")             # others run here; with a budget, it fails here
                self.balance = seen + 1

    result = explore(Bank, [Bank.deposit] * 3, check=lambda bank: bank.balance == 3)
    result.assert_holds()                      # take the lock away, and it prints the story

**The scenario.** ``setup()`` (plain or async; on the loop) makes the state; each caller is
called with it and returns a coroutine.  Callers that are the same function are
interchangeable, and what differs only by their names is explored once; if your check tells
them apart, pass ``symmetric=False``.  ``explore(main)`` alone explores the tasks of one
coroutine function.  Tasks started in an async setup are background: nobody waits for them.

**In one function**, which is what the decorator makes a test of: the setup, a ``yield`` of the
callers, and the check.  Equal callers are interchangeable.

    @explore(failures=1)
    def test_deposits():
        bank = Bank()
        ended = yield [bank.deposit] * 3
        assert bank.balance == ended.failed.count(False)

With pytest a failing one is reported by its story and by the ``--perkey-replay`` that runs that
schedule again; there are the fixtures ``faulty_store``, ``virtual_clock`` and ``sequencer``.

**What is checked.** ``check(state[, ended])`` at the end of every run (plain or async) and
``always(state)`` after every move: both fail by raising or by returning False.  A caller may
end with a result, with an injected failure, cancelled by the exploration, or with one of
``raises``; any other exception fails the run.  So do a deadlock, an exception in a callback,
and a run of more than ``max_moves``.  ``ended`` (see ``Ended``) says how each caller ended.
``outcome(state[, ended])`` collects every distinct outcome, each with one schedule; with
``stop_at_failure=False`` the search goes on after a failure.

**The choices**, each with its own budget:

* which task steps next; any task that can run may, and plain callbacks keep their order;
* ``failures``: a ``step`` raises (``InjectedFailure`` or its ``error=``), nothing was done;
* ``lost_replies``: a ``step`` with an effect raises (``LostReply``, ``lost=``), it was done;
* ``cancellations``: a caller is cancelled, be it running, blocked or not yet started;
* ``crashes``: a power cut; no ``finally`` of that process ever runs.  Each caller is a process
  of its own unless ``processes=[0, 0, 1]`` says who shares one.  ``restart(state)`` starts
  after a crash;
* ``early_timers``: a timer fires although others could still run.  Without it timers fire
  when nothing else can happen, in the order of their deadlines.

``step`` marks where code meets the outside, in fakes as a rule: ``await step("save")``, or
``rows = await step("read", effect)`` where ``effect()`` happens in one piece at a time of its
own.  Code that awaits ordinary asyncio things needs none.

**The result** is ``exhausted``, ``fails`` or ``incomplete: why``; ``assert_holds`` accepts
only the first, and also refuses a search in which the callers never interleaved, a budget
could not be spent, or one of ``steps=("save",)`` was never reached.  ``assert_fails`` is for
planted bugs.  ``explore(..., replay=failure.replay)`` runs one schedule again.

**Pruning.** A state seen before is not searched again.  States are compared by a fingerprint
that refuses types it can't see into (``CannotFingerprint``; teach it with
``register_fingerprint``).  ``prune="none"`` searches without it.

**Too large to search?** ``mode="random"`` or ``mode="pct"`` with ``runs=`` and ``seed=`` draws
random schedules; ``assert_nothing_found`` accepts a sample, ``assert_holds`` never does.

**What it can't see.** Interleavings finer than one ``await``; module globals and class
attributes (make the state in ``setup``); files, sockets, databases and threads (use
doubles); fairness.

**Threads.** ``explore_threads`` does the same for threaded code, at its lock operations, and in
the modules that you name at every line or bytecode.
``SteppedStore`` is an ``AsyncStore`` for explorations, whose reads and commits are steps.
``Sequencer`` forces one order of blocks across tasks and threads; ``VirtualClock`` is time that
a test moves; ``FaultyStore`` fails saves and loses replies; ``check_backend`` is the suite that
every store passes.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perkey.testing.certificate import ExplorationFailed, Failure, Result
    from perkey.testing.conformance import CheckFailed, Report, check_backend
    from perkey.testing.exploring import explore
    from perkey.testing.faulty import AsyncFaultyStore, Faults, FaultyBackend, FaultyStore
    from perkey.testing.fingerprint import Fingerprint
    from perkey.testing.loop import Diverged
    from perkey.testing.parts import CannotFingerprint, register_fingerprint
    from perkey.testing.points import InjectedFailure, LostReply, step
    from perkey.testing.runner import Ended
    from perkey.testing.sequencer import SequenceBroken, Sequencer
    from perkey.testing.stage import switch_point
    from perkey.testing.stepped import SteppedStore
    from perkey.testing.threads import explore_threads
    from perkey.testing.virtual_clock import VirtualClock

__all__ = [
    "AsyncFaultyStore",
    "CannotFingerprint",
    "CheckFailed",
    "Diverged",
    "Ended",
    "ExplorationFailed",
    "Failure",
    "Faults",
    "FaultyBackend",
    "FaultyStore",
    "Fingerprint",
    "InjectedFailure",
    "LostReply",
    "Report",
    "Result",
    "SequenceBroken",
    "Sequencer",
    "SteppedStore",
    "VirtualClock",
    "check_backend",
    "explore",
    "explore_threads",
    "register_fingerprint",
    "step",
    "switch_point",
]

_HOMES = {
    "AsyncFaultyStore": "faulty",
    "CannotFingerprint": "parts",
    "CheckFailed": "conformance",
    "Diverged": "loop",
    "Ended": "runner",
    "ExplorationFailed": "certificate",
    "Failure": "certificate",
    "Faults": "faulty",
    "FaultyBackend": "faulty",
    "FaultyStore": "faulty",
    "Fingerprint": "fingerprint",
    "InjectedFailure": "points",
    "LostReply": "points",
    "Report": "conformance",
    "Result": "certificate",
    "SequenceBroken": "sequencer",
    "Sequencer": "sequencer",
    "SteppedStore": "stepped",
    "VirtualClock": "virtual_clock",
    "check_backend": "conformance",
    "explore": "exploring",
    "explore_threads": "threads",
    "register_fingerprint": "parts",
    "step": "points",
    "switch_point": "stage",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'perkey.testing' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"perkey.testing.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
