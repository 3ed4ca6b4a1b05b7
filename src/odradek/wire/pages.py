"""A large buffer allocated from the system and returned to it.

The allocator would keep much of what is freed. This module is not compiled: a compiled class can't inherit from a class
written in C.
"""

from __future__ import annotations

from mmap import mmap


class Pages(mmap):
    def startswith(self, prefix: bytes, start: int) -> bool:
        return self[start : start + len(prefix)] == prefix
