"""State of a log's idempotent producers and of their transactions (KIP-98, KIP-360, KIP-890).

    batch with a producer id ──> log/producers/sequence_validation.py ──> entry after it ──> put, once written
    written marker           ──> end: closes the transaction ──> CompletedTxn, for the index of aborted transactions

A log keeps the last five batches of each producer, because a client has at most five requests in flight.  A transaction
is unstable from its first record until its marker is below the high watermark.  Readers of committed records read up to
the first unstable offset.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from odradek.base.limits import AWAITED_PRODUCERS_MAX
from odradek.base.tuples import new_tuple
from odradek.base.units import INT64_MAX, NO_OFFSET, NO_TIMESTAMP, Offset, ProducerEpoch, ProducerId, TimestampMs
from odradek.log.segment.transaction_index import AbortedTxn
from odradek.record.end_transaction_marker import EndMarker
from odradek.record.record_batch import CONTROL, TRANSACTIONAL, BatchHeader

BATCHES_KEPT = 5  # after_next uses this value, too.
SEQUENCE_MASK = 0x7FFFFFFF  # Sequence 0 follows the greatest one.
NO_SEQUENCE = -1
NO_PRODUCER_EPOCH = ProducerEpoch(-1)
NO_COORDINATOR_EPOCH = -1
NOTHING_UNSTABLE = Offset(INT64_MAX)


# One batch of a producer: last sequence, last offset, last minus first of either, timestamp.
Sent = tuple[int, int, int, int]


class DuplicateBatch(NamedTuple):
    """Place of a batch that was written before."""

    base_offset: Offset
    end: Offset
    timestamp: TimestampMs


class ProducerStateEntry(NamedTuple):
    """State of one producer in a log; `batches` have its current epoch, oldest first.

    A marker with a new epoch empties `batches`.  `first_offset` is that of the open transaction, -1 if none is
    open.
    """

    id: ProducerId
    epoch: ProducerEpoch = NO_PRODUCER_EPOCH
    batches: tuple[Sent, ...] = ()
    coordinator_epoch: int = NO_COORDINATOR_EPOCH
    first_offset: Offset = NO_OFFSET
    last_timestamp: TimestampMs = NO_TIMESTAMP

    @property
    def last_sequence(self) -> int:
        return self.batches[-1][0] if self.batches else NO_SEQUENCE

    @property
    def has_open_transaction(self) -> bool:
        return self.first_offset >= 0

    def expects(self, batch: BatchHeader) -> bool:
        """Return whether the batch is the producer's next one, and in its open transaction if any."""
        return self.after_next(batch, NO_OFFSET, NO_TIMESTAMP) is not None

    def after_next(self, batch: BatchHeader, base_offset: Offset, timestamp: TimestampMs) -> ProducerStateEntry | None:
        """Return the entry after the batch if `expects` is True, else None; one function, for the hot path."""
        producer_id, epoch, batches, coordinator_epoch, first_offset, _ = self
        sequence = batch.base_sequence
        if (
            not batches
            or sequence != (batches[-1][0] + 1) & 0x7FFFFFFF
            or epoch != batch.producer_epoch
            or (first_offset >= 0) != (batch.attributes & TRANSACTIONAL != 0)
        ):
            return None
        delta = batch.last_offset_delta
        batches = batches[-4:] + (((sequence + delta) & 0x7FFFFFFF, base_offset + delta, delta, timestamp),)  # noqa: RUF005
        return new_tuple(ProducerStateEntry, (producer_id, epoch, batches, coordinator_epoch, first_offset, timestamp))

    def after(self, batch: BatchHeader, base_offset: Offset, timestamp: TimestampMs) -> ProducerStateEntry:
        """Return the entry once the batch is written at that offset, without any check."""
        assert batch.producer_id == self.id, "a batch changes the state of its own producer"
        sequence, delta, epoch = batch.base_sequence, batch.last_offset_delta, batch.producer_epoch
        last_sequence = (sequence + delta) & SEQUENCE_MASK if sequence >= 0 else NO_SEQUENCE
        batches = self.batches if epoch == self.epoch else ()
        batches = (*batches[1 - BATCHES_KEPT :], (last_sequence, base_offset + delta, delta, timestamp))
        opens = self.first_offset < 0 and batch.is_transactional
        first_offset = base_offset if opens else self.first_offset
        return ProducerStateEntry(self.id, epoch, batches, self.coordinator_epoch, first_offset, timestamp)

    def find_duplicate_batch(self, batch: BatchHeader) -> DuplicateBatch | None:
        """Return the place of the same batch if it is among the producer's last five, else None."""
        assert batch.producer_id == self.id, "a batch is a duplicate of one of its own producer"
        if batch.producer_epoch != self.epoch:
            return None
        last_sequence, delta = batch.last_sequence, batch.last_offset_delta
        for sequence, offset, sent_delta, timestamp in self.batches:
            if sequence == last_sequence and sent_delta == delta:
                return DuplicateBatch(Offset(offset - delta), Offset(offset + 1), TimestampMs(timestamp))
        return None


class CompletedTxn(NamedTuple):
    """Transaction whose marker is written.

    `stable_until` is the lowest first offset of the transactions still open, or the offset after the marker without
    any.
    """

    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset
    is_commit: bool
    stable_until: Offset

    def as_aborted(self) -> AbortedTxn:
        return AbortedTxn(self.producer_id, self.first_offset, self.last_offset, self.stable_until)


class VerificationStateEntry(NamedTuple):
    """Lowest sequence with which a producer tried to begin a transaction here.

    A batch with a higher sequence must not be written first.  With `from_zero` (transaction version 2) a producer
    without batches begins at 0.
    """

    epoch: ProducerEpoch
    sequence: int
    from_zero: bool
    since_ms: TimestampMs


class ProducerStateManager:
    """Producers of one log; iteration yields their current entries."""

    __slots__ = ("_by_id", "_ended", "_open", "awaited", "first_unstable")

    def __init__(self, known: Iterable[ProducerStateEntry] = ()) -> None:
        self._by_id = {producer.id: producer for producer in known}
        self._open = {one.id: one.first_offset for one in self._by_id.values() if one.first_offset >= 0}
        self._ended: list[CompletedTxn] = []  # Markers not known to be below the high watermark.
        self.awaited: dict[ProducerId, VerificationStateEntry] = {}
        self.first_unstable = NOTHING_UNSTABLE
        self._update_first_unstable()

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[ProducerStateEntry]:
        return iter(self._by_id.values())

    def get(self, producer_id: ProducerId) -> ProducerStateEntry | None:
        return self._by_id.get(producer_id)

    def open_transactions(self) -> list[ProducerStateEntry]:
        """Return the producers that have an open transaction."""
        found = [known for known in map(self._by_id.get, self._open) if known is not None]
        assert len(found) == len(self._open), "a producer with an open transaction is known"
        return found

    def _update_first_unstable(self) -> None:
        first_open = min(self._open.values(), default=NOTHING_UNSTABLE)
        self.first_unstable = min((ended.first_offset for ended in self._ended), default=first_open)
        self.first_unstable = min(self.first_unstable, first_open)

    # ------------------------------------------------------------------ written batches

    def put(self, changed: Mapping[ProducerId, ProducerStateEntry]) -> None:
        """Store the entries of producers whose batches were written."""
        by_id = self._by_id
        for producer_id, producer in changed.items():
            assert producer.id == producer_id, "an entry is stored under the id of its producer"
            by_id[producer_id] = producer
            if producer.first_offset >= 0:
                self.awaited.pop(producer_id, None)
                if producer_id not in self._open:
                    self._open[producer_id] = producer.first_offset
                    self.first_unstable = min(self.first_unstable, producer.first_offset)
                assert self._open[producer_id] == producer.first_offset, "an open transaction keeps its first offset"
                assert self.first_unstable <= producer.first_offset, (
                    "the first unstable offset never exceeds an open transaction"
                )
            else:
                assert producer_id not in self._open, "only a marker completes a transaction"

    def note(self, batch: BatchHeader) -> None:
        """Apply a data batch that is in the log, without checks."""
        assert not batch.attributes & CONTROL
        known = self._by_id.get(batch.producer_id) or ProducerStateEntry(batch.producer_id)
        self.put({batch.producer_id: known.after(batch, batch.base_offset, batch.max_timestamp)})

    def apply_end_marker(self, marker: EndMarker, batch: BatchHeader) -> CompletedTxn | None:
        """End the transaction whose marker is in the log as `batch`; return None if none was open."""
        producer_id, epoch = batch.producer_id, batch.producer_epoch
        known = self._by_id.get(producer_id) or ProducerStateEntry(producer_id)
        batches = known.batches if known.epoch == epoch else ()
        self._by_id[producer_id] = ProducerStateEntry(
            producer_id, epoch, batches, marker.coordinator_epoch, NO_OFFSET, batch.max_timestamp
        )
        awaited = self.awaited.get(producer_id)
        # With an epoch bump at each end, the next transaction's first batch may arrive before this marker.
        if awaited is not None and not (awaited.from_zero and awaited.epoch == epoch):
            del self.awaited[producer_id]
        first_offset = self._open.pop(producer_id, NO_OFFSET)
        assert (first_offset >= 0) == known.has_open_transaction, "the open transactions match the producer entries"
        if first_offset < 0:
            return None
        assert self.first_unstable <= first_offset, "an ended transaction is unstable below the high watermark"
        stable_until = min(self._open.values(), default=batch.next_offset)
        ended = CompletedTxn(producer_id, first_offset, batch.base_offset, marker.is_commit, stable_until)
        self._ended.append(ended)  # Its records are unstable until the marker is below the high watermark.
        return ended

    # ------------------------------------------------------------------ transactions

    def high_watermark_advanced(self, high_watermark: Offset) -> None:
        """Make transactions stable whose markers are below the high watermark."""
        if self._ended:
            before = self.first_unstable
            self._ended = [ended for ended in self._ended if ended.last_offset >= high_watermark]
            self._update_first_unstable()
            assert before <= self.first_unstable, "what is stable stays stable"

    def take_ended(self, before: ProducerStateManager, end: Offset) -> None:
        """Copy the ended, still unstable transactions from the log as it was before its cut at `end`.

        Snapshots do not contain them.  Without them a marker above the high watermark would make its
        transaction stable at once.
        """
        self._ended = [ended for ended in before._ended if ended.last_offset < end]
        self._update_first_unstable()

    def await_first(self, batch: BatchHeader, *, from_zero: bool, now: TimestampMs) -> None:
        """Record a batch that begins a transaction if the coordinator admits it (see VerificationStateEntry)."""
        producer_id, epoch, sequence = batch.producer_id, batch.producer_epoch, batch.base_sequence
        known = self.awaited.get(producer_id)
        if known is None:
            if len(self.awaited) >= AWAITED_PRODUCERS_MAX:
                del self.awaited[next(iter(self.awaited))]
            self.awaited[producer_id] = VerificationStateEntry(epoch, sequence, from_zero, now)
        elif epoch > known.epoch or (epoch == known.epoch and sequence < known.sequence):
            self.awaited[producer_id] = known._replace(epoch=epoch, sequence=sequence)

    # ------------------------------------------------------------------ expiration

    def expire(self, now: TimestampMs, idle_ms: int) -> None:
        """Drop producers without an open transaction and without writes for `idle_ms`, by record timestamps."""
        expired = [one.id for one in self if one.first_offset < 0 and now - one.last_timestamp >= idle_ms]
        for producer_id in expired:
            del self._by_id[producer_id]
        assert len(self._open) <= len(self._by_id), "a producer with an open transaction never expires"
        for producer_id in [key for key, one in self.awaited.items() if now - one.since_ms >= idle_ms]:
            del self.awaited[producer_id]
