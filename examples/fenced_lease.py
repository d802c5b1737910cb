"""A holder that was paused for too long wakes up late; its fence stops the write."""

from __future__ import annotations

import time

import perkey
from perkey import Documents, LeaseLost, Leases


def main() -> None:
    with perkey.open("memory://") as store:  # sqlite:///work.db where holders are processes
        docs, leases = Documents(store), Leases(store)
        docs.put("report", "nothing yet", create=True)

        paused = leases.acquire("report", ttl=0.1, holder="worker-1")
        time.sleep(0.2)  # a long garbage collection, a laptop lid, a lost network

        with leases.acquire("report", ttl=30, holder="worker-2") as lease:
            docs.put("report", "by worker-2", overwrite=True, fence=lease.fence)

        try:
            docs.put("report", "by worker-1", overwrite=True, fence=paused.fence)
        except LeaseLost as lost:
            print(f"refused: {lost}")

        print(docs.get("report").value, f"(tokens {paused.token} < {lease.token})")
        assert docs.get("report").value == "by worker-2"


if __name__ == "__main__":
    main()
