"""Durable log start offsets, written before any response reports them: deletions survive a crash.

Kafka's checkpoint of them is up to a minute old.  So after kill -9 Kafka serves again records that DeleteRecords had
deleted.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from odradek.base.units import Offset, TopicPartition
from odradek.log.files.disk import Disk
from odradek.log.files.log_file_names import LOG_STARTS
from odradek.log.segment.checkpoints import write_offsets


@dataclass(slots=True)
class StartsWrite:
    """One durable write of a directory's log starts.

    run() may be called in any thread; it raises DiskFailed.  A stale write does nothing and must be begun again: a
    checkpoint of everything was written in its place.
    """

    disk: Disk
    directory: str
    offsets: dict[TopicPartition, Offset]
    turns: AbstractContextManager[object]
    is_stale: bool = field(default=False, init=False)
    is_done: bool = field(default=False, init=False)

    def run(self) -> None:
        assert not self.is_done, "log starts are written once"
        with self.turns:
            if self.is_stale:
                return
            write_offsets(self.disk, f"{self.directory}/{LOG_STARTS}", self.offsets)
            self.disk.sync_directory(self.directory)
        self.is_done = True
