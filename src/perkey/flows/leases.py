"""Leases as flows: ownership that ends by itself, and a token that refuses whoever is late.

The lease record is never deleted: its value outlives the release, so its token only grows.
Time is ``tx.now``, the store's; a client's clock decides nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from perkey.errors import LeaseHeld, LeaseLost, UsageError
from perkey.flows import steps
from perkey.flows.records import check_by
from perkey.observe import events
from perkey.store.fencing import LeaseState, check_fence, lease_body, lease_state
from perkey.store.keys import LEASES, Key, in_space
from perkey.store.transaction import Fence, Outcome, Tx

T = TypeVar("T")

FIRST_PAUSE_S = 0.01
LONGEST_PAUSE_S = 0.5
MAX_TTL_S = 366 * 24 * 3600.0
"""The longest lease: a year."""


@dataclass(frozen=True, slots=True)
class Grant:
    """What an acquisition gave."""

    key: str
    holder: str
    token: int
    """The fencing token: larger than every one before it, for ever."""
    expires: int
    """When it ends, in milliseconds of store time."""


@dataclass(frozen=True, slots=True)
class LeaseInfo:
    """How a lease stood when the store was asked."""

    key: str
    holder: str
    """Who has it, or had it last; empty where nobody ever had."""
    token: int
    held: bool
    remaining_ms: int
    """How long until it runs out; 0 when it is free."""


def lease_key(key: str) -> Key:
    """The stored key of the lease that a user calls ``key``."""
    return in_space(LEASES, key)


def fence(key: str, token: int) -> Fence:
    """The condition to put into a transaction: this very lease must still be held."""
    return Fence(lease_key(key), token)


def acquire(key: str, ttl: float, holder: str = "", wait: float = 0.0) -> steps.Flow[Grant]:
    """Take the lease for ``ttl`` seconds; poll up to ``wait`` seconds while another has it.

    Raises ``LeaseHeld`` with ``retry_after_ms`` where it does not become free in time.
    """
    name = lease_key(key)
    length = milliseconds(ttl)
    check_by(holder)
    return (yield from polling(lambda: _take(name, length, holder), wait))


def polling(attempt: Callable[[], steps.Flow[T]], wait: float) -> steps.Flow[T]:
    """Repeat ``attempt`` while it raises ``LeaseHeld``, for up to ``wait`` seconds."""
    if isinstance(wait, bool) or not isinstance(wait, int | float) or not wait >= 0:
        raise UsageError(f"expected wait= as 0 or more seconds, found {wait!r}")
    deadline: float | None = None
    pause = FIRST_PAUSE_S
    while True:
        try:
            return (yield from attempt())
        except LeaseHeld as held:
            # The deadline is counted by the store's time too, which never jumps.
            deadline = held.now + wait * 1000 if deadline is None else deadline
            left = deadline - held.now
            if left <= 0:
                raise
            chance = yield steps.Random()
            yield steps.Sleep(min(pause * (0.5 + chance), held.retry_after_ms / 1000, left / 1000))
            pause = min(pause * 2, LONGEST_PAUSE_S)


def _take(name: Key, length: int, holder: str) -> steps.Flow[Grant]:
    def take(tx: Tx) -> tuple[Grant, str]:
        state = lease_state(tx.record(name))
        if state is not None and tx.now < state.expires:
            raise held_by(name, state, tx.now)
        token = 1 if state is None else state.token + 1
        expires = tx.now + length
        tx.put_body(name, lease_body(LeaseState(holder, token, expires)))
        over = state is not None and state.expires > 0
        return Grant(name.name, holder, token, expires), "taken over" if over else "acquired"

    outcome: Outcome = yield steps.Transact((name,), take, holder)
    grant, change = outcome.result
    yield steps.Emit(events.LeaseChanged(grant.key, holder, grant.token, change))
    return grant  # type: ignore[no-any-return]


def held_by(name: Key, state: LeaseState, now: int) -> LeaseHeld:
    """The refusal of an acquisition while another has the lease."""
    left = state.expires - now
    return LeaseHeld(
        f"lease {name.name!r} is held by {state.holder!r} (token {state.token}) for another "
        f"{left} ms; wait for it with wait=SECONDS, or try again then",
        key=name.name,
        holder=state.holder,
        token=state.token,
        retry_after_ms=left,
        now=now,
    )


def renew(key: str, token: int, ttl: float, holder: str = "") -> steps.Flow[int]:
    """Extend the lease to ``ttl`` seconds from now and return when it ends, in store time.

    Raises ``LeaseLost`` when it ran out or passed on, even where nobody has it now: whoever
    was late must find out.
    """
    wanted = fence(key, token)
    length = milliseconds(ttl)

    def extend(tx: Tx) -> tuple[int, str]:
        state = _checked(wanted, tx)
        # Never earlier than promised before: someone may rely on the longer time.
        expires = max(state.expires, tx.now + length)
        tx.put_body(wanted.lease, lease_body(LeaseState(state.holder, token, expires)))
        return expires, state.holder

    try:
        outcome: Outcome = yield steps.Transact((wanted.lease,), extend, holder)
    except LeaseLost:
        yield steps.Emit(events.LateRefused(key, holder, token))
        raise
    expires, owner = outcome.result
    yield steps.Emit(events.LeaseChanged(key, owner, token, "renewed"))
    return expires  # type: ignore[no-any-return]


def keep(key: str, token: int, ttl: float, expires: int) -> steps.Flow[int]:
    """Renew only when a third of ``ttl`` is over; returns when the lease ends.

    Cheap enough to call in a work loop.
    """
    now: int = yield steps.Now()
    if expires - now > milliseconds(ttl) * 2 // 3:
        return expires
    return (yield from renew(key, token, ttl))


def release(key: str, token: int, holder: str = "") -> steps.Flow[bool]:
    """Give the lease back; False when it was no longer held, which changes nothing."""
    wanted = fence(key, token)

    def give_back(tx: Tx) -> str | None:
        try:
            state = _checked(wanted, tx)
        except LeaseLost:
            return None
        tx.put_body(wanted.lease, lease_body(LeaseState(state.holder, token, 0)))
        return state.holder

    outcome: Outcome = yield steps.Transact((wanted.lease,), give_back, holder)
    if outcome.result is None:
        return False
    yield steps.Emit(events.LeaseChanged(key, outcome.result, token, "released"))
    return True


def _checked(wanted: Fence, tx: Tx) -> LeaseState:
    record = tx.record(wanted.lease)
    check_fence(wanted, record, tx.now)
    state = lease_state(record)
    assert state is not None
    return state


def info(key: str) -> steps.Flow[LeaseInfo]:
    """How the lease stands; a look, not a promise."""
    name = lease_key(key)
    (record,) = yield steps.Read([name])
    now: int = yield steps.Now()
    state = lease_state(record)
    if state is None:
        return LeaseInfo(name.name, "", 0, False, 0)
    left = max(0, state.expires - now)
    return LeaseInfo(name.name, state.holder, state.token, left > 0, left)


def milliseconds(ttl: float) -> int:
    """A lease's length as whole milliseconds, at least 1; refuses what is no length."""
    good = isinstance(ttl, int | float) and not isinstance(ttl, bool) and 0 < ttl <= MAX_TTL_S
    if not good:
        raise UsageError(
            f"expected a lease of more than 0 and at most {MAX_TTL_S:.0f} seconds, found {ttl!r}"
        )
    return math.ceil(ttl * 1000)
