"""An answer about a coordinator's state waits until all that the state came from is as safe as acks=all makes it.

State is changed when its record is written, which is before it is durable.  Who reads it in between and is answered at
once would know what a crash may take back.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

from odradek.base.errors import ErrorCode
from odradek.base.units import INT64_MAX, Offset
from odradek.core.coordinators.durable import WRITE_TIMEOUT_MS
from odradek.core.moment import Moment
from odradek.core.parked import Parked
from odradek.core.partition import Partition

T = TypeVar("T")

_NEVER = Offset(INT64_MAX)


class Settled:
    """What these partitions of a state topic hold now."""

    __slots__ = ("_ends",)

    def __init__(self, partitions: Iterable[Partition]) -> None:
        self._ends: dict[Partition, Offset] = {
            partition: partition.log.end_offset if partition.is_online else _NEVER for partition in partitions
        }

    @property
    def keys(self) -> Iterable[Hashable]:
        return [partition.topic_partition for partition in self._ends]

    def fulfilled_by(self, key: Hashable, news: object) -> bool:
        return all(_is_safe(partition, end) or not partition.is_online for partition, end in self._ends.items())

    def code_of(self, partition: Partition) -> ErrorCode:
        """NONE, or why what was read of this one can't be told."""
        if _is_safe(partition, self._ends[partition]):
            return ErrorCode.NONE
        return ErrorCode.COORDINATOR_NOT_AVAILABLE if partition.is_online else ErrorCode.NOT_COORDINATOR

    def then(self, answer: Callable[[], T], now: Moment) -> T | Parked[T]:
        """`answer` asks `code_of` what became of each; at once if nothing has to be waited for."""
        if self.fulfilled_by(None, None):
            return answer()
        return Parked(self, now.steady + WRITE_TIMEOUT_MS, answer)


def _is_safe(partition: Partition, end: Offset) -> bool:
    return partition.positions.high_watermark >= end
