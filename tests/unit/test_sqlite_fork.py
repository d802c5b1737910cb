"""fork(): the child gets a clear error, and cannot disturb what its parent holds."""

from __future__ import annotations

from pathlib import Path

import pytest

import perkey
from tests.races.processes import Process
from tests.unit.sqlite_faults import url

CHILD_TRIES = """
import os
store = perkey.open(url)
store.put("k", 1, create=True)
child = os.fork()
if child == 0:
    for use in (
        lambda: store.get("k"),
        lambda: store.put("k", 2, overwrite=True),
        lambda: store.watch(),
    ):
        try:
            use()
        except ForkedStore:
            say("forked")
    store.close()
    with perkey.open(url) as own:
        own.put("k", 2, if_match=1, by="child")
    os._exit(0)
os.waitpid(child, 0)
say(store.get("k").by, store.put("k", 3, if_match=2).version)
store.close()
"""


def test_a_child_gets_a_clear_error_and_may_open_its_own(tmp_path: Path) -> None:
    with Process(CHILD_TRIES, url(tmp_path)) as process:
        assert [process.hear() for _ in range(4)] == ["forked", "forked", "forked", "child 3"]
        assert process.end() == 0


# Another thread forks while a commit is under way, with pages of it already in the log.  In
# the child all that it inherited is torn down, as when Python ends, before the parent goes on.
MID_COMMIT = """
import gc, os, sys, threading
store = perkey.open(url)
store.put("k", [0], create=True)
backend = store.backend
run = backend._run
run("PRAGMA cache_size = 4")

def fork():
    child = os.fork()
    if child == 0:
        try:
            if arguments[0] == "drop":
                for each in (backend, store.core._reader):
                    for name in list(vars(each)):
                        setattr(each, name, None)
                globals().update(run=None)
                gc.collect()
            elif arguments[0] == "use":
                for use in (backend._undo, lambda batch: backend.close()):
                    use(Batch([]))
        except ForkedStore:
            pass
        os._exit(0)
    os.waitpid(child, 0)

from perkey.store.evaluate import Batch

def forking(sql, *parameters):
    if sql == "COMMIT":
        backend._run = run
        thread = threading.Thread(target=fork)
        thread.start()
        thread.join()
    return run(sql, *parameters)

keys = [f"k{n}" for n in range(40)]
for n in range(10):
    backend._run = forking
    store.transact(keys, lambda tx: [tx.__setitem__(key, str(n) * 3000) for key in keys])
    assert len(store.get_many(keys)) == 40
say("done")
store.close()
"""


@pytest.mark.parametrize("how", ["exit", "drop", "use"])
def test_a_child_that_ends_does_not_disturb_its_parents_commit(tmp_path: Path, how: str) -> None:
    with Process(MID_COMMIT, url(tmp_path), how) as process:
        assert process.hear() == "done"
        assert process.end() == 0
    with perkey.open(url(tmp_path)) as store:
        assert [each.value[0] for each in store.history("k7")] == list("0123456789")
        check = store.backend._connection.execute("PRAGMA integrity_check")  # type: ignore[attr-defined]
        assert check.fetchone() == ("ok",)
