"""Produce, versions 3 to 13.

Order: batches of one connection are appended in the order received.  v5: log start offset in the answer.  v8: record
errors and a sentence (KIP-467).  v9: flexible.  v10: the current leader for who asks the wrong broker (KIP-951).
v13: topics by id (KIP-516).  acks: 0 answers nothing, 1 after the write, all (-1) once the partition's in-sync
replicas have it, which on an unreplicated partition means: once it is synced to the disk.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from odradek.api.call import Call
from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import NO_OFFSET, NO_TIMESTAMP, SECOND_MS, TopicName, TopicPartition
from odradek.core import ingress
from odradek.core.broker import Broker
from odradek.core.parked import Parked
from odradek.core.partition import Written
from odradek.record.batch import Batch
from odradek.record.compression import Codec
from odradek.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from odradek.wire.schema import maker

ACKS_NONE, ACKS_LEADER, ACKS_ALL = 0, 1, -1
SYNC_MS_MIN = 5 * SECOND_MS
ZSTD_SINCE = 7
TOPIC_IDS_SINCE = 13

_answer = maker(ProduceResponse)
_partition_answer = maker(PartitionProduceResponse)
_topic_answer = maker(TopicProduceResponse)


def handle(call: Call, body: ProduceRequest) -> ProduceResponse | Parked[ProduceResponse] | None:
    if body.acks not in (ACKS_NONE, ACKS_LEADER, ACKS_ALL):
        return refuse(call, body, ErrorCode.INVALID_REQUIRED_ACKS)
    waiting = Acknowledgement(call.broker)
    topics = [_append_topic(call, body, topic, waiting) for topic in body.topic_data]
    response = _answer(responses=topics)
    if body.acks == ACKS_NONE:
        # Nothing to answer with: like Kafka, close the connection so that the client looks again for the leader.
        if any(part.error_code for topic in topics for part in topic.partition_responses):
            raise ConnectionAbortedError("a produce with acks=0 failed")
        return None
    if not waiting.pending:
        return response
    # The client's timeout is for replicas.  Without a floor a timeout of 0 would end before any sync can.
    deadline = call.now.steady + max(body.timeout_ms, SYNC_MS_MIN)
    return Parked(waiting, deadline, lambda: waiting.settle(response))


def refuse(call: Call, body: ProduceRequest, code: ErrorCode) -> ProduceResponse | None:
    if body.acks == ACKS_NONE:
        return None
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[_refused(part.index, Refused(code)) for part in topic.partition_data],
            )
            for topic in body.topic_data
        ]
    )


def _append_topic(
    call: Call, body: ProduceRequest, topic: TopicProduceData, waiting: Acknowledgement
) -> TopicProduceResponse:
    try:
        by_id = call.version >= TOPIC_IDS_SINCE
        name = call.broker.topic_name(topic.topic_id) if by_id else TopicName(topic.name)
    except Refused as refused:
        parts = [_refused(part.index, refused) for part in topic.partition_data]
    else:
        parts = [_append_partition(call, body, name, part, waiting) for part in topic.partition_data]
    return _topic_answer(name=topic.name, topic_id=topic.topic_id, partition_responses=parts)


def _append_partition(
    call: Call, body: ProduceRequest, topic: TopicName, part: PartitionProduceData, waiting: Acknowledgement
) -> PartitionProduceResponse:
    broker, acks = call.broker, body.acks
    try:
        partition = broker.partition(topic, part.index)
        batch = ingress.admitted(partition, part.records, call.now)
        if batch.attributes:  # None are set in most batches.
            _check_allowed(call, body, batch)
        written = broker.append(partition, batch, call.now, all_replicas=acks == ACKS_ALL)
    except Refused as refused:
        return _refused(part.index, refused)
    answer = _partition_answer(
        index=part.index,
        error_code=ErrorCode.NONE,
        base_offset=written.base_offset,
        log_append_time_ms=written.log_append_time,
        log_start_offset=partition.log.start_offset,
    )
    if written.needs_sync or acks == ACKS_ALL:
        waiting.add(partition.topic_partition, written, answer)
    return answer


def _check_allowed(call: Call, body: ProduceRequest, batch: Batch) -> None:
    """What this version, and this broker, do not take of a batch that is good in itself."""
    if batch.codec is Codec.ZSTD and call.version < ZSTD_SINCE:
        text = f"Produce requests with version {call.version} are not allowed to use ZStandard compression"
        raise Refused(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, text)
    if batch.is_transactional:
        if body.transactional_id is None:
            text = "a batch of a transaction, in a request that names none"
            raise Refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, text)
        # Nobody could commit or abort it, and who reads committed records only would get it all the same.
        raise Refused(ErrorCode.INVALID_TXN_STATE, "there are no transactions here yet")


def _refused(index: int, refused: Refused) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index,
        error_code=refused.code,
        base_offset=NO_OFFSET,
        log_append_time_ms=NO_TIMESTAMP,
        error_message=refused.detail or None,
    )


class Acknowledgement:
    """What an answer waits for: each of its partitions has what was appended, in sync or on the disk."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.pending: list[tuple[TopicPartition, Written, PartitionProduceResponse]] = []

    def add(self, name: TopicPartition, written: Written, answer: PartitionProduceResponse) -> None:
        if not self._is_settled(name, written, answer):
            self.pending.append((name, written, answer))

    @property
    def keys(self) -> Iterable[TopicPartition]:
        return [name for name, _, _ in self.pending]

    def fulfilled_by(self, key: Hashable, news: object) -> bool:
        return all(self._is_settled(*one) for one in self.pending)

    def _is_settled(self, name: TopicPartition, written: Written, answer: PartitionProduceResponse) -> bool:
        partition = self._broker.partitions.get(name)
        if partition is None:
            answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif not partition.is_online:
            answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        else:
            positions = partition.positions
            return written.end <= (positions.durable_end if written.needs_sync else positions.high_watermark)
        return True

    def settle(self, response: ProduceResponse) -> ProduceResponse:
        """The answer, when the last partition is there or the time is over."""
        for name, written, answer in self.pending:
            if not self._is_settled(name, written, answer):
                answer.error_code = ErrorCode.REQUEST_TIMED_OUT
            if answer.error_code:
                answer.base_offset = NO_OFFSET
                answer.log_append_time_ms = NO_TIMESTAMP
        return response
