"""Transaction markers: what a coordinator has written to the partitions of a transaction, here or by other brokers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import BrokerId, ProducerId, TopicPartition
from odradek.core.coordinators.durable import Written
from odradek.core.coordinators.state_log import ProducerIdAndEpoch
from odradek.core.kernel.moment import Moment


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


class WriteMarkers:
    """An effect: ask another broker by one WriteTxnMarkers request; it ends in one `Broker.markers_answered`.

    Each marker comes with the partitions that it is for, and no producer id comes twice.
    """

    def __init__(self, broker: BrokerId, markers: Sequence[tuple[Marker, Sequence[TopicPartition]]]) -> None:
        self.broker = broker
        self.markers = markers


# The error code of each partition; or why there is no answer: what was sent may have been carried out, or not.
MarkersOutcome = Mapping[tuple[ProducerId, TopicPartition], ErrorCode] | Refused
