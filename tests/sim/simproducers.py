"""Producers: an idempotent one with acks=all that retries until it knows the outcome, and one with acks=1.

The idempotent producer keeps several requests in flight. It resends batches without a response before any new batch, in
order and with the same sequences. If the broker rejects its oldest batch as out of order, the producer cannot know the
state of the log: it gives up on batches without a response, and continues with a new producer id (KIP-360).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from odradek.base.errors import ErrorCode
from odradek.base.units import TopicName, TopicPartition
from odradek.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from odradek.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from sim.history import Sent
from sim.simclients import Environment, SimClient, batch_of
from sim.simclock import MILLISECOND_US, SimNode

IN_FLIGHT_MAX = 5
PAUSE_US = (MILLISECOND_US, 400 * MILLISECOND_US)
PRODUCE_TIMEOUT_MS = 5_000
FATAL = {
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.INVALID_PRODUCER_EPOCH,
}


@dataclass(eq=False)
class Pending:
    """A batch without a response."""

    records: list[Sent]
    sequence: int
    is_in_flight: bool = False
    error: ErrorCode = ErrorCode.NONE


@dataclass
class Lane:
    """The state that a producer keeps for one partition."""

    pending: deque[Pending] = field(default_factory=deque)
    next_sequence: int = 0
    sent: int = 0

    @property
    def in_flight(self) -> int:
        return sum(batch.is_in_flight for batch in self.pending)


class SimProducer(SimClient):
    """A producer of its own values, named "name-number", to all partitions of one topic."""

    acks = -1
    is_idempotent = True
    writes = True

    def __init__(self, name: str, node: SimNode, environment: Environment, topic: TopicName) -> None:
        super().__init__(name, node, environment)
        self._topic = topic
        self._lanes = {partition: Lane() for partition in environment.partitions(topic)}
        self._values = 0
        self._id, self._epoch = -1, -1
        self._is_requesting_id = self._rests = False
        self._version = self.random.choice((9, 10, 12))
        self._codec = environment.keys.codec()

    @property
    def is_done(self) -> bool:
        return self.is_draining and not any(lane.pending for lane in self._lanes.values())

    def pump(self) -> None:
        if self.is_idempotent and self._id < 0:
            self._request_id()
            return
        is_ahead = False
        for partition, lane in self._lanes.items():
            is_ahead |= self._resend(partition, lane)
        if self.is_draining or self._rests or is_ahead:
            return
        self._send_new()
        self._rests = True
        self.node.after(self.random.randrange(*PAUSE_US), self._rested)

    def _rested(self) -> None:
        self._rests = False
        self.pump()

    # Its id.

    def _request_id(self) -> None:
        if not self._is_requesting_id:
            self._is_requesting_id = True
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
            self.link.send_request(request, 4, InitProducerIdResponse, self._has_id)

    def _has_id(self, answer: InitProducerIdResponse | None) -> None:
        self._is_requesting_id = False
        if answer is None or answer.error_code:
            self.again()
            return
        self._id, self._epoch = answer.producer_id, answer.producer_epoch
        self.add_event("id", f"{self._id} epoch {self._epoch}")
        self.pump()

    def _give_up(self, reason: ErrorCode) -> None:
        """Give up on records without a response, whose outcome is unknown."""
        for lane in self._lanes.values():
            for batch in lane.pending:
                for record in batch.records:
                    record.is_given_up = True
                    self.add_event("unknown", f"{record.value} {reason.name}")
            lane.pending.clear()
            lane.next_sequence = 0
        self._id = -1
        self.link.drop()

    # Sending.

    def _send_new(self) -> None:
        lanes = [partition for partition, lane in self._lanes.items() if len(lane.pending) < IN_FLIGHT_MAX]
        if not lanes:
            return
        chosen = self.random.sample(lanes, self.random.randrange(1, min(len(lanes), 3) + 1))
        request = [(partition, self._new_batch(partition)) for partition in chosen]
        self._produce(request)

    def _new_batch(self, partition: TopicPartition) -> Pending:
        lane, records = self._lanes[partition], list[Sent]()
        for _ in range(self.random.choice((1, 1, 2, 5))):
            self._values += 1
            value = self.environment.keys.value(f"{self.name}-{self._values}")
            is_all = self.acks == -1
            now_us = self.environment.clock.now_us
            sent = Sent(self.name, lane.sent, partition, value, is_all, self.is_idempotent, now_us)
            lane.sent += 1
            records.append(sent)
            self.history.sent[value] = sent
        self.add_event("send", f"{partition} {records[0].value} +{len(records) - 1} sequence {lane.next_sequence}")
        batch = Pending(records, lane.next_sequence if self.is_idempotent else -1)
        lane.next_sequence += len(records)
        lane.pending.append(batch)
        return batch

    def _resend(self, partition: TopicPartition, lane: Lane) -> bool:
        """Resend batches without a response, in order, once none is in flight; return True if there are any."""
        if not lane.pending or all(batch.is_in_flight for batch in lane.pending):
            return False
        if not lane.in_flight:
            for batch in lane.pending:
                self.add_event("resend", f"{partition} {batch.records[0].value} sequence {batch.sequence}")
                self._produce([(partition, batch)])
        return True

    def _produce(self, batches: list[tuple[TopicPartition, Pending]]) -> None:
        data: list[PartitionProduceData] = []
        for partition, batch in batches:
            batch.is_in_flight = True
            batch.error = ErrorCode.NONE
            values = [record.value for record in batch.records]
            records = batch_of(
                values,
                self.node.now().wall,
                self._codec,
                producer_id=self._id,
                epoch=self._epoch,
                sequence=batch.sequence,
            )
            data.append(PartitionProduceData(index=partition.partition, records=memoryview(records)))
        topics = [TopicProduceData(name=self._topic, partition_data=data)]
        request = ProduceRequest(acks=self.acks, timeout_ms=PRODUCE_TIMEOUT_MS, topic_data=topics)
        self.link.send_request(request, self._version, ProduceResponse, lambda answer: self._answered(batches, answer))

    # Answers.

    def _answered(self, batches: list[tuple[TopicPartition, Pending]], answer: ProduceResponse | None) -> None:
        responses = {} if answer is None else {one.index: one for one in answer.responses[0].partition_responses}
        assert answer is None or len(responses) == len(batches), "each partition is answered"
        fatal: ErrorCode | None = None
        for partition, batch in batches:
            batch.is_in_flight = False
            lane = self._lanes[partition]
            if batch not in lane.pending:
                continue  # It was given up.
            error = self._take(partition, lane, batch, responses.get(partition.partition))
            fatal = fatal or error
        if fatal is not None:
            self._give_up(fatal)
        self.again()

    def _take(
        self, partition: TopicPartition, lane: Lane, batch: Pending, response: PartitionProduceResponse | None
    ) -> ErrorCode | None:
        """Handle the response for one partition; return an error after which the outcome is unknown."""
        code = None if response is None else ErrorCode(response.error_code)
        if response is not None and code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            lane.pending.remove(batch)
            self._acknowledged(batch, response.base_offset)
        elif self._may_try_again(lane, batch, code):
            batch.error = ErrorCode.UNKNOWN_SERVER_ERROR if code is None else code
            self.add_event(
                "retry", f"{partition} {batch.records[0].value} {'no answer' if code is None else code.name}"
            )
        else:
            assert code is not None
            return code
        return None

    def _may_try_again(self, lane: Lane, batch: Pending, code: ErrorCode | None) -> bool:
        """Return True unless the oldest batch is out of order; a later one may follow a refused batch."""
        return code not in FATAL or batch is not lane.pending[0]

    def _acknowledged(self, batch: Pending, base_offset: int) -> None:
        now_us = self.environment.clock.now_us
        for number, record in enumerate(batch.records):
            record.acknowledged_us = now_us
            record.offset = base_offset + number if base_offset >= 0 else None
        first = batch.records[0]
        self.add_event("ok", f"{first.partition} {first.value} +{len(batch.records) - 1} at {base_offset}")


class SimPlainProducer(SimProducer):
    """A producer with acks=1 and without a producer id; each batch is sent once, with or without a response."""

    acks = 1
    is_idempotent = False

    def _take(
        self, partition: TopicPartition, lane: Lane, batch: Pending, response: PartitionProduceResponse | None
    ) -> ErrorCode | None:
        lane.pending.remove(batch)
        if response is not None and not response.error_code:
            self._acknowledged(batch, response.base_offset)
        else:
            reason = "no answer" if response is None else ErrorCode(response.error_code).name
            for record in batch.records:
                record.is_given_up = True
            self.add_event("unknown", f"{partition} {batch.records[0].value} {reason}")
        return None
