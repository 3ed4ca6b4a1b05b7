"""Validation settings altered on a running broker, for a topic and for all: they take effect at once.

The records for max.decompressed.message.bytes come from Kafka's own test of it (#23429).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from uuid import uuid4

import pytest

from odradek.base.errors import ErrorCode
from odradek.record.builder import RecordIn, encode_batch
from odradek.record.compression import Codec
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from odradek.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from support.raw_client import RawClient
from support.serving import Serving

TOPIC, BROKER = 2, 4
BOUNDED = {"max.decompressed.message.bytes": "512", "odradek.record.validation": "records"}
OVERSIZED, UNDERSIZED = 4096, 64
PACKING = [codec for codec in Codec if codec is not Codec.NONE]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with Serving(tmp_path_factory.mktemp("altered"), **{"node.id": "1"}) as running:
        yield running


@pytest.fixture
def client(broker: Serving) -> Iterator[RawClient]:
    with RawClient(broker.port) as raw:
        yield raw


@pytest.fixture
def topic(client: RawClient) -> str:
    name = f"altered-{uuid4().hex[:8]}"
    creatable = CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
    (made,) = client.request(CreateTopicsRequest(topics=[creatable]), 7, CreateTopicsResponse).topics
    assert made.error_code == ErrorCode.NONE
    return name


def alter(client: RawClient, kind: int, name: str, configs: Mapping[str, str | None]) -> str | None:
    """Set keys, or delete those that are None; return the message of a refusal."""
    altered = [AlterableConfig(name=key, config_operation=value is None, value=value) for key, value in configs.items()]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=altered)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    (done,) = client.request(request, 1, IncrementalAlterConfigsResponse).responses
    return done.error_message


def produce(client: RawClient, topic: str, size: int, codec: Codec, key: bytes | None = b"key") -> ErrorCode:
    records: list[RecordIn] = [(key, bytes(size), (), time.time_ns() // 1_000_000)]
    parts = [PartitionProduceData(index=0, records=encode_batch(records, codec))]
    request = ProduceRequest(acks=-1, timeout_ms=9000, topic_data=[TopicProduceData(name=topic, partition_data=parts)])
    answer = client.request(request, 9, ProduceResponse).responses[0].partition_responses[0]
    return ErrorCode(answer.error_code)


def look_up_timestamp(client: RawClient, topic: str) -> ErrorCode:
    topic_request = ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=1)])
    answer = client.request(ListOffsetsRequest(replica_id=-1, topics=[topic_request]), 7, ListOffsetsResponse)
    return ErrorCode(answer.topics[0].partitions[0].error_code)


@pytest.mark.parametrize("codec", PACKING)
def test_a_topic_limits_the_decompressed_size(client: RawClient, topic: str, codec: Codec) -> None:
    assert produce(client, topic, OVERSIZED, codec) == ErrorCode.NONE
    assert look_up_timestamp(client, topic) == ErrorCode.NONE
    assert alter(client, TOPIC, topic, BOUNDED) is None
    assert produce(client, topic, OVERSIZED, codec) == ErrorCode.INVALID_RECORD
    assert look_up_timestamp(client, topic) == ErrorCode.INVALID_RECORD
    assert produce(client, topic, UNDERSIZED, codec) == ErrorCode.NONE
    assert produce(client, topic, OVERSIZED, Codec.NONE) == ErrorCode.NONE, "it was not packed"
    assert alter(client, TOPIC, topic, dict.fromkeys(BOUNDED)) is None
    assert produce(client, topic, OVERSIZED, codec) == ErrorCode.NONE
    assert look_up_timestamp(client, topic) == ErrorCode.NONE


@pytest.mark.parametrize("name", ["", "1"], ids=["all brokers", "this one"])
def test_a_brokers_limit_applies_to_topics_without_one(client: RawClient, topic: str, name: str) -> None:
    assert produce(client, topic, OVERSIZED, Codec.ZSTD) == ErrorCode.NONE
    assert alter(client, BROKER, name, BOUNDED) is None
    try:
        assert produce(client, topic, OVERSIZED, Codec.ZSTD) == ErrorCode.INVALID_RECORD
        assert alter(client, TOPIC, topic, {"max.decompressed.message.bytes": "5000"}) is None
        assert produce(client, topic, OVERSIZED, Codec.ZSTD) == ErrorCode.NONE
    finally:
        assert alter(client, BROKER, name, dict.fromkeys(BOUNDED)) is None


def test_a_topic_requires_keys_once_it_is_compacted(client: RawClient, topic: str) -> None:
    for codec in Codec:
        assert produce(client, topic, 9, codec, key=None) == ErrorCode.NONE
        assert alter(client, TOPIC, topic, {"cleanup.policy": "compact,delete"}) is None
        assert produce(client, topic, 9, codec, key=None) == ErrorCode.INVALID_RECORD
        assert produce(client, topic, 300_000, codec, key=None) == ErrorCode.INVALID_RECORD
        assert produce(client, topic, 9, codec) == ErrorCode.NONE
        assert alter(client, TOPIC, topic, {"cleanup.policy": None}) is None


def test_an_invalid_validation_mode_is_refused(client: RawClient, topic: str) -> None:
    message = alter(client, TOPIC, topic, {"odradek.record.validation": "some"})
    assert "odradek.record.validation: String must be one of: header, records" in (message or "")
