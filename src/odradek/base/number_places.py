"""Finds where numbers stand in encoded bytes: with all their bits clear and with all set, only they differ."""

from __future__ import annotations

from collections.abc import Sequence


def places(clear: bytes, full: bytes, sizes: Sequence[int]) -> list[int]:
    """Returns the position of each number; `sizes` are their sizes in bytes, in the order in which they stand."""
    assert len(clear) == len(full)
    differs = (int.from_bytes(clear, "big") ^ int.from_bytes(full, "big")).to_bytes(len(clear), "big")
    found, at = [], 0
    for size in sizes:
        at = differs.index(b"\xff" * size, at)
        found.append(at)
        at += size
    assert differs.count(0) + sum(sizes) == len(differs), "nothing else differs"
    return found
