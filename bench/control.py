"""What a measurement needs of a broker besides load: topics made and removed, and where its logs end."""

from __future__ import annotations

import time

from odradek.client.config import ClientConfig
from odradek.client.connection import Connection
from odradek.client.errors import ClientError
from odradek.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

TIMEOUT_MS = 120_000
LATEST = -1
POLL_SECONDS = 0.01
RETRIED_SECONDS_MAX = 120  # Kafka takes 10 ms and more for each partition of a new topic.


class Failed(RuntimeError):
    """The broker refused what a measurement needs."""


class Control:
    """One connection for questions; none of this is measured."""

    def __init__(self, port: int) -> None:
        self._config = ClientConfig(f"127.0.0.1:{port}", client_id="bench-control", request_timeout_ms=TIMEOUT_MS)
        self._address = ("127.0.0.1", port)
        self._connection = Connection(self._address, self._config)

    def create_topic(self, name: str, partitions: int, configs: dict[str, str]) -> None:
        """Returns when every partition has a leader."""
        entries = [CreatableTopicConfig(name=key, value=value) for key, value in configs.items()]
        topic = CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=entries
        )
        answer = self._call(CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS), CreateTopicsResponse)
        if answer.topics[0].error_code:
            raise Failed(f"{name}: error {answer.topics[0].error_code}, {answer.topics[0].error_message}")
        deadline = time.monotonic() + RETRIED_SECONDS_MAX
        while not self._has_leaders(name, partitions):
            if time.monotonic() > deadline:
                raise Failed(f"{name} has partitions without leader")
            time.sleep(POLL_SECONDS)
        self.end_offsets(name, partitions)  # Kafka tells of a leader a moment before that leader takes records.

    def _has_leaders(self, name: str, partitions: int) -> bool:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        topic = self._call(request, MetadataResponse, version=8).topics[0]
        return (
            topic.error_code == 0
            and len(topic.partitions) == partitions
            and all(part.error_code == 0 and part.leader_id >= 0 for part in topic.partitions)
        )

    def delete_topic(self, name: str) -> None:
        answer = self._call(
            DeleteTopicsRequest(topic_names=[name], timeout_ms=TIMEOUT_MS), DeleteTopicsResponse, version=4
        )
        if answer.responses[0].error_code:
            raise Failed(f"{name} can't be deleted: error {answer.responses[0].error_code}")

    def end_offsets(self, topic: str, partitions: int) -> list[int]:
        """The end of each partition.  Retried while a partition says it is not ready to be asked."""
        deadline = time.monotonic() + RETRIED_SECONDS_MAX
        while True:
            asked = [ListOffsetsPartition(partition_index=index, timestamp=LATEST) for index in range(partitions)]
            request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=asked)])
            found = self._call(request, ListOffsetsResponse, version=5).topics[0].partitions
            if all(part.error_code == 0 for part in found):
                return [part.offset for part in sorted(found, key=lambda part: part.partition_index)]
            if time.monotonic() > deadline:
                raise Failed(f"ListOffsets of {topic}: errors {sorted({part.error_code for part in found})}")
            time.sleep(POLL_SECONDS)

    def _call(self, request, response, *, version=None):  # type: ignore[no-untyped-def]
        """Once more on a new connection: brokers close idle ones."""
        try:
            return self._connection.call(request, response, version=version)
        except ClientError:
            self._connection.close()
            self._connection = Connection(self._address, self._config)
            return self._connection.call(request, response, version=version)

    def close(self) -> None:
        self._connection.close()
