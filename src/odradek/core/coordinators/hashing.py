"""Which partition of a state topic has a group or a transactional id: Java's hash of the text, as Kafka has it."""

from __future__ import annotations

INT32_SIGN = 1 << 31
_INT32 = (1 << 32) - 1


def java_hash(text: str) -> int:
    """String.hashCode: over UTF-16 code units, as a signed 32-bit number."""
    data = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for place in range(0, len(data), 2):
        value = (31 * value + (data[place] << 8 | data[place + 1])) & _INT32
    return value - (1 << 32) if value & INT32_SIGN else value


def partition_for(key: str, count: int) -> int:
    """The partition of `count`.  The one number without an absolute value counts as 0."""
    value = abs(java_hash(key))
    return (0 if value == INT32_SIGN else value) % count
