"""Requests of a Kafka 0.7 client, as whole frames."""

from __future__ import annotations

import zlib
from struct import pack

PRODUCE, FETCH, MULTIFETCH, MULTIPRODUCE, OFFSETS = range(5)


def message(payload: bytes) -> bytes:
    """Return a message of Kafka 0.7: magic 1, no codec."""
    rest = pack(">bb", 1, 0) + pack(">I", zlib.crc32(payload)) + payload
    return pack(">i", len(rest)) + rest


def part(kind: int, topic: bytes, partition: int = 0, payload: bytes = b"hello") -> bytes:
    name = pack(">h", len(topic)) + topic + pack(">i", partition)
    if kind in (PRODUCE, MULTIPRODUCE):
        return name + pack(">i", len(message(payload))) + message(payload)
    return name + (pack(">qi", -1, 10) if kind == OFFSETS else pack(">qi", 0, 1 << 20))


def request(kind: int, *topics: bytes, partition: int = 0, payload: bytes = b"hello") -> bytes:
    body = b"".join(part(kind, topic, partition, payload) for topic in topics)
    count = pack(">h", len(topics)) if kind in (MULTIFETCH, MULTIPRODUCE) else b""
    rest = pack(">h", kind) + count + body
    return pack(">i", len(rest)) + rest
