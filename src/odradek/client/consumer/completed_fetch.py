"""A fetch answer for one partition, and iteration over its batches without decoding records.

The bytes are a view of the answer's frame. They contain whole batches and possibly a partial batch at the end, which is
ignored. The first batch may start before the fetch offset; its reader skips the earlier records.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heapify, heappop
from struct import Struct

from odradek.base.errors import ErrorCode
from odradek.base.units import TopicPartition
from odradek.client.connection.client_errors import response_error
from odradek.record.record_batch import HEADER_BYTES, LOG_OVERHEAD_BYTES, MAGIC, MAGIC_POSITION, Batch, iter_batches

_OFFSET_AND_LENGTH = Struct(">qi")
_LAST_OFFSET_DELTA = Struct(">i")
_LAST_OFFSET_DELTA_POSITION = 23
_CONTROL_TYPE = Struct(">h")

AbortedTransaction = tuple[int, int]  # (producer id, first offset)

ABORT_MARKER = 0


@dataclass(frozen=True, slots=True)
class Fetched:
    """A partition's answer; offsets are as of the answer, -1 if the Fetch version does not include them."""

    partition: TopicPartition
    fetch_offset: int  # The requested offset; records below it are to be skipped.
    next_offset: int  # The offset of the next request.
    records: memoryview  # Whole batches only.
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[AbortedTransaction, ...] = ()  # Only with read_committed.

    def batches(self) -> Iterator[Batch]:
        """Return the batches visible to a reader, without control batches and aborted transactions."""
        if not self.aborted:
            return (batch for batch in iter_batches(self.records) if not batch.is_control)
        return committed_batches(self.records, self.aborted)


def whole_batches(records: memoryview, partition: TopicPartition) -> tuple[int, int]:
    """Return (bytes of whole batches, offset after the last one); the offset is -1 without a batch.

    Raise ErrorResponse CORRUPT_MESSAGE for an impossible length, before it is used.
    """
    position, end, last = 0, len(records), -1
    while position + LOG_OVERHEAD_BYTES <= end:
        _, length = _OFFSET_AND_LENGTH.unpack_from(records, position)
        if length <= MAGIC_POSITION - LOG_OVERHEAD_BYTES:
            raise response_error(ErrorCode.CORRUPT_MESSAGE, str(partition), f"a batch of {length} bytes was fetched")
        if position + LOG_OVERHEAD_BYTES + length > end:
            break
        last = position
        position += LOG_OVERHEAD_BYTES + length
    return position, -1 if last < 0 else next_offset(records[last:position])


def next_offset(batch: memoryview) -> int:
    """Return the offset after a batch of format 2 or a message of formats 0 and 1.

    The offset of such a message is that of its last record.
    """
    base_offset, _ = _OFFSET_AND_LENGTH.unpack_from(batch)
    if batch[MAGIC_POSITION] < MAGIC or len(batch) < HEADER_BYTES:
        return int(base_offset) + 1
    (delta,) = _LAST_OFFSET_DELTA.unpack_from(batch, _LAST_OFFSET_DELTA_POSITION)
    return int(base_offset + delta) + 1


def committed_batches(records: memoryview, aborted: tuple[AbortedTransaction, ...]) -> Iterator[Batch]:
    """Yield batches except those of aborted transactions.

    A transaction's batches are skipped from its first offset to its abort marker (KIP-98).
    """
    waiting = [(first_offset, producer_id) for producer_id, first_offset in aborted]
    heapify(waiting)
    aborting: set[int] = set()
    for batch in iter_batches(records):
        while waiting and waiting[0][0] <= batch.last_offset:
            aborting.add(heappop(waiting)[1])
        if batch.is_control:
            if is_abort_marker(batch):
                aborting.discard(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in aborting):
            yield batch


def is_abort_marker(batch: Batch) -> bool:
    """Return whether a control batch aborts a transaction, by the key of its only record.

    │ varint length │ i8 attributes │ varint timestamp delta │ varint offset delta │ varint key length │ i16 version │
    │ i16 type: 0 abort, 1 commit │
    """
    payload = batch.payload
    position = varint_end(payload, 0) + 1
    for _ in range(3):
        position = varint_end(payload, position)
    if position + 4 > len(payload):
        return False
    return bool(_CONTROL_TYPE.unpack_from(payload, position + 2)[0] == ABORT_MARKER)


def varint_end(payload: memoryview, position: int) -> int:
    while position < len(payload) and payload[position] & 0x80:
        position += 1
    return position + 1
