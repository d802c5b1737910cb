"""Several documents in one commit, on the condition that none of them has moved."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response

from perkey.errors import ConditionRequired, Conflict, UsageError
from perkey.flows import steps
from perkey.server.calls import Call
from perkey.server.replies import json_reply, version_of
from perkey.server.routes import Route
from perkey.store import codec
from perkey.store.keys import DOCUMENTS, Key, in_space
from perkey.store.record import Record
from perkey.store.transaction import Outcome, Tx


class Commit(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"expect": "if"}):
    """What must hold, and what is written then: all of it or nothing."""

    expect: dict[str, int]
    """The version of each key, 0 where nothing may be there; also of keys that were only read."""
    put: dict[str, Any] = {}
    """The new values."""
    delete: list[str] = []
    """The keys to delete."""


async def commit(call: Call) -> Response:
    """Write several documents if every key is at the version that was read, else nothing."""
    asked = call.decode(Commit)
    keys = {name: in_space(DOCUMENTS, name) for name in (*asked.expect, *asked.put, *asked.delete)}
    for name in keys:
        call.caller.need_key(name)
    _check(asked)
    bodies = {keys[name]: codec.encode(value) for name, value in asked.put.items()}

    def write(tx: Tx) -> None:
        moved = [
            {"key": name, "expected": version, "found": found, "by": by}
            for name, version in asked.expect.items()
            for found, by in [_state(tx.record(keys[name]))]
            if found != version
        ]
        if moved:
            raise _conflict(moved)
        for key, body in bodies.items():
            tx.put_body(key, body)
        for name in asked.delete:
            tx.put_body(keys[name], None)

    outcome = await call.services.store.run(_committed([*keys.values()], write, call.write.by))
    return json_reply({"written": [version_of(record) for record in outcome.writes]})


def _committed(keys: list[Key], write: Any, by: str) -> steps.Flow[Outcome]:
    outcome: Outcome = yield steps.Transact(tuple(sorted({*keys})), write, by)
    return outcome


def _check(asked: Commit) -> None:
    both = asked.put.keys() & {*asked.delete}
    if both or len({*asked.delete}) < len(asked.delete):
        raise UsageError("expected each key once, in put or in delete")
    blind = [name for name in (*asked.put, *asked.delete) if name not in asked.expect]
    if blind:
        raise ConditionRequired(
            f'{blind[0]!r} is written, so "if" must hold the version of it that was read, or 0 '
            "where nothing may be there",
            key=blind[0],
        )
    gone = [name for name in asked.delete if asked.expect[name] == 0]
    if gone:
        raise UsageError(f"{gone[0]!r} is to be deleted where nothing may be there")


def _state(head: Record | None) -> tuple[int, str]:
    return (0, "") if head is None or head.deleted else (head.version, head.by)


def _conflict(moved: list[dict[str, Any]]) -> Conflict:
    first, count = moved[0], len(moved)
    many = "one of the keys has moved:" if count == 1 else f"{count} of the keys have moved,"
    return Conflict(
        f"{many} {first['key']!r} from version {first['expected']} "
        f"to {first['found']}; nothing was written: read them again and redo the change",
        **first,
        moved=moved,
    )


ROUTES = [Route("POST", "/v1/commit", commit, "write", takes=Commit, replayable=True)]
