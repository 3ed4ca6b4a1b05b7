"""Which transactions a cleaner is in while it reads a log, and which of their batches and markers may go.

Batches of an aborted transaction go at once.  Its marker stays as long as one of them was still there when the cleaner
came by, since readers skip them by what the index says of the marker; so does that of a committed one.  So does one
whose transaction is open in a snapshot of producers before it: who goes on from there would never see it end.  A marker
whose transaction has nothing left may go, once delete.retention.ms has passed (the caller's concern, KIP-534).
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop

from odradek.base.units import Offset, ProducerId
from odradek.log.segment.transaction_index import Aborted
from odradek.record.end_transaction_marker import end_marker
from odradek.record.record_batch import Batch


class CleanedTransactions:
    """The open transactions at one place of a log.  `kept` are those whose abort markers stay, until they are taken."""

    def __init__(self, aborted: Iterable[Aborted]) -> None:
        """`aborted` are those that overlap what is read, in any order."""
        self._to_come = [(one.first_offset, one) for one in aborted]
        heapify(self._to_come)
        self._aborted: dict[ProducerId, _Begun] = {}
        self._committed: set[ProducerId] = set()
        self._noted: set[ProducerId] = set()  # By a snapshot that stays.
        self.kept: list[Aborted] = []

    def begins_segment(self, opened: Iterable[ProducerId]) -> None:
        """Takes in which producers have a transaction open by the snapshot at the start of the segment that comes."""
        self._noted.update(opened)

    def passes_data(self, batch: Batch) -> bool:
        """Takes in a batch that is no control batch; returns True if its records are of an aborted transaction."""
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
        """Takes in a control batch; returns True if nothing is left of what it ends, or if it ends nothing any more."""
        self._begin_up_to(batch.last_offset)
        if not batch.records_count:
            return True
        marker = end_marker(batch)
        if marker is None:
            return False  # KRaft's, or of a kind to come.
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

    def take_kept(self) -> list[Aborted]:
        kept, self.kept = self.kept, []
        return kept

    def _begin_up_to(self, offset: Offset) -> None:
        while self._to_come and self._to_come[0][0] <= offset:
            _, aborted = heappop(self._to_come)
            self._aborted.setdefault(aborted.producer_id, _Begun(aborted))


class _Begun:
    """An aborted transaction of which the beginning was passed."""

    __slots__ = ("aborted", "has_batches")

    def __init__(self, aborted: Aborted) -> None:
        self.aborted = aborted
        self.has_batches = False
