"""Deletes files and directories some time after they were renamed away, so that readers of them can finish.

Unlinking a gigabyte takes the file system tens of milliseconds: begin() gives the work as a value for a thread.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from odradek.base.units import Offset, TimestampMs
from odradek.log.disk import Disk, DiskFailed, Entry
from odradek.log.names import DELETED, SEGMENT_SUFFIXES, SNAPSHOT, segment_stem


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
            for entry in self._entries(directory):
                self.disk.unlink(f"{directory}/{entry.name}")
            self.disk.remove_directory(directory)

    def _entries(self, directory: str) -> list[Entry]:
        try:
            return self.disk.entries(directory)
        except DiskFailed as failure:
            if failure.errno == errno.ENOENT:  # A run before this one got that far.
                return []
            raise


class Reaper:
    """What waits for deletion.  What a crash leaves behind is found again by its suffix at the next start."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._waiting: list[tuple[TimestampMs, str, bool]] = []
        self._latest_ms = TimestampMs(0)

    def __len__(self) -> int:
        return len(self._waiting)

    def add_file(self, path: str, due_ms: TimestampMs) -> None:
        heappush(self._waiting, (due_ms, path, False))

    def add_directory(self, path: str, due_ms: TimestampMs) -> None:
        heappush(self._waiting, (due_ms, path, True))

    def retire_segments(self, directory: str, base_offsets: Sequence[Offset], due_ms: TimestampMs) -> None:
        """Renamed at once, one after the other as given, and unlinked when due, with all that belongs to them.

        The order is the caller's so that a stop half-way leaves no hole: from the start of the log forwards, from its
        end backwards.
        """
        if not base_offsets:
            return
        there = {entry.name for entry in self._disk.entries(directory)}
        for base_offset in base_offsets:
            for suffix in (*SEGMENT_SUFFIXES, SNAPSHOT):
                name = segment_stem(base_offset) + suffix
                if name in there:
                    path = f"{directory}/{name}"
                    self._disk.rename(path, path + DELETED)
                    self.add_file(path + DELETED, due_ms)
        self._disk.sync_directory(directory)

    def begin(self, now_ms: TimestampMs) -> Reap | None:
        """What is due, None if nothing is."""
        if now_ms < self._latest_ms:
            # The clock was set back: what waits would wait that much longer.  Shifted alike, they stay a heap.
            back = self._latest_ms - now_ms
            self._waiting = [(TimestampMs(due - back), path, is_one) for due, path, is_one in self._waiting]
        self._latest_ms = now_ms
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
