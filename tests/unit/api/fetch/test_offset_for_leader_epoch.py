"""OffsetForLeaderEpoch: end offsets of leader epochs, as requested by followers and consumers."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.api.request.admission import Admission
from odradek.base.errors import ErrorCode
from odradek.base.limits import SLICE_ELEMENTS
from odradek.base.units import INT32_MAX, LeaderEpoch, TopicName, TopicPartition
from odradek.core.kernel.access import Operation, Principal, ResourceType
from odradek.core.partition.partition import Partition
from odradek.record.builder import encode_batch
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from odradek.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from odradek.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from support.in_memory import NOW_MS, Harness
from support.rights import Granted, Rule, on, on_cluster

LATEST = 4
VERSIONS = range(LATEST + 1)
NAME = TopicPartition(TopicName("t"), 0)
UNDEFINED = (ErrorCode.NONE, -1, -1)
MANY = 2 * SLICE_ELEMENTS + 50

EpochResult = tuple[int, int, int]  # The error, the epoch and its end offset.


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    made = Harness(tmp_path)
    topics = [
        CreatableTopic(name=name, num_partitions=2, replication_factor=1, assignments=[], configs=[])
        for name in ("t", "u")
    ]
    made.request(CreateTopicsRequest(topics=topics, timeout_ms=1_000), 5, CreateTopicsResponse)
    return made


@pytest.fixture
def partition(harness: Harness) -> Partition:
    """Return a partition with five records in epoch 0, two in epoch 3, and three in 5, the leader's epoch."""
    partition = harness.broker.partitions[NAME]
    for epoch, count in ((0, 5), (3, 2), (5, 3)):
        lead(harness, partition, epoch)
        put(harness, count)
    assert partition.log.epochs.entries == [(0, 0), (3, 5), (5, 7)]
    return partition


def lead(harness: Harness, partition: Partition, epoch: int) -> None:
    partition.lead(partition.info._replace(leader_epoch=LeaderEpoch(epoch)), harness.now)


def put(harness: Harness, count: int, acks: int = 1) -> None:
    records = encode_batch([(None, b"v", (), NOW_MS)] * count)
    topic = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=records)])
    request = ProduceRequest(acks=acks, timeout_ms=1_000, topic_data=[topic])
    if acks == 1:
        answer = harness.request(request, 9, ProduceResponse)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    else:
        harness.send(request, 9)


def topic(name: str, *epochs: tuple[int, int], current: int = -1) -> OffsetForLeaderTopic:
    """Return a request for epochs of partitions."""
    parts = [
        OffsetForLeaderPartition(partition=index, current_leader_epoch=current, leader_epoch=epoch)
        for index, epoch in epochs
    ]
    return OffsetForLeaderTopic(topic=name, partitions=parts)


def send_request(
    harness: Harness, *topics: OffsetForLeaderTopic, version: int = LATEST
) -> list[tuple[str, list[EpochResult]]]:
    request = OffsetForLeaderEpochRequest(replica_id=-1, topics=list(topics))
    answer = harness.request(request, version, OffsetForLeaderEpochResponse)
    return [(one.topic, list(map(result_of, one.partitions))) for one in answer.topics]


def result_of(part: EpochEndOffset) -> EpochResult:
    return part.error_code, part.leader_epoch, part.end_offset


def epoch_end(harness: Harness, epoch: int, *, index: int = 0, current: int = -1, version: int = LATEST) -> EpochResult:
    """Return the response for one partition."""
    ((name, (one,)),) = send_request(harness, topic("t", (index, epoch), current=current), version=version)
    assert name == "t"
    return one


@pytest.mark.usefixtures("partition")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("epoch", "known", "end"),
    [(0, 0, 5), (1, 0, 5), (2, 0, 5), (3, 3, 7), (4, 3, 7), (5, 5, 10), (6, -1, -1), (INT32_MAX, -1, -1), (-1, -1, -1)],
)
def test_epoch_ends_at_the_start_of_the_next(harness: Harness, version: int, epoch: int, known: int, end: int) -> None:
    assert epoch_end(harness, epoch, version=version) == (ErrorCode.NONE, known if version >= 1 else -1, end)


def test_the_leaders_epoch_is_known_before_it_has_a_record(harness: Harness, partition: Partition) -> None:
    lead(harness, partition, 8)
    assert epoch_end(harness, 8) == (ErrorCode.NONE, 8, 10)
    assert epoch_end(harness, 7) == epoch_end(harness, 5) == (ErrorCode.NONE, 5, 10)
    assert epoch_end(harness, 9) == UNDEFINED
    put(harness, 1)
    assert epoch_end(harness, 8) == (ErrorCode.NONE, 8, 11)
    assert epoch_end(harness, 7) == (ErrorCode.NONE, 5, 10)


@pytest.mark.parametrize("version", VERSIONS)
def test_empty_log_has_only_the_leaders_epoch(harness: Harness, version: int) -> None:
    known = 0 if version >= 1 else -1
    assert epoch_end(harness, 0, index=1, version=version) == (ErrorCode.NONE, known, 0)
    assert epoch_end(harness, 1, index=1, version=version) == UNDEFINED
    assert epoch_end(harness, -1, index=1, version=version) == UNDEFINED


def test_an_epoch_from_before_the_log_start(harness: Harness, partition: Partition) -> None:
    """It ends at the start of the oldest known epoch, where a reader of the missing epoch must continue."""
    partitions = [DeleteRecordsPartition(partition_index=0, offset=6)]
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=partitions)], timeout_ms=1_000)
    assert harness.request(request, 2, DeleteRecordsResponse).topics[0].partitions[0].error_code == ErrorCode.NONE
    assert partition.log.start_offset == 6
    assert epoch_end(harness, 0) == (ErrorCode.NONE, 0, 6)
    assert epoch_end(harness, 2) == (ErrorCode.NONE, 2, 6)
    assert epoch_end(harness, 3) == (ErrorCode.NONE, 3, 7)


def test_negative_epoch_is_treated_as_before_the_log_start(harness: Harness, partition: Partition) -> None:
    assert epoch_end(harness, -2) == (ErrorCode.NONE, -2, 0)
    lead(harness, harness.broker.partitions[NAME._replace(partition=1)], 4)
    assert epoch_end(harness, -2, index=1) == (ErrorCode.NONE, -2, 0)
    assert epoch_end(harness, 3, index=1) == (ErrorCode.NONE, 3, 0)
    assert partition.log.start_offset == 0


def test_the_latest_epoch_ends_above_the_high_watermark(harness: Harness, partition: Partition) -> None:
    put(harness, 2, acks=-1)  # No sync happens in between.
    assert partition.positions.high_watermark == 10
    assert epoch_end(harness, 5) == (ErrorCode.NONE, 5, 12)


@pytest.mark.usefixtures("partition")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("current", "code"),
    [
        (-1, ErrorCode.NONE),
        (5, ErrorCode.NONE),
        (4, ErrorCode.FENCED_LEADER_EPOCH),
        (0, ErrorCode.FENCED_LEADER_EPOCH),
        (6, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_the_clients_leader_epoch_is_checked(harness: Harness, version: int, current: int, code: ErrorCode) -> None:
    if version < 2:  # The request has no leader epoch.
        code = ErrorCode.NONE
    known = 3 if version >= 1 else -1
    expected = (code, -1, -1) if code else (code, known, 7)
    assert epoch_end(harness, 3, current=current, version=version) == expected


@pytest.mark.parametrize("version", VERSIONS)
def test_unknown_topics_and_partitions_are_refused(harness: Harness, version: int) -> None:
    unknown = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
    requested = [topic("nowhere", (0, 0)), topic("", (0, 0)), topic("t", (2, 0), (-1, 0), (INT32_MAX, 0))]
    assert send_request(harness, *requested, version=version) == [
        ("nowhere", [unknown]),
        ("", [unknown]),
        ("t", [unknown] * 3),
    ]


def test_partition_on_another_broker_is_refused(harness: Harness) -> None:
    del harness.broker.partitions[NAME]
    assert epoch_end(harness, 0) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, -1)
    assert epoch_end(harness, 0, current=9) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, -1)


def test_offline_log_returns_a_storage_error(harness: Harness, partition: Partition) -> None:
    partition.take_offline()
    for current in (-1, 0, 5, 6):
        assert epoch_end(harness, 3, current=current) == (ErrorCode.KAFKA_STORAGE_ERROR, -1, -1)
    assert epoch_end(harness, 0, index=1) == (ErrorCode.NONE, 0, 0)


@pytest.mark.usefixtures("partition")
@pytest.mark.parametrize("replica", [-2, -1, 0, 1, 2, INT32_MAX])
def test_replica_id_does_not_affect_the_response(harness: Harness, replica: int) -> None:
    request = OffsetForLeaderEpochRequest(replica_id=replica, topics=[topic("t", (0, 3))])
    (one,) = harness.request(request, LATEST, OffsetForLeaderEpochResponse).topics
    assert list(map(result_of, one.partitions)) == [(ErrorCode.NONE, 3, 7)]


@pytest.mark.usefixtures("partition")
@pytest.mark.parametrize("version", VERSIONS)
def test_repeated_partitions_are_answered_in_order(harness: Harness, version: int) -> None:
    def end(epoch: int, offset: int) -> EpochResult:
        return ErrorCode.NONE, epoch if version >= 1 else -1, offset

    requested = [topic("t", (1, 0), (0, 3), (0, 0), (0, 3)), topic("u"), topic("t", (0, 5))]
    assert send_request(harness, *requested, version=version) == [
        ("t", [end(0, 0), end(3, 7), end(0, 5), end(3, 7)]),
        ("u", []),
        ("t", [end(5, 10)]),
    ]
    assert send_request(harness, version=version) == []


# Authorization.


def as_user(harness: Harness, *rules: Rule) -> None:
    harness.peer.admission = Admission(Principal("User", "tester"), Granted(rules))


def test_unauthorized_topics_are_listed_last(harness: Harness) -> None:
    as_user(harness, *on(ResourceType.TOPIC, "u", may=[Operation.DESCRIBE]))
    denied = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1, -1)
    requested = [topic("t", (0, 0), (9, 0)), topic("nowhere", (0, 0)), topic("u", (0, 0))]
    assert send_request(harness, *requested) == [
        ("u", [(ErrorCode.NONE, 0, 0)]),
        ("t", [denied, denied]),
        ("nowhere", [denied]),
    ]


def test_cluster_action_covers_every_topic(harness: Harness) -> None:
    as_user(harness, *on_cluster(Operation.CLUSTER_ACTION))
    assert send_request(harness, topic("t", (0, 0)), topic("nowhere", (0, 0))) == [
        ("t", [(ErrorCode.NONE, 0, 0)]),
        ("nowhere", [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)]),
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_refused_request_returns_an_error_per_partition(harness: Harness, version: int) -> None:
    harness.peer.admission = Admission(refused=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    refused = (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, -1, -1)
    assert send_request(harness, topic("t", (0, 0), (1, 0)), topic("u"), version=version) == [
        ("t", [refused, refused]),
        ("u", []),
    ]


# In slices.


@pytest.mark.usefixtures("partition")
@pytest.mark.parametrize("is_allowed", [True, False])
def test_many_partitions_are_answered_in_slices(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, is_allowed: bool
) -> None:
    monkeypatch.setattr("odradek.api.request.outcome.SLICE_ELEMENTS", 0)  # A slice ends at every possible point.
    if not is_allowed:
        as_user(harness)
    code = ErrorCode.NONE if is_allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED
    expected = (code, 3, 7) if is_allowed else (code, -1, -1)
    ((_, parts),) = send_request(harness, topic("t", *[(0, 3)] * MANY))
    assert parts == [expected] * MANY
