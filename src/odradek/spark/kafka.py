"""Implementation of cluster_interface.Metadata on odradek.client, with client settings for a pipeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from odradek.base.errors import ErrorCode
from odradek.base.units import MIB, TopicName, TopicPartition
from odradek.client.cluster.cluster import Cluster
from odradek.client.cluster.topic_metadata import Topic as ClientTopic
from odradek.client.connection.client_config import ClientConfig
from odradek.client.connection.client_errors import response_error
from odradek.client.consumer.fetcher import list_offsets
from odradek.spark.cluster_interface import Topic

# One response becomes one or two RecordBatches of tens of thousands of rows; Kafka's 1 MiB would give 8,000.
FETCH_DEFAULTS = {
    "client.id": "odradek-spark",
    "fetch.max.bytes": str(16 * MIB),
    "max.partition.fetch.bytes": str(8 * MIB),
}


def client_config(kafka: Mapping[str, str], prefix: str = "") -> ClientConfig:
    """Return the client configuration from settings with the prefix. Raise ConfigurationError."""
    defaults = {prefix + name: value for name, value in FETCH_DEFAULTS.items()}
    return ClientConfig.from_options(defaults | dict(kafka), prefix)


class Kafka:
    """Metadata over real connections, which are opened on first use and reopened after close()."""

    def __init__(self, config: ClientConfig) -> None:
        self._cluster = Cluster(config)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._cluster.close()

    def connect(self) -> None:
        """Try each bootstrap server once. Raise KafkaUnavailable or NotKafka."""
        self._cluster.connect()

    def topic_names(self) -> list[str]:
        return [topic.name for topic in self._cluster.topics() if not topic.is_internal]

    def topics(self, names: Sequence[str]) -> dict[str, Topic]:
        found = self._cluster.retry(lambda: self._usable(self._cluster.refresh(names)))
        return {
            topic.name: Topic(TopicName(topic.name), topic.id, tuple(part.index for part in topic.partitions))
            for topic in found
        }

    def offsets(self, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        return {at: listed.offset for at, listed in list_offsets(self._cluster, positions).items()}

    @staticmethod
    def _usable(topics: list[ClientTopic]) -> list[ClientTopic]:
        existing = [topic for topic in topics if topic.error != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        for topic in existing:
            # A missing leader is looked up again when the partition is read.
            if topic.error not in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE) or not topic.partitions:
                raise response_error(topic.error or ErrorCode.LEADER_NOT_AVAILABLE, f"topic {topic.name}")
        return existing
