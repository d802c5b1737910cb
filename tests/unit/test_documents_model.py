"""Random programs of document writes against a model that is a plain list of versions."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from perkey import Conflict, Documents, NotFound
from perkey.documents import ABSENT, increment
from perkey.flows.merge import merge
from perkey.store.codec import same
from tests.unit.manual_clock import ManualClock, memory_store

values = st.dictionaries(
    st.sampled_from("abc"), st.integers(0, 3) | st.lists(st.integers(0, 3), max_size=3)
)
authors = st.sampled_from(["ann", "ben", "cy"])


class Writers(RuleBasedStateMachine):
    """``versions[n]`` is (author, value or ABSENT) of version n + 1."""

    def __init__(self) -> None:
        super().__init__()
        self.store = memory_store(ManualClock())
        self.docs = Documents(self.store)
        self.versions: list[tuple[str, Any]] = []

    @property
    def head(self) -> Any:
        return self.versions[-1][1] if self.versions else ABSENT

    def expect(self, possible: bool, by: str, value: Any, write: Any) -> None:
        """``write`` commits ``value`` where it is possible, else it is refused without trace."""
        try:
            written = write()
        except (Conflict, NotFound):
            assert not possible
        else:
            assert possible
            self.versions.append((by, value))
            assert written.version == len(self.versions)

    @rule(value=values, by=authors)
    def create(self, value: Any, by: str) -> None:
        self.expect(
            self.head is ABSENT,
            by,
            value,
            lambda: self.docs.put("doc", value, create=True, by=by),
        )

    @rule(value=values, by=authors, age=st.integers(0, 3))
    def conditional(self, value: Any, by: str, age: int) -> None:
        version = max(len(self.versions) - age, 0)
        self.expect(
            version == len(self.versions) and self.head is not ABSENT,
            by,
            value,
            lambda: self.docs.put("doc", value, if_match=version, by=by),
        )

    @rule(value=values, by=authors)
    def overwrite(self, value: Any, by: str) -> None:
        self.expect(True, by, value, lambda: self.docs.put("doc", value, overwrite=True, by=by))

    @rule(value=values, by=authors, age=st.integers(0, 4))
    def merging(self, value: Any, by: str, age: int) -> None:
        version = max(len(self.versions) - age, 0)
        age = len(self.versions) - version
        base = self.versions[version - 1][1] if version >= 1 else ABSENT
        # A write from before a deletion is refused, whatever was created after it.
        lived = all(value is not ABSENT for _, value in self.versions[version:])
        possible = base is not ABSENT and lived
        result = value
        if possible and age:
            merged = merge(base, value, self.head)
            possible, result = not merged.overlaps, merged.value
        self.expect(
            possible,
            by,
            result,
            lambda: self.docs.put("doc", value, if_match=version, merge=True, by=by),
        )

    @rule(by=authors, key=st.sampled_from("abc"))
    def update(self, by: str, key: str) -> None:
        value = {**self.head, key: by} if self.head is not ABSENT else None
        self.expect(
            self.head is not ABSENT,
            by,
            value,
            lambda: self.docs.update("doc", lambda old: {**old, key: by}, by=by),
        )

    @rule(by=authors)
    def count(self, by: str) -> None:
        old = {} if self.head is ABSENT else self.head
        value = {**old, "n": old.get("n", 0) + 1}
        self.expect(
            True, by, value, lambda: self.docs.patch("doc", transforms=[increment("/n")], by=by)
        )

    @rule(by=authors)
    def delete(self, by: str) -> None:
        self.expect(self.head is not ABSENT, by, ABSENT, lambda: self.docs.delete("doc", by=by))

    @invariant()
    def history_is_every_accepted_write_and_nothing_else(self) -> None:
        kept = self.docs.history("doc")
        assert [each.version for each in kept] == list(range(1, len(self.versions) + 1))
        assert [each.by for each in kept] == [by for by, _ in self.versions]
        for found, (_, value) in zip(kept, self.versions, strict=True):
            assert found.deleted if value is ABSENT else same(found.value, value)

    def teardown(self) -> None:
        self.store.close()


TestWriters = Writers.TestCase
TestWriters.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)
