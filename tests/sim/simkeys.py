"""Keys of the records: from a small set if topics are compacted, so that compaction has records to remove.

A value is sent once in a history, and describes its record:

    producer-0-17              has its own key, with the same text
    k3=producer-0-17           is one of several records with the key k3
    k3=producer-0-17 deleted   is a tombstone of k3, with this text in a header instead of a value
"""

from __future__ import annotations

from random import Random

from odradek.record.builder import RecordIn
from odradek.record.compression import Codec
from odradek.record.records import Record
from sim.history import Value

TEXT = "text"
TOMBSTONE = " deleted"
KEYS = (2, 6, 20)
DRAWN_PER_MOVE = 25
OWN_SHARE, TOMBSTONE_SHARE = 0.1, 0.2


class SimKeys:
    """Keys and codecs of a world. Without compaction, each record has its own key and is not compressed.

    The set of keys changes over time: the last value of an abandoned key, possibly a tombstone, outlives many
    passes.
    """

    def __init__(self, random: Random, *, is_compacted: bool) -> None:
        self._random = random
        self._count = random.choice(KEYS) if is_compacted else 0
        self._drawn = 0

    def value(self, name: str) -> Value:
        """Return the value of a new record with this name."""
        if not self._count or self._random.random() < OWN_SHARE:
            return name
        self._drawn += 1
        number = self._drawn // DRAWN_PER_MOVE + self._random.randrange(self._count)
        return f"k{number}={name}{TOMBSTONE if self._random.random() < TOMBSTONE_SHARE else ''}"

    def codec(self) -> Codec:
        """Return the codec of a producer's batches."""
        return self._random.choice(tuple(Codec)) if self._count else Codec.NONE


def key_of(value: Value) -> str:
    return value.partition("=")[0]


def is_tombstone(value: Value) -> bool:
    return value.endswith(TOMBSTONE)


def record_of(value: Value, timestamp_ms: int) -> RecordIn:
    key, data = key_of(value).encode(), value.encode()
    return (key, None, [(TEXT, data)], timestamp_ms) if is_tombstone(value) else (key, data, (), timestamp_ms)


def value_of(record: Record) -> Value:
    """Return the sent value of this record; for a record that cannot have been sent, a text never sent."""
    data = dict(record.headers).get(TEXT) if record.value is None else record.value
    value = (data or b"").decode()
    key, data, headers, _ = record_of(value, record.timestamp)
    is_whole = (record.key, record.value, list(record.headers)) == (key, data, list(headers))
    return value if is_whole else f"{record.key!r}: {record.value!r} {record.headers}"
