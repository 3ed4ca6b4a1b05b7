"""Checkpoint files of a data directory: recovery point, start, high watermark, compaction of each log.

A checkpoint writes only changed files.  It runs in a thread (`begin_checkpoint`), or at once and durably before a
change that must follow it (`write_now`).  A newer checkpoint makes an older one stale if that still waits for its
thread.  Log starts have a durable write of their own, which precedes any response that reports them
(log/directory/log_start_checkpoint.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from odradek.base.units import Offset, TopicPartition
from odradek.log.directory.log_start_checkpoint import StartsWrite
from odradek.log.files import log_file_names as names
from odradek.log.files.disk import Disk, DiskFailed
from odradek.log.log.log import Log
from odradek.log.removal.reaper import Reaper
from odradek.log.segment.checkpoints import BadCheckpoint, read_offsets, write_offsets

Offsets = dict[TopicPartition, Offset]


@dataclass(slots=True)
class Checkpoint:
    """One checkpoint as a value: the files to write.

    run() may be called in any thread; it raises DiskFailed.
    """

    disk: Disk
    directory: str
    contents: dict[str, Offsets]
    turns: AbstractContextManager[object]
    is_stale: bool = field(default=False, init=False)
    has_old_starts: bool = field(default=False, init=False)  # Newer log starts were written, or will be.
    is_done: bool = field(default=False, init=False)
    failure: DiskFailed | None = field(default=None, init=False)

    def run(self) -> None:
        assert not self.is_done, "a checkpoint is written once"
        try:
            self._write()
        except DiskFailed as failure:
            self.failure = failure
            raise

    def _write(self) -> None:
        with self.turns:
            for name, offsets in self.contents.items():
                if self.is_stale:  # A newer checkpoint was or will be written instead.
                    return
                if name == names.LOG_STARTS and self.has_old_starts:
                    continue
                write_offsets(self.disk, f"{self.directory}/{name}", offsets)
        self.is_done = True


class Checkpointing:
    """Checkpoint files of one data directory.

    `logs` and `offline` are shared with the directory and change with it.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        turns: AbstractContextManager[object],
        *,
        logs: dict[TopicPartition, Log],
        offline: dict[TopicPartition, str],
        reaper: Reaper,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._turns = turns
        self._logs = logs
        self._offline = offline
        self._reaper = reaper
        self.high_watermarks: Offsets = {}  # As of the last checkpoint.
        self.compacted: Offsets = {}  # End of compaction when the logs were opened, perhaps written by Kafka.
        self._loaded: dict[str, Offsets] = {}  # Content of the files at the start.
        self._written: dict[str, Offsets] = {}
        self._named: set[TopicPartition] = set()  # By a file on the disk, or one that a power failure may restore.
        self._last: Checkpoint | None = None
        self._starts: StartsWrite | None = None  # The write in progress.
        self._promised: Offsets = {}  # Log starts that are or will be on the disk before the logs use them.

    def read(self, name: str, problems: list[str]) -> Offsets:
        """Read one file; a damaged one is treated as empty.

        Then recovery scans more, and logs start at a segment's beginning.
        """
        try:
            offsets = read_offsets(self._disk, f"{self._directory}/{name}")
        except BadCheckpoint as bad:
            problems.append(str(bad))
            offsets = {}
        self._loaded[name] = offsets
        self._written[name] = offsets
        self._named.update(offsets)
        return dict(offsets)

    def may_name(self, partition: TopicPartition) -> bool:
        """Return whether a checkpoint may name the partition, also after a power failure."""
        return partition in self._named

    def forget(self, partition: TopicPartition) -> None:
        """Forget a log that has left the directory; the next checkpoint does not name it."""
        for offsets in (self.high_watermarks, self.compacted, self._promised):
            offsets.pop(partition, None)

    @property
    def failure(self) -> DiskFailed | None:
        """Return the failure of the last checkpoint; set it to None after handling it."""
        return None if self._last is None else self._last.failure

    @failure.setter
    def failure(self, failure: None) -> None:
        if self._last is not None:
            self._last.failure = failure

    def begin_checkpoint(self, high_watermarks: Mapping[TopicPartition, Offset] | None = None) -> Checkpoint | None:
        """Return a checkpoint of the changes since the last one, to be run() in a thread; None without any."""
        if high_watermarks is not None:
            self.high_watermarks |= high_watermarks  # A replica without news from the controller keeps its own.
        self.high_watermarks = {p: hw for p, hw in self.high_watermarks.items() if p in self._logs}
        current = self._current()
        if self._last is not None and not self._last.is_done:
            self._last.is_stale = True
            self._written.clear()  # It failed, or is not complete yet.
        if self._starts is not None:  # That write has all log starts, and this checkpoint runs after it.
            self._written[names.LOG_STARTS] = current[names.LOG_STARTS] = self._starts.offsets
        changed = {name: offsets for name, offsets in current.items() if offsets != self._written.get(name)}
        if not changed:
            return None
        self._written |= changed
        self._named.update(*changed.values())
        self._last = Checkpoint(self._disk, self._directory, changed, self._turns)
        return self._last

    def write_now(self) -> None:
        """Write a durable checkpoint of everything before a change that must follow it; blocks."""
        if self._last is not None:
            self._last.is_stale = True
        if self._starts is not None:
            self._starts.is_stale = True
            self._starts = None
        self._written.clear()
        checkpoint = self.begin_checkpoint()
        assert checkpoint is not None, "a checkpoint is due after all entries became stale"
        checkpoint.run()
        assert checkpoint.is_done, "a newer checkpoint would not have all that this one must have"
        self._disk.sync_directory(self._directory)
        self._named = {partition for offsets in self._written.values() for partition in offsets}

    def begin_starts(self, starts: Mapping[TopicPartition, Offset]) -> StartsWrite:
        """Return the durable write of log starts that precedes their use; run() it in a thread, one at a time.

        After it, call `end_starts` and then update the logs' starts, before the next write begins.
        """
        assert self._starts is None, "at most one write of log start offsets is in progress"
        self._promised = dict(starts)
        if self._last is not None:
            self._last.has_old_starts = True
        offsets = self._written.get(names.LOG_STARTS)
        if offsets is None:
            offsets = self._log_starts() | self._of_offline(names.LOG_STARTS)
        offsets = self._written[names.LOG_STARTS] = offsets | self._promised
        self._named.update(starts)
        self._starts = StartsWrite(self._disk, self._directory, offsets, self._turns)
        return self._starts

    def end_starts(self, write: StartsWrite) -> None:
        """Record that a write of log starts has completed or failed."""
        assert self._starts is write or write.is_stale, "a write of log starts ends once"
        if self._starts is write:
            self._starts = None
        if not write.is_done:
            self._promised.clear()
            self._written.pop(names.LOG_STARTS, None)

    def _current(self) -> dict[str, Offsets]:
        logs = self._logs.items()
        cleaned = {p: log.compaction.cleaned_to for p, log in logs}
        current = {
            names.RECOVERY_POINTS: {p: log.recovery_point for p, log in logs},
            names.LOG_STARTS: self._log_starts(),
            names.HIGH_WATERMARKS: dict(self.high_watermarks),
            names.CLEANER_OFFSETS: {p: to for p, to in cleaned.items() if to or p in self.compacted},
        }
        return {name: offsets | self._of_offline(name) for name, offsets in current.items()}

    def _of_offline(self, name: str) -> Offsets:
        """Return the offsets of logs that could not be opened, which are kept for them."""
        return {p: offset for p, offset in self._loaded[name].items() if p in self._offline}

    def _log_starts(self) -> Offsets:
        """Return the log starts that the segments' names do not determine."""
        starts = {
            p: log.start_offset
            for p, log in self._logs.items()
            # A crash may restore segments being retired, and with them the earlier log start.
            if log.start_offset > log.segments[0].base_offset or self._reaper.is_retiring(log.directory)
        }
        starts.update({p: max(starts.get(p, start), start) for p, start in self._promised.items()})
        return starts
