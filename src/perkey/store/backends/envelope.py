"""A record as the bytes that a store without columns keeps.

MessagePack, an array that begins with the format's number; the body goes in as the bytes that
it is.  A reader refuses a format that it does not know rather than guess.
"""

from __future__ import annotations

import msgspec

from perkey.errors import SchemaMismatch, StoreCorrupt
from perkey.store.record import Record

FORMAT = 1

_Fields = tuple[int, str, int, bytes | None, str, int, str, str, int, int]
_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(_Fields)
_format = msgspec.msgpack.Decoder(tuple[int, ...])


def pack(record: Record) -> bytes:
    """``record`` as bytes."""
    return _encode(
        (
            FORMAT,
            str(record.key),
            record.version,
            record.body,
            record.by,
            record.at,
            record.op,
            record.ops,
            record.fence,
            record.base,
        )
    )


def unpack(data: bytes) -> Record:
    """The record that ``pack`` was given.

    Raises ``StoreCorrupt`` where ``data`` is nothing that it returned, ``SchemaMismatch`` for
    the format of a newer perkey.
    """
    try:
        fields = _decoder.decode(data)
    except msgspec.MsgspecError as error:
        if len(data) > 1 and data[0] & 0xF0 == 0x90 and FORMAT < data[1] < 0x80:
            raise SchemaMismatch(
                f"a record has format {data[1]}, this perkey knows {FORMAT}; use a newer one"
            ) from error
        raise StoreCorrupt(
            f"a stored record of {len(data)} bytes cannot be read: {error}"
        ) from error
    if fields[0] != FORMAT:
        raise SchemaMismatch(
            f"a record has format {fields[0]}, this perkey knows {FORMAT}; use a newer one"
        )
    return Record(*fields[1:])
