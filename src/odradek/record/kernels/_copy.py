"""The interpreted twin of _copy.pxd, which is memcpy."""

from __future__ import annotations

from typing import TypeAlias

Bytes: TypeAlias = bytes | bytearray | memoryview


def copy_bytes(target: memoryview, position: int, source: Bytes, start: int, size: int) -> None:
    """Copy source[start : start + size] to target[position:]; the caller has checked both bounds."""
    target[position : position + size] = source[start : start + size]


def wrap64(value: int) -> int:
    """Return a signed 64-bit integer without the higher bits, like an addition in C or Java."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def low32(value: int) -> int:
    return value & 0xFFFF_FFFF


def low64(value: int) -> int:
    return value & 0xFFFF_FFFF_FFFF_FFFF


def prefetch(words: memoryview, at: int) -> None:
    """Prefetch words[at] from memory; a no-op here, because the interpreter takes longer than the access."""
