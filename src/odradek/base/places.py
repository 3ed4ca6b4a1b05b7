"""Where numbers stand in written bytes: that with all of their bits clear differs there from that with all set."""

from __future__ import annotations

from collections.abc import Sequence


def places(clear: bytes, full: bytes, sizes: Sequence[int]) -> list[int]:
    """The position of each number; `sizes` are their bytes, in the order in which they stand."""
    assert len(clear) == len(full)
    differs = (int.from_bytes(clear, "big") ^ int.from_bytes(full, "big")).to_bytes(len(clear), "big")
    found, at = [], 0
    for size in sizes:
        at = differs.index(b"\xff" * size, at)
        found.append(at)
        at += size
    assert differs.count(0) + sum(sizes) == len(differs), "nothing else differs"
    return found
