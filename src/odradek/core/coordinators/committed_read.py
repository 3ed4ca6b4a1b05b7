"""A committed read: answers wait until the coordinator state behind them is as safe as with acks=all.

State changes when its record is written, which is before it is durable. Without the wait, a reader could receive
state that a crash may undo.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from odradek.base.errors import ErrorCode
from odradek.base.units import INT64_MAX, Offset
from odradek.core.partition.leading import Leading

_NEVER = Offset(INT64_MAX)


class CommittedRead:
    """The condition that the current contents of these state topic partitions are safe (a committed read)."""

    __slots__ = ("_ends",)

    def __init__(self, partitions: Iterable[Leading]) -> None:
        self._ends: dict[Leading, Offset] = {
            leading: leading.log.end_offset if leading.ended is None else _NEVER for leading in partitions
        }

    @property
    def keys(self) -> Iterable[Hashable]:
        return [leading.name for leading in self._ends]

    def fulfilled_by(self, key: Hashable, news: object) -> bool:
        return all(_is_safe(leading, end) or leading.ended is not None for leading, end in self._ends.items())

    @property
    def is_settled(self) -> bool:
        """Return whether there is nothing to wait for."""
        return self.fulfilled_by(None, None)

    def code_of(self, leading: Leading) -> ErrorCode:
        """Return NONE, or the error to answer with if the contents read from this partition are not safe."""
        if _is_safe(leading, self._ends[leading]):
            return ErrorCode.NONE
        return ErrorCode.COORDINATOR_NOT_AVAILABLE if leading.ended is None else ErrorCode.NOT_COORDINATOR


def _is_safe(leading: Leading, end: Offset) -> bool:
    return leading.positions.high_watermark >= end
