"""Disk without syncs: written data stays in the page cache until the kernel writes it.

All data survives the end of the process, but possibly none survives a power failure.  Use it for data that is deleted
with its directory anyway, such as that of a test's broker.  A sync takes 0.3 ms on one machine and 30 ms on another.
"""

from __future__ import annotations

from odradek.log.files.disk import File, RealDisk, RealFile


class UnsyncedFile(RealFile):
    __slots__ = ()

    def sync(self) -> None:
        """Do nothing; the kernel decides when to write."""


class UnsyncedDisk(RealDisk):
    has_syncs = False

    def _open(self, path: str, flags: int) -> File:
        return UnsyncedFile(self._descriptor(path, flags), path)

    def sync_directory(self, path: str) -> None:
        """Do nothing; the kernel decides when to write."""
