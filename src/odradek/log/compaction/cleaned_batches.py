"""Filter for each batch of a log during compaction.

A producer that is still known keeps its last batch, though without records, so that its next sequence and its epoch are
known after a restart.  The last batch that a pass covers stays, too, so that the log does not end earlier than before.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from odradek.base.units import Offset, ProducerEpoch, ProducerId
from odradek.log.compaction.cleaned_transactions import CleanedTransactions
from odradek.log.producers.producer_state import ProducerStateEntry
from odradek.log.segment.transaction_index import AbortedTxn
from odradek.record.batch_filter import BatchFilter, RetentionRules, stamp, without_records
from odradek.record.crc import Buffer
from odradek.record.kernels.compact import OffsetMap
from odradek.record.kernels.compact_runs import FilterRuns
from odradek.record.record_batch import Batch


class LastBatch(NamedTuple):
    """Offset of the last record of a producer's last batch; -1 if only a marker of this epoch exists."""

    offset: Offset
    epoch: ProducerEpoch


def last_batches(producers: Iterable[ProducerStateEntry]) -> dict[ProducerId, LastBatch]:
    """Return the last batch to keep for each producer."""
    return {
        one.id: LastBatch(Offset(one.batches[-1][1]) if one.batches else Offset(-1), one.epoch) for one in producers
    }


class CleanedBatches:
    """Filter for the batches of one pass, which arrive in order.

    `end` is the end of the map; batches beyond it stay unchanged.  `runs` processes many batches at once, `kept`
    any single batch.
    """

    def __init__(
        self, offsets: OffsetMap, end: Offset, last: Mapping[ProducerId, LastBatch], aborted: Iterable[AbortedTxn]
    ) -> None:
        self._filter = BatchFilter(offsets)
        special = array("q", sorted(one.offset for one in last.values() if one.offset >= 0))
        self.runs = FilterRuns(offsets, end, memoryview(special))
        self._end = end
        self._last = last
        self.transactions = CleanedTransactions(aborted)
        self.dropped_records = 0

    def kept(self, batch: Batch, rules: RetentionRules, *, keeps_header: bool) -> Buffer | None:
        """Return the kept part of the batch: its own view if unchanged, other bytes, or None.

        With `keeps_header` the result is never None.  Raise Refused(CORRUPT_MESSAGE) for a batch that can't be
        decoded.
        """
        end = self._end
        is_last = self._is_last_of_producer(batch)
        keeps_header = keeps_header or batch.next_offset == end or is_last
        is_void = self._is_void(batch)
        if not batch.records_count:
            return batch.view if keeps_header else None
        if batch.base_offset >= end or (is_void and batch.next_offset > end):
            return batch.view
        if batch.is_control:
            # A marker without its record does not contain its producer's epoch.
            return self._marker(batch, rules, is_void=is_void and not is_last, keeps_header=keeps_header)
        if not is_void:
            data, dropped = self._filter.keep_latest(batch, end, rules)
            self.dropped_records += dropped
            if data is not None:
                return data
        else:
            self.dropped_records += batch.records_count
        return without_records(batch) if keeps_header else None

    def _is_void(self, batch: Batch) -> bool:
        """Record the batch in its transaction; return whether it is aborted data or a needless marker."""
        if batch.is_control:
            return self.transactions.passes_control(batch)
        return self.transactions.passes_data(batch)

    @staticmethod
    def _marker(batch: Batch, rules: RetentionRules, *, is_void: bool, keeps_header: bool) -> Buffer | None:
        horizon = batch.delete_horizon
        if not is_void:
            return batch.view
        if horizon is None:
            return stamp(batch, rules)
        if rules.now < horizon:
            return batch.view
        return without_records(batch) if keeps_header else None

    def _is_last_of_producer(self, batch: Batch) -> bool:
        last = self._last.get(batch.producer_id)
        if last is None:
            return False
        if last.offset >= 0:
            return batch.last_offset == last.offset
        return batch.is_control and batch.producer_epoch == last.epoch
