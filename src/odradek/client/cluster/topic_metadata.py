"""Cluster metadata as values: brokers, topics, partitions and their leaders."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from odradek.base.errors import ErrorCode, error_code
from odradek.base.units import NO_BROKER
from odradek.base.uuids import ZERO_UUID, Uuid
from odradek.client.connection.client_config import Address
from odradek.wire.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic


@dataclass(frozen=True, slots=True)
class Broker:
    """One broker with its advertised address."""

    id: int
    host: str
    port: int
    rack: str | None = None

    @property
    def address(self) -> Address:
        return self.host, self.port

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition; leader is -1 if there is none."""

    index: int
    leader: int
    leader_epoch: int = -1
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()
    error: ErrorCode = ErrorCode.NONE
    eligible_leader_replicas: tuple[int, ...] | None = None  # KIP-966; None if the broker does not return it.


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic; with an error it has no partitions.

    id is zero if the broker does not return one (before Kafka 2.8).
    """

    name: str
    id: Uuid = ZERO_UUID
    is_internal: bool = False
    partitions: tuple[Partition, ...] = ()
    error: ErrorCode = ErrorCode.NONE

    def partition(self, index: int) -> Partition | None:
        """Return the partition or None; partitions are sorted, without gaps except in a broken answer."""
        if 0 <= index < len(self.partitions) and self.partitions[index].index == index:
            return self.partitions[index]
        return next((partition for partition in self.partitions if partition.index == index), None)


@dataclass(slots=True)
class Metadata:
    """The latest answers combined; topics that were never requested are absent."""

    cluster_id: str | None = None
    controller: int = NO_BROKER
    brokers: dict[int, Broker] = field(default_factory=dict)
    topics: dict[str, Topic] = field(default_factory=dict)

    def merge(self, response: MetadataResponse) -> list[Topic]:
        """Merge an answer and return its topics in order."""
        self.cluster_id = response.cluster_id
        self.controller = response.controller_id
        self.brokers = {b.node_id: Broker(b.node_id, b.host, b.port, b.rack) for b in response.brokers}
        topics = [topic_of(topic) for topic in response.topics]
        self.topics.update((topic.name, topic) for topic in topics)
        return topics

    def forget(self, names: Iterable[str]) -> None:
        for name in names:
            self.topics.pop(name, None)


def topic_of(response: MetadataResponseTopic) -> Topic:
    partitions = sorted(map(partition_of, response.partitions), key=lambda partition: partition.index)
    return Topic(
        response.name or "",
        Uuid(bytes(response.topic_id)),
        response.is_internal,
        tuple(partitions),
        error_code(response.error_code),
    )


def partition_of(response: MetadataResponsePartition) -> Partition:
    return Partition(
        response.partition_index,
        response.leader_id,
        response.leader_epoch,
        tuple(response.replica_nodes),
        tuple(response.isr_nodes),
        tuple(response.offline_replicas or ()),
        error_code(response.error_code),
    )
