"""Streaming append: writes a batch while the rest of it is still being received.

A large batch that is collected in memory first has left the processor's cache by the time it is written.  So the log
writes the front of the batch at its end at once, and the receiver writes each later piece behind it.  Readers, indexes
and recovery ignore the batch until it is complete and intact, because they stop at the log's end, which is before it.
A log has at most one streaming append at a time; any other change of the log's end cancels it.
"""

from __future__ import annotations

from odradek.base.units import LeaderEpoch, TimestampMs
from odradek.log.log.arrival import Arrival
from odradek.log.log.log import Log
from odradek.record.record_batch import Batch


def begin_arrival(log: Log, batch: Batch, leader_epoch: LeaderEpoch, now_ms: TimestampMs) -> Arrival | None:
    """Begin a streaming append by writing the front of a batch; end it by `arrived` or `Log.forget_arrival`.

    Return None if the batch must be appended as a whole.  Raise DiskFailed if the write fails; then no part of the
    batch is in the log.
    """
    config, size = log.config, batch.size
    if config.log_append_time or config.preallocate or size > min(config.max_message_bytes, config.segment_bytes):
        return None
    log.withdraw_arrival()
    batch.stamp(log.end_offset, leader_epoch)
    log.make_room(size, batch.max_timestamp, batch.next_offset, log.end_offset, now_ms)
    position = log.active.write_front(batch.view)
    assert log.arrival is None, "a log has at most one streaming append"
    log.arrival = Arrival(batch, log.active.file, position)
    return log.arrival


def arrived(log: Log, arrival: Arrival) -> None:
    """Complete a streaming append whose batch is fully written and intact."""
    assert arrival is log.arrival, "only the current streaming append completes"
    log.arrival = arrival.withdraw = None
    batch = arrival.batch
    assert batch.base_offset == log.end_offset, "a streaming append ends at the log end offset it began at"
    if batch.leader_epoch != log.epochs.latest:
        log.epochs.assign(batch.leader_epoch, batch.base_offset)
    log.active.complete(batch, log.config)
    assert log.active.size == arrival.position + arrival.left, "a completed streaming append ends the active segment"
    log.appended_bytes += batch.size
    log.appended_records += batch.next_offset - log.end_offset
    log.end_offset = batch.next_offset
    log.note((batch,))
