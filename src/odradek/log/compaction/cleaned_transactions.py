"""Transactions that a cleaner encounters in a log, and the batches and markers that it may drop.

Batches of an aborted transaction are dropped at once.  Its marker stays as long as the cleaner still finds one of these
batches, because readers skip them by the index entry of the marker.  The marker of a committed transaction stays as
long as its batches, too.  A marker also stays if an earlier producer snapshot contains its transaction as open, because
a walk that begins with that snapshot would never see the transaction end.  A marker whose transaction has no batches
left may be dropped once delete.retention.ms has passed.  The caller checks that time (KIP-534).
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop

from odradek.base.units import Offset, ProducerId
from odradek.log.segment.transaction_index import AbortedTxn
from odradek.record.end_transaction_marker import end_marker
from odradek.record.record_batch import Batch


class CleanedTransactions:
    """Open transactions at one position of a log.

    `kept` holds those whose abort markers stay, until `take_kept`.
    """

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        """Begin with the aborted transactions that overlap the range to read, in any order."""
        self._upcoming = [(txn.first_offset, txn) for txn in aborted]
        heapify(self._upcoming)
        self._aborted: dict[ProducerId, _AbortedTransactionMetadata] = {}
        self._committed: set[ProducerId] = set()
        self._noted: set[ProducerId] = set()  # By a snapshot that stays.
        self.kept: list[AbortedTxn] = []

    def begins_segment(self, opened: Iterable[ProducerId]) -> None:
        """Record the producers with an open transaction in the snapshot at the next segment's start."""
        self._noted.update(opened)

    def passes_data(self, batch: Batch) -> bool:
        """Process a data batch; return whether its records belong to an aborted transaction."""
        self._begin_up_to(batch.last_offset)
        if not batch.is_transactional:
            return False
        begun = self._aborted.get(batch.producer_id)
        if begun is None:
            self._committed.add(batch.producer_id)
            return False
        begun.has_batches = True
        return True

    def passes_control(self, batch: Batch) -> bool:
        """Process a control batch; return whether it ends no transaction, or one without batches."""
        self._begin_up_to(batch.last_offset)
        if not batch.records_count:
            return True
        marker = end_marker(batch)
        if marker is None:
            return False  # A control record of KRaft or of a future type.
        is_noted = batch.producer_id in self._noted
        self._noted.discard(batch.producer_id)
        if marker.is_commit:
            had_batches = batch.producer_id in self._committed
            self._committed.discard(batch.producer_id)
            return not (had_batches or is_noted)
        begun = self._aborted.pop(batch.producer_id, None)
        if begun is None or not begun.has_batches:
            return not is_noted
        self.kept.append(begun.aborted)
        return False

    def take_kept(self) -> list[AbortedTxn]:
        kept, self.kept = self.kept, []
        return kept

    def _begin_up_to(self, offset: Offset) -> None:
        while self._upcoming and self._upcoming[0][0] <= offset:
            _, aborted = heappop(self._upcoming)
            self._aborted.setdefault(aborted.producer_id, _AbortedTransactionMetadata(aborted))


class _AbortedTransactionMetadata:
    """Aborted transaction whose beginning the cleaner has passed."""

    __slots__ = ("aborted", "has_batches")

    def __init__(self, aborted: AbortedTxn) -> None:
        self.aborted = aborted
        self.has_batches = False
