"""Unsigned varints and tagged sections: functions that the generated code calls outside its fast path.

│ 1xxxxxxx │ 1xxxxxxx │ ... │ 0xxxxxxx │   seven bits per byte, the lowest first, five bytes at most

A tagged section ends every struct of a flexible version. It contains a uvarint count, then for each field a uvarint
tag, a uvarint size and the bytes (KIP-482). A receiver skips unknown tags.
"""

from __future__ import annotations

from odradek.base.limits import TAGGED_FIELDS_MAX
from odradek.wire.errors import Malformed, cut_short
from odradek.wire.primitives import Buffer


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
    raise Malformed("a varint has more than five bytes")


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_tag_count(data: Buffer, at: int) -> tuple[int, int]:
    count, at = read_uvarint(data, at)
    if count > TAGGED_FIELDS_MAX:
        raise Malformed(f"{count} tagged fields, at most {TAGGED_FIELDS_MAX} are read")
    return count, at


def read_tag(data: Buffer, at: int) -> tuple[int, int, int]:
    """Return the tag, the position of its bytes and the position after them."""
    tag, at = read_uvarint(data, at)
    size, at = read_uvarint(data, at)
    if size > len(data) - at:
        raise cut_short(f"tagged field {tag}", size, len(data) - at)
    return tag, at, at + size


def skip_tags(data: Buffer, at: int) -> int:
    """Return the position after a tagged section without known fields."""
    count, at = read_tag_count(data, at)
    for _ in range(count):
        _, _, at = read_tag(data, at)
    return at
