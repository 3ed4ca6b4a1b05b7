"""The Fetch request and answer in terms of partitions.  Versions before 13 name topics, later ones give their ids."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from odradek.base.units import TopicName, TopicPartition
from odradek.base.uuids import Uuid
from odradek.client.connection.client_config import ClientConfig
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData

VERSION_WITH_TOPIC_IDS = 13


def fetch_request(
    config: ClientConfig, positions: Mapping[TopicPartition, int], topic_ids: Mapping[TopicName, Uuid]
) -> FetchRequest:
    """A sessionless fetch.  Carries both names and ids: each version writes its own and leaves the other out."""
    topics: list[FetchTopic] = []
    for partition, offset in positions.items():
        # Adjacent partitions of one topic share an entry; the order of the partitions is the broker's order of service.
        if not topics or topics[-1].topic != partition.topic:
            topics.append(FetchTopic(topic=partition.topic, topic_id=topic_ids[partition.topic], partitions=[]))
        topics[-1].partitions.append(
            FetchPartition(
                partition=partition.partition,
                fetch_offset=offset,
                partition_max_bytes=config.max_partition_fetch_bytes,
            )
        )
    return FetchRequest(
        max_wait_ms=config.fetch_max_wait_ms,
        min_bytes=config.fetch_min_bytes,
        max_bytes=config.fetch_max_bytes,
        isolation_level=config.isolation_level,
        topics=topics,
    )


def answers_of(
    answer: FetchResponse, asked: Mapping[TopicPartition, int], topic_ids: Mapping[str, Uuid]
) -> Iterator[tuple[TopicPartition, PartitionData]]:
    """Yields each partition of the answer that was asked for."""
    names = {bytes(topic_id): name for name, topic_id in topic_ids.items()}
    for topic in answer.responses:
        name = topic.topic or names.get(bytes(topic.topic_id), "")
        for data in topic.partitions:
            partition = TopicPartition(TopicName(name), data.partition_index)
            if partition in asked:
                yield partition, data
