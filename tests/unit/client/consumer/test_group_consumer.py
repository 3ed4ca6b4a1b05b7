"""Positions, commits and shutdown of a member, through rebalances, on a log with one record per batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from odradek.base.errors import ErrorCode
from odradek.base.units import Offset, TopicName, TopicPartition
from odradek.client.cluster.cluster import Cluster
from odradek.client.connection.client_config import ClientConfig
from odradek.client.connection.client_errors import ErrorResponse
from odradek.client.consumer.group_consumer import GroupConsumer
from odradek.client.consumer.group_member import GroupMember
from odradek.record.builder import encode_batch
from odradek.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from odradek.wire.messages.heartbeat import HeartbeatRequest
from odradek.wire.messages.leave_group import LeaveGroupRequest
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from odradek.wire.messages.offset_commit import OffsetCommitRequest
from odradek.wire.messages.offset_fetch import OffsetFetchRequest
from support.scripted_broker import ScriptedBroker
from support.scripted_coordinator import ScriptedCoordinator

pytestmark = pytest.mark.waits

T0, T1 = TopicPartition(TopicName("t"), 0), TopicPartition(TopicName("t"), 1)


class Logs:
    """Partitions of t: the number of records of each, and its start."""

    def __init__(self, broker: ScriptedBroker, ends: Sequence[int]) -> None:
        broker.topics["t"] = len(ends)
        self.ends = list(ends)
        self.starts = [0] * len(ends)
        broker.on(FetchRequest, self._fetch)
        broker.on(ListOffsetsRequest, self._list)

    def _fetch(self, request: FetchRequest, version: int) -> FetchResponse:
        topics = [
            FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[self._read(part.partition, part.fetch_offset) for part in topic.partitions],
            )
            for topic in request.topics
        ]
        return FetchResponse(responses=topics)

    def _read(self, index: int, offset: int) -> PartitionData:
        is_outside = not self.starts[index] <= offset <= self.ends[index]
        code = ErrorCode.OFFSET_OUT_OF_RANGE if is_outside else ErrorCode.NONE
        records = b""
        if not is_outside and offset < self.ends[index]:
            records = bytes(encode_batch([(None, b"%d-%d" % (index, offset), (), 0)], base_offset=Offset(offset)))
        return PartitionData(partition_index=index, error_code=code, high_watermark=self.ends[index], records=records)

    def _list(self, request: ListOffsetsRequest, version: int) -> ListOffsetsResponse:
        topics = [
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(
                        partition_index=part.partition_index,
                        error_code=0,
                        offset=(self.ends if part.timestamp == -1 else self.starts)[part.partition_index],
                    )
                    for part in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return ListOffsetsResponse(topics=topics)


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    with ScriptedBroker() as scripted:
        yield scripted


@pytest.fixture
def coordinator(broker: ScriptedBroker) -> ScriptedCoordinator:
    return ScriptedCoordinator(broker)


@pytest.fixture
def cluster(broker: ScriptedBroker) -> Iterator[Cluster]:
    config = ClientConfig(broker.address, retry_backoff_ms=1, retry_backoff_max_ms=5, api_timeout_ms=30_000)
    with Cluster(config) as connected:
        yield connected


def consumer_of(cluster: Cluster, logs: Logs, *, follows: bool = False) -> GroupConsumer:
    member = GroupMember(cluster, "g", ["t"], heartbeat_interval_ms=0)

    def start(partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return {each: logs.starts[each.partition] for each in partitions}

    return GroupConsumer(cluster, member, start=start, follows=follows)


def read(consumer: GroupConsumer, polls: int = 10_000) -> list[str]:
    """Return the values in order of arrival, with a commit after each poll."""
    values = []
    while not consumer.is_done and polls:
        for fetched in consumer.poll(100):
            if consumer.owns(fetched.partition):
                values.append(f"{fetched.partition.partition}-{fetched.fetch_offset}")
                consumer.processed(fetched.partition, fetched.next_offset)
        consumer.commit()
        polls -= 1
    return values


def test_consumer_continues_from_its_committed_offset(
    broker: ScriptedBroker, coordinator: ScriptedCoordinator, cluster: Cluster
) -> None:
    logs = Logs(broker, [3, 2])
    with consumer_of(cluster, logs) as consumer:
        assert sorted(read(consumer)) == ["0-0", "0-1", "0-2", "1-0", "1-1"]
    assert coordinator.committed == {("t", 0): 3, ("t", 1): 2}
    assert len(coordinator.seen(LeaveGroupRequest)) == 1
    logs.ends[0] = 5
    with consumer_of(cluster, logs) as consumer:
        assert read(consumer) == ["0-3", "0-4"]


def test_initial_position_is_committed_immediately(
    broker: ScriptedBroker, coordinator: ScriptedCoordinator, cluster: Cluster
) -> None:
    """A group that starts at the end finds, next time, the records written since."""
    logs = Logs(broker, [7])
    logs.starts[0] = 7
    with consumer_of(cluster, logs) as consumer:
        assert read(consumer) == []
        consumer.keep_alive()
    assert coordinator.committed == {("t", 0): 7}


def test_no_commit_is_sent_without_new_records(
    broker: ScriptedBroker, coordinator: ScriptedCoordinator, cluster: Cluster
) -> None:
    logs = Logs(broker, [3])
    coordinator.committed["t", 0] = 3
    with consumer_of(cluster, logs) as consumer:
        assert read(consumer, polls=3) == []
    assert coordinator.seen(OffsetCommitRequest) == []


def test_kept_partitions_continue_and_revoked_ones_are_skipped(
    broker: ScriptedBroker, coordinator: ScriptedCoordinator, cluster: Cluster
) -> None:
    logs = Logs(broker, [4, 4])
    with consumer_of(cluster, logs, follows=True) as consumer:
        arrived = consumer.poll(1_000)
        while {each.partition for each in arrived} != {T0, T1}:
            arrived = consumer.poll(1_000)
        coordinator.errors[HeartbeatRequest] = [ErrorCode.REBALANCE_IN_PROGRESS]
        coordinator.others["other"] = ["t"]
        consumer.keep_alive()  # While the caller processes records, t-1 moves to the other member.
        assert (consumer.owns(T0), consumer.owns(T1)) == (True, False)
        for fetched in arrived:
            consumer.processed(fetched.partition, fetched.next_offset)
        consumer.commit()
        assert coordinator.committed == {("t", 0): 1}
        assert read(consumer, polls=6)[:3] == ["0-1", "0-2", "0-3"], "neither again nor left out"


def test_returned_partition_continues_at_the_committed_offset(
    broker: ScriptedBroker, coordinator: ScriptedCoordinator, cluster: Cluster
) -> None:
    logs = Logs(broker, [4, 4])
    coordinator.others["other"] = ["t"]
    with consumer_of(cluster, logs) as consumer:
        assert read(consumer) == ["0-0", "0-1", "0-2", "0-3"]
        coordinator.committed["t", 1] = 2
        coordinator.others.clear()
        coordinator.errors[HeartbeatRequest] = [ErrorCode.REBALANCE_IN_PROGRESS]
        consumer.keep_alive()
        assert read(consumer) == ["1-2", "1-3"]


def test_records_polled_before_a_revocation_are_stale(
    broker: ScriptedBroker, coordinator: ScriptedCoordinator, cluster: Cluster
) -> None:
    logs = Logs(broker, [4, 4])
    with consumer_of(cluster, logs, follows=True) as consumer:
        arrived = consumer.poll(1_000)
        while {each.partition for each in arrived} != {T0, T1}:
            arrived = consumer.poll(1_000)
        for others in ({"other": ["t"]}, {}):
            coordinator.errors[HeartbeatRequest] = [ErrorCode.REBALANCE_IN_PROGRESS]
            coordinator.others = others
            consumer.keep_alive()
        assert (consumer.owns(T0), consumer.owns(T1)) == (True, False)
        assert sorted(each for each in read(consumer, polls=8) if each.startswith("1")) == ["1-0", "1-1", "1-2", "1-3"]


def test_removed_member_restarts_at_the_committed_offset(
    broker: ScriptedBroker, coordinator: ScriptedCoordinator, cluster: Cluster
) -> None:
    logs = Logs(broker, [4])
    with consumer_of(cluster, logs, follows=True) as consumer:
        while not (arrived := consumer.poll(1_000)):
            pass
        coordinator.errors[HeartbeatRequest] = [ErrorCode.UNKNOWN_MEMBER_ID]
        consumer.keep_alive()
        assert not consumer.owns(T0)
        consumer.processed(T0, arrived[0].next_offset)
        assert read(consumer, polls=4)[0] == "0-0"


def test_committed_offset_below_the_log_start_is_reset(
    broker: ScriptedBroker, coordinator: ScriptedCoordinator, cluster: Cluster
) -> None:
    logs = Logs(broker, [5])
    logs.starts[0] = 3
    coordinator.committed["t", 0] = 1
    with consumer_of(cluster, logs) as consumer:
        assert read(consumer) == ["0-3", "0-4"]
    assert coordinator.committed == {("t", 0): 5}


def test_member_without_partitions_reads_nothing(
    broker: ScriptedBroker, coordinator: ScriptedCoordinator, cluster: Cluster
) -> None:
    logs = Logs(broker, [5])
    coordinator.others["a"] = ["t"]
    with consumer_of(cluster, logs) as consumer:
        assert read(consumer) == []
        assert consumer.is_done
    with consumer_of(cluster, logs, follows=True) as consumer:
        assert consumer.poll(20) == []
        assert not consumer.is_done, "a rebalance may bring something"


def test_exception_of_the_caller_is_raised_on_exit(
    broker: ScriptedBroker, coordinator: ScriptedCoordinator, cluster: Cluster
) -> None:
    logs = Logs(broker, [2])
    with pytest.raises(KeyError), consumer_of(cluster, logs) as consumer:
        for fetched in consumer.poll(1_000):
            consumer.processed(fetched.partition, fetched.next_offset)
        coordinator.errors[OffsetCommitRequest] = [ErrorCode.GROUP_AUTHORIZATION_FAILED]
        raise KeyError
    assert len(coordinator.seen(LeaveGroupRequest)) == 1


def test_failed_commit_is_raised_on_exit(
    broker: ScriptedBroker, coordinator: ScriptedCoordinator, cluster: Cluster
) -> None:
    logs = Logs(broker, [2])
    with pytest.raises(ErrorResponse, match="not authorized"), consumer_of(cluster, logs) as consumer:
        consumer.poll(1_000)
        coordinator.errors[OffsetCommitRequest] = [ErrorCode.GROUP_AUTHORIZATION_FAILED]
    assert len(coordinator.seen(LeaveGroupRequest)) == 1


def test_interrupted_rebalance_is_repeated(
    broker: ScriptedBroker, coordinator: ScriptedCoordinator, cluster: Cluster
) -> None:
    """In the meantime, nothing is committed for partitions that other members received."""
    logs = Logs(broker, [4, 4])
    coordinator.others["a"] = ["t"]
    with consumer_of(cluster, logs, follows=True) as consumer:
        while not (arrived := consumer.poll(1_000)):
            pass
        consumer.processed(T1, arrived[0].next_offset)
        coordinator.others = {"z": ["t"]}  # It comes behind this member: t-0 is ours now, t-1 is its.
        coordinator.errors[HeartbeatRequest] = [ErrorCode.REBALANCE_IN_PROGRESS]
        coordinator.errors[OffsetFetchRequest] = [ErrorCode.GROUP_AUTHORIZATION_FAILED]
        with pytest.raises(ErrorResponse, match="not authorized"):
            consumer.keep_alive()
        consumer.commit()
        assert coordinator.committed == {}
        assert not consumer.owns(T1)
        assert read(consumer, polls=8) == ["0-0", "0-1", "0-2", "0-3"]
