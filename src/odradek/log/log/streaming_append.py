"""A streaming append: a batch that is written while it is still being received.

A large batch that lies in memory as a whole has left the processor's cache before it is written.  So its front is
written to the log's end as soon as that is there, and whoever receives the rest puts each piece behind it.  Nothing of
it counts before all of it is there and intact: readers, indexes and recovery know the log's end, which is before it.
One batch can be on its way into a log at a time; whatever else changes the log's end makes it stop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.base.units import LeaderEpoch, TimestampMs
from odradek.log.files.disk import File
from odradek.record.record_batch import Batch

if TYPE_CHECKING:
    from odradek.log.log.log import Log

NOTHING = memoryview(b"")


class Arrival:
    """One streaming append: the rest of the batch, `left` bytes, goes to `file` from `position` on.

    `withdraw` is called when the log needs its end for something else.  When it returns nobody writes to the file any
    more; what was written there can still be read during the call.
    """

    def __init__(self, batch: Batch, file: File, position: int) -> None:
        front = len(batch.view)
        assert 0 < front <= batch.size, "a batch begins with its front"
        batch.view = NOTHING  # It lies in a receive buffer, which may be used again now.
        self.batch = batch
        self.file = file
        self.position = position + front
        self.left = batch.size - front
        self.withdraw: Callable[[], None] | None = None


def begin_arrival(log: Log, batch: Batch, leader_epoch: LeaderEpoch, now_ms: TimestampMs) -> Arrival | None:
    """Begins a streaming append: writes the front of a batch; ended by `arrived` or `forget_arrival`.

    Returns None if the batch must be appended as a whole.  Raises DiskFailed, after which nothing of it is there.
    """
    config, size = log.config, batch.size
    if config.log_append_time or config.preallocate or size > min(config.max_message_bytes, config.segment_bytes):
        return None
    withdraw_arrival(log)
    batch.stamp(log.end_offset, leader_epoch)
    log.make_room(size, batch.max_timestamp, batch.next_offset, log.end_offset, now_ms)
    position = log.active.begin(batch.view)
    log.arrival = Arrival(batch, log.active.file, position)
    return log.arrival


def arrived(log: Log, arrival: Arrival) -> None:
    """Completes a streaming append: all of the batch is written, and intact."""
    assert arrival is log.arrival, "a withdrawn arrival does not end"
    log.arrival = arrival.withdraw = None
    batch = arrival.batch
    assert batch.base_offset == log.end_offset, "whatever moves the log's end withdraws the arrival first"
    if batch.leader_epoch != log.epochs.latest:
        log.epochs.assign(batch.leader_epoch, batch.base_offset)
    log.active.complete(batch, log.config)
    assert log.active.size == arrival.position + arrival.left, "its last byte is the log's last"
    log.appended_bytes += batch.size
    log.appended_records += batch.next_offset - log.end_offset
    log.end_offset = batch.next_offset
    log.note((batch,))


def forget_arrival(log: Log, arrival: Arrival) -> None:
    """Gives up a streaming append; does nothing for one that was withdrawn already.  Raises DiskFailed."""
    if arrival is log.arrival:
        log.arrival = arrival.withdraw = None
        log.active.give_up()


def withdraw_arrival(log: Log) -> None:
    """Withdraws an unfinished streaming append; every other operation on the log's end calls this first."""
    arrival = log.arrival
    if arrival is not None:
        if arrival.withdraw is not None:
            arrival.withdraw()
        forget_arrival(log, arrival)
