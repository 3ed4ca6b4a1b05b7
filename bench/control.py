"""What a measurement needs of a broker besides load: topics made and removed, where logs end, producer ids."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple, TypeVar

from odradek.base.errors import ErrorCode
from odradek.client.connection.broker_connection import Connection
from odradek.client.connection.client_config import ClientConfig
from odradek.client.connection.client_errors import ClientError
from odradek.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from odradek.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

TIMEOUT_MS = 120_000
TRANSACTION_TIMEOUT_MS = 60_000
LATEST = -1
GROUP, TRANSACTION = 0, 1  # Kinds of coordinators.
NOT_YET = {
    ErrorCode.NONE,  # Of a heartbeat, while the group is loaded.
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}
POLL_SECONDS = 0.01
RETRIED_SECONDS_MAX = 120  # Kafka takes 10 ms and more for each partition of a new topic.


T = TypeVar("T")
A = TypeVar("A", FindCoordinatorResponse, HeartbeatResponse, InitProducerIdResponse)


class Producer(NamedTuple):
    id: int
    epoch: int


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
        response = self._call(
            DeleteTopicsRequest(topic_names=[name], timeout_ms=TIMEOUT_MS), DeleteTopicsResponse, version=4
        )
        if response.responses[0].error_code:
            raise Failed(f"{name} can't be deleted: error {response.responses[0].error_code}")

    def end_offsets(self, topic: str, partitions: int, *, committed: bool = False) -> list[int]:
        """The end of each partition, of what is committed if so asked.  Retried while a partition is not ready."""
        deadline = time.monotonic() + RETRIED_SECONDS_MAX
        while True:
            request_partitions = [
                ListOffsetsPartition(partition_index=index, timestamp=LATEST) for index in range(partitions)
            ]
            topics = [ListOffsetsTopic(name=topic, partitions=request_partitions)]
            request = ListOffsetsRequest(replica_id=-1, isolation_level=int(committed), topics=topics)
            found = self._call(request, ListOffsetsResponse, version=5).topics[0].partitions
            if all(part.error_code == 0 for part in found):
                return [part.offset for part in sorted(found, key=lambda part: part.partition_index)]
            if time.monotonic() > deadline:
                raise Failed(f"ListOffsets of {topic}: errors {sorted({part.error_code for part in found})}")
            time.sleep(POLL_SECONDS)

    def wait_for_groups(self, names: Iterable[str]) -> None:
        """Until their coordinators answer for them: Kafka makes the topic of groups when it is first asked."""
        for name in names:
            self._find(GROUP, name)
            self._wait(partial(self._beat, name), ErrorCode.UNKNOWN_MEMBER_ID)

    def _beat(self, group: str) -> HeartbeatResponse:
        request = HeartbeatRequest(group_id=group, generation_id=0, member_id="nobody")
        return self._call(request, HeartbeatResponse, version=4)

    def new_producer(self, transactional_id: str | None = None) -> Producer:
        if transactional_id is not None:
            self._find(TRANSACTION, transactional_id)
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS
        )
        response = self._wait(lambda: self._call(request, InitProducerIdResponse, version=4))
        return Producer(response.producer_id, response.producer_epoch)

    def _find(self, kind: int, name: str) -> None:
        request = FindCoordinatorRequest(key=name, key_type=kind)
        self._wait(lambda: self._call(request, FindCoordinatorResponse, version=3))

    def _wait(self, send: Callable[[], A], expected_code: int = ErrorCode.NONE) -> A:
        """The answer, when it is no longer that a coordinator is not ready yet."""
        deadline = time.monotonic() + RETRIED_SECONDS_MAX
        while (response := send()).error_code != expected_code:
            if response.error_code not in NOT_YET or time.monotonic() > deadline:
                raise Failed(f"{type(response).__name__}: error {response.error_code}")
            time.sleep(POLL_SECONDS)
        return response

    def _call(self, request: object, response: type[T], *, version: int | None = None) -> T:
        """Once more on a new connection: brokers close idle ones."""
        try:
            return self._connection.call(request, response, version=version)
        except ClientError:
            self._connection.close()
            self._connection = Connection(self._address, self._config)
            return self._connection.call(request, response, version=version)

    def close(self) -> None:
        self._connection.close()
