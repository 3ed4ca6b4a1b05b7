"""Load of a shard's state from its log: replays records and transaction ends in order.

The slices are taken on the event loop. They may be read and replayed in a thread, because the state is not in use
yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Protocol

from odradek.base.units import MIB, Offset
from odradek.core.coordinators.state_log import NON_TRANSACTIONAL, ProducerIdAndEpoch
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


class CoordinatorPlayback(Protocol):
    """State that is built from records."""

    def replay(self, key: bytes, value: bytes | None, producer: ProducerIdAndEpoch) -> None:
        """Apply one record; `producer` is NON_TRANSACTIONAL for a record outside a transaction."""

    def is_replaceable(self, key: bytes) -> bool:
        """Return whether a record with this key fully replaces an earlier one with the same key.

        This applies if both have values and no producer.
        """

    def replay_end(self, producer: ProducerIdAndEpoch, *, is_commit: bool) -> None:
        """Commit or drop the records of the producer's transaction."""


def slices_of(log: Log, start: Offset, end: Offset) -> list[FileSlice]:
    """Return the log from `start` to `end` (exclusive) as one slice per segment, or raise DiskFailed."""
    assert start <= end
    slices, offset = [], start
    bounds = [segment.base_offset for segment in log.segments[1:]] + [end]
    for bound in bounds:
        if offset < min(bound, end):
            slices.append(log.read(offset, 1 << 62, Offset(min(bound, end))))
            offset = Offset(bound)
    return slices


def replay(slices: Sequence[FileSlice], state: CoordinatorPlayback) -> int:
    """Replay all records into `state` and return their number.

    Raises Refused(CORRUPT_MESSAGE) or DiskFailed.
    """
    replaying = StateReplay(state)
    for slice_ in slices:
        for batch in _batches(slice_):
            replaying.replay_batch(batch)
    replaying.finish()
    return replaying.count


class StateReplay:
    """A replay in thousands of records; of records that replace each other only the last is applied.

    The result is the same as replaying all records. Before any record that does more than replace another, all held
    records are applied.
    """

    def __init__(self, state: CoordinatorPlayback) -> None:
        self.count = 0
        self._state = state
        self._decoder = Decoder(True, True, False)
        self._producer = NON_TRANSACTIONAL  # The transaction's producer, for the records in the decoder.
        self._latest: dict[bytes, bytes] = {}  # Held records, in the order of the first with each key.

    def replay_batch(self, batch: Batch) -> None:
        if batch.is_control:
            self.finish()
            marker = end_marker(batch)
            if marker is not None:
                self._state.replay_end(_producer_of(batch), is_commit=marker.is_commit)
            return
        producer = _producer_of(batch) if batch.is_transactional else NON_TRANSACTIONAL
        if producer != self._producer:
            self.finish()
            self._producer = producer
        if batch.records_count:  # Compaction leaves empty batches to keep a producer's last sequence.
            add(self._decoder, batch)
        decoder = self._decoder
        if decoder.rows >= DECODED_ROWS_MAX or decoder.keys.size + decoder.values.size >= CHUNK_BYTES:
            self._replay_decoded()

    def finish(self) -> None:
        self._replay_decoded()
        self._replay_latest()
        assert not self._decoder.rows and not self._latest, "no record is held at the end of a replay"

    def _replay_decoded(self) -> None:
        state, latest, producer = self._state, self._latest, self._producer
        keys, values = taken(self._decoder, with_keys=True)
        self.count += len(keys)
        for key, value in zip(keys, values, strict=True):
            if key is None:
                continue
            if value is not None and producer is NON_TRANSACTIONAL and state.is_replaceable(key):
                latest[key] = value
            else:
                self._replay_latest()
                state.replay(key, value, producer)
        if len(latest) >= LATEST_MAX:
            self._replay_latest()
        assert not self._decoder.rows

    def _replay_latest(self) -> None:
        for key, value in self._latest.items():
            self._state.replay(key, value, NON_TRANSACTIONAL)
        self._latest.clear()


def _producer_of(batch: Batch) -> ProducerIdAndEpoch:
    return ProducerIdAndEpoch(batch.producer_id, batch.producer_epoch)


def _batches(slice_: FileSlice) -> Iterator[Batch]:
    """Read batches in chunks; a batch cut at the end of a chunk is read again with the next chunk."""
    position, chunk_bytes = 0, CHUNK_BYTES
    while position < slice_.size:
        data = slice_.part(position, min(chunk_bytes, slice_.size - position)).read()
        used = 0
        for batch in iter_batches(data):
            used += batch.size
            yield batch
        assert used <= len(data)
        if used:
            position, chunk_bytes = position + used, CHUNK_BYTES
        elif len(data) < LOG_OVERHEAD_BYTES or chunk_bytes >= slice_.size:
            return  # No complete batch is left.
        else:
            chunk_bytes = max(_OFFSET_AND_LENGTH.unpack_from(data)[1] + LOG_OVERHEAD_BYTES, chunk_bytes * 2)
