"""Altered configurations without a socket: effective immediately, described with their sources, applied as a whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.base.errors import ErrorCode
from odradek.base.units import TopicName, TopicPartition
from odradek.core.configs.definition import ConfigSource
from odradek.core.kernel.purgatory import ParkedRequest
from odradek.record.builder import encode_batch
from odradek.wire.messages.alter_configs import AlterConfigsResponse
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from odradek.wire.messages.describe_configs import DescribeConfigsResponse
from odradek.wire.messages.incremental_alter_configs import IncrementalAlterConfigsResponse
from odradek.wire.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from support.configuring import APPEND, BROKER, DELETE, SET, TOPIC, alter, configs_in, describe, replace
from support.in_memory import NOW_MS, Harness, frame_of
from support.loop_time import hold_ms_max

TOPIC_SOURCE, BROKER_SOURCE, ALL_SOURCE = (int(source) for source in list(ConfigSource)[:3])


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    harness = Harness(tmp_path)
    create_topic(harness, "t", 2)
    return harness


def create_topic(harness: Harness, name: str, partitions: int = 1) -> None:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
    assert not harness.request(CreateTopicsRequest(topics=[topic]), 7, CreateTopicsResponse).topics[0].error_code


def changed(harness: Harness, *resources: tuple[int, str, list[tuple[str, int, str | None]]]) -> list[int]:
    answer = harness.request(alter(*resources), 1, IncrementalAlterConfigsResponse)
    return [one.error_code for one in answer.responses]


def produce(size: int, topic: str = "t") -> ProduceRequest:
    records = bytes(encode_batch([(None, b"x" * size, (), NOW_MS)]))
    data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)])]
    return ProduceRequest(acks=1, timeout_ms=1000, topic_data=data)


def produce_error(harness: Harness, size: int) -> int:
    answer = harness.request(produce(size), 9, ProduceResponse)
    return answer.responses[0].partition_responses[0].error_code


@pytest.mark.parametrize("version", [0, 1])
def test_incremental_alter_configs_works_in_every_version(harness: Harness, version: int) -> None:
    request = alter((TOPIC, "t", [("retention.ms", SET, "5")]), (TOPIC, "no", []), (7, "x", []))
    answer = harness.request(request, version, IncrementalAlterConfigsResponse)
    assert [(one.resource_type, one.resource_name, one.error_code) for one in answer.responses] == [
        (TOPIC, "t", ErrorCode.NONE),
        (TOPIC, "no", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (7, "x", ErrorCode.INVALID_REQUEST),
    ]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_alter_configs_replaces_all_keys_in_every_version(harness: Harness, version: int) -> None:
    assert changed(harness, (TOPIC, "t", [("retention.ms", SET, "5")])) == [0]
    answer = harness.request(replace(TOPIC, "t", segment_ms="9"), version, AlterConfigsResponse)
    assert [one.error_code for one in answer.responses] == [ErrorCode.NONE]
    assert harness.broker.view.topics[TopicName("t")].configs == {"segment.ms": "9"}


def test_altered_topic_configuration_applies_to_all_its_logs(harness: Harness) -> None:
    assert changed(harness, (TOPIC, "t", [("retention.ms", SET, "5"), ("cleanup.policy", APPEND, "compact")])) == [0]
    for index in range(2):
        partition = harness.broker.partitions[TopicPartition(TopicName("t"), index)]
        assert (partition.configs.retention_ms, partition.log.config.retention_ms) == (5, 5)
        assert partition.log.config.cleanup_compact


def test_altered_record_limit_applies_to_the_next_produce(harness: Harness) -> None:
    assert produce_error(harness, 500) == ErrorCode.NONE
    assert changed(harness, (TOPIC, "t", [("max.message.bytes", SET, "100")])) == [0]
    assert produce_error(harness, 500) == ErrorCode.MESSAGE_TOO_LARGE
    assert changed(harness, (TOPIC, "t", [("max.message.bytes", DELETE, None)])) == [0]
    assert produce_error(harness, 500) == ErrorCode.NONE
    assert changed(harness, (BROKER, "", [("message.max.bytes", SET, "100")])) == [0]
    assert produce_error(harness, 500) == ErrorCode.MESSAGE_TOO_LARGE
    assert changed(harness, (BROKER, "1", [("message.max.bytes", SET, "1000")])) == [0]
    assert produce_error(harness, 500) == ErrorCode.NONE


def test_new_topic_uses_altered_broker_defaults(harness: Harness) -> None:
    assert changed(harness, (BROKER, "", [("log.retention.ms", SET, "7")])) == [0]
    create_topic(harness, "later")
    assert harness.broker.partitions[TopicPartition(TopicName("later"), 0)].log.config.retention_ms == 7


def test_each_value_is_described_with_its_source(harness: Harness) -> None:
    def source(kind: int, name: str, key: str) -> tuple[str | None, int] | None:
        return configs_in(harness.request(describe(kind, name, key), 4, DescribeConfigsResponse)).get(key)

    assert changed(harness, (BROKER, "", [("log.retention.ms", SET, "7")])) == [0]
    assert source(TOPIC, "t", "retention.ms") == ("7", ALL_SOURCE)
    assert source(BROKER, "1", "log.retention.ms") == source(BROKER, "", "log.retention.ms") == ("7", ALL_SOURCE)
    assert changed(harness, (BROKER, "1", [("log.retention.ms", SET, "6")])) == [0]
    assert source(TOPIC, "t", "retention.ms") == source(BROKER, "1", "log.retention.ms") == ("6", BROKER_SOURCE)
    assert source(BROKER, "", "log.retention.ms") == ("7", ALL_SOURCE)
    assert changed(harness, (TOPIC, "t", [("retention.ms", SET, "5")])) == [0]
    assert source(TOPIC, "t", "retention.ms") == ("5", TOPIC_SOURCE)
    everything = [(TOPIC, "t", "retention.ms"), (BROKER, "1", "log.retention.ms"), (BROKER, "", "log.retention.ms")]
    for kind, name, key in everything:
        assert changed(harness, (kind, name, [(key, DELETE, None)])) == [0]
    assert source(TOPIC, "t", "retention.ms") == ("604800000", ConfigSource.DEFAULT_CONFIG)
    assert source(BROKER, "", "log.retention.ms") is None


def test_validate_only_request_changes_nothing(harness: Harness) -> None:
    request = alter(
        (TOPIC, "t", [("retention.ms", SET, "5")]), (BROKER, "", [("log.retention.ms", SET, "x")]), dry=True
    )
    answer = harness.request(request, 1, IncrementalAlterConfigsResponse)
    assert [one.error_code for one in answer.responses] == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
    assert harness.broker.view.topics[TopicName("t")].configs == {}


def test_change_during_a_staged_produce_waits_for_the_write(harness: Harness) -> None:
    """The batch was accepted under the previous configuration."""
    waiting = harness.send(alter((TOPIC, "t", [("max.message.bytes", SET, "9"), ("segment.ms", SET, "1")])), 1)
    assert isinstance(waiting, ParkedRequest)
    partition = harness.broker.partitions[TopicPartition(TopicName("t"), 0)]
    talk = harness.talk()
    talk.receive_data(frame_of(produce(500), 9, 1, "staged"))
    while talk.step(harness.now, 0):
        pass
    assert partition.log.end_offset == 0, "it is staged"
    harness.settle()
    assert partition.configs.max_message_bytes == 9
    assert partition.log.end_offset == 1
    harness.resume(talk)
    answer = harness.decoded(talk.data_to_send(), 9, ProduceResponse)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    assert produce_error(harness, 500) == ErrorCode.MESSAGE_TOO_LARGE


def test_only_the_exact_broker_id_is_accepted_once(harness: Harness) -> None:
    edits: list[tuple[str, int, str | None]] = [("log.cleaner.threads", SET, "2")]
    codes = changed(harness, (BROKER, "1", edits), (BROKER, "01", edits), (BROKER, "2", edits), (BROKER, "x", edits))
    assert codes == [0, *[ErrorCode.INVALID_REQUEST] * 3]


@pytest.mark.slow
def test_change_of_many_topics_takes_short_turns(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    names = [f"t-{number}" for number in range(3000)]
    topics = [
        CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]) for name in names
    ]
    harness.request(CreateTopicsRequest(topics=topics), 7, CreateTopicsResponse)
    longest = []
    for value in ("5", "6", "7"):
        harness.longest_ns = 0
        edit: list[tuple[str, int, str | None]] = [("retention.ms", SET, value)]
        assert not any(changed(harness, *((TOPIC, name, edit) for name in names)))
        assert not any(changed(harness, (BROKER, "", [("log.segment.delete.delay.ms", SET, value)])))
        assert harness.broker.partitions[TopicPartition(TopicName("t-2999"), 0)].log.config.retention_ms == int(value)
        longest.append(harness.longest_ns / 1e6)
    assert min(longest) <= hold_ms_max()


def test_resources_with_a_configuration_are_listed(harness: Harness) -> None:
    def listed(version: int, *kinds: int) -> list[tuple[int, str]]:
        request = ListConfigResourcesRequest(resource_types=list(kinds))
        answer = harness.request(request, version, ListConfigResourcesResponse)
        assert not answer.error_code
        return sorted((one.resource_type, one.resource_name) for one in answer.config_resources)

    assert listed(0) == []
    assert listed(1) == [(TOPIC, "t"), (BROKER, "1"), (8, "1")]
    assert listed(1, TOPIC, 32) == [(TOPIC, "t")]
    assert listed(1, BROKER, BROKER, 16) == [(BROKER, "1")]
    wrong = harness.request(ListConfigResourcesRequest(resource_types=[3]), 1, ListConfigResourcesResponse)
    assert wrong.error_code == ErrorCode.UNSUPPORTED_VERSION
