"""``perkey serve`` and ``perkey token``: the store over HTTP, and who may call."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from perkey import Limits
from perkey.cli import exits, output
from perkey.cli.options import Json
from perkey.cli.run.load import load
from perkey.errors import MissingExtra, UsageError
from perkey.store.url import known

Url = Annotated[str, Parameter(env_var="PERKEY_STORE", help="The store, like sqlite:///work.db.")]
Host = Annotated[str, Parameter(metavar="ADDRESS", help="The address to listen on.")]
Port = Annotated[int, Parameter(metavar="N", help="The port to listen on; 0 takes a free one.")]
TokenFile = Annotated[
    str | None, Parameter(metavar="FILE", help="The file with the tokens' hashes.")
]
AllowHost = Annotated[
    tuple[str, ...],
    Parameter(
        negative="",
        metavar="NAME",
        help="One more name that requests may carry as Host; repeatable.",
    ),
]
KeepVersions = Annotated[
    int, Parameter(metavar="N", help="How many versions of each document to keep.")
]
KeepSeconds = Annotated[
    float | None, Parameter(metavar="S", help="How old a kept version may grow, in seconds.")
]
KEEP_VERSIONS = Limits().keep_versions
EngineFile = Annotated[
    Path | None,
    Parameter(metavar="FILE", help="A Python file with @process(...) definitions to run."),
]
Spans = Annotated[
    bool, Parameter(negative="", help="Make OpenTelemetry spans for requests and transactions.")
]
Role = Annotated[Literal["read", "write", "admin"], Parameter(help="What it may do.")]
Prefix = Annotated[
    tuple[str, ...],
    Parameter(negative="", metavar="PREFIX", help="Only keys that begin so; repeatable."),
]


def serve(
    url: Url = "",
    /,
    *,
    host: Host = "127.0.0.1",
    port: Port = 8420,
    tokens: TokenFile = None,
    allow_host: AllowHost = (),
    keep_versions: KeepVersions = KEEP_VERSIONS,
    keep_seconds: KeepSeconds = None,
    engine: EngineFile = None,
    spans: Spans = False,
    json: Json = False,
) -> int:
    """Serve a store over HTTP until SIGTERM or Ctrl-C.

    Without --tokens it listens on loopback only, and every local caller may do everything.
    With --engine the processes of a Python file run beside it, on the same store.

    For example:

        perkey serve sqlite:///work.db
        perkey serve sqlite:///work.db --host 0.0.0.0 --tokens tokens.toml
    """
    if not url:
        raise UsageError("no store is named; give its URL or set PERKEY_STORE")
    known(url)  # a mistyped one is told before a port that is taken
    try:
        from perkey.server import run
        from perkey.server.ending import Ending
        from perkey.server.hosting import Processes
        from perkey.server.settings import Settings
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("perkey"):
            raise
        raise MissingExtra(
            f"perkey serve needs the package {error.name!r}; install it with: "
            "pip install 'perkey[server]'"
        ) from error
    if tokens is not None:
        _readable(tokens)
    logging.basicConfig(level=logging.WARNING, format="perkey: %(levelname)s %(name)s %(message)s")
    settings = Settings(host=host, port=port, tokens=tokens, hosts=allow_host, spans=spans)

    def started(address: str) -> None:
        if json:
            output.as_json({"url": address, "tokens": tokens is not None}, pretty=False)
        else:
            output.say(f"{address} serves the store; Ctrl-C ends it")

    def stopped(ending: Ending) -> None:
        if json:
            output.as_json({"stopped": ending.as_json()}, pretty=False)
        else:
            output.say(f"{ending}")

    limits = Limits(keep_versions=keep_versions, keep_s=keep_seconds)
    processes = None
    if engine is not None:
        loaded = load(engine)
        processes = Processes(loaded.definitions, loaded.main)
    if run.serve(url, settings, started, limits, processes, stopped):
        return exits.DONE
    output.complain("a process of the engine could not be stopped; it is left as it is")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exits.BUSY)  # a body that swallows its cancellation would be waited for


def _readable(path: str) -> None:
    """Refuse a token file that cannot be read before anything is served."""
    try:
        with open(path, "rb"):
            pass
    except OSError as error:
        raise UsageError(
            f"cannot read the token file {path}: {error.strerror}; perkey token NAME --file {path} "
            "makes one"
        ) from None


def token(
    name: Annotated[str, Parameter(help="Becomes the author of everything written with it.")],
    /,
    *,
    role: Role = "write",
    prefix: Prefix = (),
    file: TokenFile = None,
    json: Json = False,
) -> None:
    """Make a token for perkey serve.  It is shown once; the file keeps its hash only.

    With --file its entry is added there, else it is printed.

    For example:

        perkey token ana --role admin --file tokens.toml
        perkey token reports --role read --prefix reports/ --file tokens.toml
    """
    from perkey.server import identity

    made, entry = identity.make(name, role, prefix or ("",))
    if file is not None:
        _add(file, entry)
    if json:
        output.as_json({"token": made, "entry": entry})
        return
    output.say(made)
    if file is None:
        output.say("Its entry for the token file:")
        for line in entry.splitlines():
            output.say(line)


def _add(path: str, entry: str) -> None:
    """Append an entry; a new file is for its owner only."""
    try:
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with open(opened, "w", encoding="utf-8") as file:
            file.write(f"{entry}\n")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None
