"""What the exit codes mean, and what to do next for each kind of error."""

from __future__ import annotations

from perkey import errors

DONE = 0
REFUSED = 1
USAGE = 2
STORE = 3
BUSY = 4
UNKNOWN = 5
INTERRUPTED = 130

MEANING = {
    DONE: "done",
    REFUSED: "refused: not found, conflict, rejected, lease held, incomplete",
    USAGE: "the command itself is wrong; nothing was done",
    STORE: "the store cannot be used, or a package or credentials are missing",
    BUSY: "too much is going on, or the time ran out; try again",
    UNKNOWN: "it may or may not have happened; read before repeating it",
    INTERRUPTED: "stopped by Ctrl-C",
}

_BY_KIND: list[tuple[type[errors.PerkeyError], int]] = [
    (errors.UsageError, USAGE),
    (errors.Refused, REFUSED),
    (errors.Busy, BUSY),
    (errors.OutcomeUnknown, UNKNOWN),
    (errors.StoreError, STORE),
]

_TRANSFORMS = ["increment", "set_max", "set_min", "append", "append_unique", "remove_value"]

_HINTS: list[tuple[type[errors.PerkeyError], str]] = [
    (errors.ConditionRequired, "perkey doc get KEY --json says its version"),
    (
        errors.ConflictExhausted,
        "others write this key all the time; try again, or use perkey doc patch",
    ),
    (
        errors.Conflict,
        "read it again (perkey doc get KEY --json), redo the change and repeat it with its version",
    ),
    (errors.Gone, "perkey doc history KEY shows the versions that are kept"),
    (errors.NotFound, "perkey doc list, or perkey ledger accounts, shows what there is"),
    (
        errors.InsufficientFunds,
        "perkey ledger balance ACCOUNT shows what is posted and what is held",
    ),
    (errors.InvalidValue, "a value is JSON; text needs its quotes: '\"text\"'"),
    (errors.Unauthorised, "a token stands in the URL: http://token:TOKEN@HOST:PORT"),
    (errors.SchemaMismatch, "use the perkey that wrote it, or another --store"),
    (errors.StoreUnavailable, "check the URL, the server and its credentials"),
    (errors.OutcomeUnknown, "read the key and its history before repeating the write"),
    (errors.QueueFull, "fewer writers at once, or try again"),
    (errors.Timeout, "try again, or allow more time"),
]


def code_of(error: errors.PerkeyError) -> int:
    """The exit code for an error."""
    return next((code for kind, code in _BY_KIND if isinstance(error, kind)), REFUSED)


def message_of(error: errors.PerkeyError) -> str:
    """What is wrong, in terms of the command's options."""
    return error.message.replace("use if_match=", "use --if-match VERSION")


def hint_for(error: errors.PerkeyError, *, merging: bool = False) -> str:
    """What to do next, in one line; empty when the message says it all.  Who merged already
    (``--merge``) is not told to."""
    if "foreign" in error.details or error.code == "no-credentials":
        return ""  # the message says what to do instead
    if isinstance(error, errors.StoreUnavailable) and "missing" in error.details:
        return "perkey doc put --create, or --overwrite, and perkey ledger open begin a store"
    if isinstance(error, errors.StoreUnavailable) and "port" in error.details:
        return ""  # it is perkey serve that cannot listen; no store was asked
    if isinstance(error, errors.NotFound) and "version" in error.details:
        return "perkey doc history KEY shows the versions that are kept"
    if type(error) is errors.Conflict and not merging:
        return (
            "read it again (perkey doc get KEY --json), then repeat with its version; doc put with "
            "--if-match VERSION --merge keeps what others changed"
        )
    if isinstance(error, errors.InvalidPatch) and error.details.get("unknown") in _TRANSFORMS:
        return "this is a transform; add --as transforms"
    return next((hint for kind, hint in _HINTS if isinstance(error, kind)), "")


def table() -> str:
    """The exit codes as lines for ``--help``."""
    return "\n".join(f"{code:>4}  {meaning}" for code, meaning in MEANING.items())
