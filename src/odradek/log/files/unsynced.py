"""A disk that nobody waits for: what is written stays in the page cache until the kernel writes it.

Everything survives the end of the process, and perhaps nothing a power cut: for data that is gone with its folder
anyway, as that of a test's broker.  A sync costs 0.3 ms on one machine and 30 on the next.
"""

from __future__ import annotations

from odradek.log.files.disk import File, RealDisk, RealFile


class UnsyncedFile(RealFile):
    __slots__ = ()

    def sync(self) -> None:
        """Does nothing: the kernel writes when it likes."""


class UnsyncedDisk(RealDisk):
    has_syncs = False

    def _open(self, path: str, flags: int) -> File:
        return UnsyncedFile(self._descriptor(path, flags), path)

    def sync_directory(self, path: str) -> None:
        """Does nothing: the kernel writes when it likes."""
