"""The interpreted twin of _copy.pxd, which is memcpy."""

from __future__ import annotations

from typing import TypeAlias

Bytes: TypeAlias = bytes | bytearray | memoryview


def copy_bytes(target: memoryview, position: int, source: Bytes, start: int, size: int) -> None:
    """source[start : start + size] to target[position:]; the caller has checked both ends."""
    target[position : position + size] = source[start : start + size]


def wrap64(value: int) -> int:
    """A signed 64-bit integer by dropping higher bits, as adding does in C and in Java."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def low32(value: int) -> int:
    return value & 0xFFFF_FFFF


def low64(value: int) -> int:
    return value & 0xFFFF_FFFF_FFFF_FFFF


def prefetch(words: memoryview, at: int) -> None:
    """Has words[at] fetched from memory before it is asked for; nothing to do where an interpreter takes longer."""
