"""Six threads add a section each to one report: by whole documents, then by small changes."""

from __future__ import annotations

import threading
from collections.abc import Callable

import perkey
from perkey import Document, Documents

WORKERS = 6


def all_at_once(work: Callable[[str, threading.Barrier], object]) -> None:
    """Run ``work`` in one thread for each worker; the barrier is where everyone has read."""
    barrier = threading.Barrier(WORKERS)
    names = [f"worker-{number}" for number in range(1, WORKERS + 1)]
    threads = [threading.Thread(target=work, args=(name, barrier)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main() -> None:
    with perkey.open("memory://", strict=True) as store:
        docs = Documents(store)

        def blindly(name: str, everyone_has_read: threading.Barrier) -> None:
            read: Document = docs.get("blind")
            everyone_has_read.wait()  # the minute of thinking
            value = {**read.value, name: "my section"}
            docs.put("blind", value, overwrite=True, base=read.version, by=name)

        def carefully(name: str, everyone_has_read: threading.Barrier) -> None:
            docs.get("careful")
            everyone_has_read.wait()
            docs.update("careful", lambda report: {**report, name: "my section"}, by=name)

        for key, work in (("blind", blindly), ("careful", carefully)):
            docs.put(key, {}, create=True)
            all_at_once(work)
            found = docs.get(key)
            print(f"{key}: {WORKERS} sections written, {len(found.value)} in the report")

        assert len(docs.get("careful").value) == WORKERS
        assert len(docs.get("blind").value) == 1


if __name__ == "__main__":
    main()
