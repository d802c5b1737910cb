"""JSON in and out: a value comes back as it went in, or it is refused where it stands.

``encode`` takes a fast road that costs about one more encoding and a comparison in C; only
when that meets doubt does ``unfit`` walk the value in Python to name the offender.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable
from typing import Any

import msgspec

from perkey.errors import InvalidValue, LimitExceeded, StoreCorrupt
from perkey.store.unfit import MAX_DEPTH, offender, shown

__all__ = [
    "MAX_DEPTH",
    "MAX_VALUE_BYTES",
    "canonical",
    "checked_canonical",
    "compact",
    "decode",
    "encode",
    "parse",
    "same",
]

MAX_VALUE_BYTES = 8 * 1024 * 1024
"""The longest encoded value that a store takes unless its limits say otherwise."""

SHALLOW = 2 * MAX_DEPTH
"""No text of so many bytes can nest deeper than ``MAX_DEPTH``: each level takes two."""

_encode = msgspec.json.encode
_encode_sorted = msgspec.json.Encoder(order="deterministic").encode
_decode = msgspec.json.decode
_in_64_bits = msgspec.msgpack.encode
_LEAST, _MOST = -(2**63), 2**64 - 1
_exact = marshal.dumps
_PLAINLY = 2
"""The format of ``marshal`` that does not look for objects that it has met before."""


def encode(value: Any, *, max_bytes: int | None = None) -> bytes:
    """The value as UTF-8 JSON without spaces.

    Raises ``InvalidValue`` with the ``path`` of the first thing that would not come back as
    it went in, and ``LimitExceeded`` where the result is longer than ``max_bytes``.
    """
    if value is None or (type(value) is int and _LEAST <= value <= _MOST):
        body = _encode(value)
    else:
        body = _checked(value, _encode)
    if max_bytes is not None and len(body) > max_bytes:
        raise LimitExceeded(
            f"expected a value of at most {max_bytes} bytes as JSON, found {len(body)}; "
            "split it over several keys",
            limit=max_bytes,
            found=len(body),
        )
    return body


def _checked(value: Any, encode: Callable[[Any], bytes]) -> bytes:
    try:
        body = encode(value)
        # Each catches what the others let through: msgpack integers beyond 64 bits, marshal
        # subclasses of str, dict and the like, the comparison NaN, tuples, bytes, dates, keys.
        _in_64_bits(value)
        _exact(value, _PLAINLY)
        back = _decode(body)
        fits = bool(back == value)
    except (TypeError, ValueError, ArithmeticError, RecursionError, msgspec.MsgspecError):
        fits = False
    if not fits or (len(body) > SHALLOW and _too_deep(back, body)):
        _refuse(value, fits)
    return body


def decode(body: bytes) -> Any:
    """The value that ``encode`` was given.  ``StoreCorrupt`` where ``body`` is not JSON."""
    try:
        return _decode(body)
    except msgspec.MsgspecError as error:
        raise StoreCorrupt(f"a stored value is not JSON any more: {error}") from error


def parse(text: bytes | str) -> Any:
    """A value from JSON that somebody sent: what ``encode`` takes, or ``InvalidValue``."""
    value = _parsed(text)
    _compacted(value)
    return value


def compact(text: bytes | str) -> bytes:
    """JSON that somebody sent in the form that ``encode`` would give it."""
    return _compacted(_parsed(text))


def _compacted(value: Any) -> bytes:
    """``encode`` for what the parser made: plain data, which is only too deep or beyond 64 bits
    if it is anything that a store refuses."""
    try:
        body = _encode(value)
        _in_64_bits(value)
    except (ArithmeticError, RecursionError, msgspec.MsgspecError):
        return encode(value)  # says what is wrong, and where
    if len(body) > SHALLOW and _too_deep(value, body):
        return encode(value)
    return body


def _parsed(text: bytes | str) -> Any:
    try:
        return _decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise InvalidValue(f"expected JSON (RFC 8259), found something else: {error}") from error


def same(a: Any, b: Any) -> bool:
    """Whether two values are the same JSON: True, 1 and 1.0 are three values, order of keys
    does not matter, -0.0 is not 0.0."""
    if type(a) is not type(b) or a != b:
        return False
    return type(a) is str or canonical(a) == canonical(b)


def canonical(value: Any) -> bytes:
    """One form for the same JSON: sorted keys, no spaces, UTF-8.  Checks nothing."""
    return _encode_sorted(value)


def checked_canonical(value: Any) -> bytes:
    """``canonical``, of what ``encode`` takes; raises what that does."""
    return _checked(value, _encode_sorted)


def _too_deep(value: Any, body: bytes) -> bool:
    """Whether more than ``MAX_DEPTH`` containers of ``value`` lie in each other.

    Goes down level by level, no further than the number of brackets leaves it possible: most
    values need no step, a long list of small dicts needs two.
    """
    rest = body.count(b"{") + body.count(b"[")
    depth, level = 0, [value] if type(value) in (dict, list) else []
    while level and depth + rest > MAX_DEPTH:
        depth += 1
        rest -= len(level)
        if depth > MAX_DEPTH:
            return True
        if depth + rest > MAX_DEPTH:
            level = _containers(level)
    return False


def _containers(level: list[Any]) -> list[Any]:
    return [
        child
        for each in level
        for child in (each.values() if type(each) is dict else each)
        if type(child) is dict or type(child) is list
    ]


def _refuse(value: Any, fits: bool) -> None:
    found = offender(value)
    if found is not None:
        path, problem = found
        where = f" at {shown(path)}" if path else ""
        raise InvalidValue(f"expected JSON, found {problem}{where}", path=path)
    if not fits:
        raise InvalidValue("the value changed while it was encoded; give perkey a copy")
