"""An answer about a coordinator's state waits until all that the state came from is as safe as acks=all makes it.

State is changed when its record is written, which is before it is durable.  Who reads it in between and is answered at
once would know what a crash may take back.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from odradek.base.errors import ErrorCode
from odradek.base.units import INT64_MAX, Offset
from odradek.core.partition import Partition

_NEVER = Offset(INT64_MAX)


class Settled:
    """The condition that all that these partitions of a state topic hold now is safe (a committed read)."""

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

    @property
    def is_settled(self) -> bool:
        """True if nothing has to be waited for."""
        return self.fulfilled_by(None, None)

    def code_of(self, partition: Partition) -> ErrorCode:
        """Returns NONE, or the error to answer with if what was read of this partition is not safe."""
        if _is_safe(partition, self._ends[partition]):
            return ErrorCode.NONE
        return ErrorCode.COORDINATOR_NOT_AVAILABLE if partition.is_online else ErrorCode.NOT_COORDINATOR


def _is_safe(partition: Partition, end: Offset) -> bool:
    return partition.positions.high_watermark >= end
