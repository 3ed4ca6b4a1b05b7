"""The Fetch request and answer by partition; versions before 13 use topic names, later ones topic ids."""

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
    """Build a sessionless fetch request.

    It contains both names and ids; each version writes only its own kind.
    """
    topics: list[FetchTopic] = []
    for partition, offset in positions.items():
        # Adjacent partitions of a topic share an entry, because the broker serves partitions in request order.
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


def partition_responses(
    response: FetchResponse, requested: Mapping[TopicPartition, int], topic_ids: Mapping[str, Uuid]
) -> Iterator[tuple[TopicPartition, PartitionData]]:
    """Yield each requested partition in the answer."""
    names = {bytes(topic_id): name for name, topic_id in topic_ids.items()}
    for topic in response.responses:
        name = topic.topic or names.get(bytes(topic.topic_id), "")
        for data in topic.partitions:
            partition = TopicPartition(TopicName(name), data.partition_index)
            if partition in requested:
                yield partition, data
