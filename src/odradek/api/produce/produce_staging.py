"""Staging of admitted Produce batches: assign offsets, or record why a batch was rejected."""

from __future__ import annotations

from odradek.api.produce.produce_acks import ACKS_ALL, ProducePartitionStatus
from odradek.api.produce.produce_admission import BatchAdmission
from odradek.api.request.call import Call
from odradek.base.errors import ErrorCode, Refused
from odradek.base.limits import RECORD_ERRORS_MAX
from odradek.base.units import NO_OFFSET, NO_TIMESTAMP
from odradek.core.broker.broker import Broker
from odradek.core.coordinators.durable import PendingWrite
from odradek.core.kernel.moment import Moment
from odradek.core.partition.leading import Leading
from odradek.core.transactions.produce_verification import PRODUCE_ADDS_SINCE, admit_batch, admit_verified
from odradek.core.transactions.verification import Verification
from odradek.record.record_batch import Batch
from odradek.record.validation import RecordsRefused
from odradek.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
    TopicProduceResponse,
)
from odradek.wire.schema.schema import maker

topic_answer = maker(TopicProduceResponse)
_partition_answer = maker(PartitionProduceResponse)


def stage_topic(  # noqa: PLR0917
    call: Call,
    body: ProduceRequest,
    topic: TopicProduceData,
    admissions: list[BatchAdmission],
    appended: list[ProducePartitionStatus],
    verified: Verification | None,
) -> TopicProduceResponse:
    """Stage a topic's batches, one admission for each; add those that were staged to `appended`."""
    named_max = named_max_of(body, topic)
    parts = [
        stage_partition(call, body, part.index, admitted, appended, named_max, verified)
        for part, admitted in zip(topic.partition_data, admissions, strict=True)
    ]
    return topic_answer(name=topic.name, topic_id=topic.topic_id, partition_responses=parts)


def stage_partition(  # noqa: PLR0917
    call: Call,
    body: ProduceRequest,
    index: int,
    admitted: BatchAdmission,
    appended: list[ProducePartitionStatus],
    named_max: int,
    verified: Verification | None,
) -> PartitionProduceResponse:
    if isinstance(admitted, Refused):
        return error_response(index, admitted, named_max)
    broker = call.broker
    leading, batch = admitted
    try:
        join = None
        if batch.attributes and batch.is_transactional:  # Most batches have no attributes.
            assert body.transactional_id is not None, "refusal_of_all has checked it"
            join = join_transaction(broker, leading, batch, call.version, body.transactional_id, call.now, verified)
        append = broker.stage(leading, batch, call.now, all_replicas=body.acks == ACKS_ALL)
    except Refused as refused:
        return error_response(index, refused, named_max)
    answer = _partition_answer(
        index=index,
        error_code=ErrorCode.NONE,
        base_offset=append.base_offset,
        log_append_time_ms=append.log_append_time,
        log_start_offset=leading.log.start_offset,
    )
    appended.append(ProducePartitionStatus(leading.name, append, answer, join))
    return answer


def join_transaction(  # noqa: PLR0917
    broker: Broker,
    leading: Leading,
    batch: Batch,
    version: int,
    transactional_id: str,
    now: Moment,
    verified: Verification | None = None,
) -> PendingWrite | None:
    """Make a transactional batch's partition part of the transaction; raise Refused if it may not be.

    `verified` is the answer of the coordinator if it was consulted first. Return the write that adds the partition to
    the transaction, if that write is not safe yet.
    """
    if not batch.has_producer_id:
        return None
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


def error_response(index: int, refused: Refused, named_max: int = 0) -> PartitionProduceResponse:
    named = refused.errors(named_max) if isinstance(refused, RecordsRefused) else []
    return PartitionProduceResponse(
        index=index,
        error_code=refused.code,
        base_offset=NO_OFFSET,
        log_append_time_ms=NO_TIMESTAMP,
        record_errors=[
            BatchIndexAndErrorMessage(batch_index=record_error.place, batch_index_error_message=record_error.detail)
            for record_error in named
        ],
        error_message=refused.detail or None,
    )
