"""Groups and transactions whose coordinator is Odradek, then Kafka, then Odradek again, and the other way round.

Each finds the records of the other in __consumer_offsets and __transaction_state, in the versions of the
inter.broker.protocol.version. Members stay members, committed offsets stay, and decided transactions are completed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from kafka_zookeeper import OLD_KAFKA, V0, V3
from mixed_cluster import OURS, THEIRS, MixedCluster, mixed_cluster

from odradek.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from odradek.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from odradek.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse
from odradek.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from support.raw_client import RawClient
from support.waiting import SECONDS_MAX, until

pytestmark = [*OLD_KAFKA, pytest.mark.own_peer("shares a ZooKeeper with brokers of Apache Kafka")]

SOURCE = "orders"
TARGETS = ("bills", "alone")  # The latter has its only replica on broker 3.
SUBSCRIPTION = (
    b"\0\0\0\0\0\1\0\6orders\xff\xff\xff\xff"  # Version 0, of one topic; Kafka reads it when it loads a group.
)
GROUP, TRANSACTIONAL_ID = "g", "t"
MOVING = {14, 15, 16}  # Errors while a coordinator loads.
LASTING = {
    "session_timeout_ms": 240_000,
    "rebalance_timeout_ms": 240_000,
}  # There are no heartbeats while brokers change.


class RawMember:
    """The only member of a group, with request versions that 0.11 supports."""

    def __init__(self, cluster: MixedCluster) -> None:
        self._cluster = cluster
        self.member_id, self.generation = "", -1

    @contextmanager
    def _connected(self) -> Iterator[RawClient]:
        with RawClient(self._cluster.places[coordinator(self._cluster)].port) as client:
            yield client

    def join(self) -> None:
        protocol = JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)
        fields = {"member_id": self.member_id, "protocol_type": "consumer", "protocols": [protocol]}
        with self._connected() as client:
            joining = JoinGroupRequest(group_id=GROUP, **fields, **LASTING)  # type: ignore[arg-type]
            joined = client.request(joining, 2, JoinGroupResponse)
            assert joined.error_code == 0
            self.member_id, self.generation = joined.member_id, joined.generation_id
            all_of_it = [SyncGroupRequestAssignment(member_id=self.member_id, assignment=b"all")]
            syncing = SyncGroupRequest(
                group_id=GROUP, generation_id=self.generation, member_id=self.member_id, assignments=all_of_it
            )
            synced = client.request(syncing, 1, SyncGroupResponse)
            assert (synced.error_code, bytes(synced.assignment)) == (0, b"all")

    def heartbeat(self) -> int:
        with self._connected() as client:
            beat = HeartbeatRequest(group_id=GROUP, generation_id=self.generation, member_id=self.member_id)
            return client.request(beat, 1, HeartbeatResponse).error_code

    def commit(self, offset: int) -> int:
        at = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="as of")
        with self._connected() as client:
            request = OffsetCommitRequest(
                group_id=GROUP,
                generation_id_or_member_epoch=self.generation,
                member_id=self.member_id,
                topics=[OffsetCommitRequestTopic(name=SOURCE, partitions=[at])],
            )
            return client.request(request, 3, OffsetCommitResponse).topics[0].partitions[0].error_code


def coordinator(cluster: MixedCluster, key: str = GROUP, kind: int = 0) -> int:
    """Return the coordinator of a group or a transactional id, once all live brokers agree."""
    found: set[int] = set()

    def agree() -> bool:
        found.clear()
        for number in cluster.registered():
            with RawClient(cluster.places[number].port) as client:
                found.add(
                    client.request(FindCoordinatorRequest(key=key, key_type=kind), 1, FindCoordinatorResponse).node_id
                )
        return len(found) == 1 and -1 not in found and found <= cluster.registered()

    until(agree)
    return found.pop()


def coordinators(cluster: MixedCluster) -> list[int]:
    """Return the coordinators of the group and of the transactional id."""
    return [coordinator(cluster, GROUP, 0), coordinator(cluster, TRANSACTIONAL_ID, 1)]


def committed(cluster: MixedCluster, group: str) -> tuple[int, str | None]:
    """Return the offset and its metadata, -1 if there is none, once the coordinator has loaded."""
    answer = OffsetFetchResponse()

    def is_loaded() -> bool:
        nonlocal answer
        topics = [OffsetFetchRequestTopic(name=SOURCE, partition_indexes=[0])]
        with RawClient(cluster.places[coordinator(cluster, group)].port) as client:
            answer = client.request(OffsetFetchRequest(group_id=group, topics=topics), 3, OffsetFetchResponse)
        return answer.error_code not in MOVING

    until(is_loaded)
    assert answer.error_code == 0
    (part,) = answer.topics[0].partitions
    assert part.error_code == 0
    return part.committed_offset, part.metadata


def transactional(cluster: MixedCluster, transactional_id: str) -> Producer:
    settings = {"bootstrap.servers": cluster.address, "transactional.id": transactional_id, "log_level": 0}
    producer = Producer(settings | {"transaction.timeout.ms": 600_000})
    producer.init_transactions(SECONDS_MAX)
    return producer


def written(cluster: MixedCluster, producer: Producer, value: bytes, offset: int, *topics: str) -> None:
    """Write to topics in a transaction, with an offset, and leave it open."""
    producer.begin_transaction()
    for topic in topics:
        producer.produce(topic, value, partition=0)
    member = Consumer({"bootstrap.servers": cluster.address, "group.id": "of-t", "log_level": 0})
    producer.send_offsets_to_transaction(
        [TopicPartition(SOURCE, 0, offset)], member.consumer_group_metadata(), SECONDS_MAX
    )
    member.close()
    assert producer.flush(SECONDS_MAX) == 0


def commit(producer: Producer) -> None:
    """Retry the commit until it is answered; consumers see the outcome.

    librdkafka fails with UNSUPPORTED_FEATURE if it does not know yet what its next coordinator supports.
    """

    def is_answered() -> bool:
        try:
            producer.commit_transaction(SECONDS_MAX)
        except KafkaException as failed:
            return not failed.args[0].retriable()
        return True

    until(is_answered)


def read(cluster: MixedCluster, count: int, topics: tuple[str, ...] = TARGETS) -> list[tuple[str | None, bytes | None]]:
    """Return the committed records of the topics; wait until there are so many."""
    reader = Consumer({"bootstrap.servers": cluster.address, "group.id": "nobody", "log_level": 0})
    reader.assign([TopicPartition(topic, 0, 0) for topic in topics])
    found: list[tuple[str | None, bytes | None]] = []

    def is_enough() -> bool:
        message = reader.poll(1)
        if message is not None and message.error() is None:
            found.append((message.topic(), message.value()))
        return len(found) >= count

    until(is_enough)
    reader.close()
    return sorted(found, key=lambda one: (TARGETS.index(one[0] or ""), one[1] or b""))


class Story:
    """Clients' actions while the coordinators move; broker 3 leads a partition and coordinates nothing."""

    def __init__(self, cluster: MixedCluster) -> None:
        self._cluster = cluster
        self._member = RawMember(cluster)
        self._sent = 0
        self._member.join()

    def hands_over(self, stopped: int, to: int, *, planned: bool) -> None:
        """Make another broker coordinate; a transaction is decided before it can be completed."""
        cluster, member = self._cluster, self._member
        assert coordinators(cluster) == [stopped, stopped]
        generation = member.generation
        self._commit()
        left = transactional(cluster, "left")
        written(cluster, left, b"left open", 1000, "alone")
        self._sent += 1
        # librdkafka 2.16 waits for ever for a group's coordinator that has left the metadata once.
        producer = transactional(cluster, TRANSACTIONAL_ID)
        written(cluster, producer, b"%d" % self._sent, self._sent, *TARGETS)
        cluster.kill(3)
        committing = Thread(target=commit, args=(producer,), daemon=True)
        committing.start()  # Odradek answers when all markers are written, Kafka when it is decided.
        read(cluster, self._sent, TARGETS[:1])
        cluster.places[stopped].stop() if planned else cluster.kill(stopped)
        until(lambda: stopped not in cluster.registered())
        assert coordinators(cluster) == [to, to]
        assert committed(cluster, GROUP) == (self._sent - 1, "as of")
        assert member.heartbeat() == 0  # Kafka always returns this while it loads.
        self._commit()
        for number in (3, stopped):
            cluster.places[number].start()
        cluster.await_in_sync()
        committing.join()
        # An open transaction has ended, and a decided one has its outcome.
        transactional(cluster, "left")
        expected = [(topic, b"%d" % number) for topic in TARGETS for number in range(1, self._sent + 1)]
        assert read(cluster, len(expected)) == expected
        until(lambda: committed(cluster, "of-t") == (self._sent, ""))
        member.join()
        assert member.generation == generation + 1

    def _commit(self) -> None:
        assert self._member.commit(self._sent) == 0


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("version", "kinds"),
    [(V3, (OURS, THEIRS, OURS)), (V0, (THEIRS, OURS, THEIRS))],
)
def test_coordinators_take_over_from_each_other(tmp_path: Path, version: str, kinds: tuple[str, str, str]) -> None:
    with mixed_cluster(tmp_path, version, kinds, {"transaction.state.log.min.isr": "1"}) as cluster:
        for state in ("__consumer_offsets", "__transaction_state"):
            cluster.create(state, [[1, 2, 3]], cleanup_policy="compact")
        cluster.create(SOURCE, [[1, 2, 3]])
        for topic, replicas in zip(TARGETS, ([1, 2, 3], [3]), strict=True):
            cluster.create(topic, [replicas])
        story = Story(cluster)
        story.hands_over(1, 2, planned=False)
        story.hands_over(2, 1, planned=True)
        cluster.write_to_all()
        assert cluster.different() == []
        assert "Traceback" not in cluster.errors()
