"""Loads a shard's state from its log: replays every record in order, and the ends of transactions.

The slices are taken on the loop; reading and replaying them may be done beside it, since nobody has the state yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Protocol

from odradek.base.units import MIB, Offset
from odradek.core.coordinators.state_log import NOBODY, ProducerIdAndEpoch
from odradek.log.disk import FileSlice
from odradek.log.log import Log
from odradek.record.batch import LOG_OVERHEAD_BYTES, Batch, iter_batches
from odradek.record.markers import end_marker
from odradek.record.records import iter_records

CHUNK_BYTES = 4 * MIB
_OFFSET_AND_LENGTH = Struct(">qi")


class Replayed(Protocol):
    """State that is made from records."""

    def replay(self, key: bytes, value: bytes | None, producer: ProducerIdAndEpoch) -> None:
        """Takes in one record; `producer` is NOBODY for one that belongs to no transaction."""

    def replay_end(self, producer: ProducerIdAndEpoch, *, is_commit: bool) -> None:
        """Commits or drops what was written in the producer's transaction."""


def slices_of(log: Log, start: Offset, end: Offset) -> list[FileSlice]:
    """Returns the log from `start` up to, not including, `end`: a slice for each segment.  Raises DiskFailed."""
    slices, offset = [], start
    bounds = [segment.base_offset for segment in log.segments[1:]] + [end]
    for bound in bounds:
        if offset < min(bound, end):
            slices.append(log.read(offset, 1 << 62, Offset(min(bound, end))))
            offset = Offset(bound)
    return slices


def replay(slices: Sequence[FileSlice], state: Replayed) -> int:
    """Replays all records into `state` and returns how many they were.  Raises Refused(CORRUPT_MESSAGE); DiskFailed."""
    count = 0
    for batch in (batch for one in slices for batch in _batches(one)):
        producer = ProducerIdAndEpoch(batch.producer_id, batch.producer_epoch)
        if batch.is_control:
            marker = end_marker(batch)
            if marker is not None:
                state.replay_end(producer, is_commit=marker.is_commit)
            continue
        in_transaction = producer if batch.is_transactional else NOBODY
        for record in iter_records(batch):
            count += 1
            if record.key is not None:
                state.replay(record.key, record.value, in_transaction)
    return count


def _batches(one: FileSlice) -> Iterator[Batch]:
    """Reads batches, a chunk at a time; a batch that is cut at a chunk's end is read again with the next chunk."""
    position, wanted = 0, CHUNK_BYTES
    while position < one.size:
        data = one.part(position, min(wanted, one.size - position)).read()
        used = 0
        for batch in iter_batches(data):
            used += batch.size
            yield batch
        if used:
            position, wanted = position + used, CHUNK_BYTES
        elif len(data) < LOG_OVERHEAD_BYTES or wanted >= one.size:
            return  # Nothing whole is left.
        else:
            wanted = max(_OFFSET_AND_LENGTH.unpack_from(data)[1] + LOG_OVERHEAD_BYTES, wanted * 2)
