"""Deletes files and directories some time after they were renamed away, so that readers of them can finish.

Unlinking a gigabyte takes the file system tens of milliseconds: begin() gives the work as a value for a thread.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from heapq import heappop, heappush

from odradek.base.units import TimestampMs
from odradek.log.disk import Disk, DiskFailed


@dataclass(frozen=True, slots=True)
class Reap:
    """Paths whose time has come.  run() may be called in any thread, and again if it raised DiskFailed."""

    disk: Disk
    files: tuple[str, ...]
    directories: tuple[str, ...]

    def run(self) -> None:
        for path in self.files:
            self.disk.unlink(path)
        for directory in self.directories:
            if self._exists(directory):
                for entry in self.disk.entries(directory):
                    self.disk.unlink(f"{directory}/{entry.name}")
                self.disk.remove_directory(directory)

    def _exists(self, directory: str) -> bool:
        try:
            self.disk.size(directory)
        except DiskFailed as failure:
            if failure.errno == errno.ENOENT:
                return False
            raise
        return True


class Reaper:
    """What waits for deletion.  What a crash leaves behind is found again by its suffix at the next start."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._waiting: list[tuple[TimestampMs, str, bool]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def add_file(self, path: str, due_ms: TimestampMs) -> None:
        heappush(self._waiting, (due_ms, path, False))

    def add_directory(self, path: str, due_ms: TimestampMs) -> None:
        heappush(self._waiting, (due_ms, path, True))

    def begin(self, now_ms: TimestampMs) -> Reap | None:
        """What is due, None if nothing is."""
        files: list[str] = []
        directories: list[str] = []
        while self._waiting and self._waiting[0][0] <= now_ms:
            _, path, is_directory = heappop(self._waiting)
            (directories if is_directory else files).append(path)
        return Reap(self._disk, tuple(files), tuple(directories)) if files or directories else None

    def reap(self, now_ms: TimestampMs) -> int:
        """begin and run at once: how many files and directories went."""
        work = self.begin(now_ms)
        if work is None:
            return 0
        work.run()
        return len(work.files) + len(work.directories)
