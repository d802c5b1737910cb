"""Money over three accounts with a receipt, one transaction a commit, as one would write it."""

from __future__ import annotations

import json
from typing import Any


class Transfers:
    """One client's connection to PostgreSQL."""

    def __init__(self, url: str) -> None:
        import psycopg

        self.connection: Any = psycopg.connect(url)

    def prepare(self, accounts: int) -> None:
        """The tables, and accounts with nothing on them."""
        run = self.connection.execute
        run("CREATE TABLE accounts (id int PRIMARY KEY, balance bigint NOT NULL)")
        run("CREATE TABLE receipts (key text PRIMARY KEY, payload text, result text)")
        run("INSERT INTO accounts SELECT n, 0 FROM generate_series(0, %s) AS n", (accounts - 1,))
        self.connection.commit()

    def move(self, key: str, changes: dict[int, int]) -> None:
        """All or nothing, once for ``key``."""
        run = self.connection.execute
        payload = json.dumps(changes)
        with self.connection.transaction():
            new = run(
                "INSERT INTO receipts VALUES (%s, %s, 'done') ON CONFLICT DO NOTHING",
                (key, payload),
            )
            if not new.rowcount:
                return
            names = sorted(changes)
            rows = run(
                "SELECT id, balance FROM accounts WHERE id = ANY(%s) ORDER BY id FOR UPDATE",
                (names,),
            ).fetchall()
            for name, balance in rows:
                run(
                    "UPDATE accounts SET balance = %s WHERE id = %s",
                    (balance + changes[name], name),
                )

    def close(self) -> None:
        self.connection.close()
