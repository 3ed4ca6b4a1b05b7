"""Unsigned varints and tagged sections: functions that the generated code calls outside its fast path.

│ 1xxxxxxx │ 1xxxxxxx │ ... │ 0xxxxxxx │   seven bits per byte, the lowest first, five bytes at most

A tagged section ends every struct of a flexible version. It contains a uvarint count, then for each field a uvarint
tag, a uvarint size and the bytes (KIP-482). A receiver skips unknown tags. Two bytes are a field, and a request has as
many sections as structs, so fields are limited in each section and, like array elements, in the whole message.
"""

from __future__ import annotations

from odradek.base.limits import TAGGED_FIELDS_MAX
from odradek.wire.schema.malformed import Malformed, cut_short, too_many_tags
from odradek.wire.schema.primitives import Buffer


def read_uvarint(data: Buffer, at: int) -> tuple[int, int]:
    """Return the value and the position after it.

    Raise IndexError if the bytes end first, which callers convert to Malformed.
    """
    value = 0
    for shift in range(0, 35, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise Malformed("a varint is longer than five bytes")


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_tag_count(data: Buffer, at: int, left: int) -> tuple[int, int]:
    """Return the number of fields in a section and the position after it; raise Malformed for more than `left`."""
    count, at = read_uvarint(data, at)
    if count > TAGGED_FIELDS_MAX:
        raise Malformed(f"{count} tagged fields exceed the limit of {TAGGED_FIELDS_MAX}")
    if count > left:
        raise too_many_tags(count, left)
    return count, at


def read_tag(data: Buffer, at: int) -> tuple[int, int, int]:
    """Return the tag, the position of its bytes and the position after them."""
    tag, at = read_uvarint(data, at)
    size, at = read_uvarint(data, at)
    if size > len(data) - at:
        raise cut_short(f"tagged field {tag}", size, len(data) - at)
    return tag, at, at + size


def skip_tags(data: Buffer, at: int, left: int) -> tuple[int, int]:
    """Skip a tagged section none of whose fields is known; return the position after it and what remains of `left`."""
    count, at = read_tag_count(data, at, left)
    for _ in range(count):
        _, _, at = read_tag(data, at)
    return at, left - count
