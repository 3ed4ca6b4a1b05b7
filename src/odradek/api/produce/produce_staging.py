"""Staging of Produce batches, one by one: assign offsets, or record why a batch was rejected."""

from __future__ import annotations

from odradek.api.produce.produce_acks import ACKS_ALL, Appended
from odradek.api.produce.produce_parts import topic_name
from odradek.api.request.call import Call
from odradek.base.errors import ErrorCode, Refused
from odradek.base.limits import RECORD_ERRORS_MAX
from odradek.base.units import NO_OFFSET, NO_TIMESTAMP, TopicName
from odradek.core.broker.broker import Broker
from odradek.core.coordinators.durable import Written
from odradek.core.kernel.moment import Moment
from odradek.core.partition import ingress
from odradek.core.partition.leading import Leading
from odradek.core.transactions.produce_verification import PRODUCE_ADDS_SINCE, admit_batch, admit_verified
from odradek.core.transactions.verification import Verification
from odradek.record.compression import Codec
from odradek.record.record_batch import Batch
from odradek.record.validation import RecordsRefused
from odradek.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
    TopicProduceResponse,
)
from odradek.wire.schema.schema import maker

ZSTD_SINCE = 7

topic_answer = maker(TopicProduceResponse)
_partition_answer = maker(PartitionProduceResponse)


def stage_topic(
    call: Call,
    body: ProduceRequest,
    topic: TopicProduceData,
    appended: list[Appended],
    verified: Verification | None,
) -> TopicProduceResponse:
    try:
        name = topic_name(call, topic)
    except Refused as refused:
        parts = [refused_part(part.index, refused) for part in topic.partition_data]
    else:
        named_max = named_max_of(body, topic)
        parts = [
            stage_partition(call, body, name, part, appended, named_max, None, verified)
            for part in topic.partition_data
        ]
    return topic_answer(name=topic.name, topic_id=topic.topic_id, partition_responses=parts)


def stage_partition(  # noqa: PLR0917
    call: Call,
    body: ProduceRequest,
    topic: TopicName,
    part: PartitionProduceData,
    appended: list[Appended],
    named_max: int,
    looked_into: Batch | None,
    verified: Verification | None,
) -> PartitionProduceResponse:
    broker = call.broker
    try:
        leading = broker.leader(topic, part.index)
        partition = leading.partition
        if looked_into is None:
            batch = ingress.admitted(partition, part.records, call.now)
        else:
            batch = ingress.fitting(partition, looked_into)
        join = None
        if batch.attributes:  # Most batches have no attributes.
            join = admit(broker, leading, batch, call.version, body.transactional_id, call.now, verified)
        append = broker.stage(leading, batch, call.now, all_replicas=body.acks == ACKS_ALL)
    except Refused as refused:
        return refused_part(part.index, refused, named_max)
    answer = _partition_answer(
        index=part.index,
        error_code=ErrorCode.NONE,
        base_offset=append.base_offset,
        log_append_time_ms=append.log_append_time,
        log_start_offset=partition.log.start_offset,
    )
    appended.append(Appended(partition.topic_partition, append, answer, join))
    return answer


def check_allowed(version: int, transactional_id: str | None, batch: Batch) -> None:
    """Raise Refused if the request's version does not allow the batch, which is otherwise valid."""
    if batch.codec is Codec.ZSTD and version < ZSTD_SINCE:
        text = f"Produce requests with version {version} are not allowed to use ZStandard compression"
        raise Refused(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, text)
    if batch.is_transactional and transactional_id is None:
        text = "a transactional batch in a request without a transactional id"
        raise Refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, text)


def admit(  # noqa: PLR0917
    broker: Broker,
    leading: Leading,
    batch: Batch,
    version: int,
    transactional_id: str | None,
    now: Moment,
    verified: Verification | None = None,
) -> Written | None:
    """Raise Refused if the version (check_allowed) or the transaction does not allow the batch.

    `verified` is the answer of the coordinator if it was consulted first. Return the write that adds the partition to
    the transaction, if that write is not safe yet.
    """
    check_allowed(version, transactional_id, batch)
    if not batch.is_transactional or not batch.has_producer_id:
        return None
    assert transactional_id is not None, "it is checked"
    transactions = broker.transactions
    if not leading.has_open_transaction(batch.producer_id, batch.producer_epoch):
        leading.check_producer_epoch(batch)  # A late batch must not become part of another transaction.
        adds = version >= PRODUCE_ADDS_SINCE
        if verified is None and transactions.verifies(adds=adds):
            leading.await_first(batch, now.wall, from_zero=adds)
    elif verified is None and not transactions.may_hang and not transactions.joins.lost:
        return transactions.unsafe_join(transactional_id)
    if verified is not None:
        admit_verified(verified, leading, version)
        return None
    return admit_batch(transactions, leading, batch, transactional_id, version, now)


def named_max_of(body: ProduceRequest, topic: TopicProduceData) -> int:
    """Return how many records an answer may name per partition, RECORD_ERRORS_MAX in total."""
    return max(RECORD_ERRORS_MAX // (len(body.topic_data) * max(len(topic.partition_data), 1)), 1)


def refused_part(index: int, refused: Refused, named_max: int = 0) -> PartitionProduceResponse:
    named = refused.errors(named_max) if isinstance(refused, RecordsRefused) else []
    return PartitionProduceResponse(
        index=index,
        error_code=refused.code,
        base_offset=NO_OFFSET,
        log_append_time_ms=NO_TIMESTAMP,
        record_errors=[
            BatchIndexAndErrorMessage(batch_index=one.place, batch_index_error_message=one.detail) for one in named
        ],
        error_message=refused.detail or None,
    )
