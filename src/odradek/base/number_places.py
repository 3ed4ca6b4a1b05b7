"""Positions of numbers in encoded bytes.

Only the numbers differ between an encoding with all their bits clear and one with all bits set.
"""

from __future__ import annotations

from collections.abc import Sequence


def places(clear: bytes, full: bytes, sizes: Sequence[int]) -> list[int]:
    """Return the position of each number; `sizes` are their sizes in bytes, in the order of the encoding."""
    assert len(clear) == len(full)
    differs = (int.from_bytes(clear, "big") ^ int.from_bytes(full, "big")).to_bytes(len(clear), "big")
    found, at = [], 0
    for size in sizes:
        at = differs.index(b"\xff" * size, at)
        found.append(at)
        at += size
    assert differs.count(0) + sum(sizes) == len(differs), "nothing else differs"
    return found
