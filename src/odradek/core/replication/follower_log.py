"""Changes of a follower's log: append the leader's records, truncate, restart at an offset.

Only here do the positions of a partition decrease, always together with its log.  When a function returns, everything
is written but not synced; the follower's next fetch reports written records.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import INT32_MAX, INT64_MAX, Offset, TimestampMs
from odradek.core.partition.partition import Partition
from odradek.core.replication.leader_endpoint import EpochEnd
from odradek.log.log.log import Log
from odradek.log.log.truncation import truncate_fully, truncate_to
from odradek.record.record_batch import Batch, iter_batches

_LOG = logging.getLogger(__name__)


def append_fetched(partition: Partition, records: memoryview, leader_start: Offset, now: TimestampMs) -> None:
    """Append the complete batches of a leader's answer, without a partial batch at its end.

    `leader_start` is the leader's log start offset.  Raises Refused with nothing appended if a batch is damaged or
    begins below the log end offset; DiskFailed with the first batches appended.
    """
    assert partition.leading is None, "only followers append what another broker has ordered"
    batches = [Batch.verified(batch.view) for batch in iter_batches(records)]
    if not batches:
        if len(records):
            text = f"the leader sent {len(records)} bytes without a complete batch"
            raise Refused(ErrorCode.CORRUPT_MESSAGE, text)
        return
    log = partition.log
    first = batches[0]
    restarts = _is_cut_by_start(log, first, leader_start)
    _check_offsets(first.base_offset if restarts else log.end_offset, batches)
    if restarts:
        truncate_fully_and_start_at(partition, first.base_offset, now)
    for run in _runs(batches, log.config.segment_bytes):
        log.append_as_follower(run, now)
        partition.has_logged_full = False
    assert log.end_offset == batches[-1].next_offset, "the log end offset follows the last appended batch"


def agreed_end(log: Log, high_watermark: Offset, answer: EpochEnd) -> tuple[Offset, bool]:
    """Return the end up to which a log agrees with its leader's, and whether that is certain (KIP-279).

    If either side has no epoch, the result is the high watermark, never the other side's end (KAFKA-6857).
    """
    if answer.end_offset < 0 or log.epochs.latest < 0:
        return high_watermark, True
    epoch, end = log.epochs.end_offset_for(answer.leader_epoch, log.end_offset)
    if end < 0:  # Before Kafka 2.0 answers lack the epoch; or the leader returned a newer epoch than requested.
        return min(answer.end_offset, log.end_offset), True
    if epoch != answer.leader_epoch:  # Records above it are from leaders that this leader's log has no records of.
        return min(end, log.end_offset), False
    return min(end, answer.end_offset, log.end_offset), True


def truncate_log(partition: Partition, offset: Offset, now: TimestampMs) -> bool:
    """Remove each batch that reaches `offset`, and each leader epoch that begins there or later.

    Returns False if there was neither.  Raises DiskFailed with nothing removed.
    """
    log = partition.log
    before = log.end_offset, log.epochs.latest
    truncate_to(log, offset, now)
    log.epochs.truncate_from_end(offset)  # An epoch without a batch may begin at the end of an emptied log.
    _lower_positions(partition)
    assert log.end_offset <= offset, "a truncated log ends at or below the target offset"
    return before != (log.end_offset, log.epochs.latest)


def truncate_fully_and_start_at(partition: Partition, offset: Offset, now: TimestampMs) -> None:
    """Empty the log and let it begin at `offset`; the high watermark moves there, up or down.

    Raises DiskFailed with nothing removed.
    """
    log = partition.log
    truncate_fully(log, offset, now)
    assert log.start_offset == log.end_offset == offset, "an emptied log starts and ends at the offset"
    partition.positions.started_at(offset)
    _check_positions(partition)
    partition.changed()


def _lower_positions(partition: Partition) -> None:
    """Lower the positions of a truncated log; warn if consumers may have read the removed records."""
    log, before = partition.log, partition.positions.high_watermark
    if partition.positions.truncated(log.end_offset, log.recovery_point):
        text = "truncated %s to offset %d below its high watermark %d: committed records are lost"
        _LOG.warning(text, partition.topic_partition, log.end_offset, before)
        partition.changed()
    _check_positions(partition)


def _check_positions(partition: Partition) -> None:
    log, positions = partition.log, partition.positions
    assert partition.leading is None, "only followers truncate their log"
    assert positions.are_within(log.start_offset, log.end_offset), "the high watermark is within the truncated log"
    assert positions.durable_end <= log.recovery_point, "the durable offset never exceeds the recovery point"


def _is_cut_by_start(log: Log, first: Batch, leader_start: Offset) -> bool:
    """Return whether the log ends inside the batch because a leader's log starts there.

    Records are deleted up to any offset (DeleteRecords), and are replicated in whole batches.  All records of the log
    are below that offset, or there are none.
    """
    is_old = log.start_offset == log.end_offset or first.base_offset < leader_start <= log.end_offset
    return is_old and 0 <= first.base_offset < log.end_offset < first.next_offset


def _check_offsets(end: Offset, batches: Sequence[Batch]) -> None:
    """Raise Refused if the batches' offsets decrease, or exceed 64 bits; compaction leaves gaps.

    The log checks each run of batches, too, but by then the runs before it are appended.  No checksum covers the base
    offset of a batch.
    """
    for batch in batches:
        if batch.base_offset < end or batch.last_offset_delta < 0 or batch.next_offset > INT64_MAX:
            raise Refused(ErrorCode.CORRUPT_MESSAGE, f"the leader sent {batch} where offset {end} is expected")
        end = batch.next_offset


def _runs(batches: Sequence[Batch], segment_bytes: int) -> Iterator[list[Batch]]:
    """Yield the batches in runs that each fit into one segment, by their bytes and by their offsets."""
    run: list[Batch] = []
    size = 0
    for batch in batches:
        if run and (size + batch.size > segment_bytes or batch.next_offset - run[0].base_offset > INT32_MAX):
            yield run
            run, size = [], 0
        run.append(batch)
        size += batch.size
    yield run
