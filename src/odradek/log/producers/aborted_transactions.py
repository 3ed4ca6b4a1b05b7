"""Aborted transactions of a log, which a reader of committed records must know.

Each segment has an index of the aborted transactions whose markers it contains (log/segment/transaction_index.py).  A
transaction may begin segments before its end.  So a search continues until an entry shows that every transaction that
begins before the search's bound has ended.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from operator import attrgetter

from odradek.base.units import Offset
from odradek.log.files.disk import FileSlice
from odradek.log.producers.producer_recovery import aborted_in
from odradek.log.producers.producer_state import CompletedTxn
from odradek.log.producers.snapshots import Snapshots
from odradek.log.segment.scan import Damaged
from odradek.log.segment.segment import Segment
from odradek.log.segment.transaction_index import AbortedTxn

_LOG = logging.getLogger(__name__)
_BASE_OFFSET = attrgetter("base_offset")
Found = tuple[list[AbortedTxn], bool]


class AbortedTransactions:
    """Aborted transactions of one log; every method may raise DiskFailed."""

    __slots__ = ("_last", "_snapshots")

    def __init__(self, snapshots: Snapshots, segments: Sequence[Segment], end: Offset) -> None:
        self._snapshots = snapshots
        self._last = Offset(0)  # No aborted transaction ended after this offset.
        for segment in reversed(segments):
            if not segment.transactions.is_empty:
                self._last = end
                break
            end = segment.base_offset

    def add(self, segment: Segment, ended: CompletedTxn) -> None:
        assert segment.base_offset <= ended.last_offset, "a transaction is listed where its marker is"
        segment.transactions.add(ended.as_aborted())
        self._last = ended.last_offset

    def reaching(
        self, segments: Sequence[Segment], offset: Offset, records: FileSlice, upto: Offset, *, cached: bool
    ) -> Sequence[AbortedTxn]:
        """Return the aborted transactions that overlap `records`, read from `offset` to `upto`.

        The result may contain a few more.  With `cached`, raise NotCached instead of waiting for the disk,
        except to rebuild an index.
        """
        if not records.size or offset > self._last:
            return ()
        ahead = segments[max(bisect_right(segments, offset, key=_BASE_OFFSET) - 1, 0) :]
        upto = _end_of(records, ahead, upto, cached)
        found: list[AbortedTxn] = []
        for segment in ahead:
            overlapping, is_all = self._overlapping(segments, segment, offset, upto, cached)
            found += overlapping
            if is_all:
                break
        return found

    def _overlapping(
        self, segments: Sequence[Segment], segment: Segment, offset: Offset, upto: Offset, cached: bool
    ) -> Found:
        try:
            if not segment.transactions.is_vetted:
                _vet(segments, segment, cached)
            return segment.transactions.overlapping(offset, upto, cached=cached)
        except Damaged as damage:
            _LOG.warning("rebuilding transaction index %s: %s", damage.path, damage.why)
            self._rebuild(segments, segment)
        try:
            return segment.transactions.overlapping(offset, upto, cached=cached)
        except Damaged as damage:
            raise segment.failure(damage) from None

    def truncate(self, segments: Sequence[Segment], end: Offset) -> None:
        """Drop the transactions that ended at `end` or later; `segments` are those left after a cut there."""
        try:
            segments[-1].transactions.truncate_to(end)
        except Damaged:
            self._rebuild(segments, segments[-1])

    def _rebuild(self, segments: Sequence[Segment], segment: Segment) -> None:
        segment.transactions.replace(aborted_in(self._snapshots, segments, segment))


def _vet(segments: Sequence[Segment], segment: Segment, cached: bool) -> None:
    """Compare two entries of a segment's index with the log before its first use.

    Raise Damaged if they differ, and NotCached as `reaching` does.
    """
    index = segment.transactions
    number = bisect_right(segments, segment.base_offset, key=_BASE_OFFSET)
    for aborted in index.first_and_last(cached=cached):
        if number < len(segments) and aborted.last_offset >= segments[number].base_offset:
            raise Damaged(index.path, 0, f"{aborted} ended in a later segment")
        if not segment.is_marker(aborted.last_offset, aborted.producer_id, cached=cached):
            raise Damaged(
                index.path, 0, f"offset {aborted.last_offset} is not a marker of producer {aborted.producer_id}"
            )
    index.is_vetted = True


def _end_of(records: FileSlice, segments: Sequence[Segment], upto: Offset, cached: bool) -> Offset:
    """Return an offset, at most `upto`, that is above all offsets of the records."""
    path, position = records.file.path, records.position + records.size
    for segment, following in pairwise(segments):
        if segment.path == path:
            return min(segment.beyond(position, cached=cached) or following.base_offset, upto)
    return min(segments[-1].beyond(position, cached=cached) or upto, upto)
