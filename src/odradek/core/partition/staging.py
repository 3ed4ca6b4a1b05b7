"""Batches of one turn of the loop, written to one log at its end with one system call.

A write costs more than all other work for a small batch.  So `stage` fixes a batch's offsets and `commit` writes all
staged batches of the partition.  Reads in between do not see them.  The log's producer state changes with the write,
and not at all if it fails; until then the new state is kept here.
"""

from __future__ import annotations

from odradek.base.errors import ErrorCode, Refused
from odradek.base.limits import STAGED_BYTES_MAX
from odradek.base.units import Offset, ProducerId, TimestampMs
from odradek.core.partition.leadership_state import Leadership
from odradek.log.producers.producer_state import DuplicateBatch, ProducerStateEntry
from odradek.record.record_batch import LOG_OVERHEAD_BYTES, Batch


class Append:
    """Place of one batch in the leader's log: offsets from `base_offset` up to, not including, `end`.

    With `needs_sync` the batch stays invisible, and its answer waits, until a sync has covered it.  `log_append_time`
    is -1 unless the topic is configured for it.  A failed commit sets `refused`.
    """

    def __init__(
        self, leading: Leadership, base_offset: Offset, end: Offset, log_append_time: TimestampMs, *, needs_sync: bool
    ) -> None:
        self.leading = leading
        self.base_offset = base_offset
        self.end = end
        self.log_append_time = log_append_time
        self.needs_sync = needs_sync
        self.refused: Refused | None = None

    @property
    def is_safe(self) -> bool:
        """Return whether all required replicas have the batch: a new leader has every acks=all record."""
        leading, end = self.leading, self.end
        positions = leading.positions
        if self.needs_sync or (leading.in_sync is not None and leading.waits_for_disk):  # The ISR may have shrunk.
            return end <= positions.durable_end and end <= positions.high_watermark
        return end <= positions.high_watermark

    @property
    def failure(self) -> ErrorCode | None:
        """The error if the fate of the batch is unknown, because the leadership or the log was lost."""
        return None if self.is_safe else self.leading.ended


class Staging:
    """Staged batches of one partition."""

    def __init__(self, leading: Leadership, end: Offset) -> None:
        self.leading = leading
        self.batches: list[Batch] = []
        self.appends: list[Append] = []
        self.producers: dict[ProducerId, ProducerStateEntry] | None = None  # The state once the batches are written.
        self.size = 0
        self.end = end
        self.visible_end = Offset(0)  # The high watermark once the batches are written.

    def has_room(self, batch: Batch, segment_bytes: int) -> bool:
        """Return whether the batch may be written with those before it: all must fit into one segment."""
        size = self.size + batch.batch_length + LOG_OVERHEAD_BYTES
        return size <= STAGED_BYTES_MAX and size <= segment_bytes

    def add(self, batch: Batch, log_append_time: TimestampMs, *, needs_sync: bool) -> Append:
        end = Offset(self.end + batch.last_offset_delta + 1)
        assert end > self.end, "a batch contains at least one record"
        append = Append(self.leading, self.end, end, log_append_time, needs_sync=needs_sync)
        self.end = end
        if not needs_sync:
            self.visible_end = self.end
        self.size += batch.batch_length + LOG_OVERHEAD_BYTES
        self.batches.append(batch)
        self.appends.append(append)
        assert self.size <= STAGED_BYTES_MAX or len(self.batches) == 1, (
            "staged batches fit into the staging limit, except a single large one"
        )
        return append

    def add_duplicate(self, append: Append) -> None:
        """Add the append of a duplicate, which is refused if the first one is."""
        self.appends.append(append)

    def refuse(self, reason: Refused) -> None:
        for append in self.appends:
            assert append.refused is None, "a batch is refused once"
            append.refused = reason


def written_before(leading: Leadership, place: DuplicateBatch, *, needs_sync: bool) -> Append:
    """Return the append of a duplicate batch."""
    # The time of the first one, whatever the topic's timestamp type is, as in Apache Kafka.
    return Append(leading, place.base_offset, place.end, place.timestamp, needs_sync=needs_sync)
