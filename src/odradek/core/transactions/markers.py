"""Transaction markers, as a coordinator has them written to the partitions of a transaction."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from odradek.base.units import TopicPartition
from odradek.core.coordinators.durable import Written
from odradek.core.coordinators.state_log import ProducerIdAndEpoch
from odradek.core.moment import Moment


class Marker(NamedTuple):
    """How the transaction of a producer ends, as its coordinator says.

    From version 2 on the marker's epoch is above that of the records it ends (KIP-890).
    """

    producer: ProducerIdAndEpoch
    is_commit: bool
    coordinator_epoch: int
    version: int = 0


class WriteMarker(Protocol):
    """Writes a marker to one partition; returns None if there is no such topic any more.  Raises Refused."""

    def __call__(self, name: TopicPartition, marker: Marker, now: Moment) -> Written | None: ...
