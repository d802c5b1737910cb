"""The fingerprint of a whole state: two states with one fingerprint have the same future.

It covers every task's coroutine chain (code, position, names bound, *value stack*), futures,
timers, queued callbacks and the heap they reach.  Objects are named by the order in which
the walk meets them, so isomorphic heaps hash alike wherever they lie in memory.  A type it
does not know is *refused* (``CannotFingerprint``): a state that was merged by mistake would
make "exhausted" a lie.  Teach it a type with ``register_fingerprint``.

Not part of a state: module globals, class attributes, tracebacks, task names, absolute time
(unless the scenario read the clock), anything outside this process.
"""

from __future__ import annotations

import hashlib
import marshal
from typing import Any

from perkey.testing import parts
from perkey.testing.loop import Handle, Loop, Timer

_END = (-1,)

ATOMS = frozenset({int, str, bool, type(None), float, bytes, complex, type(Ellipsis)})
"""Types whose objects are their value."""


class Fingerprint:
    """Computes fingerprints for one search, and remembers what it learnt about types."""

    def __init__(self) -> None:
        self.plain: dict[type, parts.Parts] = {}
        self.learnt: dict[type, parts.Parts | parts.Special] = {}
        self.constants: dict[int, tuple[Any, ...]] = {}
        self.varying: set[type] = set()
        self._kept: list[Any] = []

    def of(self, loop: Loop, root: Any, groups: list[int], flags: list[Any]) -> bytes:
        """The state of ``loop`` and of what ``root`` reaches.

        Callers with the same number in ``groups`` are interchangeable; ``flags`` holds what
        else tells a caller apart.
        """
        walk = Walk(self, loop, groups, flags)
        try:
            walk.add(root)
            walk.loop_state()
            walk.all_tasks()
            return walk.digest()
        finally:
            walk.forget()

    def constant(self, thing: Any) -> tuple[Any, ...] | None:
        """The lasting name of a thing that never changes (a class, a module's function)."""
        kind: Any = type(thing)
        fixed = parts.never_changes(kind)
        if fixed is False:
            self.varying.add(kind)
            return None
        if fixed is None and not parts.is_constant(thing):
            return None
        if isinstance(thing, type) and "<locals>" in thing.__qualname__:
            return (thing.__module__, thing.__qualname__)  # made anew in every run
        name = self.constants[id(thing)] = (len(self._kept), 0)
        self._kept.append(thing)
        return name

    # What the two broken fingerprints of the tests replace:

    def frame(self, coro: Any) -> list[Any]:
        """A suspended coroutine or generator: code, position, bound names, value stack."""
        return parts.frame(coro)


class Walk:
    """One walk over one state."""

    def __init__(self, owner: Fingerprint, loop: Loop, groups: list[int], flags: list[Any]) -> None:
        self.owner = owner
        self.loop = loop
        self.groups = groups
        self.flags = flags
        self.names: dict[int, tuple[Any, ...]] = owner.constants.copy()
        self.names[id(loop)] = (-2,)
        self.todo: list[Any] = []
        self.done = 0
        self.out: list[Any] = []
        self._processes: dict[int, int] = {}
        self.how: dict[type, Any] = owner.plain.copy()
        self.how[Timer] = self._timer
        self.how[Handle] = self._handle

    def add(self, thing: Any) -> None:
        """Emit ``thing`` and everything it reaches that was not met before."""
        names, todo, how, out = self.names, self.todo, self.how, self.out
        emit = out.append
        if type(thing) in ATOMS:
            emit(thing)
        else:
            emit(names.get(id(thing)) or self._meet(thing))
        # This loop is where a search spends its time, so it is written out.
        while self.done < len(todo):
            thing = todo[self.done]
            self.done += 1
            kind = type(thing)
            for part in (how[kind] if kind in how else self._learn(kind))(thing):
                if type(part) in ATOMS:
                    emit(part)
                else:
                    emit(names.get(id(part)) or self._meet(part))
            emit(_END)

    def digest(self) -> bytes:
        # Version 0: later versions write an object's reference count into the bytes.
        return hashlib.blake2b(marshal.dumps(self.out, 0), digest_size=16).digest()

    def forget(self) -> None:
        """Let go at once of all that was met: weak references in the scenario must not notice."""
        self.how.clear()  # it holds methods of this very object
        self.todo.clear()

    def _meet(self, thing: Any) -> tuple[Any, ...]:
        name = None if type(thing) in self.owner.varying else self.owner.constant(thing)
        if name is None:
            name = (len(self.todo),)
            self.todo.append(thing)
        self.names[id(thing)] = name
        return name

    def _learn(self, kind: type) -> parts.Parts:
        found = self.owner.learnt.get(kind) or parts.find(kind)
        self.owner.learnt[kind] = found
        if isinstance(found, parts.Special):
            special = {"task": self._task, "set": self._set, "frame": self.owner.frame}
            how: parts.Parts = special[found.method]
        else:
            how = self.owner.plain[kind] = found
        self.how[kind] = how
        return how

    # ------------------------------------------------------------ what the loop holds

    def loop_state(self) -> None:
        loop = self.loop
        if loop.clock_was_read:
            self.out.append(loop.now)
        self.out.append(loop.problems != [])
        for _, _, timer in sorted(loop.timers):
            if not timer._cancelled and timer.process not in loop.dead:
                self.add(timer)
        self.out.append(_END)
        for handle in loop.callbacks:
            if not handle._cancelled and handle.process not in loop.dead:
                self.add(handle)
        self.out.append(_END)

    def all_tasks(self) -> None:
        """Every live task: first those already met, then by what their frames look like.

        Interchangeable callers are thus named by where they stand, not by who they are.
        """
        tasks, names = self.loop.tasks, self.names
        left = [n for n, task in enumerate(tasks) if n < len(self.groups) or self._live(n)]
        looks: dict[int, tuple[Any, ...]] = {}
        while left:
            met = [n for n in left if id(tasks[n]) in names]
            if met:
                number = min(met, key=lambda n: names[id(tasks[n])])
            elif len(left) == 1:
                number = left[0]
            else:
                looks = looks or {n: (*self._look(n), n) for n in left}
                number = min(left, key=looks.__getitem__)
            left.remove(number)
            self.add(tasks[number])

    def _live(self, number: int) -> bool:
        return not (self.loop.tasks[number].done() or self.loop.is_dead(number))

    def _look(self, number: int) -> tuple[Any, ...]:
        """What a task looks like from far: cheap, and the same in isomorphic states."""
        task = self.loop.tasks[number]
        group = self.groups[number] if number < len(self.groups) else len(self.groups)
        if task.done() or self.loop.is_dead(number):
            return (group, 0)
        look: list[Any] = [group, 1, number in self.loop.ready]
        coro: Any = task.get_coro()
        while coro is not None and hasattr(coro, "cr_frame"):
            frame = coro.cr_frame
            look += [id(coro.cr_code), -1 if frame is None else frame.f_lasti]
            coro = coro.cr_await
        return tuple(look)

    # ------------------------------------------------------------ things with a meaning here

    def _task(self, task: Any) -> list[Any]:
        number = self.loop.numbers.get(task)
        found: list[Any] = [type(task)]
        if number is not None and number < len(self.groups):
            found += [self.groups[number], self.flags[number]]
        if task.done():
            return found + parts.finished(task)
        if number is not None and self.loop.is_dead(number):
            found.append("dead")
            return found
        found += [
            task.get_coro(),
            task._fut_waiter,
            *parts.callbacks(task),
            task._must_cancel,
            task.cancelling(),
            task._cancel_message,
        ]
        if number is not None:
            ready = self.loop.ready.get(number)
            found += [ready and ready[1], self._process(self.loop.processes[number])]
            context = self.loop.contexts[number]
            if len(context):
                found.append(context)
        return found

    def _process(self, process: int | None) -> int | None:
        """Processes are named in the order they are met, as objects are."""
        if process is None:
            return None
        return self._processes.setdefault(process, len(self._processes))

    def _handle(self, handle: Handle) -> list[Any]:
        if handle._cancelled:
            return ["cancelled"]
        context: Any = handle._context if len(handle._context) else None
        return [handle._callback, handle._args, context, self._process(handle.process)]

    def _timer(self, timer: Timer) -> list[Any]:
        if timer._cancelled or timer.fired:
            return [timer._cancelled, timer.fired]
        return [round(timer._when - self.loop.now, 9), *self._handle(timer)]

    def _set(self, things: Any) -> list[Any]:
        """A set in an order of its own: atoms by value, others by name, then by look."""
        atoms = sorted(
            (each for each in things if type(each) in ATOMS),
            key=lambda a: (type(a).__name__, repr(a)),
        )
        others = [each for each in things if type(each) not in ATOMS]
        if len(others) > 1:
            others.sort(key=self._set_order)
        return [type(things), *atoms, *others, *parts.attributes(things)]

    def _set_order(self, thing: Any) -> tuple[Any, ...]:
        name = self.names.get(id(thing)) or self.owner.constant(thing)
        if name is not None:
            return (0, *name)
        number = self.loop.numbers.get(thing) if parts.is_task(thing) else None
        if number is not None:
            return (1, *self._look(number), number)
        inner = Walk(self.owner, self.loop, self.groups, self.flags)
        inner.how[set] = inner.how[frozenset] = list
        inner.add(thing)
        try:
            return (2, inner.digest())
        finally:
            inner.forget()
