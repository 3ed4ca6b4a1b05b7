"""What of a log is durable, and how the rest becomes so.

begin_flush(log)          on the loop: what must be synced for everything appended so far to be safe
flush.run()               in a thread: see flush.py
end_flush(log, flush)     on the loop: the recovery point moves to flush.end_offset
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from odradek.base.units import Offset, TimestampMs
from odradek.log.files.log_file_names import LEADER_EPOCHS, PARTITION_METADATA
from odradek.log.log.flush import Flush
from odradek.log.segment.segment import Segment

if TYPE_CHECKING:
    from odradek.log.log.log import Log


class Durability:
    """What of one log a flush has to sync yet, and the flushes that are under way.

    `unsynced` are sealed segments, the oldest first.  `changes` counts those of the directory: a flush must sync it
    when they exceed the synced ones.
    """

    def __init__(self, unsynced: list[Segment], *, is_synced: bool) -> None:
        self.unsynced = unsynced
        self.changes = 0
        self.synced_changes = 0 if is_synced else -1  # -1: not even the directory's own name is durable.
        self.synced_epoch_changes = 0
        self.under_way: list[Flush] = []

    @property
    def has_failed(self) -> bool:
        """True if a flush failed: what is on the disk is not known."""
        return any(flush.has_failed for flush in self.under_way)

    def keep(self, end: Offset, kept: frozenset[Segment]) -> None:
        """Takes in that the log was cut at `end` and has only these sealed segments now."""
        self.unsynced = [segment for segment in self.unsynced if segment in kept]
        for flush in self.under_way:
            flush.end_offset = Offset(min(flush.end_offset, end))
            flush.sealed &= kept  # The last one is open again.
        self.changes += 1

    def forget(self, gone: frozenset[Segment]) -> None:
        """Takes in that the log has lost these segments at its start."""
        self.unsynced = [segment for segment in self.unsynced if segment not in gone]

    def end(self, flush: Flush) -> None:
        """Takes in what a flush that ran has covered."""
        assert flush in self.under_way, "a flush is reported once, to the log it came from"
        assert not flush.has_failed and not flush.was_put_off, "what failed covers nothing"
        assert flush.changes <= self.changes, "a flush covers no more of the directory than was changed"
        self.under_way.remove(flush)
        if self.unsynced:
            self.unsynced = [segment for segment in self.unsynced if segment not in flush.sealed]
        self.synced_changes = max(self.synced_changes, flush.changes)
        self.synced_epoch_changes = max(self.synced_epoch_changes, flush.epoch_changes)


def needs_flush(log: Log, now_ms: TimestampMs) -> bool:
    """True if flush.messages or flush.ms is reached, or a segment was rolled since the last flush."""
    unflushed = log.end_offset - log.recovery_point
    has_sealed = bool(log.durability.unsynced)
    if not (unflushed or has_sealed):
        return False
    config = log.config
    waited_ms = now_ms - log.last_flush_ms
    # Below 0 the clock was set back: nobody knows how long it was.
    is_late = waited_ms >= config.flush_ms or waited_ms < 0
    return has_sealed or unflushed >= config.flush_messages or is_late


def begin_flush(log: Log) -> Flush:
    """Returns a flush of all that was appended so far, with the sealed segments' indexes and new file names."""
    log.owed.settle()
    durability = log.durability
    durability.under_way = [flush for flush in durability.under_way if not flush.was_put_off]
    files, paths, directories = [], [], []
    for segment in durability.unsynced:
        files.append(segment.file)
        paths += [segment.offsets.path, segment.times.path, segment.transactions.path]
    paths += [log.snapshots.path(end) for end in _unsynced_ends(log)]
    if log.recovery_point < log.end_offset or durability.changes > durability.synced_changes:
        files.append(log.active.file)
    if durability.synced_changes < 0:
        paths.append(f"{log.directory}/{PARTITION_METADATA}")
        directories.append(log.directory.rpartition("/")[0])
    if log.epochs.changes > durability.synced_epoch_changes:
        paths.append(f"{log.directory}/{LEADER_EPOCHS}")
    if paths or durability.changes > durability.synced_changes:
        directories.append(log.directory)
    flush = Flush(
        log.disk,
        log.end_offset,
        files=files,
        paths=paths,
        directories=directories,
        sealed=durability.unsynced,
    )
    flush.changes, flush.epoch_changes = durability.changes, log.epochs.changes
    assert log.recovery_point <= flush.end_offset, "a flush takes nothing back"
    durability.under_way.append(flush)
    return flush


def _unsynced_ends(log: Log) -> list[Offset]:
    """Returns the end offset of each sealed segment that a flush has to sync."""
    if not log.durability.unsynced:
        return []
    unsynced = frozenset(log.durability.unsynced)
    return [following.base_offset for one, following in pairwise(log.segments) if one in unsynced]


def end_flush(log: Log, flush: Flush, now_ms: TimestampMs | None = None) -> None:
    """Takes in a flush that ran: what it covered is durable, and the recovery point moves there."""
    # A truncation meanwhile has lowered it.
    assert flush.end_offset <= log.end_offset, "a flush covers no more than was written"
    log.durability.end(flush)
    if now_ms is not None:
        log.last_flush_ms = now_ms
    log.recovery_point = Offset(max(log.recovery_point, flush.end_offset))


def flush_now(log: Log, now_ms: TimestampMs | None = None) -> None:
    """Does all three steps of a flush at once; blocks."""
    flush = begin_flush(log)
    flush.run()
    end_flush(log, flush, now_ms)


def is_flushed(log: Log) -> bool:
    """True if everything in the log is durable, and no streaming append is under way."""
    durability = log.durability
    is_synced = log.recovery_point >= log.end_offset and durability.changes <= durability.synced_changes
    is_under_way = durability.unsynced or log.arrival is not None
    return is_synced and not is_under_way


def synced_to(log: Log) -> Offset:
    """Returns the offset below which everything is durable, sealed segments with their indexes too."""
    return min([log.recovery_point, *(segment.base_offset for segment in log.durability.unsynced)])


def has_open_files(log: Log, below: int) -> bool:
    """True if a file of the log is open under a descriptor less than `below`."""
    return any(segment.is_open and segment.file.fileno() < below for segment in log.segments)


def release_files(log: Log) -> None:
    """Closes all open files; what needs one opens it again.

    A file closes when nobody refers to it any more, so whoever reads, sends or syncs one at the moment keeps it.
    To be called on a flushed log only: an error of a later write-back is told to those that have the file open, and
    a sync by a file that is opened afterwards might not hear of it.
    """
    assert is_flushed(log), f"{log.directory} has something that is not synced"
    for segment in log.segments:
        segment.release_file()
    log.sealed_open = []
