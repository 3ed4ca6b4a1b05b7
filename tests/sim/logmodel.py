"""A model of a compacted log: a list of all appended batches, and of the records that may be missing.

A record may be missing once a pass of compaction has seen a later one of its key, or if it was aborted or has no key. A
tombstone and a marker may be missing once delete.retention.ms has also elapsed since a pass first saw them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from odradek.record.end_transaction_marker import EndMarker, end_marker
from odradek.record.record_batch import Batch
from support.cleaning import Seen, seen_in

SEQUENCE_MASK = 0x7FFFFFFF


class Broken(AssertionError):
    """Raised for a log in an invalid state."""


@dataclass(slots=True, eq=False)
class Kept:
    """One record. `may_go`: a pass of compaction no longer needs it."""

    seen: Seen
    may_go: bool = False


@dataclass(slots=True, eq=False)
class Written:
    """One batch. `fate` is the end of its transaction; None while it is open, and without a transaction."""

    base: int
    last: int
    leader_epoch: int
    producer: int
    epoch: int
    sequence: int
    is_transactional: bool
    marker: EndMarker | None
    records: list[Kept]
    fate: bool | None = None
    seen_at: int | None = None  # Time of the first pass that may have set its delete horizon.
    may_go: bool = False  # A marker.

    @property
    def is_visible(self) -> bool:
        return self.marker is None and (not self.is_transactional or self.fate is True)


@dataclass(slots=True)
class Known:
    """A producer: epoch, last batch as (sequence, offset), first offset of its open transaction or -1."""

    epoch: int
    last: tuple[int, int] | None = None
    first: int = -1


def written(batch: Batch) -> Written:
    marker = end_marker(batch) if batch.is_control else None
    records = [] if batch.is_control else [Kept(one) for one in seen_in(batch)]
    return Written(
        batch.base_offset,
        batch.last_offset,
        batch.leader_epoch,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        batch.is_transactional,
        marker,
        records,
    )


@dataclass
class Model:
    """All batches that were appended and not truncated; the log starts at `start`."""

    batches: list[Written] = field(default_factory=list)
    start: int = 0

    def end(self, otherwise: int) -> int:
        return self.batches[-1].last + 1 if self.batches else otherwise

    # ------------------------------------------------------------------ transactions

    def settle(self) -> None:
        """Determine how each transaction ended."""
        opened: dict[int, list[Written]] = {}
        for one in self.batches:
            if one.marker is not None:
                for other in opened.pop(one.producer, ()):
                    other.fate = one.marker.is_commit
            elif one.is_transactional:
                one.fate = None
                opened.setdefault(one.producer, []).append(one)

    def producers(self, since: int = 0) -> dict[int, Known]:
        """Return the state of producers according to the batches from an offset on."""
        known: dict[int, Known] = {}
        for one in self.batches:
            if one.producer < 0 or one.base < since:
                continue
            now = known.setdefault(one.producer, Known(one.epoch))
            if one.epoch != now.epoch:
                now.epoch, now.last = one.epoch, None
            if one.marker is not None:
                now.first = -1
                continue
            now.last = (one.sequence + one.last - one.base) & SEQUENCE_MASK, one.last
            if one.is_transactional and now.first < 0:
                now.first = one.base
        return known

    def first_open(self, otherwise: int) -> int:
        return min((one.first for one in self.producers().values() if one.first >= 0), default=otherwise)

    # ------------------------------------------------------------------ compaction

    def compacted(self, end: int, now: int, retention_ms: int) -> None:
        """Apply a pass of compaction up to `end`."""
        self.settle()
        latest: dict[bytes, Kept] = {}
        below = [one for one in self.batches if one.base < end]
        visible = [(one, kept) for one in below if one.is_visible for kept in one.records if kept.seen.offset < end]
        for _, kept in visible:
            if kept.seen.key is not None:
                latest[kept.seen.key] = kept
        for one in below:
            is_over = one.seen_at is not None and now >= one.seen_at + retention_ms
            if one.seen_at is None:
                one.seen_at = now
            one.may_go |= one.marker is not None and is_over
            for kept in one.records:
                if one.is_transactional and one.fate is False:
                    kept.may_go = True
        for one, kept in visible:
            assert one.seen_at is not None
            key = kept.seen.key
            is_old = kept.seen.value is None and now >= one.seen_at + retention_ms
            kept.may_go |= key is None or latest[key] is not kept or is_old

    def latest(self, upto: int) -> dict[bytes, Kept]:
        """Return the last committed record of each key between the log's start and `upto`."""
        found: dict[bytes, Kept] = {}
        for one in self.batches:
            if one.is_visible and one.base < upto:
                for kept in one.records:
                    if kept.seen.key is not None and kept.seen.offset >= self.start:
                        found[kept.seen.key] = kept
        return found
