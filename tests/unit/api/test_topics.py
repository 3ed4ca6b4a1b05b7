"""Topics and configurations without a socket, in every version: creation, growth, description, deletion, refusals."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.api.table import BY_KEY
from odradek.base.errors import ErrorCode
from odradek.base.units import NO_BROKER, TopicName
from odradek.base.uuids import ZERO_UUID
from odradek.core.kernel.purgatory import ParkedRequest
from odradek.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from odradek.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from odradek.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from odradek.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from odradek.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from odradek.wire.schema.api_keys import ApiKey
from odradek.wire.schema.malformed import Malformed
from support.controlling import Controlling
from support.in_memory import Harness


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return Harness(tmp_path)


def topic(name: str, partitions: int = 1, factor: int = 1, **configs: str | None) -> CreatableTopic:
    settings = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    return CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=factor, assignments=[], configs=settings
    )


def create(
    harness: Harness, *topics: CreatableTopic, version: int = 7, validate_only: bool = False
) -> list[CreatableTopicResult]:
    request = CreateTopicsRequest(topics=list(topics), validate_only=validate_only)
    return harness.request(request, version, CreateTopicsResponse).topics


def metadata(harness: Harness, *names: str, version: int = 12, create: bool = False) -> MetadataResponse:
    topics = [MetadataRequestTopic(name=name) for name in names]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=create or version < 4)
    return harness.request(request, version, MetadataResponse)


@pytest.mark.parametrize("version", range(2, 8))
def test_create_topics_works_in_every_version(harness: Harness, version: int) -> None:
    (made,) = create(harness, topic("a", 3, retention_ms="1000"), version=version)
    assert made.error_code == ErrorCode.NONE
    assert len(harness.broker.partitions) == 3
    if version >= 5:
        assert (made.num_partitions, made.replication_factor) == (3, 1)
        assert made.configs and "1000" in [config.value for config in made.configs if config.name == "retention.ms"]
    assert (made.topic_id != ZERO_UUID) == (version >= 7)


@pytest.mark.parametrize(
    ("new_topic", "code"),
    [
        (topic("a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("there"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (topic("a", 0), ErrorCode.INVALID_PARTITIONS),
        (topic("a", 1, 2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("a", no_such_thing="1"), ErrorCode.INVALID_CONFIG),
        (topic("a", retention_ms="soon"), ErrorCode.INVALID_CONFIG),
        (topic("a", retention_ms=None), ErrorCode.INVALID_CONFIG),
    ],
)
def test_invalid_topics_are_refused(harness: Harness, new_topic: CreatableTopic, code: ErrorCode) -> None:
    create(harness, topic("there"))
    bad, good = create(harness, new_topic, topic("good"))
    assert (bad.error_code, good.error_code) == (code, ErrorCode.NONE)
    assert bad.error_message


def test_repeated_topic_name_is_refused_once(harness: Harness) -> None:
    (refused,) = create(harness, topic("a"), topic("a"))
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert harness.broker.partitions == {}


def test_validate_only_writes_nothing(harness: Harness) -> None:
    (made,) = create(harness, topic("a", 3), validate_only=True)
    assert (made.error_code, made.num_partitions, made.topic_id) == (ErrorCode.NONE, 3, ZERO_UUID)
    assert harness.broker.partitions == {}


@pytest.mark.parametrize("version", range(1, 7))
def test_delete_topics_works_in_every_version(harness: Harness, version: int, tmp_path: Path) -> None:
    create(harness, topic("a"), topic("b"))
    names = ["a", "nowhere"]
    request = (
        DeleteTopicsRequest(topics=[DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in names], timeout_ms=1000)
        if version >= 6
        else DeleteTopicsRequest(topic_names=names, timeout_ms=1000)
    )
    answers = harness.request(request, version, DeleteTopicsResponse).responses
    assert {one.name: one.error_code for one in answers} == {
        "a": ErrorCode.NONE,
        "nowhere": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert [name.topic for name in harness.broker.partitions] == ["b"]
    assert next(path.name for path in tmp_path.glob("a-0*")).endswith("-delete")


def test_topics_are_deleted_by_id(harness: Harness) -> None:
    create(harness, topic("a"))
    known = harness.broker.view.topics[TopicName("a")].id
    states = [
        DeleteTopicState(topic_id=known),
        DeleteTopicState(topic_id=harness.broker.entropy.new_uuid()),
        DeleteTopicState(topic_id=ZERO_UUID),
        DeleteTopicState(name="a", topic_id=known),
    ]
    answers = harness.request(DeleteTopicsRequest(topics=states, timeout_ms=1000), 6, DeleteTopicsResponse).responses
    assert [one.error_code for one in answers] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
    ]
    assert answers[0].name == "a"


@pytest.mark.parametrize("version", range(4))
def test_create_partitions_works_in_every_version(harness: Harness, version: int) -> None:
    create(harness, topic("a"))
    new_partitions = [
        CreatePartitionsTopic(name="a", count=3, assignments=None),
        CreatePartitionsTopic(name="nowhere", count=3, assignments=None),
    ]
    request = CreatePartitionsRequest(topics=new_partitions, timeout_ms=1000, validate_only=False)
    answers = harness.request(request, version, CreatePartitionsResponse).results
    assert [one.error_code for one in answers] == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert len(harness.broker.partitions) == 3
    again = harness.request(request, version, CreatePartitionsResponse).results[0]
    assert again.error_code == ErrorCode.INVALID_PARTITIONS


@pytest.mark.parametrize("version", range(14))
def test_metadata_works_in_every_version(harness: Harness, version: int) -> None:
    create(harness, topic("a", 2), topic("b"))
    answer = metadata(harness, "a", version=version)
    assert [(broker.node_id, broker.host, broker.port) for broker in answer.brokers] == [(1, "127.0.0.1", 9092)]
    (one,) = answer.topics
    assert (one.name, one.error_code) == ("a", ErrorCode.NONE)
    assert [(part.partition_index, part.leader_id, part.isr_nodes) for part in one.partitions] == [
        (0, 1, [1]),
        (1, 1, [1]),
    ]


def test_metadata_covers_all_no_named_or_unknown_topics(harness: Harness) -> None:
    create(harness, topic("a"), topic("b"))

    def names(topics: list[MetadataRequestTopic] | None, version: int) -> list[str | None]:
        answer = harness.request(MetadataRequest(topics=topics), version, MetadataResponse)
        return [one.name for one in answer.topics]

    assert names(None, 1) == names([], 0) == ["a", "b"]
    assert names([], 1) == []
    known = harness.broker.view.topics[TopicName("a")].id
    assert names([MetadataRequestTopic(name=None, topic_id=known)], 12) == ["a"]
    unknown = metadata(harness, "nowhere", "a/b")
    assert [one.error_code for one in unknown.topics] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]


def test_metadata_creates_topics_if_allowed(harness: Harness, tmp_path: Path) -> None:
    assert metadata(harness, "a").topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert metadata(harness, "a", create=True).topics[0].error_code == ErrorCode.NONE
    assert metadata(harness, "a/b", create=True).topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    strict = Harness(tmp_path / "strict", auto_create_topics_enable="false")
    assert metadata(strict, "a", create=True).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", range(1, 5))
def test_describe_configs_works_in_every_version(harness: Harness, version: int) -> None:
    create(harness, topic("a", retention_ms="1000"))
    resources = [
        DescribeConfigsResource(resource_type=2, resource_name="a", configuration_keys=["retention.ms", "segment.ms"]),
        DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None),
        DescribeConfigsResource(resource_type=2, resource_name="nowhere", configuration_keys=None),
        DescribeConfigsResource(resource_type=9, resource_name="a", configuration_keys=None),
        DescribeConfigsResource(resource_type=4, resource_name="2", configuration_keys=None),
    ]
    request = DescribeConfigsRequest(resources=resources, include_synonyms=True)
    found = harness.request(request, version, DescribeConfigsResponse).results
    assert [one.error_code for one in found] == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
    ]
    retention, segment = sorted(found[0].configs, key=lambda config: config.name)
    assert (retention.value, retention.config_source, segment.config_source) == ("1000", 1, 5)
    assert retention.synonyms[0].name == "retention.ms"
    assert len(found[1].configs) > 200


@pytest.mark.parametrize("version", range(3))
def test_describe_cluster_works_in_every_version(harness: Harness, version: int) -> None:
    answer = harness.request(
        DescribeClusterRequest(include_cluster_authorized_operations=True), version, DescribeClusterResponse
    )
    assert (answer.cluster_id, answer.controller_id, len(answer.brokers)) == ("cluster", 1, 1)
    assert answer.cluster_authorized_operations > 0
    if version:
        wrong = DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=2)
        refused = harness.request(wrong, version, DescribeClusterResponse)
        assert refused.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE


def test_describe_topic_partitions_is_paginated(harness: Harness) -> None:
    create(harness, topic("a", 3), topic("b", 2))
    seen: list[tuple[str | None, int]] = []
    cursor: Cursor | None = None
    pages = 0
    while cursor is not None or not pages:
        request = DescribeTopicPartitionsRequest(topics=[], response_partition_limit=2, cursor=cursor)
        answer = harness.request(request, 0, DescribeTopicPartitionsResponse)
        seen += [(one.name, part.partition_index) for one in answer.topics for part in one.partitions]
        cursor, pages = answer.next_cursor, pages + 1
    assert seen == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1)]
    assert pages == 3
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="nowhere"), TopicRequest(name="a/b")])
    codes = [one.error_code for one in harness.request(request, 0, DescribeTopicPartitionsResponse).topics]
    assert codes == [ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


@pytest.mark.parametrize("version", range(6))
def test_api_versions_works_in_every_version(harness: Harness, version: int) -> None:
    request = ApiVersionsRequest(client_software_name="tests", client_software_version="1.0")
    answer = harness.request(request, version, ApiVersionsResponse)
    assert answer.error_code == ErrorCode.NONE
    assert {entry.api_key for entry in answer.api_keys} == {key for key, api in BY_KEY.items() if not api.is_own}


def test_api_versions_accepts_future_request_versions(harness: Harness) -> None:
    chunks = harness.send_raw(18, 99, b"whatever it may be")
    answer = harness.decoded(chunks, 0, ApiVersionsResponse)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [entry.api_key for entry in answer.api_keys] == [ApiKey.API_VERSIONS]


@pytest.mark.parametrize(("key", "version", "body"), [(999, 0, b""), (3, 99, b""), (0, 2, b""), (3, 12, b"\x00" * 3)])
def test_unsupported_or_malformed_request_closes_the_connection(
    harness: Harness, key: int, version: int, body: bytes
) -> None:
    with pytest.raises(Malformed):
        harness.send_raw(key, version, body)


@pytest.mark.parametrize(("name", "version"), [("", "1"), ("bad name", "1"), ("-x", "1"), ("x", "")])
def test_software_names_are_checked(harness: Harness, name: str, version: str) -> None:
    request = ApiVersionsRequest(client_software_name=name, client_software_version=version)
    assert harness.request(request, 3, ApiVersionsResponse).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("is_updated", [True, False])
def test_metadata_waits_for_the_first_update_after_the_start(harness: Harness, is_updated: bool) -> None:
    """Without a controller, the broker responds after a while with its own view."""
    controller, began = Controlling(harness), harness.now
    assert controller.send_leader_and_isr("flights") == {}
    harness.broker.view.controller = NO_BROKER
    message = MetadataRequest(topics=[MetadataRequestTopic(name="flights")], allow_auto_topic_creation=False)
    waiting = harness.send(message, 8)
    assert isinstance(waiting, ParkedRequest)
    if is_updated:
        controller.send_update_metadata({"flights": 1}, is_full=True)
    (found,) = harness.decoded(harness.finished(waiting), 8, MetadataResponse).topics
    expected = ErrorCode.NONE if is_updated else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (found.error_code, len(found.partitions), harness.now == began) == (expected, int(is_updated), is_updated)
