"""On asyncio: one task writes, another sees every version in order, then live."""

from __future__ import annotations

import asyncio

import perkey
from perkey import AsyncDocuments, Change, Synced


async def main() -> None:
    async with await perkey.aopen("memory://") as store:
        docs = AsyncDocuments(store)
        await docs.put("status/unit-1", "new", create=True, by="setup")

        async def write() -> None:
            for state in ("running", "done"):
                await docs.update("status/unit-1", lambda old, new=state: new, by="worker")

        seen = []
        async with docs.watch("status/", after="") as changes:
            async for event in changes:
                if isinstance(event, Synced) and len(seen) == 1:
                    writer = asyncio.create_task(write())
                if isinstance(event, Change):
                    document = event.document
                    seen.append(document.value)
                    print(document.key, document.version, document.value, "by", document.by)
                if len(seen) == 3:
                    break
        await writer
        assert seen == ["new", "running", "done"]


if __name__ == "__main__":
    asyncio.run(main())
