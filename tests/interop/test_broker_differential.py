"""The same requests to Odradek and to Apache Kafka 4.3.0: the answers are equal, field by field.

Left out of the comparison: times, ids that are drawn, ports, sentences for people, and the order of what the protocol
does not order.  Known to differ, and so not asked here: a topic that metadata creates is there at once; a fetch never
cuts a batch; codecs and lengths that make Kafka answer UNKNOWN_SERVER_ERROR have an error of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest
from kafka_peer import REAL_KAFKA, KafkaBroker

from odradek.base.errors import ErrorCode
from odradek.base.uuids import ZERO_UUID, Uuid
from odradek.record.builder import encode_batch
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from odradek.wire.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.wire.messages.describe_cluster import DescribeClusterRequest
from odradek.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from odradek.wire.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from odradek.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from support.both_sides import NOW_MS, Side, batch, compare, topic
from support.serving import Serving

pytestmark = REAL_KAFKA


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    ours = Serving(tmp_path_factory.mktemp("ours"), **{"node.id": "1"})
    with ours, KafkaBroker(tmp_path_factory.mktemp("kafka")) as kafka:
        yield Side(ours.port), Side(kafka.port)


def flipped(records: bytes) -> bytes:
    return records[:-1] + bytes([records[-1] ^ 1])


RECORDS: dict[str, bytes | None] = {
    "empty": b"",
    "rubbish": b"rubbish",
    "flipped": flipped(batch()),
    "cut": batch()[:-1],
    "two": batch() * 2,
    "old format": batch()[:16] + b"\1" + batch()[17:],
    "control": bytes(encode_batch([(b"\0\0\0\0", b"", (), NOW_MS)], is_control=True)),
    "of the future": batch(NOW_MS + 10**9),
    "too large": bytes(encode_batch([(None, b"x" * 1_100_000, (), NOW_MS)])),
    "without sequence": batch(producer_id=5, producer_epoch=0, base_sequence=-1),
}


@pytest.mark.parametrize("version", [3, 7, 9, 12, 13])
@pytest.mark.parametrize("records", RECORDS)
def test_produce(sides: tuple[Side, Side], version: int, records: str) -> None:
    def case(side: Side) -> object:
        parts = [PartitionProduceData(index=0, records=RECORDS[records])]
        named = {"topic_id": side.t_id} if version >= 13 else {"name": "t"}
        topics = [TopicProduceData(partition_data=parts, **named)]
        return side.ask(ProduceRequest(acks=1, timeout_ms=1000, topic_data=topics), version)

    compare(sides, case)


@pytest.mark.parametrize(("acks", "name", "index"), [(2, "t", 0), (-1, "nowhere", 0), (1, "t", 9), (0, "t", 9)])
def test_produce_that_goes_nowhere(sides: tuple[Side, Side], acks: int, name: str, index: int) -> None:
    parts = [PartitionProduceData(index=index, records=batch())]
    topics = [TopicProduceData(name=name, partition_data=parts)]
    compare(sides, lambda side: side.ask(ProduceRequest(acks=acks, timeout_ms=1000, topic_data=topics), 9))


FETCHES = {
    "all": [(0, 0, 1 << 20), (1, 0, 1 << 20)],
    "inside a batch": [(0, 5, 1 << 20)],
    "the end": [(0, 20, 1 << 20)],
    "beyond it": [(0, 21, 1 << 20)],
    "before the start": [(0, -1, 1 << 20)],
    "nothing but one": [(0, 0, 0)],
    "the same twice": [(0, 0, 1 << 20), (0, 18, 1 << 20)],
    "no such partition": [(9, 0, 1)],
    "none": [],
}


@pytest.mark.parametrize("version", [4, 7, 11, 12, 13, 17, 18])
@pytest.mark.parametrize("asked", FETCHES)
def test_fetch(sides: tuple[Side, Side], version: int, asked: str) -> None:
    def case(side: Side) -> object:
        parts = [
            FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=size)
            for index, offset, size in FETCHES[asked]
        ]
        named = {"topic_id": side.t_id} if version >= 13 else {"topic": "t"}
        topics = [FetchTopic(partitions=parts, **named)] if parts else []
        request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=topics, forgotten_topics_data=[])
        answer = side.ask(request, version)
        return without_aborted(answer)

    compare(sides, case)


def without_aborted(answer: object) -> str:
    """Null and empty mean the same: nothing was aborted."""
    return repr(answer).replace("'aborted_transactions': None", "'aborted_transactions': []")


def test_a_fetch_session(sides: tuple[Side, Side]) -> None:
    def case(side: Side) -> object:
        session = 0
        answers = []
        steps: list[tuple[int, list[tuple[int, int]]]] = [
            (0, [(0, 18), (1, 0)]),
            (1, [(0, 20)]),
            (2, []),
            (2, []),
            (9, []),
            (3, [(9, 0)]),
            (-1, [(0, 20)]),
            (1, []),
        ]
        for epoch, asked in steps:
            parts = [
                FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
                for index, offset in asked
            ]
            topics = [FetchTopic(topic="t", partitions=parts)] if parts else []
            request = FetchRequest(
                max_wait_ms=0,
                min_bytes=1,
                session_id=session,
                session_epoch=epoch,
                topics=topics,
                forgotten_topics_data=[],
            )
            answer = side.client.ask(request, 12, FetchResponse)
            session = session or answer.session_id
            answers.append(without_aborted(side.plain(answer)))
        return answers

    compare(sides, case)


@pytest.mark.parametrize("version", [1, 4, 7, 8, 9, 11])
@pytest.mark.parametrize("name", ["t", "empty"])
def test_list_offsets(sides: tuple[Side, Side], version: int, name: str) -> None:
    def case(side: Side) -> object:
        answers = []
        for timestamp in (*range(-7, 1), NOW_MS, NOW_MS + 1, NOW_MS + 90, NOW_MS + 91):
            part = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
            request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=[part])])
            answers.append(side.ask(request, version))
        return answers

    compare(sides, case)


@pytest.mark.parametrize("version", [0, 1, 4, 5, 7, 8, 10, 12, 13])
def test_metadata(sides: tuple[Side, Side], version: int) -> None:
    def case(side: Side) -> object:
        names: list[list[str]] = [["t", "empty", "t"]]
        if version >= 4:
            names += [["nowhere"], ["a/b"], [""], ["."], ["x" * 250]]
        return [
            side.ask(
                MetadataRequest(
                    topics=[MetadataRequestTopic(name=name) for name in each],
                    allow_auto_topic_creation=version < 4,
                    include_topic_authorized_operations=version >= 8,
                ),
                version,
            )
            for each in names
        ]

    compare(sides, case)


@pytest.mark.parametrize("version", [10, 12, 13])
def test_metadata_by_id(sides: tuple[Side, Side], version: int) -> None:
    def case(side: Side) -> object:
        asked = [(None, side.t_id), (None, Uuid(b"\5" * 16)), ("t", side.t_id)]
        return [
            side.ask(
                MetadataRequest(
                    topics=[MetadataRequestTopic(name=name, topic_id=topic_id)], allow_auto_topic_creation=False
                ),
                version,
            )
            for name, topic_id in asked
        ]

    compare(sides, case)


TOPICS: dict[str, list[CreatableTopic]] = {
    "good": [topic("good", 3, retention_ms="1000")],
    "defaults": [topic("good", -1, -1)],
    "there": [topic("t"), topic("good")],
    "named badly": [topic("a/b"), topic(""), topic(".."), topic("x" * 250)],
    "twice": [topic("good"), topic("good")],
    "too few": [topic("good", 0), topic("better", -2)],
    "too many copies": [topic("good", 1, 2), topic("better", 1, 0)],
    "configured badly": [
        topic("good", no_such="1"),
        topic("better", retention_ms="soon"),
        topic("best", retention_ms=None),
    ],
    "wrong in every way": [
        topic("a/b", 0, 5, no_such="1"),
        topic("t", 0, 5, no_such="1"),
        topic("good", 0, 5, no_such="1"),
    ],
    "by hand": [topic("good", -1, -1, {0: [1], 1: [1]})],
    "by a bad hand": [
        topic("a", -1, -1, {0: [9]}),
        topic("b", -1, -1, {1: [1]}),
        topic("c", -1, -1, {0: [1, 1]}),
        topic("d", -1, -1, {0: []}),
        topic("e", 1, 1, {0: [1]}),
    ],
}


@pytest.mark.parametrize("version", [2, 5, 6])  # From 7 on Kafka draws an id even for what it is not to make.
@pytest.mark.parametrize("wanted", TOPICS)
def test_create_topics_asked_only(sides: tuple[Side, Side], version: int, wanted: str) -> None:
    request = CreateTopicsRequest(topics=TOPICS[wanted], timeout_ms=5000, validate_only=True)
    compare(sides, lambda side: side.ask(request, version))


def test_topics_from_their_making_to_their_end(sides: tuple[Side, Side]) -> None:
    name = f"d-{uuid4().hex[:8]}"

    def grown(count: int, *assignments: list[int]) -> CreatePartitionsRequest:
        by_hand = [CreatePartitionsAssignment(broker_ids=ids) for ids in assignments] or None
        wanted = [CreatePartitionsTopic(name=name, count=count, assignments=by_hand)]
        return CreatePartitionsRequest(topics=wanted, timeout_ms=5000, validate_only=False)

    def case(side: Side) -> object:
        made = side.client.ask(CreateTopicsRequest(topics=[topic(name, 2)], timeout_ms=9000), 7, CreateTopicsResponse)
        assert made.topics[0].error_code == ErrorCode.NONE
        sizes = [grown(2), grown(1), grown(4, [9], [1]), grown(4, [1]), grown(4, [1], [1]), grown(5)]
        answers = [side.ask(growth, 3) for growth in sizes]
        unknown = Uuid(b"\5" * 16)
        states = [
            [DeleteTopicState(name="nowhere", topic_id=ZERO_UUID)] * 2,
            [DeleteTopicState(topic_id=unknown), DeleteTopicState(topic_id=ZERO_UUID)],
            [DeleteTopicState(name=name, topic_id=made.topics[0].topic_id)],
            [DeleteTopicState(name=name, topic_id=ZERO_UUID)] * 2,
            [DeleteTopicState(topic_id=made.topics[0].topic_id), DeleteTopicState(name="nowhere", topic_id=ZERO_UUID)],
        ]
        return answers + [side.ask(DeleteTopicsRequest(topics=each, timeout_ms=9000), 6) for each in states]

    compare(sides, case)


@pytest.mark.parametrize("version", [1, 3, 4])
def test_describe_configs(sides: tuple[Side, Side], version: int) -> None:
    resources = [(2, "t", None), (2, "t", ["retention.ms", "no.such"]), (2, "nowhere", None), (2, "a/b", None)]
    resources += [(4, "1", ["num.io.threads", "log.retention.hours"]), (4, "2", None), (4, "x", None), (3, "x", None)]

    def case(side: Side) -> object:
        return [
            side.ask(
                DescribeConfigsRequest(
                    resources=[
                        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
                    ],
                    include_synonyms=True,
                ),
                version,
            )
            for kind, name, keys in resources
        ]

    compare(sides, case)


def test_describe_topic_partitions(sides: tuple[Side, Side]) -> None:
    asked: list[tuple[list[str], int, tuple[str, int] | None]] = [
        (["t", "empty", "t"], 2000, None),
        (["nowhere"], 2000, None),
        (["t", "empty"], 1, None),
        (["t", "empty"], 0, None),
        (["t", "empty"], 2000, ("t", 1)),
        (["t", "empty"], 2000, ("t", 7)),
        (["t", "empty"], 2000, ("tt", 0)),
        (["t"], 2000, ("t", -1)),
    ]

    def case(side: Side) -> object:
        return [
            side.ask(
                DescribeTopicPartitionsRequest(
                    topics=[TopicRequest(name=name) for name in names],
                    response_partition_limit=limit,
                    cursor=None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1]),
                ),
                0,
            )
            for names, limit, cursor in asked
        ]

    compare(sides, case)


@pytest.mark.parametrize(("version", "kind"), [(0, 1), (1, 1), (1, 2), (2, 3)])
def test_describe_cluster(sides: tuple[Side, Side], version: int, kind: int) -> None:
    request = DescribeClusterRequest(include_cluster_authorized_operations=True, endpoint_type=kind)
    compare(sides, lambda side: side.ask(request, version))


@pytest.mark.parametrize("name", ["", "a b", "-a", "a-", "a.b", "\u00e9"])
def test_api_versions_of_software_with_odd_names(sides: tuple[Side, Side], name: str) -> None:
    request = ApiVersionsRequest(client_software_name=name, client_software_version="1")
    codes = [repr(side.ask(request, 3)).partition(",")[0] for side in sides]
    assert codes[0] == codes[1]
