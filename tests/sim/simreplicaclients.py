"""Clients of the replicated cluster: each value is written once, and the clients remember all responses."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TypeVar

from odradek.base.errors import ErrorCode
from odradek.base.units import NO_BROKER, BrokerId, ProducerId, TopicPartition
from odradek.base.uuids import ZERO_UUID, Uuid
from odradek.core.kernel.cluster_view import LeaderAndIsr
from odradek.net.channels.channel_requests import RequestBuilder
from odradek.record.builder import encode_batch
from odradek.record.record_batch import iter_batches
from odradek.record.records import decode
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from sim.simclock import MILLISECOND_US
from sim.simfound import Found
from sim.simidempotent import ALL, PRODUCE, IdempotentProducer
from sim.simreplicated import ReplicatedCluster
from sim.simrequests import CLIENTS

T = TypeVar("T")

LEADER = 1
FETCH = 17  # By topic id.
READ_BYTES = 1_000
BREAK_US = 100 * MILLISECOND_US
IDEMPOTENT = 3  # Of the producers.


class SimReplicaClients:
    """All clients of one cluster."""

    # A cluster with brokers of older releases supports only older versions.
    produce_version, fetch_version = PRODUCE, FETCH

    def __init__(self, cluster: ReplicatedCluster) -> None:
        self.cluster = cluster
        self.random = cluster.random
        self._numbers = itertools.count()
        self._leaders: dict[tuple[Uuid, TopicPartition], tuple[int, BrokerId]] = {}  # With their epochs.
        self._partitions = Found(cluster.server, self._find_partitions)
        self.waits_for_all = self.random.random() < 0.5
        self.are_done = False
        self.acknowledged = 0
        self.read = 0

    def partitions(self) -> list[tuple[Uuid, TopicPartition]]:
        """Return the partitions that clients write to and read from."""
        return self._partitions.get()

    def _find_partitions(self) -> list[tuple[Uuid, TopicPartition]]:
        marked = self.cluster.admin.children("/admin/delete_topics")
        return [
            (topic.topic_id, TopicPartition(name, index))
            for name, topic in self.cluster.topics().items()
            if name not in marked and topic.topic_id != ZERO_UUID
            for index in topic.partitions
        ]

    def leader(self, topic_id: Uuid, partition: TopicPartition) -> BrokerId | None:
        """Return the leader of a partition according to a broker, unless its metadata is outdated."""
        alive = [member for member in self.cluster.members.values() if member.is_alive]
        info = self.random.choice(alive).metadata.get(partition) if alive else None
        known = self._leaders.get((topic_id, partition), (-1, NO_BROKER))
        if info is not None and info.state.leader_epoch >= known[0]:
            known = self._leaders[topic_id, partition] = info.state.leader_epoch, info.state.leader
        return known[1] if known[1] in self.cluster.members else None

    def learn_leader(self, topic_id: Uuid, partition: TopicPartition, state: LeaderAndIsr) -> None:
        """Record the leader of a partition."""
        self._leaders[topic_id, partition] = state.leader_epoch, state.leader

    def begin(self) -> None:
        self.send_next()
        self.producers = [IdempotentProducer(self, ProducerId(1000 + number)) for number in range(IDEMPOTENT)]

    # What they do.

    def send_next(self) -> None:
        """Start the next actions of the clients."""
        if self.are_done:
            return
        if self.random.random() < 0.6:
            self.produce()
        else:
            self.consume()
        self.cluster.clients.after(self.random.randrange(1, BREAK_US), self.send_next)

    def produce(self) -> None:
        """Let a client write records to a partition, and wait for all replicas or for the leader."""
        found = self.partitions()
        if found:
            acks = ALL if self.waits_for_all else self.random.choice((ALL, LEADER))
            self.write(*self.random.choice(found), acks=acks)

    def write(
        self,
        topic_id: Uuid,
        partition: TopicPartition,
        acks: int = ALL,
        then: Callable[[ErrorCode | None], None] = lambda _: None,
        count: int | None = None,
    ) -> None:
        """Write some records, `count` if given."""
        values = [b"%d" % next(self._numbers) for _ in range(count or self.random.randint(1, 3))]
        records = encode_batch([(None, value, (), self.time()) for value in values])
        self.send(topic_id, partition, values, records, acks, then)

    def send(  # noqa: PLR0917
        self,
        topic_id: Uuid,
        partition: TopicPartition,
        values: Sequence[bytes],
        records: bytearray,
        acks: int,
        then: Callable[[ErrorCode | None], None],
    ) -> None:
        """Send one batch to the supposed leader; `then` receives the error, or None without a response."""
        leader = self.leader(topic_id, partition)
        if leader is None:
            then(None)
            return
        request = self.produce_request(topic_id, partition, records, acks)

        def answered(response: ProduceResponse | None) -> None:
            if response is None:
                then(None)
                return
            (part,) = response.responses[0].partition_responses
            if part.error_code == ErrorCode.NONE and acks == ALL:
                self.is_acknowledged(topic_id, partition, values, part.base_offset)
            then(ErrorCode(part.error_code))

        self._send_request(leader, request, ProduceResponse, self.produce_version, answered)

    @staticmethod
    def produce_request(topic_id: Uuid, partition: TopicPartition, records: bytearray, acks: int) -> ProduceRequest:
        data = [PartitionProduceData(index=partition.partition, records=records)]
        topics = [TopicProduceData(name=partition.topic, topic_id=topic_id, partition_data=data)]
        return ProduceRequest(acks=acks, timeout_ms=800, topic_data=topics)

    def is_acknowledged(
        self, topic_id: Uuid, partition: TopicPartition, values: Sequence[bytes], base_offset: int
    ) -> None:
        """Record an acknowledged value, which must stay."""
        self.acknowledged += 1
        for number, value in enumerate(values):
            self._know(topic_id, partition, base_offset + number, value)

    def consume(self) -> None:
        """Let a client read a partition from some offset on."""
        found = self.partitions()
        if not found:
            return
        topic_id, partition = self.random.choice(found)
        leader = self.leader(topic_id, partition)
        if leader is None:
            return
        known = self.cluster.known.get((topic_id, partition), {})
        offset = self.random.randint(0, max(known, default=0) + 1)
        partitions = [
            FetchPartition(partition=partition.partition, fetch_offset=offset, partition_max_bytes=READ_BYTES)
        ]
        topics = [FetchTopic(topic=partition.topic, topic_id=topic_id, partitions=partitions)]
        wait, most = self.random.choice((0, 200)), READ_BYTES
        request = FetchRequest(max_wait_ms=wait, min_bytes=1, max_bytes=most, topics=topics, forgotten_topics_data=[])
        self._send_request(
            leader,
            request,
            FetchResponse,
            self.fetch_version,
            lambda answer: self._consumed(topic_id, partition, answer),
        )

    def _consumed(self, topic_id: Uuid, partition: TopicPartition, response: FetchResponse | None) -> None:
        for topic in response.responses if response is not None else ():
            for part in topic.partitions:
                assert isinstance(part.records, bytes | bytearray | memoryview | None)
                for batch in iter_batches(memoryview(part.records or b"")):
                    for number, record in enumerate(decode(batch)):
                        self.read += 1
                        self._know(topic_id, partition, batch.base_offset + number, record.value or b"")

    def check(self) -> None:
        """Check that a producer's acknowledged records are present once, in order."""
        for producer in self.producers:
            if producer.at is not None and producer.at in self.partitions():
                producer.check()

    def _know(self, topic_id: Uuid, partition: TopicPartition, offset: int, value: bytes) -> None:
        known = self.cluster.known.setdefault((topic_id, partition), {})
        if topic_id in self.cluster.unsafe:
            return
        assert known.get(offset, value) == value, f"{partition} has {value!r} at {offset}, where {known[offset]!r} was"
        known[offset] = value

    def _send_request(
        self, broker: BrokerId, message: object, kind: type[T], version: int, then: Callable[[T | None], None]
    ) -> None:
        self.cluster.request(CLIENTS, broker, RequestBuilder.of(message, kind, version), then)

    def time(self) -> int:
        return self.cluster.clients.now().wall
