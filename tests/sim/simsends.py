"""Sends of a transactional producer: batches to several partitions, with several requests in flight.

Depending on the seed, it uses transactions with an epoch each (KIP-890), which partitions join when they are written
to, or earlier ones, to which partitions are added. Batches without a response are resent with the same sequences.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from odradek.base.errors import ErrorCode
from odradek.base.units import TopicName, TopicPartition
from odradek.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from sim.history import Identity, Sent, Transaction
from sim.simclients import RETRY_US, Environment, batch_of
from sim.simclock import SimNode
from sim.simproducers import PRODUCE_TIMEOUT_MS
from sim.simsteps import RETRIABLE, SimSteps, Steps, TransactionFailed

GIVE_UP_SHARE = 0.15
DONE = (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)


@dataclass
class Unanswered:
    """A batch for one partition without a response so far."""

    records: list[Sent]
    sequence: int


Request = dict[TopicPartition, Unanswered]  # What is left of it.


class SimSender(SimSteps):
    """A sender of its own values, named "name-number", to some partitions of one topic."""

    writes = True

    def __init__(
        self, name: str, node: SimNode, environment: Environment, topic: TopicName, transactional_id: str
    ) -> None:
        super().__init__(name, node, environment)
        self.topic = topic
        self.transactional_id = transactional_id
        self.identity = Identity(transactional_id, (-1, -1), 0)
        self.has_epochs = self.random.random() < 0.5
        self.added: dict[TopicPartition, None] = {}  # To the transaction.
        self._version = 12 if self.has_epochs else self.random.choice((9, 11))
        self._codec = environment.keys.codec()
        self._values = 0
        self._numbers: Counter[TopicPartition] = Counter()
        self._sequences: Counter[TopicPartition] = Counter()

    def identify(self, producer_id: int, epoch: int) -> None:
        """Set the identity; sequences start again with a new epoch."""
        if (producer_id, epoch) != self.identity.producer:
            self._sequences.clear()
        self.identity = Identity(self.transactional_id, (producer_id, epoch), self.environment.clock.now_us)
        self.add_event("id", f"{producer_id} epoch {epoch}")

    def send(self, transaction: Transaction) -> Steps[None]:
        """Send some pipelined requests, each with batches for some partitions; raise TransactionFailed."""
        partitions = self.environment.partitions(self.topic)
        chosen = self.random.sample(partitions, self.random.randrange(1, len(partitions) + 1))
        yield from self._add(chosen)
        requests = [self._new_request(transaction, chosen) for _ in range(self.random.choice((1, 1, 2, 4)))]
        while requests:
            messages = [self._produce(request) for request in requests]
            answers: list[ProduceResponse | None] = yield self.request_all(messages, self._version, ProduceResponse)
            self._take_all(requests, answers)
            requests = [request for request in requests if request]
            if requests:
                if self.random.random() < GIVE_UP_SHARE:
                    raise TransactionFailed(ErrorCode.REQUEST_TIMED_OUT)
                yield self.pause(RETRY_US)

    def _add(self, partitions: list[TopicPartition]) -> Steps[None]:
        """Add partitions to the transaction, unless writing to them does; raise TransactionFailed."""
        new = [partition for partition in partitions if partition not in self.added]
        if self.has_epochs or not new:
            return
        producer_id, epoch = self.identity.producer
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=self.topic, partitions=[partition.partition for partition in new])
            ],
        )
        _, code = yield from self.request_with_retries(request, 3, AddPartitionsToTxnResponse, _first_error)
        if code is not ErrorCode.NONE:
            raise TransactionFailed(code)
        self.added.update(dict.fromkeys(new))

    def _new_request(self, transaction: Transaction, partitions: list[TopicPartition]) -> Request:
        return {partition: self._new_batch(transaction, partition) for partition in partitions}

    def _new_batch(self, transaction: Transaction, partition: TopicPartition) -> Unanswered:
        now_us, batch = self.environment.clock.now_us, Unanswered([], self._sequences[partition])
        for _ in range(self.random.choice((1, 1, 3))):
            self._values += 1
            value = self.environment.keys.value(f"{self.name}-{self._values}")
            number = self._numbers[partition]
            self._numbers[partition] += 1
            self._sequences[partition] += 1
            sent = Sent(self.name, number, partition, value, True, True, now_us, transaction=transaction)
            self.history.sent[value] = sent
            batch.records.append(sent)
        transaction.sent += batch.records
        return batch

    def _produce(self, request: Request) -> ProduceRequest:
        producer_id, epoch = self.identity.producer
        data: list[PartitionProduceData] = []
        for partition, batch in request.items():
            first, count = batch.records[0].value, len(batch.records)
            self.add_event("send", f"{partition} {first} +{count - 1} sequence {batch.sequence}")
            records = batch_of(
                [sent.value for sent in batch.records],
                self.node.now().wall,
                self._codec,
                producer_id=producer_id,
                epoch=epoch,
                sequence=batch.sequence,
                is_transactional=True,
            )
            data.append(PartitionProduceData(index=partition.partition, records=memoryview(records)))
        topics = [TopicProduceData(name=self.topic, partition_data=data)]
        return ProduceRequest(
            transactional_id=self.transactional_id, acks=-1, timeout_ms=PRODUCE_TIMEOUT_MS, topic_data=topics
        )

    def _take_all(self, requests: list[Request], answers: list[ProduceResponse | None]) -> None:
        """Handle the responses, and keep the batches to be resent; raise TransactionFailed."""
        behind: dict[TopicPartition, None] = {}  # Where an earlier batch is not written.
        spoils: ErrorCode | None = None
        for request, answer in zip(requests, answers, strict=True):
            for response in answer.responses[0].partition_responses if answer is not None else ():
                partition, code = TopicPartition(self.topic, response.index), ErrorCode(response.error_code)
                first = request[partition].records[0].value
                self.add_event("sent", f"{partition} {first} at {response.base_offset} {code.name}")
                must_wait = code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and partition in behind
                if code in DONE:
                    self._acknowledged(request.pop(partition).records, response.base_offset)
                elif code not in RETRIABLE and not must_wait:
                    spoils = spoils or code
            behind.update(dict.fromkeys(request))
        if spoils is not None:
            raise TransactionFailed(spoils)

    def _acknowledged(self, records: list[Sent], base_offset: int) -> None:
        for place, sent in enumerate(records):
            sent.acknowledged_us = self.environment.clock.now_us
            sent.offset = base_offset + place if base_offset >= 0 else None


def _first_error(answer: AddPartitionsToTxnResponse) -> int:
    """Return the error of a wrong partition, which prevents the others from being tried."""
    topics = answer.results_by_topic_v3_and_below
    codes = [part.partition_error_code for topic in topics for part in topic.results_by_partition]
    wrong = [code for code in codes if code not in (ErrorCode.NONE, ErrorCode.OPERATION_NOT_ATTEMPTED)]
    return next(iter(wrong), ErrorCode.NONE)
