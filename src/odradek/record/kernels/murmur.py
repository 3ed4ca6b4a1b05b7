"""Kafka's hash of a key for choosing a partition: murmur2, 32 bits, little-endian."""

from __future__ import annotations

from typing import TypeAlias

try:
    import cython
except ImportError:
    from odradek.record.kernels import _shim as cython

if not cython.compiled:
    from odradek.record.kernels._copy import low32

Bytes: TypeAlias = bytes | bytearray | memoryview

COMPILED = bool(cython.compiled)

SEED = 0x9747B28C
MULTIPLIER = 0x5BD1E995
POSITIVE = 0x7FFFFFFF

NO_PARTITION = -1


def murmur2(data: Bytes) -> int:
    """Return the unsigned hash; Java prints the same 32 bits as a signed number."""
    return hash_of(data if len(data) else bytes(1), 0, len(data))


def hash_of(data: Bytes, start: int, size: int) -> int:
    value = low32(SEED ^ size)
    at = start
    stop = start + (size & ~3)
    while at < stop:
        block = low32(word(data, at) * MULTIPLIER)
        block = low32((block ^ (block >> 24)) * MULTIPLIER)
        value = low32(value * MULTIPLIER) ^ block
        at += 4
    rest = size & 3
    if rest == 3:
        value ^= data[at + 2] << 16
    if rest >= 2:
        value ^= data[at + 1] << 8
    if rest >= 1:
        value = low32((value ^ data[at]) * MULTIPLIER)
    value = low32((value ^ (value >> 13)) * MULTIPLIER)
    return value ^ (value >> 15)


def word(data: Bytes, at: int) -> int:
    return data[at] | data[at + 1] << 8 | data[at + 2] << 16 | data[at + 3] << 24


def choose_partitions(offsets: memoryview, data: Bytes, partitions: int, chosen: memoryview) -> int:
    """Write the partition of each of len(chosen) keys to `chosen`; `offsets` are Arrow's.

    Return -1, or the index of the first key outside the data.
    """
    rows = len(chosen)
    limit = len(data)
    if partitions < 1 or len(offsets) < rows + 1:
        return 0
    if limit == 0:
        data = bytes(1)
    return choose(offsets, data, limit, partitions, chosen)


def choose(offsets: memoryview, data: Bytes, limit: int, partitions: int, chosen: memoryview) -> int:
    for row in range(len(chosen)):
        start = offsets[row]
        stop = offsets[row + 1]
        if start < 0 or start > stop or stop > limit:
            return row
        chosen[row] = (hash_of(data, start, stop - start) & POSITIVE) % partitions
    return -1
