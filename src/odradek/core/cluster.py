"""What this broker knows of the cluster: brokers, topics and who leads what.

Values only, replaced whole when the metadata tree changes.  The one part of the core that coordination/ may import.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from odradek.base.units import NO_BROKER, BrokerId, LeaderEpoch, TopicName
from odradek.base.uuids import ZERO_UUID, Uuid

CONSUMER_OFFSETS, TRANSACTION_STATE = TopicName("__consumer_offsets"), TopicName("__transaction_state")
INTERNAL_TOPICS = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE, TopicName("__share_group_state")})


class Endpoint(NamedTuple):
    """One address of a broker under one listener name."""

    listener: str
    host: str
    port: int


class BrokerInfo(NamedTuple):
    """A live broker."""

    id: BrokerId
    endpoints: tuple[Endpoint, ...] = ()
    rack: str | None = None

    def endpoint(self, listener: str) -> Endpoint | None:
        return next((endpoint for endpoint in self.endpoints if endpoint.listener == listener), None)


class PartitionInfo(NamedTuple):
    """Who holds one partition.  The first of the replicas is the preferred leader."""

    leader: BrokerId
    leader_epoch: LeaderEpoch
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]


class TopicInfo(NamedTuple):
    """One topic: its id, its partitions by index, and the configuration that was set on it."""

    name: TopicName
    id: Uuid
    partitions: tuple[PartitionInfo, ...]
    configs: Mapping[str, str] = MappingProxyType({})

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS


class ClusterView(NamedTuple):
    """The cluster as last read from the metadata tree."""

    cluster_id: str
    controller: BrokerId = NO_BROKER
    brokers: Mapping[BrokerId, BrokerInfo] = MappingProxyType({})
    topics: Mapping[TopicName, TopicInfo] = MappingProxyType({})
    names: Mapping[Uuid, TopicName] = MappingProxyType({})

    def topic_by_id(self, topic_id: Uuid) -> TopicInfo | None:
        name = self.names.get(topic_id)
        return None if name is None else self.topics[name]

    def with_topics(self, topics: Iterable[TopicInfo]) -> ClusterView:
        """The same cluster with these topics added, or replaced where the name is known."""
        by_name = {**self.topics, **{topic.name: topic for topic in topics}}
        return self._replace(topics=by_name, names=_names(by_name))

    def without_topics(self, gone: Iterable[TopicName]) -> ClusterView:
        by_name = dict(self.topics)
        for name in gone:
            by_name.pop(name, None)
        return self._replace(topics=by_name, names=_names(by_name))


def _names(topics: Mapping[TopicName, TopicInfo]) -> dict[Uuid, TopicName]:
    # A topic made before ids existed (Kafka 2.7 and older) has none.
    return {topic.id: name for name, topic in topics.items() if topic.id != ZERO_UUID}
