"""Loads a shard's state from its log: replays the records in order, and the ends of transactions.

The slices are taken on the loop; reading and replaying them may be done beside it, since nobody has the state yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Protocol

from odradek.base.units import MIB, Offset
from odradek.core.coordinators.state_log import NOBODY, ProducerIdAndEpoch
from odradek.log.files.disk import FileSlice
from odradek.log.log.log import Log
from odradek.record.columns import add, taken
from odradek.record.end_transaction_marker import end_marker
from odradek.record.kernels.decode import Decoder
from odradek.record.record_batch import LOG_OVERHEAD_BYTES, Batch, iter_batches

CHUNK_BYTES = 4 * MIB
DECODED_ROWS_MAX = 4096
LATEST_MAX = 100_000
_OFFSET_AND_LENGTH = Struct(">qi")


class Replayed(Protocol):
    """State that is made from records."""

    def replay(self, key: bytes, value: bytes | None, producer: ProducerIdAndEpoch) -> None:
        """Takes in one record; `producer` is NOBODY for one that belongs to no transaction."""

    def is_replaceable(self, key: bytes) -> bool:
        """True if a record with this key says all that one before it said, where both have values and no producer."""

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
    replaying = Replaying(state)
    for one in slices:
        for batch in _batches(one):
            replaying.take(batch)
    replaying.finish()
    return replaying.count


class Replaying:
    """Decodes records by the thousand, and of those that replace each other has the state decode the last alone.

    The state gets what it would get from all records, in an order that comes to the same: where one comes that does not
    merely replace another, all that were held back come before it.
    """

    def __init__(self, state: Replayed) -> None:
        self.count = 0
        self._state = state
        self._decoder = Decoder(True, True, False)
        self._producer = NOBODY  # In whose transaction the records in the decoder are.
        self._latest: dict[bytes, bytes] = {}  # Held back; in the order of the first with each key.

    def take(self, batch: Batch) -> None:
        if batch.is_control:
            self.finish()
            marker = end_marker(batch)
            if marker is not None:
                self._state.replay_end(_producer_of(batch), is_commit=marker.is_commit)
            return
        producer = _producer_of(batch) if batch.is_transactional else NOBODY
        if producer != self._producer:
            self.finish()
            self._producer = producer
        if batch.records_count:  # None are what compaction leaves to keep a producer's last sequence.
            add(self._decoder, batch)
        decoder = self._decoder
        if decoder.rows >= DECODED_ROWS_MAX or decoder.keys.size + decoder.values.size >= CHUNK_BYTES:
            self._replay_decoded()

    def finish(self) -> None:
        self._replay_decoded()
        self._replay_latest()

    def _replay_decoded(self) -> None:
        state, latest, producer = self._state, self._latest, self._producer
        keys, values = taken(self._decoder, with_keys=True)
        self.count += len(keys)
        for key, value in zip(keys, values, strict=True):
            if key is None:
                continue
            if value is not None and producer is NOBODY and state.is_replaceable(key):
                latest[key] = value
            else:
                self._replay_latest()
                state.replay(key, value, producer)
        if len(latest) >= LATEST_MAX:
            self._replay_latest()

    def _replay_latest(self) -> None:
        for key, value in self._latest.items():
            self._state.replay(key, value, NOBODY)
        self._latest.clear()


def _producer_of(batch: Batch) -> ProducerIdAndEpoch:
    return ProducerIdAndEpoch(batch.producer_id, batch.producer_epoch)


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
