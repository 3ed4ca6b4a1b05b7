"""Replacement of segments of a log by their compacted versions, at the end of a pass or of a part of it."""

from __future__ import annotations

from collections.abc import Sequence

from odradek.base.units import TimestampMs
from odradek.log.log.compaction_state import CleaningPass
from odradek.log.log.log import Log
from odradek.log.removal.swap import Swap, SwapDisk
from odradek.log.segment.segment import Segment


def may_be_cleaned(log: Log) -> bool:
    """Return whether a pass may begin.

    No other pass may be in progress, and a power failure must not restore a file that the log no longer contains.
    Next to such a restored segment, which the pass did not read, the dropped records would be missing.
    """
    is_in_order = not (log.compaction.is_swapping or log.has_pending_work or log.reaper.is_retiring(log.directory))
    return is_in_order and log.compaction.cleaning is None


def swap_in(log: Log, sources: Sequence[Segment], segments: Sequence[Segment], now_ms: TimestampMs) -> bool:
    """Replace segments by their compacted versions; the reaper renames the files later.

    Return False, and change nothing, if the log no longer contains all of the sources.
    """
    first = next((number for number, one in enumerate(log.segments) if one is sources[0]), len(log.segments))
    behind = first + len(sources)
    present = log.segments[first:behind]
    if len(present) < len(sources) or any(a is not b for a, b in zip(present, sources, strict=True)):
        return False
    assert behind < len(log.segments), "the active segment is never compacted"
    assert segments[-1].base_offset < log.segments[behind].base_offset, "the segments of a log ascend"
    assert not any(one in log.durability.unsynced for one in sources), "compacted segments are synced"
    swap = log.compaction.begin_swap(sources, segments)
    for segment in segments:
        segment.use_disk(SwapDisk(log.disk, swap))
    for source in sources:
        source.release()
    log.segments = [*log.segments[:first], *segments, *log.segments[behind:]]
    assert log.segments[-1] is log.active, "the active segment stays"
    log.sealed_open = [one for one in log.sealed_open if one not in sources]
    log.snapshots.forget([offset for offset in swap.sources if offset not in swap.bases])
    log.reaper.retire(Swap(log.directory, swap, TimestampMs(now_ms + log.config.file_delete_delay_ms)))
    return True


def drop_cleaned(log: Log, cleaning: CleaningPass) -> None:
    """Unlink the files of an unsuccessful pass before any other work on the log's files."""
    log.add_pending_work(cleaning.undo_publication)
