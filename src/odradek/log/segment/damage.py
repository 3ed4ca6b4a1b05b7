"""Damaged ranges in a .log file that hold no whole batch, and the search for the next whole one."""

from __future__ import annotations

import re
from struct import Struct
from typing import NamedTuple

from odradek.base.units import INT32_MAX, INT64_MAX, Offset, TimestampMs, TopicPartition
from odradek.log.files.disk import File
from odradek.log.segment.scan import CHECK_CHUNK_BYTES, Damaged, walk_checked
from odradek.record.record_batch import HEADER_BYTES

_HIGH = Struct(">i")


class Damage(NamedTuple):
    """Bytes from `start` to `end` that must not be sent; the batch at `end` has offset `following`."""

    start: int
    end: int
    following: Offset
    why: str


class KnownDamage(NamedTuple):
    """Damage in its stored form: the log, the .log file and byte, and the time of its detection.

    A reader may continue at offset `following`.  It is INT64_MAX if no later batch in the file is known.
    """

    partition: TopicPartition
    file: str
    position: int
    following: Offset
    since_ms: TimestampMs
    why: str


def next_batch(
    file: File, position: int, end: int, offsets: tuple[Offset, Offset], upto: int | None = None
) -> int | None:
    """Return the position of the first whole batch of format 2 between `position` and `upto` (or `end`).

    `offsets` are the lowest offset that the batch may have, and the segment's base offset.  They determine the
    upper bytes of the batch's own offset, so a compiled search can look for these bytes.
    """
    lowest, base_offset = offsets
    upto = end if upto is None else upto
    highs = {_HIGH.pack(offset >> 32) for offset in (lowest, min(base_offset + INT32_MAX, INT64_MAX))}
    sign = re.compile(b"(?s:(?:" + b"|".join(map(re.escape, sorted(highs))) + rb").{4}[\0-\x7f].{7}\x02)")
    while position < upto:
        chunk = file.pread(position, min(CHECK_CHUNK_BYTES, end - position))
        zeros = len(chunk) - len(chunk.lstrip(b"\0"))
        match = sign.search(chunk, max(zeros - _HIGH.size * 2, 0))
        while match is not None:  # finditer would skip overlapping matches.
            at = position + match.start()
            if at < upto and _is_batch(file, at, end, lowest, base_offset):
                return at
            match = sign.search(chunk, match.start() + 1)
        if len(chunk) < HEADER_BYTES:
            return None
        position += len(chunk) - (HEADER_BYTES - 1)
    return None


def _is_batch(file: File, position: int, end: int, lowest: Offset, base_offset: Offset) -> bool:
    try:
        place = next(walk_checked(file, position, end))
    except Damaged:
        return False
    return place.base_offset >= lowest and place.last_offset - base_offset <= INT32_MAX
