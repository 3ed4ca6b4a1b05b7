"""Future log: a complete copy of a log in another directory, which then takes over its name.

producers_at_first → begin_with     the copy begins at the original's first segment
read_stored → append_as_follower    until the copy is complete
take_over → rename_log              takes over the original's state, then its name
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from odradek.log.files.disk import DiskFailed
from odradek.log.log.log import Log
from odradek.log.producers.producer_state import ProducerStateEntry, ProducerStateManager
from odradek.log.producers.snapshots import make_safe


def producers_at_first(log: Log) -> Sequence[ProducerStateEntry]:
    """Return the producers as of the first segment, whose records may be deleted.  Raise DiskFailed."""
    return log.snapshots.newest(log.segments[0].base_offset)[0] if log.snapshots.offsets else ()


def begin_with(log: Log, producers: Sequence[ProducerStateEntry]) -> None:
    """Store the producers durably as of the start of an empty log.  Raise DiskFailed on failure."""
    assert log.start_offset == log.end_offset and not log.size, "the producers are those before the first record"
    if producers:
        log.producers = ProducerStateManager(producers)
        log.snapshots.write(log.start_offset, producers)
        make_safe(log.disk, log.snapshots.path(log.start_offset))


def take_over(copy: Log, origin: Log) -> None:
    """Copy the state of a log to its complete copy; the original must not be used afterwards.

    Raise DiskFailed on failure; then the original can still be used.
    """
    assert origin.end_offset == copy.end_offset, "a complete copy has the log end offset of its original"
    origin.withdraw_arrival()
    origin.compaction.withdraw()
    copy.epochs.replace_entries(origin.epochs.entries)
    copy.start_offset = max(copy.start_offset, origin.start_offset)
    assert copy.start_offset <= copy.end_offset, "the log start offset never exceeds the log end offset"
    copy.producers = origin.producers
    copy.config = origin.config
    copy.compaction.cleaned_to = origin.compaction.cleaned_to
    copy.appended_bytes, copy.appended_records = origin.appended_bytes, origin.appended_records
    copy.replicated_bytes = origin.replicated_bytes


def rename_log(log: Log, directory: str) -> None:
    """Rename the log's directory durably.  Raise DiskFailed; then it may have either name."""
    log.disk.rename(log.directory, directory)
    try:
        log.disk.sync_directory(directory.rpartition("/")[0])
    except DiskFailed:
        with suppress(DiskFailed):
            log.disk.rename(directory, log.directory)
        raise
    log.directory = directory
    for segment in log.segments:
        segment.set_directory(directory)
    log.snapshots.set_directory(directory)
    log.epochs.set_directory(directory)
