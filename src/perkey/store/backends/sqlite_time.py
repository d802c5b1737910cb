"""Store time for an SQLite file: the machine's uptime plus an offset kept in the file.

The wall clock is read once per boot, by whoever opens the file first; every process of the
machine then counts on with the same uptime.  So setting the wall clock, or starting a process
under another one, moves no lease.  After a reboot time goes on above all that was committed.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress

from perkey.clock import Clock, host_ms

STEP_MS = 10_000
"""How far ahead the file's ``high`` mark is moved, so that few commits have to move it."""
BOOTS_KEPT = 8


def boot_name() -> str:
    """What tells this boot (and this time namespace) from others; "" where nothing does."""
    name = ""
    with suppress(OSError):
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            name = file.read().strip()
        name += " " + os.readlink("/proc/self/ns/time")
    return name


def known_offset(connection: sqlite3.Connection, boot: str) -> int | None:
    """The offset of this boot, or None where the file has not seen it yet."""
    row = connection.execute(
        "SELECT boots.offset, facts.high FROM boots, facts WHERE boot = ?", (boot,)
    ).fetchone()
    if row is None:
        return None
    offset, high = row
    # Without a boot id, uptime that fell back below what was committed tells of a reboot.
    if not boot and host_ms() + offset < high - STEP_MS:
        return None
    return int(offset)


def fix_offset(connection: sqlite3.Connection, boot: str, clock: Clock) -> int:
    """Fix this boot's offset.  Inside a write transaction of the caller's."""
    (high,) = connection.execute("SELECT high FROM facts").fetchone()
    offset: int = max(clock.now_ms(), high) - host_ms()
    connection.execute("INSERT OR REPLACE INTO boots VALUES (?, ?)", (boot, offset))
    connection.execute(
        "DELETE FROM boots WHERE boot <> ? AND boot NOT IN "
        "(SELECT boot FROM boots ORDER BY offset DESC LIMIT ?)",
        (boot, BOOTS_KEPT),
    )
    return offset
