"""Probe of a data directory after a failure: tests whether the directory as a whole still works.

A bad sector on a disk affects only the log stored there.  A disk that is disconnected, or that the kernel made
read-only, would fail its logs one after the other, each with a waiting client.  So the probe writes, syncs and deletes
a small file.  A larger file shows whether a full disk has room again.
"""

from __future__ import annotations

from contextlib import suppress

from odradek.log.files.disk import Disk, DiskFailed, replace_file
from odradek.log.files.volume import FULL_BYTES

NAME = "odradek-probe"
PROBE_BYTES = 4096
ROOM_BYTES = FULL_BYTES  # A disk with this much room is not full any more.


class Probe:
    """One probe, whose result is in `failure` and `found_room`.

    run() may be called in any thread and raises no exception.
    """

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
