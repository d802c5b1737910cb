"""moto's server, made fit for several clients at once; run as a program.

moto 5.2 restores whole tables after a refused transaction, so another client's write meanwhile
would be lost: here one request runs at a time.  It copies those tables item by item first, which
takes longer the more a table holds: here the copy shares the items, none of which is changed in
place by what we ask for.  And it forgets everything when it ends: here SIGTERM keeps the tables.
"""

from __future__ import annotations

import copy
import os
import pickle
import signal
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from moto.dynamodb import models, responses
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, run_simple

ACCOUNT, REGION = "123456789012", "us-east-1"


def sharing(table: Any) -> Any:
    """A copy of a table that shares its items."""
    if not isinstance(table, models.Table):
        return copy.deepcopy(table)
    other = copy.copy(table)
    other.items = copy.copy(table.items)
    for partition, items in table.items.items():
        other.items[partition] = copy.copy(items)
    return other


def serve(host: str, port: int, kept: Path) -> None:
    """Serve until SIGTERM, beginning with what was kept then."""
    lock = threading.Lock()
    inner = DomainDispatcherApplication(create_backend_app)
    backend = models.dynamodb_backends[ACCOUNT][REGION]
    if kept.exists():
        backend.tables.update(pickle.loads(kept.read_bytes()))

    def application(environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        with lock:
            return [b"".join(inner(environ, start))]

    def end(number: int, frame: Any) -> None:
        with lock:
            kept.write_bytes(pickle.dumps(dict(backend.tables)))
            os._exit(0)

    responses.TRANSACTION_MAX_ITEMS = 100  # for reading it still has the limit of 2018
    models.copy = SimpleNamespace(deepcopy=sharing, copy=copy.copy)  # type: ignore[attr-defined]
    WSGIRequestHandler.protocol_version = "HTTP/1.1"
    signal.signal(signal.SIGTERM, end)
    run_simple(host, port, application, threaded=True)


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
