"""The lease record, and the check that a transaction's lease is still held."""

from __future__ import annotations

import msgspec

from perkey.errors import LeaseLost
from perkey.store.record import Record
from perkey.store.transaction import Fence


class LeaseState(msgspec.Struct, frozen=True):
    """The value of a lease's record."""

    holder: str
    token: int
    """Grows with every acquisition, for ever; 0 never holds."""
    expires: int
    """Milliseconds of store time; at or after it the lease is free. 0: released."""


_decoder = msgspec.json.Decoder(LeaseState)
_encoder = msgspec.json.Encoder()


def lease_state(record: Record | None) -> LeaseState | None:
    """The lease that a record holds, or None where nobody ever acquired it."""
    if record is None or record.body is None:
        return None
    return _decoder.decode(record.body)


def lease_body(state: LeaseState) -> bytes:
    """The encoded value of a lease's record."""
    return _encoder.encode(state)


def check_fence(fence: Fence, record: Record | None, now: int) -> None:
    """Raise ``LeaseLost`` unless this very lease is held right now, by store time."""
    state = lease_state(record)
    name = fence.lease[2:]
    if state is None or state.token != fence.token:
        found = "no lease" if state is None else f"token {state.token} of {state.holder!r}"
        raise LeaseLost(
            f"expected lease {name!r} with fencing token {fence.token}, found {found}; "
            "stop: another holder may be at work",
            key=name,
            token=fence.token,
        )
    if now >= state.expires:
        raise LeaseLost(
            f"lease {name!r} (token {fence.token}) ran out {now - state.expires} ms ago; "
            "acquire it again before you write",
            key=name,
            token=fence.token,
        )
