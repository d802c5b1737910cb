"""Lost updates, stale writes and watchers that miss something: what other projects reported."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import perkey
from perkey import Change, Conflict, ConflictExhausted, Documents, Store
from perkey.flows import merging, records
from perkey.flows.merge import Merged
from perkey.store import watch
from perkey.store.backends.objects import ObjectsBackend
from perkey.store.backends.optimistic import _Run
from tests.unit.manual_clock import ManualClock
from tests.unit.objects.buckets import MemoryBucket, backend

AGENTS = 5


def opened(key: str = "state", value: Any = None) -> Documents:
    docs = Documents(perkey.open("memory://"))
    docs.put(key, {"n": 0} if value is None else value, create=True, by="setup")
    return docs


# ------------------------------------------------- everybody writes back what they had read

Step = Callable[[Documents, threading.Barrier], None]


def counted_by_agents(step: Step) -> int:
    """Each agent reads the state, thinks until all have read, and counts itself."""
    docs, all_have_read = opened(), threading.Barrier(AGENTS)
    threads = [threading.Thread(target=step, args=(docs, all_have_read)) for _ in range(AGENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return int(docs.get("state").value["n"])


def by_update(docs: Documents, all_have_read: threading.Barrier) -> None:
    docs.get("state")
    all_have_read.wait()
    docs.update("state", lambda state: {"n": state["n"] + 1})


def by_checkpoint(docs: Documents, all_have_read: threading.Barrier) -> None:
    read = docs.get("state").value
    all_have_read.wait()
    docs.put("state", {"n": read["n"] + 1}, overwrite=True)


def test_every_agents_update_counts() -> None:
    """As in https://github.com/crewAIInc/crewAI/issues/6125: 1 was left of 250 updates."""
    assert counted_by_agents(by_update) == AGENTS


def test_a_checkpoint_of_what_was_read_keeps_one_update() -> None:
    assert counted_by_agents(by_checkpoint) == 1


# ------------------------------------------------------------- two runs on one session


def session_after_two_runs() -> dict[str, Any]:
    """Two runs load one chat's session, each adds its own part, both save the whole."""
    docs = opened("session", {})
    first = docs.get("session")
    second = docs.get("session")
    for run, read in (("a", first), ("b", second)):
        value = {**read.value, run: "answer"}
        docs.put("session", value, if_match=read.version, merge=True, by=run)
    return dict(docs.get("session").value)


def test_two_runs_on_one_session_keep_both_parts() -> None:
    """As in https://github.com/agentscope-ai/QwenPaw/issues/4232."""
    assert session_after_two_runs() == {"a": "answer", "b": "answer"}


def test_a_save_without_a_merge_drops_the_other_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "merge", lambda base, ours, theirs: Merged(ours))
    assert session_after_two_runs() == {"b": "answer"}


# ------------------------------------------------------------------- a write from a stale read


def text_after_a_stale_write() -> str:
    """One agent composes a file from what it read, another one edits it meanwhile."""
    docs = opened("main.rs", "fn main")
    read = docs.get("main.rs")
    docs.update("main.rs", lambda text: text + " // edited", by="other")
    try:
        docs.put("main.rs", read.value + " // composed", if_match=read.version, by="me")
    except Conflict:
        pass
    return str(docs.get("main.rs").value)


def test_a_write_from_a_stale_read_is_refused() -> None:
    """As in https://github.com/adolfousier/opencrabs/issues/954."""
    assert text_after_a_stale_write() == "fn main // edited"


def test_an_unconditional_write_destroys_the_edit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "check_version", lambda *given: None)
    assert text_after_a_stale_write() == "fn main // composed"


# ---------------------------------------------------------- a second save after a refusal


class Bean:
    """Counts its own version up before it saves, and leaves it so when the save is refused."""

    def __init__(self, docs: Documents) -> None:
        self.docs = docs
        self.version = docs.get("state").version

    def save(self, value: Any) -> None:
        expected, self.version = self.version, self.version + 1
        self.docs.put("state", value, if_match=expected)


def accepted_after_a_refusal(save: Callable[[Any], Any], docs: Documents) -> bool:
    docs.update("state", lambda state: {"n": 7}, by="other")
    with pytest.raises(Conflict):
        save({"n": 1})
    try:
        save({"n": 1})
    except Conflict:
        return False
    return True


def test_what_was_refused_once_is_refused_again() -> None:
    """As in https://github.com/ebean-orm/ebean/pull/2372."""
    docs = opened()
    read = docs.get("state")
    save = lambda value: docs.put("state", value, if_match=read.version)  # noqa: E731
    assert not accepted_after_a_refusal(save, docs)


def test_a_version_counted_up_before_saving_fits_the_second_time() -> None:
    docs = opened()
    assert accepted_after_a_refusal(Bean(docs).save, docs)


# ----------------------------------------------------------- retrying with what was read first


def updated_under_contention() -> Any:
    """On a store that can only compare and swap, another process writes during each attempt."""
    bucket = MemoryBucket(ManualClock())
    mine = Documents(Store(backend(bucket), clock=bucket.clock))
    theirs = Documents(Store(backend(bucket), clock=bucket.clock))
    mine.put("map", {"roles": []}, create=True)
    left = [2]

    class Crowded(ObjectsBackend):
        def commit(self, heads: Any, writes: Any) -> bool:
            if left[0]:
                left[0] -= 1
                theirs.update("map", lambda m: {"roles": [*m["roles"], f"theirs {left[0]}"]})
            return super().commit(heads, writes)

    crowded = Documents(Store(backend(bucket, Crowded), clock=bucket.clock))
    crowded.update("map", lambda m: {"roles": [*m["roles"], "mine"]})
    return mine.get("map").value["roles"]


def test_each_attempt_reads_again() -> None:
    """As in https://github.com/keikoproj/aws-auth/issues/13."""
    assert updated_under_contention() == ["theirs 1", "theirs 0", "mine"]


def test_a_retry_on_what_was_read_first_never_gets_through(monkeypatch: pytest.MonkeyPatch) -> None:
    look, first = _Run._look, dict[_Run, Any]()

    def look_once(run: Any, part: Any) -> Any:
        if run not in first:
            first[run] = look(run, part)
        return first[run]

    monkeypatch.setattr(_Run, "_look", look_once)
    with pytest.raises(ConflictExhausted):
        updated_under_contention()


# ----------------------------------------------------------------- create after delete


def created_again() -> int:
    docs = opened()
    docs.delete("state")
    return docs.put("state", {"n": 0}, create=True).version


def test_a_deleted_key_can_be_created_again() -> None:
    """As in https://github.com/nats-io/nats-server/issues/3895; and no old version fits it."""
    assert created_again() == 3


def test_a_tombstone_that_counts_as_a_value_refuses_the_creation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def nothing_ever(name: Any, head: Any) -> None:
        if head is not None:
            raise Conflict

    monkeypatch.setattr(records, "check_absent", nothing_ever)
    with pytest.raises(Conflict):
        created_again()


# ------------------------------------------------------------- between the list and the watch


def heard_by_a_watcher() -> list[int]:
    """A change is committed after the watch was opened, before its first item is asked for."""
    docs = opened()
    with docs.watch("state") as changes:
        docs.update("state", lambda state: {"n": 1})
        items = [changes.next(timeout=0), changes.next(timeout=0)]
    return [item.document.value["n"] for item in items if isinstance(item, Change)]


def test_nothing_is_missed_between_opening_and_reading() -> None:
    """As in https://github.com/xline-kv/Xline/issues/166 and
    https://github.com/kubernetes-retired/service-catalog/issues/149."""
    assert heard_by_a_watcher() == [1]


def test_a_watch_that_begins_with_its_first_read_misses_a_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begin = watch._Position.begin

    def late(position: Any, store: Any) -> None:
        if position.synced is not None:  # the opening
            position.synced = None
            return
        begin(position, store)

    monkeypatch.setattr(watch._Position, "begin", late)
    assert heard_by_a_watcher() == []
