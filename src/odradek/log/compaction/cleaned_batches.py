"""Decides of each batch of a log that is compacted what of it stays.

A producer that is still known keeps its last batch, though without records, so that its next sequence and its epoch are
known after a restart; so does the last batch that a pass covers, so that the log does not end earlier than it did.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from odradek.base.units import Offset, ProducerEpoch, ProducerId
from odradek.log.compaction.cleaned_transactions import CleanedTransactions
from odradek.log.producers.producer_state import ProducerStateEntry
from odradek.log.segment.transaction_index import Aborted
from odradek.record.batch_filter import BatchFilter, Rules, stamp, without_records
from odradek.record.crc import Buffer
from odradek.record.kernels.compact import OffsetMap
from odradek.record.kernels.compact_runs import FilterRuns
from odradek.record.record_batch import Batch


class LastBatch(NamedTuple):
    """The last of a producer in a log: the offset of its last record; -1 if there is only a marker, of this epoch."""

    offset: Offset
    epoch: ProducerEpoch


def last_batches(producers: Iterable[ProducerStateEntry]) -> dict[ProducerId, LastBatch]:
    """Returns what has to stay of each producer."""
    return {
        one.id: LastBatch(Offset(one.batches[-1][1]) if one.batches else Offset(-1), one.epoch) for one in producers
    }


class CleanedBatches:
    """The batches of one pass, asked for in order.  `end` is where the map ends: what is beyond stays as it is.

    `runs` takes many batches at once, `kept` any one batch.
    """

    def __init__(
        self, offsets: OffsetMap, end: Offset, last: Mapping[ProducerId, LastBatch], aborted: Iterable[Aborted]
    ) -> None:
        self._filter = BatchFilter(offsets)
        special = array("q", sorted(one.offset for one in last.values() if one.offset >= 0))
        self.runs = FilterRuns(offsets, end, memoryview(special))
        self._end = end
        self._last = last
        self.transactions = CleanedTransactions(aborted)
        self.dropped_records = 0

    def kept(self, batch: Batch, rules: Rules, *, keeps_header: bool) -> Buffer | None:
        """Returns what stays of the batch: its own view if that is all of it, other bytes, or None.

        With `keeps_header` it is not None.  Raises Refused(CORRUPT_MESSAGE).
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
            # A marker without its record tells nothing of its producer's epoch.
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
        """Takes the batch into its transaction; True for records that were aborted, and for a marker of nothing."""
        if batch.is_control:
            return self.transactions.passes_control(batch)
        return self.transactions.passes_data(batch)

    @staticmethod
    def _marker(batch: Batch, rules: Rules, *, is_void: bool, keeps_header: bool) -> Buffer | None:
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
