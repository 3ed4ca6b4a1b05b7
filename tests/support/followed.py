"""Partitions that are followed here and read by consumers; the test controls their leader's log and responses."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from odradek.api.conversation import Conversation
from odradek.api.request.outcome import Encoded
from odradek.base.errors import ErrorCode
from odradek.base.units import LeaderEpoch, Offset, ProducerEpoch, ProducerId, TopicName, TopicPartition
from odradek.base.uuids import ZERO_UUID
from odradek.core.fetch.fetch_sessions import FINAL_EPOCH
from odradek.core.kernel.cluster_view import BrokerInfo
from odradek.core.kernel.purgatory import ParkedRequest
from odradek.core.partition.partition import Partition
from odradek.core.replication.leader_endpoint import EpochEnd, Fetched
from odradek.core.replication.replica_fetcher_manager import ReplicaFetch
from odradek.record.builder import encode_batch
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from support.asking import FETCH
from support.controlling import OTHER, Controlling, name_of, topic_id
from support.in_memory import NOW_MS, US, Harness
from support.invariants import check

BY_ID = 13
NO_RECORDS = memoryview(b"")


def batch(base: int, epoch: int = 0, *, records: int = 1, producer: int = -1, sequence: int = -1) -> bytes:
    """Return a batch as stamped by its leader; with a producer, it is part of a transaction."""
    return bytes(
        encode_batch(
            [(None, b"value", (), NOW_MS)] * records,
            base_offset=Offset(base),
            leader_epoch=LeaderEpoch(epoch),
            producer_id=ProducerId(producer),
            producer_epoch=ProducerEpoch(0 if producer >= 0 else -1),
            base_sequence=sequence,
            is_transactional=producer >= 0,
        )
    )


class Followed:
    """The topic t, whose partitions another broker leads."""

    def __init__(self, directory: Path, partitions: int = 1, **configs: str) -> None:
        self.harness = Harness(directory, **configs)
        self.controller = Controlling(self.harness)
        view = self.harness.broker.view
        view.brokers = {**view.brokers, OTHER: BrokerInfo(OTHER)}
        self.partitions = range(partitions)
        self.epoch = -1
        self.start_leader_epoch()
        self.controller.send_update_metadata({"t": partitions}, leader=OTHER, brokers=(US, OTHER))

    def start_leader_epoch(self) -> None:
        """Start another epoch with the same leader."""
        self.epoch += 1
        both = (OTHER, US)
        reported = self.controller.send_leader_and_isr(
            "t", *self.partitions, leader=OTHER, epoch=self.epoch, replicas=both, is_new=not self.epoch
        )
        assert reported == {}

    def partition(self, index: int = 0) -> Partition:
        return self.harness.broker.partitions[name_of("t", index)]

    @property
    def name(self) -> TopicPartition:
        return TopicPartition(TopicName("t"), 0)

    # The leader's side.

    def replicate(self, *batches: bytes, high_watermark: int, start: int = 0, index: int = 0) -> None:
        """Deliver a fetch response of the leader, as the shell does."""
        records = memoryview(bytearray(b"".join(batches)))
        self._answer({index: Fetched(ErrorCode.NONE, records, Offset(high_watermark), Offset(start))})

    def diverges(self, epoch: int, end: int, index: int = 0) -> None:
        """Deliver the leader's response about the end of an epoch in its log."""
        parted = EpochEnd(LeaderEpoch(epoch), Offset(end))
        self._answer({index: Fetched(ErrorCode.NONE, NO_RECORDS, Offset(-1), Offset(-1), parted)})

    def _answer(self, answers: Mapping[int, Fetched]) -> None:
        """Deliver responses, after an empty one that ends an older fetch in flight."""
        for responses in ({}, answers):
            for fetcher, request in self.harness.broker.fetchers.take_requests():
                self._fetching = fetcher, request
            fetcher, request = self._fetching
            assert isinstance(request, ReplicaFetch)
            answered = [(name_of("t", one), fetched) for one, fetched in responses.items()]
            for name in fetcher.fetched(request, 1, answered, self.harness.now):
                if name is not None:
                    self.harness.broker.purgatory.happened(name)
        check(self.harness.broker)

    # A consumer's side.

    def fetch(
        self,
        offset: int,
        *,
        version: int = FETCH,
        wait_ms: int = 0,
        isolation_level: int = 0,
        leader_epoch: int = -1,
        last_fetched_epoch: int = -1,
        replica_id: int = -1,
    ) -> Encoded | ParkedRequest[Encoded]:
        """Fetch without a session."""
        part = FetchPartition(
            partition=0,
            fetch_offset=offset,
            partition_max_bytes=1 << 20,
            current_leader_epoch=leader_epoch,
            last_fetched_epoch=last_fetched_epoch,
        )
        by_id = version >= BY_ID
        topic = FetchTopic(
            topic="" if by_id else "t", topic_id=topic_id("t") if by_id else ZERO_UUID, partitions=[part]
        )
        request = FetchRequest(
            replica_id=replica_id,
            max_wait_ms=wait_ms,
            min_bytes=1,
            isolation_level=isolation_level,
            session_epoch=FINAL_EPOCH,
            topics=[topic],
        )
        return self.harness.send(request, version)

    def response_of(self, outcome: Encoded | ParkedRequest[Encoded], version: int = FETCH) -> PartitionData:
        """Return the response for the only partition; a parked fetch waits until its deadline."""
        answer = self.harness.decoded(self.harness.finished(outcome), version, FetchResponse)
        assert not answer.error_code
        (topic,) = answer.responses
        (part,) = topic.partitions
        return part

    def is_waiting(self, outcome: Encoded | ParkedRequest[Encoded]) -> bool:
        """Return True if nothing has woken the fetch."""
        if not isinstance(outcome, ParkedRequest):
            return False
        assert isinstance(outcome.owner, Conversation)
        self.harness.settle()
        self.harness._completed += self.harness.broker.purgatory.take_completed()
        return outcome not in self.harness._completed
