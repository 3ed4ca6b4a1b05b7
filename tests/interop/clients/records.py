"""Records that the clients write and read."""

from __future__ import annotations

import random
import time
from typing import NamedTuple

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
NOW_MS = time.time_ns() // 1_000_000
EVERY_BYTE = bytes(range(256))

Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """One record, to be read as it was written."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int = NOW_MS


class Read(NamedTuple):
    """A record that was read, and its position."""

    offset: int
    record: Record


RECORDS = (
    Record(b"key", b"value"),
    Record(None, b"no key"),
    Record(b"no value", None),
    Record(None, None),
    Record(b"", b""),
    Record(b"", b"empty key"),
    Record(b"empty value", b""),
    Record(EVERY_BYTE, EVERY_BYTE[::-1]),
    Record(b"headers", b"several", (("one", b"1"), ("two", b"2"), ("one", b"again"))),
    Record(b"headers", b"empty ones", (("empty", b""), ("", b"no name"), ("", b""))),
    Record(b"headers", b"a null one", (("null", None), ("not", b"null"))),
    Record(b"headers", b"bytes", (("bytes", EVERY_BYTE), ("Grüße", "größer".encode()))),
    Record(None, None, (("only", b"a header"),)),
    Record(b"old", b"of another time", (), 1_000_000_000_000),
    Record(b"first", b"of all times", (), 1),
    Record(b"long", b"and alike" * 10_000),
    Record(b"long", random.Random(4).randbytes(50_000)),
)
