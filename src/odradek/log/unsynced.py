"""A disk that nobody waits for: what is written stays in the page cache until the kernel writes it.

Everything survives the end of the process, and perhaps nothing a power cut: for data that is gone with its folder
anyway, as that of a test's broker.  A sync costs 0.3 ms on one machine and 30 on the next.
"""

from __future__ import annotations

import os

from odradek.log.disk import FILE_MODE, DiskFailed, File, RealDisk, RealFile


class UnsyncedFile(RealFile):
    __slots__ = ()

    def sync(self) -> None:
        """Not waited for."""


class UnsyncedDisk(RealDisk):
    has_syncs = False

    def _open(self, path: str, flags: int) -> File:
        try:
            return UnsyncedFile(os.open(path, flags, FILE_MODE), path)
        except OSError as error:
            raise DiskFailed.of(error, path) from None

    def sync_directory(self, path: str) -> None:
        """Not waited for."""
