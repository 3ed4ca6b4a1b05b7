"""Two brokers that are asked the same, and their answers as values that can be compared."""

from __future__ import annotations

import time
from collections.abc import Callable

from odradek.base.errors import ErrorCode
from odradek.base.uuids import ZERO_UUID, Uuid
from odradek.record.batch import iter_batches
from odradek.record.builder import encode_batch
from odradek.wire.catalog import APIS
from odradek.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from odradek.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from odradek.wire.schema import schema_of
from support.raw_client import Closed, RawClient

NOW_MS = time.time_ns() // 1_000_000
ANSWERS = dict(APIS.values())
NOT_COMPARED = {"throttle_time_ms", "error_message", "port", "cluster_id", "log_start_offset", "record_errors"}
# What Kafka 4.3.0 keeps for its eligible leader replicas, and what is newer than it.
CONFIGS_NOT_COMPARED = {"min.insync.replicas", "errors.deadletterqueue.group.enable", "remote.copy.lag.bytes"}
CONFIGS_NOT_COMPARED |= {"remote.copy.lag.ms"}


class Side:
    """One of the two brokers, with a topic `t` of two partitions that holds ten batches of two records in the first."""

    def __init__(self, port: int) -> None:
        self.client = RawClient(port)
        self._port = port
        self.t = self.created("t", 2)
        self.empty = self.created("empty", 1)
        for number in range(10):
            self.produce(batch(NOW_MS + 10 * number))
        self.t_id = self.id_of("t")

    def created(self, name: str, partitions: int) -> str:
        self.ask(CreateTopicsRequest(topics=[topic(name, partitions)], timeout_ms=10_000), 7)
        asked = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(partitions)]
        ends = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=asked)])
        while "UNKNOWN_TOPIC_OR_PARTITION" in repr(self.ask(ends, 7)):
            time.sleep(0.05)  # Kafka's controller knows of it before the broker does.
        return name

    def produce(self, records: bytes) -> None:
        parts = [PartitionProduceData(index=0, records=records)]
        request = ProduceRequest(
            acks=-1, timeout_ms=5000, topic_data=[TopicProduceData(name="t", partition_data=parts)]
        )
        answer = self.client.ask(request, 9, ProduceResponse)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE

    def id_of(self, name: str) -> Uuid:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        return self.client.ask(request, 12, MetadataResponse).topics[0].topic_id

    def ask(self, message: object, version: int) -> object:
        """The answer as values that can be compared, or that there was none."""
        try:
            return self.plain(self.client.ask(message, version, ANSWERS[type(message)]))
        except Closed:
            self.client = RawClient(self._port)
            return "closed"

    def plain(self, value: object, name: str = "") -> object:
        if name in NOT_COMPARED:
            return None
        if isinstance(value, list):
            compared = (each for each in value if getattr(each, "name", None) not in CONFIGS_NOT_COMPARED)
            return sorted((self.plain(each, name) for each in compared), key=repr)
        if isinstance(value, int) and name == "error_code":
            return ErrorCode(value).name
        if name == "session_id":
            return bool(value)
        if name == "topic_id":
            return value if value == ZERO_UUID else "an id"
        if name == "records" and isinstance(value, memoryview):
            return [(one.base_offset, one.last_offset, one.size) for one in iter_batches(value)]
        if value is None or isinstance(value, bool | int | str | bytes):
            return value
        return {each.name: self.plain(getattr(value, each.name), each.name) for each in schema_of(type(value)).fields}


def batch(timestamp: int = NOW_MS, **fields: int) -> bytes:
    return bytes(encode_batch([(b"k", b"v", (), timestamp)] * 2, **fields))  # type: ignore[arg-type]


def topic(
    name: str,
    partitions: int = 1,
    factor: int = 1,
    assignments: dict[int, list[int]] | None = None,
    **configs: str | None,
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=ids)
            for index, ids in (assignments or {}).items()
        ],
        configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )


Case = Callable[[Side], object]


def compare(sides: tuple[Side, Side], case: Case) -> None:
    ours, theirs = (case(side) for side in sides)
    assert ours == theirs
