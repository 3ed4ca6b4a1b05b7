"""Transaction markers, which a coordinator writes to a transaction's partitions, local or remote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import BrokerId, ProducerId, TopicPartition
from odradek.core.coordinators.durable import PendingWrite
from odradek.core.coordinators.state_log import ProducerIdAndEpoch
from odradek.core.kernel.moment import Moment


class Marker(NamedTuple):
    """The end of a producer's transaction, as decided by its coordinator.

    From version 2 on, the marker's epoch is above the epoch of the records that it ends (KIP-890).
    """

    producer: ProducerIdAndEpoch
    is_commit: bool
    coordinator_epoch: int
    version: int = 0


class WriteMarker(Protocol):
    """Writer of a marker to one partition; returns None if the topic is deleted, or raises Refused."""

    def __call__(self, name: TopicPartition, marker: Marker, now: Moment) -> PendingWrite | None: ...


class WriteMarkers:
    """Effect: one WriteTxnMarkers request to a broker; ends in `TransactionMarkerChannelManager.on_answered`.

    Each marker comes with its partitions, and no producer id repeats.
    """

    def __init__(self, broker: BrokerId, markers: Sequence[tuple[Marker, Sequence[TopicPartition]]]) -> None:
        self.broker = broker
        self.markers = markers


# The error code of each partition, or the reason for a missing answer; the request may or may not have been executed.
MarkersOutcome = Mapping[tuple[ProducerId, TopicPartition], ErrorCode] | Refused
