"""Values and keys come back as they went in, byte for byte."""

from __future__ import annotations

from perkey.errors import LimitExceeded
from perkey.store import codec
from perkey.store.keys import Key
from perkey.store.transaction import Tx
from perkey.testing.conformance.bench import (
    Bench,
    commit,
    expect,
    held,
    put,
    putting,
    same,
    scanned,
    transaction,
)
from perkey.testing.conformance.suite import check

VALUES: tuple[object, ...] = (
    None,
    True,
    False,
    0,
    1,
    1.0,
    -0.0,
    5e-324,
    1.7976931348623157e308,
    0.1,
    100.0,
    2**53 + 1,
    2**63 - 1,
    -(2**63),
    2**64 - 1,
    "",
    "\0",
    "\x7f\x80\u2028\ufeff\uffff\U0010ffff",
    "é and e\u0301",
    "\u202egnp.exe",
    'quote " and \\ and \n',
    [],
    {},
    [[], {}, [{}]],
    {"": "", "\0": [None], "b": 1, "a": 2},
    [1, 1.0, True, "1"],
)
"""Each of these has been changed by some database's own JSON or number type."""

HOSTILE = (
    ".",
    "..",
    "../../etc/passwd",
    "/",
    "//a//",
    "a/b/../c",
    "\0",
    "a\0b",
    "\r\n",
    " ",
    " a ",
    "a\tb",
    "%",
    "_",
    "a%",
    "a_",
    "*",
    "?",
    "[a-z]",
    "{tag}",
    "\\",
    "'",
    '"; drop table heads; --',
    "$where",
    "#",
    "é",
    "e\u0301",
    "É",
    "ﬁ",
    "fi",
    "ß",
    "ss",
    "İ",
    "i",
    "I",
    "ı",
    "\u202eabc",
    "شكرا",
    "\u200b",
    "👩\u200d🚀",
    "\U0001f600",
    "\ufeff",
    "\uffff",
    "\U0010ffff",
    "Key",
    "key",
    "KEY",
    "key ",
    "key.",
    "CON",
    "a:b",
    "a>b",
    "a.b.*",
    "a.b.>",
)
"""Texts that are two keys to us, and that some store would fold, cut, escape or refuse."""


@check()
def values_come_back_byte_for_byte(bench: Bench) -> None:
    """A stored body is never parsed and written again on its way."""
    backend = bench.open()
    bodies = [codec.encode(value) for value in VALUES]
    keys = [bench.key(f"{n:03}") for n in range(len(bodies))]
    commit(backend, *map(putting, keys, bodies))
    for key, body in zip(keys, bodies, strict=True):
        same(held(backend, key).body, body, "a value")
        same([record.body for record in backend.history(key, 0, 9)], [body], "its history")
    found = {record.key: record.body for record in scanned(backend, bench.prefix)}
    same(found, dict(zip(keys, bodies, strict=True)), "values from a scan")


@check()
def a_function_sees_what_was_written(bench: Bench) -> None:
    """A later transaction reads the value as it was assigned, types and signs included."""
    backend = bench.open()
    key = bench.key("a")
    for value in VALUES:
        put(backend, key, codec.encode(value))
        (outcome,) = commit(backend, transaction(key, lambda tx: tx[key]))
        expect(codec.same(outcome.result, value), f"expected {value!r}, found {outcome.result!r}")


@check()
def deep_values_come_back(bench: Bench) -> None:
    """Nesting up to the limit is no problem."""
    backend = bench.open()
    depth = codec.MAX_DEPTH - 1
    body = b"[" * depth + b"]" * depth
    put(backend, bench.key("a"), body)
    same(held(backend, bench.key("a")).body, body, "a deep value")


@check()
def big_values_come_back(bench: Bench) -> None:
    """A value may be as long as the limit says (tried up to 2 MiB), and no longer."""
    backend = bench.open()
    size = min(backend.limits.value_bytes, 2 * 1024 * 1024)
    key = bench.key("a")
    # Not one repeated letter: a store that compresses would make it small.
    text = "".join(map(chr, range(48, 91))) * (size // 43 + 1)
    body = b'"' + text[: size - 2].encode() + b'"'
    put(backend, key, body)
    same(len(body), size, "the length tried")
    expect(held(backend, key).body == body, "a long value came back changed")
    expect(backend.history(key, 0, 1)[0].body == body, "its history came back changed")


@check()
def a_value_above_the_limit_is_refused(bench: Bench) -> None:
    """One byte more than ``Limits.value_bytes`` raises ``LimitExceeded`` and writes nothing."""
    backend = bench.open(value_bytes=100)
    limit = backend.limits.value_bytes
    key = bench.key("a")
    put(backend, key, b"1" * limit)
    (outcome,) = commit(backend, putting(key, b"1" * (limit + 1)))
    expect(isinstance(outcome.error, LimitExceeded), f"expected a refusal, found {outcome!r:.200}")
    same(held(backend, key).version, 1, "the version after the refusal")


@check()
def hostile_keys_stay_apart(bench: Bench) -> None:
    """Any text is a key of its own: no folding, no normalising, no path, no pattern."""
    backend = bench.open()
    keys = [bench.key(text) for text in HOSTILE]
    keys += [Key(f"d/{text}{bench.token}") for text in HOSTILE]
    wanted = {key: b"%d" % n for n, key in enumerate(keys)}
    for key, body in wanted.items():
        same(put(backend, key, body).version, 1, f"the first version of {key!r}")
    for key, body in wanted.items():
        record = held(backend, key)
        same((record.key, record.body), (key, body), f"the record at {key!r}")
        same([each.body for each in backend.history(key, 0, 9)], [body], f"history of {key!r}")
    under = [key for key in keys if key.startswith(bench.prefix)]
    found = scanned(backend, bench.prefix)
    same([record.key for record in found], sorted(under, key=str.encode), "a scan of them all")
    for key in keys:
        put(backend, key, None)


@check()
def keys_of_full_length(bench: Bench) -> None:
    """Keys of 512 bytes work, and differ by their last byte."""
    backend = bench.open()
    room = 512 - len(bench.prefix.encode()) + 2
    keys = [bench.key("x" * (room - 1) + last) for last in "ab"]
    keys += [bench.key("\U0001f600" * ((room - 1) // 4) + last) for last in "ab"]
    for n, key in enumerate(keys):
        put(backend, key, b"%d" % n)
    same([held(backend, key).body for key in keys], [b"0", b"1", b"2", b"3"], "long keys")
    same([each.key for each in scanned(backend, bench.prefix)], sorted(keys), "a scan of them")
    for key in keys:
        same(len(backend.history(key, 0, 9)), 1, "versions of a long key")


@check()
def spaces_do_not_meet(bench: Bench) -> None:
    """The same name in another space is another record."""
    backend = bench.open()
    keys = [bench.key("a", space) for space in ("d/", "b/", "l/", "r/", "a/", "e/", "t/", "p/")]
    for n, key in enumerate(keys):
        put(backend, key, b"%d" % n)
    same([held(backend, key).body for key in keys], [b"%d" % n for n in range(8)], "the values")
    for key in keys:
        same([r.key for r in scanned(backend, key[:2] + bench.token)], [key], "a scan of a space")


@check()
def values_are_copies(bench: Bench) -> None:
    """Changing a value without assigning it changes nothing."""
    backend = bench.open()
    key = bench.key("a")
    put(backend, key, b'{"items":[1]}')

    def change(tx: Tx) -> None:
        tx[key]["items"].append(2)
        tx.get(key).clear()

    (outcome,) = commit(backend, transaction(key, change))
    same((outcome.error, outcome.writes), (None, ()), "the outcome")
    same(held(backend, key).body, b'{"items":[1]}', "the value")
