"""How each type is taken apart for the fingerprint, and which types never change.

Functions here are leaves: an object in, the list of what its future depends on out.
"""

from __future__ import annotations

import asyncio
import builtins
import collections
import contextvars
import datetime
import decimal
import enum
import fractions
import functools
import gc
import itertools
import logging
import pathlib
import random
import re
import sys
import threading
import types
import uuid
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from perkey.testing.points import Point


class CannotFingerprint(TypeError):
    """The explorer doesn't know what an object's future depends on."""


class Special:
    """Stands for a method of the walk: these parts depend on what the walk knows."""

    __slots__ = ("method",)

    def __init__(self, method: str) -> None:
        self.method = method


TASK, SET, FRAME = Special("task"), Special("set"), Special("frame")

Parts = Callable[[Any], Iterable[Any]]


# ------------------------------------------------------------ what never changes

_CONSTANT_TYPES = (
    types.ModuleType,
    types.CodeType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
    types.GenericAlias,
    contextvars.ContextVar,
    enum.Enum,
    re.Pattern,
    logging.Logger,
    type(NotImplemented),
    type,
)


@functools.cache
def never_changes(kind: Any) -> bool | None:
    """Whether objects of ``kind`` are the same in every run; None: look at each."""
    if kind in (types.FunctionType, types.BuiltinFunctionType):
        return None
    return issubclass(kind, _CONSTANT_TYPES)


def is_constant(thing: Any) -> bool:
    """The same question about one function."""
    if type(thing) is types.FunctionType:
        return thing.__closure__ is None and "<locals>" not in thing.__qualname__
    return thing.__self__ is None or isinstance(thing.__self__, types.ModuleType)


# ------------------------------------------------------------ asyncio


def is_task(thing: Any) -> bool:
    return isinstance(thing, asyncio.Task)


def finished(future: Any) -> list[Any]:
    """What is left of a future that is done."""
    if future.cancelled():
        return ["cancelled", future._cancel_message]
    if future._exception is not None:
        return ["raised", future._exception]
    return ["returned", future._result]


def _future(future: Any) -> list[Any]:
    if future.done():
        return [type(future), *finished(future)]
    return [type(future), future._asyncio_future_blocking, *callbacks(future)]


def callbacks(future: Any) -> list[Any]:
    """What happens when a future is done: the tasks it wakes, and other callbacks."""
    found: list[Any] = []
    for callback, context in future._callbacks or ():
        if type(callback) is types.BuiltinFunctionType and callback.__name__ == "task_wakeup":
            found.append(callback.__self__)
        else:
            found += ["calls", callback, context if len(context) else None]
    return found


# ------------------------------------------------------------ frames


@functools.cache
def _needs_names(code: types.CodeType) -> bool:
    """Whether the values alone may leave open which local variables are bound."""
    return (
        code.co_nlocals - code.co_argcount - code.co_kwonlyargcount > 1
        or len(code.co_varnames) != code.co_nlocals
    )


_SNAPSHOTS = sys.version_info < (3, 13)  # until 3.12, f_locals is a copy that is kept


def frame(coro: Any) -> list[Any]:
    """Code, position, names of bound variables, and all values: variables and value stack."""
    where = _where(coro)
    if where is None:
        return [type(coro), "finished"]
    names, snapshot = "", None
    if _needs_names(where.f_code):
        snapshot = where.f_locals
        names = ",".join(snapshot)
    # The frame object and the snapshot exist because we asked; they are no part of the state.
    values = [v for v in gc.get_referents(coro) if v is not where and v is not snapshot]
    if snapshot is not None and _SNAPSHOTS and "locals" not in where.f_code.co_names:
        snapshot.clear()  # it would keep objects alive that the program let go
    return [type(coro), where.f_code, where.f_lasti, names, *values]


def _where(coro: Any) -> Any:
    for name in ("cr_frame", "gi_frame", "ag_frame"):
        if hasattr(coro, name):
            return getattr(coro, name)
    raise CannotFingerprint(type(coro))


# ------------------------------------------------------------ values


def _dict(thing: Any) -> list[Any]:
    return [type(thing), *thing.keys(), *thing.values()]


def _defaultdict(thing: Any) -> list[Any]:
    return [thing.default_factory, *_dict(thing)]


def _wrapped(thing: Any) -> list[Any]:
    return [thing.__func__]


def _sequence(thing: Any) -> list[Any]:
    return [type(thing), *thing]


def _deque(thing: Any) -> list[Any]:
    return [type(thing), thing.maxlen, *thing]


def _function(thing: Any) -> list[Any]:
    return [
        thing.__code__,
        thing.__defaults__,
        thing.__kwdefaults__,
        thing.__dict__ or None,
        *(thing.__closure__ or ()),
    ]


def _cell(cell: Any) -> list[Any]:
    try:
        return [cell.cell_contents]
    except ValueError:
        return []


def _method(thing: Any) -> list[Any]:
    return [thing.__func__, thing.__self__]


def _builtin(thing: Any) -> list[Any]:
    return [thing.__name__, thing.__self__]


def _partial(thing: Any) -> list[Any]:
    return [type(thing), thing.func, thing.args, thing.keywords, *attributes(thing)]


def _exception(error: Any) -> list[Any]:
    return [
        type(error),
        getattr(error, "errno", None),
        error.args,
        error.__cause__,
        error.__context__,
        error.__suppress_context__,
        *attributes(error),
    ]


def _exception_group(error: Any) -> list[Any]:
    return [*_exception(error), *error.exceptions]


def _weakref(ref: Any) -> list[Any]:
    return [type(ref), ref(), ref.__callback__, *attributes(ref)]


def _reduced(thing: Any) -> list[Any]:
    """Iterators over built-in containers say where they stand when asked to be pickled."""
    return [type(thing), *_listed(thing.__reduce__())]


def _listed(reduced: Any) -> Iterable[Any]:
    return reduced if isinstance(reduced, tuple) else (reduced,)


def _referents(thing: Any) -> list[Any]:
    return [type(thing), *gc.get_referents(thing)]


def _by_repr(thing: Any) -> list[Any]:
    return [type(thing), repr(thing)]


def _context(context: Any) -> list[Any]:
    return [each for pair in context.items() for each in pair]


def _lock(lock: Any) -> list[Any]:
    return [type(lock), lock.locked()]


def _rlock(lock: Any) -> list[Any]:
    count = re.search(r"count=(\d+)", repr(lock))
    return [type(lock), count and count.group(1)]


def _random_source(source: Any) -> list[Any]:
    return [type(source), hash(source.getstate())]


def _nothing(thing: Any) -> list[Any]:
    return [type(thing)]


def _point(point: Point) -> list[Any]:
    return [point.name, point.error, point.lost, point.chosen]


def _struct(thing: Any) -> list[Any]:
    """Made in C, but all it has are its fields and what Python code added."""
    fields = [getattr(thing, name, NotImplemented) for name in type(thing).__struct_fields__]
    return [type(thing), *fields, *attributes(thing)]


# ------------------------------------------------------------ instances of Python classes


def attributes(thing: Any) -> list[Any]:
    """The instance dictionary and the slots of ``thing``."""
    found: list[Any] = []
    state = getattr(thing, "__dict__", None)
    if state:
        found += [*state, *state.values()]
    kind: Any = type(thing)
    for name in _slots(kind):
        try:
            found.append(getattr(thing, name))
        except AttributeError:
            found.append(NotImplemented)
    return found


@functools.cache
def _slots(kind: Any) -> tuple[str, ...]:
    names = []
    for base in kind.__mro__:
        if not _is_python(base):
            continue
        for name, value in vars(base).items():
            if isinstance(value, types.MemberDescriptorType):
                names.append(name)
    return tuple(names)


def _is_python(kind: type) -> bool:
    """Whether ``kind`` adds nothing to its instances that Python code can't see."""
    base = kind.__base__
    if base is None:
        return False
    named = sum(isinstance(each, types.MemberDescriptorType) for each in vars(kind).values())
    named += sum(name in vars(kind) for name in ("__dict__", "__weakref__"))
    python_flag = kind.__flags__ & (1 << 9) and not kind.__flags__ & (1 << 8)
    return bool(python_flag) and kind.__basicsize__ - base.__basicsize__ <= 8 * named


def find(kind: type) -> Parts | Special:
    """How to take objects of ``kind`` apart; raises ``CannotFingerprint`` for the unknown."""
    for given in kind.__mro__:
        if given in _REGISTERED:
            return _REGISTERED[given]
    known = _known()
    if kind in known:
        return known[kind]
    if issubclass(kind, msgspec.Struct):
        return _struct
    if issubclass(kind, types.BuiltinFunctionType):
        return _builtin  # from Python 3.12, bound methods of some classes have a type of their own
    base: type = kind
    while base not in known:
        if base is object:
            return lambda thing: [kind, *attributes(thing)]
        if not _is_python(base) or base.__base__ is None:
            raise CannotFingerprint(_REFUSAL.format(kind=kind))
        base = base.__base__
    how = known[base]
    if isinstance(how, Special) or base in _WITH_ATTRIBUTES:
        return how
    return lambda thing: [kind, *how(thing), *attributes(thing)]


_REFUSAL = """\
expected only objects whose state can be seen, found {kind!r}, which is made in C; \
use a plain Python double in its place, or say what its future depends on with \
perkey.testing.register_fingerprint({kind.__name__}, lambda thing: [...])"""

_REGISTERED: dict[type, Parts] = {}


def register_fingerprint(kind: type, parts: Parts) -> None:
    """Say what the future of objects of ``kind`` (and of its subclasses) depends on.

    ``parts(thing)`` returns values, which may be objects; it must name everything that can
    change and that later steps may read, and nothing that differs from run to run.
    """
    _REGISTERED[kind] = parts


# ------------------------------------------------------------ the table

_VALUES = (
    datetime.datetime, datetime.date, datetime.time, datetime.timedelta, datetime.timezone,
    decimal.Decimal, decimal.Context, fractions.Fraction, uuid.UUID,
    pathlib.PurePosixPath, pathlib.PosixPath, range, slice, bytearray, itertools.count,
)  # fmt: skip

_SAMPLES: tuple[Any, ...] = (
        iter([]), iter(()), iter(""), iter(b""), iter(range(0)), iter(range(1 << 70)),
        iter(set()), iter({}), iter({}.values()), iter({}.items()), reversed([]),
        reversed({}), iter(collections.deque()), enumerate(()), zip(), map(str, ()),
        filter(None, ()),
)  # fmt: skip

_WITH_ATTRIBUTES = (functools.partial, BaseException, weakref.ref)


@functools.cache
def _known() -> dict[type, Parts | Special]:
    table: dict[type, Parts | Special] = {
        asyncio.Task: TASK,
        asyncio.Future: _future,
        set: SET,
        frozenset: SET,
        types.CoroutineType: FRAME,
        types.GeneratorType: FRAME,
        types.AsyncGeneratorType: FRAME,
        dict: _dict,
        list: _sequence,
        tuple: _sequence,
        collections.deque: _deque,
        collections.OrderedDict: _dict,
        collections.defaultdict: _defaultdict,
        types.FunctionType: _function,
        types.MethodType: _method,
        types.BuiltinFunctionType: _builtin,
        types.MethodWrapperType: _builtin,
        types.CellType: _cell,
        types.SimpleNamespace: attributes,
        types.MappingProxyType: _dict,
        functools.partial: _partial,
        weakref.ref: _weakref,
        contextvars.Context: _context,
        contextvars.Token: _nothing,
        random.Random: _random_source,
        type(threading.Lock()): _lock,
        type(threading.RLock()): _rlock,
        staticmethod: _wrapped,
        classmethod: _wrapped,
        property: _nothing,
        types.TracebackType: _nothing,
        Point: _point,
    }
    table |= dict.fromkeys(_VALUES, _by_repr)
    table |= dict.fromkeys(map(type, _SAMPLES), _reduced)
    table |= dict.fromkeys(_awaitables(), _referents)
    for each in vars(builtins).values():
        if isinstance(each, type) and issubclass(each, BaseException):
            table[each] = _exception
    for group in (BaseExceptionGroup, ExceptionGroup):
        table[group] = _exception_group
    return table


def _awaitables() -> list[type]:
    """Types without a public name that stand on value stacks while something is awaited."""

    async def nothing() -> None: ...

    async def generator() -> Any:
        yield None

    coro, agen = nothing(), generator()
    found = [type(coro.__await__()), type(agen.__anext__()), type(agen.aclose())]
    coro.close()
    loop = asyncio.new_event_loop()
    found.append(type(asyncio.Future(loop=loop).__await__()))
    loop.close()
    return found
