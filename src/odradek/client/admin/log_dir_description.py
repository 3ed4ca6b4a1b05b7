"""DescribeLogDirs: the log directory and size of each log on a broker (KIP-113, Kafka 1.0)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from odradek.base.errors import ErrorCode
from odradek.base.units import TopicName, TopicPartition
from odradek.client.cluster.cluster import Cluster
from odradek.client.connection.client_errors import response_error
from odradek.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)


class Replica(NamedTuple):
    """One log on one broker."""

    broker: int
    log_dir: str
    size: int


def replicas_of(cluster: Cluster, broker: int, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Replica]:
    """Return the directories of this broker's logs, without missing and offline logs.

    Raise ErrorResponse if the request is not authorized, Unsupported for a broker older than Kafka 1.0.
    """
    indexes_by_topic: dict[str, list[int]] = {}
    for each in partitions:
        indexes_by_topic.setdefault(each.topic, []).append(each.partition)
    topics = [DescribableLogDirTopic(topic=topic, partitions=indexes) for topic, indexes in indexes_by_topic.items()]
    request = DescribeLogDirsRequest(topics=topics)
    response = cluster.retry(lambda: cluster.connection(broker).call(request, DescribeLogDirsResponse))
    if response.error_code != ErrorCode.NONE:
        raise response_error(response.error_code, f"log directories of broker {broker}")
    found: dict[TopicPartition, Replica] = {}
    for result in response.results:
        for topic in result.topics:
            for part in topic.partitions:
                if not part.is_future_key:
                    name = TopicPartition(TopicName(topic.name), part.partition_index)
                    found[name] = Replica(broker, result.log_dir, part.partition_size)
    return found


def offline_log_dirs(cluster: Cluster, broker: int, timeout_ms: int) -> list[str]:
    """Return the log directories that are offline on this broker.

    Raise KafkaUnavailable without an answer in time, ErrorResponse if the request is not authorized, Unsupported for a
    broker older than Kafka 1.0.
    """
    request = DescribeLogDirsRequest(topics=[])  # Directories only, without logs.
    response = cluster.connection(broker).call(request, DescribeLogDirsResponse, timeout_ms=timeout_ms)
    if response.error_code != ErrorCode.NONE:
        raise response_error(response.error_code, f"log directories of broker {broker}")
    return sorted(result.log_dir for result in response.results if result.error_code != ErrorCode.NONE)
