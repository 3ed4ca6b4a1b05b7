"""A large buffer, taken straight from the system and given back: the allocator keeps much of what it gets back.

Not in a room that is compiled: a compiled class can not inherit from one that is written in C.
"""

from __future__ import annotations

from mmap import mmap


class Pages(mmap):
    def startswith(self, prefix: bytes, start: int) -> bool:
        return self[start : start + len(prefix)] == prefix
