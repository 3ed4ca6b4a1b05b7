"""Places where a segment can be cut: at a batch, or at a damage that hides the batch."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from odradek.base.units import NO_EPOCH, NO_TIMESTAMP, Offset
from odradek.log.files.disk_failures import LogDamaged
from odradek.log.segment.damage import Damage
from odradek.log.segment.scan import FileBatch
from odradek.log.segment.segment import Segment
from odradek.record.record_batch import MAGIC


class LogCut(NamedTuple):
    """The part of a log that stays if the log is cut at an offset."""

    kept: list[Segment]
    place: FileBatch | None  # The place in the last of them where it is cut, or None.
    end_offset: Offset

    @property
    def position(self) -> int:
        """Size of the last segment after the cut, in bytes."""
        return self.kept[-1].size if self.place is None else self.place.position


def cut_of(segments: Sequence[Segment], offset: Offset) -> LogCut:
    """Return how to drop every batch that reaches `offset`, which is not before all segments.  Raises DiskFailed."""
    kept = [segment for segment in segments if segment.base_offset <= offset]
    assert kept, "a cut keeps at least the first segment"
    place = cut_place(kept[-1], offset)
    if place is None:
        return LogCut(kept, place, offset)
    # No checksum covers the base offset of a batch, which may be below the end of the batches that stay.
    end = max(place.base_offset, offset_at(kept[-1], place.position))
    return LogCut(kept, place, Offset(min(end, offset)))


def cut_place(segment: Segment, offset: Offset) -> FileBatch | None:
    """Return the first batch that reaches `offset`, or the damage before it; None if the segment ends earlier.

    No batch can be found behind a damage without guessing, so everything from the damage on is dropped.  Raises
    DiskFailed.
    """
    try:
        return segment.find_batch(offset)
    except LogDamaged as damage:
        lost = offset_at(segment, damage.position)
        size = segment.size - damage.position
        return FileBatch(damage.position, size, lost, lost, NO_TIMESTAMP, NO_EPOCH, MAGIC)


def first_damage(segment: Segment) -> tuple[Damage, Offset] | None:
    """Return the first known damage of a segment and the first offset it hides.  Raises DiskFailed."""
    if not segment.damages:
        return None
    damage = segment.damages[0]
    return damage, offset_at(segment, damage.start)


def offset_at(segment: Segment, position: int) -> Offset:
    """Return the offset behind the last whole batch before `position`.  Raises DiskFailed."""
    found = segment.base_offset
    with suppress(LogDamaged):
        for place in segment.places(segment.offsets.border_at_or_below(position - 1)):
            if place.position >= position:
                break
            found = Offset(place.last_offset + 1)
    assert found >= segment.base_offset
    return found
