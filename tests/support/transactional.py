"""A transactional producer over a Harness, one request at a time, so that any wrong order is possible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from odradek.base.errors import ErrorCode
from odradek.base.units import ProducerEpoch, ProducerId, TopicPartition
from odradek.core.coordinators.state_log import ProducerIdAndEpoch
from odradek.core.transactions.transaction_states import Transaction
from odradek.record.builder import encode_batch
from odradek.record.record_batch import iter_batches
from odradek.record.records import decode
from odradek.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from odradek.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from odradek.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from support.in_memory import Harness

EPOCHS, SHARED = 5, 4  # Versions of EndTxn: one epoch for each transaction, or a shared one.
NO_PRODUCER = ProducerIdAndEpoch(ProducerId(-1), ProducerEpoch(-1))


def make_topic(harness: Harness, name: str, partitions: int = 1) -> None:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
    answer = harness.request(CreateTopicsRequest(topics=[topic]), 7, CreateTopicsResponse)
    assert answer.topics[0].error_code == ErrorCode.NONE


class Transactional:
    """A producer. In `version` 2 each transaction has its own epoch; in 1 partitions are added, and epochs shared."""

    def __init__(self, harness: Harness, transactional_id: str = "t", version: int = 2) -> None:
        self.harness = harness
        self.id = transactional_id
        self.version = version
        self.producer = NO_PRODUCER
        self.sequences: dict[tuple[str, int], int] = {}
        self.find_coordinator()

    def find_coordinator(self) -> None:
        request = FindCoordinatorRequest(key_type=1, coordinator_keys=[self.id])
        (found,) = self.harness.request(request, 6, FindCoordinatorResponse).coordinators
        assert found.error_code == ErrorCode.NONE

    @property
    def state(self) -> Transaction:
        return self.harness.broker.transactions.states.find_transaction(self.id)[1]

    def begin(
        self,
        expected: ProducerIdAndEpoch = NO_PRODUCER,
        *,
        timeout_ms: int = 60_000,
        two_phases: bool = False,
        keep: bool = False,
    ) -> InitProducerIdResponse:
        """Send InitProducerId, and use the returned identity."""
        request = InitProducerIdRequest(
            transactional_id=self.id,
            transaction_timeout_ms=timeout_ms,
            producer_id=expected.id,
            producer_epoch=expected.epoch,
            enable2_pc=two_phases,
            keep_prepared_txn=keep,
        )
        answer = self.harness.request(request, 6 if two_phases or keep else 5, InitProducerIdResponse)
        if answer.error_code == ErrorCode.NONE:
            self.producer = ProducerIdAndEpoch(ProducerId(answer.producer_id), ProducerEpoch(answer.producer_epoch))
            self.sequences.clear()
        return answer

    def add(self, *names: tuple[str, int], version: int = 3) -> list[ErrorCode]:
        """Send AddPartitionsToTxn, as clients do."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.id,
            v3_and_below_producer_id=self.producer.id,
            v3_and_below_producer_epoch=self.producer.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[index]) for topic, index in names],
        )
        answer = self.harness.request(request, version, AddPartitionsToTxnResponse)
        results = [one for topic in answer.results_by_topic_v3_and_below for one in topic.results_by_partition]
        return [ErrorCode(one.partition_error_code) for one in results]

    def write(self, topic: str, *values: bytes, partition: int = 0, as_: ProducerIdAndEpoch | None = None) -> ErrorCode:
        """Send Produce with the next sequence; `as_` is an earlier identity."""
        (code,) = self.write_all(topic, {partition: values}, as_)
        return code

    def write_all(
        self, topic: str, values: Mapping[int, Sequence[bytes]], as_: ProducerIdAndEpoch | None = None
    ) -> list[ErrorCode]:
        """Write to many partitions with one Produce request."""
        request = self.produce(topic, values, as_)
        answer = self.harness.request(request, self.produce_version, ProduceResponse)
        codes = [ErrorCode(part.error_code) for part in answer.responses[0].partition_responses]
        for (partition, those), code in zip(values.items(), codes, strict=True):
            if code == ErrorCode.NONE:
                self.sequences[topic, partition] = self.sequences.get((topic, partition), 0) + len(those)
        return codes

    @property
    def produce_version(self) -> int:
        return 10 if self.version < 2 else 13

    def produce(
        self, topic: str, values: Mapping[int, Sequence[bytes]], as_: ProducerIdAndEpoch | None = None
    ) -> ProduceRequest:
        data = [
            PartitionProduceData(index=partition, records=self._batch((topic, partition), those, as_ or self.producer))
            for partition, those in values.items()
        ]
        by_name = TopicProduceData(name=topic, partition_data=data)
        by_id = TopicProduceData(topic_id=self.harness.broker.view.topics[topic].id, partition_data=data)  # type: ignore[index]
        topics = [by_name if self.version < 2 else by_id]
        return ProduceRequest(transactional_id=self.id, acks=-1, timeout_ms=1000, topic_data=topics)

    def _batch(self, key: tuple[str, int], values: Sequence[bytes], producer: ProducerIdAndEpoch) -> bytearray:
        return encode_batch(
            [(None, value, (), self.harness.now.wall) for value in values],
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            base_sequence=self.sequences.get(key, 0),
            is_transactional=True,
        )

    def end(self, *, commit: bool, as_: ProducerIdAndEpoch | None = None, version: int | None = None) -> ErrorCode:
        """Send EndTxn, and use the returned identity."""
        version = version if version is not None else EPOCHS if self.version == 2 else SHARED
        answer = self.harness.request(self.end_request(commit=commit, as_=as_), version, EndTxnResponse)
        if answer.error_code == ErrorCode.NONE and version >= EPOCHS and as_ is None:
            self.producer = ProducerIdAndEpoch(ProducerId(answer.producer_id), ProducerEpoch(answer.producer_epoch))
            self.sequences.clear()
        return ErrorCode(answer.error_code)

    def end_request(self, *, commit: bool, as_: ProducerIdAndEpoch | None = None) -> EndTxnRequest:
        producer = as_ or self.producer
        return EndTxnRequest(
            transactional_id=self.id, producer_id=producer.id, producer_epoch=producer.epoch, committed=commit
        )


def committed(harness: Harness, topic: str, partition: int = 0) -> list[bytes]:
    """Return the values seen by a read-committed consumer."""
    return _read(harness, topic, partition, isolation_level=1)


def written(harness: Harness, topic: str, partition: int = 0) -> list[bytes]:
    """Return the values seen by a read-uncommitted consumer."""
    return _read(harness, topic, partition, isolation_level=0)


def _read(harness: Harness, topic: str, partition: int, isolation_level: int) -> list[bytes]:
    requested = FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        isolation_level=isolation_level,
        topics=[FetchTopic(topic=topic, partitions=[requested])],
        forgotten_topics_data=[],
    )
    (part,) = harness.request(request, 12, FetchResponse).responses[0].partitions
    assert part.error_code == ErrorCode.NONE
    aborted = sorted((one.first_offset, one.producer_id) for one in part.aborted_transactions or ())
    left_out: set[int] = set()
    values = []
    for batch in iter_batches(part.records or b""):  # type: ignore[arg-type]  # What was received is bytes.
        while aborted and aborted[0][0] <= batch.last_offset:
            left_out.add(aborted.pop(0)[1])
        if batch.is_control:
            left_out.discard(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in left_out):
            values += [record.value or b"" for record in decode(batch)]
    return values


def last_stable(harness: Harness, topic: str, partition: int = 0) -> int:
    return harness.broker.partitions[TopicPartition(topic, partition)].last_stable_offset  # type: ignore[arg-type]
