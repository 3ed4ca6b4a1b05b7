"""Flushing of one log: tracks the durable part and syncs the rest.

begin_flush(log)          on the loop: collect everything to sync so that all appended records are durable
flush.run()               in a thread: see log/log/flush.py
end_flush(log, flush)     on the loop: advance the recovery point to flush.end_offset
close_log(log, now_ms)    all of it, and the indexes of the active segment
"""

from __future__ import annotations

import errno
from itertools import pairwise

from odradek.base.units import Offset, TimestampMs
from odradek.log.files.disk import DiskFailed
from odradek.log.files.log_file_names import LEADER_EPOCHS, PARTITION_METADATA
from odradek.log.log.flush import Flush
from odradek.log.log.log import Log


def needs_flush(log: Log, now_ms: TimestampMs) -> bool:
    """Return whether flush.messages or flush.ms is reached, or a segment rolled since the last flush."""
    unflushed = log.end_offset - log.recovery_point
    assert unflushed >= 0, "the recovery point never exceeds the log end offset"
    has_sealed = bool(log.durability.unsynced)
    if not (unflushed or has_sealed):
        return False
    config = log.config
    waited_ms = now_ms - log.last_flush_ms
    # Below 0 the clock was set back, so the time since the last flush is unknown.
    is_late = waited_ms >= config.flush_ms or waited_ms < 0
    return has_sealed or unflushed >= config.flush_messages or is_late


def begin_flush(log: Log) -> Flush:
    """Return a flush of everything appended so far, with sealed segments' indexes and new file names."""
    log.pending_work.settle()
    durability = log.durability
    durability.under_way = [flush for flush in durability.under_way if not flush.was_postponed]
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
    assert log.recovery_point <= flush.end_offset, "a flush never lowers the recovery point"
    durability.under_way.append(flush)
    return flush


def _unsynced_ends(log: Log) -> list[Offset]:
    """Return the end offset of each sealed segment that is not synced."""
    if not log.durability.unsynced:
        return []
    unsynced = frozenset(log.durability.unsynced)
    ends = [following.base_offset for one, following in pairwise(log.segments) if one in unsynced]
    assert len(ends) == len(log.durability.unsynced), "each unsynced segment is a sealed one of the log"
    return ends


def end_flush(log: Log, flush: Flush, now_ms: TimestampMs | None = None) -> None:
    """Record a completed flush and advance the recovery point to its end."""
    # A truncation during the flush has lowered flush.end_offset.
    assert flush.end_offset <= log.end_offset, "a flush ends at or below the log end offset"
    log.durability.on_flushed(flush)
    if now_ms is not None:
        log.last_flush_ms = now_ms
    log.recovery_point = Offset(max(log.recovery_point, flush.end_offset))
    assert log.recovery_point <= log.end_offset, "the recovery point never exceeds the log end offset"


def flush_now(log: Log, now_ms: TimestampMs | None = None) -> None:
    """Run all three steps of a flush; blocks."""
    flush = begin_flush(log)
    flush.run()
    end_flush(log, flush, now_ms)


def is_flushed(log: Log) -> bool:
    """Return whether the whole log is durable and no streaming append is in progress."""
    durability = log.durability
    is_synced = log.recovery_point >= log.end_offset and durability.changes <= durability.synced_changes
    is_under_way = durability.unsynced or log.arrival is not None
    return is_synced and not is_under_way


def synced_to(log: Log) -> Offset:
    """Return the offset below which everything is durable, including the indexes of sealed segments."""
    return min([log.recovery_point, *(segment.base_offset for segment in log.durability.unsynced)])


def has_open_files(log: Log, below: int) -> bool:
    """Return whether a file of the log is open under a descriptor less than `below`."""
    return any(segment.is_open and segment.file.fileno() < below for segment in log.segments)


def release_files(log: Log) -> None:
    """Release all open files of a flushed log; later operations reopen them.

    A file closes when its last reference is dropped, so a concurrent read, send or sync keeps it open.  Call this
    only on a flushed log: the kernel reports a write-back error only to descriptors that were open at that time.  A
    sync through a descriptor opened later could miss the error.
    """
    assert is_flushed(log), f"the files of {log.directory} are closed only when synced"
    for segment in log.segments:
        segment.release_file()
    log.sealed_open = []


def close_log(log: Log, now_ms: TimestampMs) -> None:
    """Make everything durable and complete the indexes; the log must not be used afterwards.

    Raise DiskFailed, also if an earlier flush failed: then recovery must check the log.
    """
    if log.durability.has_failed:
        raise DiskFailed(errno.EIO, "an earlier flush failed, so the contents of the disk are unknown", log.directory)
    log.withdraw_arrival()
    log.compaction.withdraw()
    log.settle()
    log.prepare()
    active = log.active
    active.seal()
    active.offsets.sync()
    active.times.sync()
    if not active.transactions.is_empty:
        active.transactions.sync()
        log.durability.changes += 1  # Its file may be new.
    if log.snapshots.keep(log.end_offset, list(log.producers)):
        log.durability.changes += 1
    flush_now(log, now_ms)
    assert is_flushed(log), "a cleanly closed log is flushed"
    for segment in log.segments:
        segment.release()
