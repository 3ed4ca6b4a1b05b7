"""Finds out whether a data directory works as a whole, after something in it failed.

A bad place on a disk costs the log that lies there.  A disk that is gone, or was made read-only by the kernel, would
cost its logs one after the other, each with a client that waits: so a small file is written, synced and removed.  With
a larger one it is found out whether a disk that was full has room again.
"""

from __future__ import annotations

from contextlib import suppress

from odradek.log.files.disk import Disk, DiskFailed, replace_file
from odradek.log.files.volume import FULL_BYTES

NAME = "odradek-probe"
PROBE_BYTES = 4096
ROOM_BYTES = FULL_BYTES  # So much and a disk is not full any more.


class Probe:
    """One look.  run() may be called in any thread and raises nothing: `failure` and `found_room` say how it ended."""

    def __init__(self, disk: Disk, directory: str, size: int = PROBE_BYTES) -> None:
        self._disk = disk
        self._directory = directory
        self._size = size
        self.failure: DiskFailed | None = None
        self.found_room = False

    def run(self) -> None:
        path = f"{self._directory}/{NAME}"
        try:
            replace_file(self._disk, path, bytes(self._size))
            self._disk.sync_directory(self._directory)
            self.found_room = True
        except DiskFailed as failed:
            if not failed.is_full:
                self.failure = failed
        with suppress(DiskFailed):
            self._disk.unlink(path)
