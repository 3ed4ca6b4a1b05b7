"""TxnOffsetCommit, versions 0 to 5: offsets that count when the producer's transaction commits.

v2: leader epochs; knows COORDINATOR_LOAD_IN_PROGRESS (KAFKA-7296).  v3: flexible; generation, member and instance, to
fence an old consumer (KIP-447).  v4: knows TRANSACTION_ABORTABLE.  v5: the group's partition joins the transaction with
this request, without AddOffsetsToTxn (KIP-890).

As OffsetCommit otherwise, but a group has to have a name here.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat

from odradek.api.call import Call
from odradek.api.fencing import fenced_as
from odradek.api.known_partitions import Asked, Partitions
from odradek.api.offset_places import places_of
from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import ProducerEpoch, ProducerId
from odradek.core.access import Operation, ResourceType
from odradek.core.coordinators.durable import AllWritten
from odradek.core.coordinators.state_log import Producer
from odradek.core.groups.offset_commit import Committer, commit
from odradek.core.parked import Parked
from odradek.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

LOADING_SINCE = 2
ABORTABLE_SINCE = 4
JOINS_SINCE = 5
FENCED_NEVER = JOINS_SINCE + 1


def handle(call: Call, body: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse | Parked[TxnOffsetCommitResponse]:
    call.check(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, body.transactional_id)
    call.check(Operation.READ, ResourceType.GROUP, body.group_id)
    asked = ((Asked(topic.name), topic.partitions) for topic in body.topics)
    partitions = Partitions(call.broker.view, call.rights, asked, by_id=False)
    if not partitions.known:
        return _answer(partitions, ())
    try:
        return _commit(call, body, partitions)
    except Refused as refused:
        return _answer(partitions, repeat(_known_to(call.version, refused.code)))


def refuse(call: Call, body: TxnOffsetCommitRequest, code: ErrorCode) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        throttle_time_ms=0,
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(partition_index=part.partition_index, error_code=code)
                    for part in topic.partitions
                ],
            )
            for topic in body.topics
        ],
    )


def _known_to(version: int, code: ErrorCode) -> ErrorCode:
    """The code, as clients of this version understand it.  None of them knows PRODUCER_FENCED here."""
    code = fenced_as(code, version, FENCED_NEVER)
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_SINCE:
        return ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.CONCURRENT_TRANSACTIONS and version < JOINS_SINCE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < LOADING_SINCE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code


def _commit(
    call: Call, body: TxnOffsetCommitRequest, partitions: Partitions[TxnOffsetCommitRequestPartition]
) -> TxnOffsetCommitResponse | Parked[TxnOffsetCommitResponse]:
    shard = call.broker.groups.shard_of(body.group_id)
    if body.producer_id < 0:
        raise Refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"producer id {body.producer_id}")
    producer = Producer(ProducerId(body.producer_id), ProducerEpoch(body.producer_epoch))
    adds = call.version >= JOINS_SINCE
    join = call.broker.admit_state(shard.log.name, producer, body.transactional_id, call.now, adds=adds)
    committer = Committer(
        body.group_id,
        body.member_id,
        body.group_instance_id,
        body.generation_id_or_member_epoch,
        call.version,
        producer,
    )
    committed = commit(shard, committer, places_of(partitions), call.now)
    if committed.written is None:
        return _answer(partitions, committed.codes)
    writes = AllWritten([committed.written] if join is None else [join, committed.written])
    return writes.then(
        lambda: _answer(partitions, committed.codes_after(writes.code)), call.now, call.broker.groups.write_timeout_ms
    )


def _answer(
    partitions: Partitions[TxnOffsetCommitRequestPartition], of_known: Iterable[ErrorCode]
) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        throttle_time_ms=0,
        topics=[
            TxnOffsetCommitResponseTopic(
                name=asked.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(partition_index=index, error_code=code) for index, code in codes
                ],
            )
            for asked, codes in partitions.codes(of_known).items()
        ],
    )
