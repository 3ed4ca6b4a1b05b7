"""TxnOffsetCommit, versions 0 to 6.

Stores offsets of a group that become effective when the producer's transaction commits. The rules are those of
OffsetCommit, except that the group must have a name.

- v2: leader epochs; the client knows COORDINATOR_LOAD_IN_PROGRESS (KAFKA-7296).
- v3: flexible. Generation, member id and instance id fence old consumers (KIP-447).
- v4: the client knows TRANSACTION_ABORTABLE.
- v5: this request adds the group's partition to the transaction, without AddOffsetsToTxn (KIP-890).
- v6: topics by id.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from itertools import repeat
from typing import Any

from odradek.api.groups.offset_commit import may_commit
from odradek.api.groups.offsets_to_commit import offsets_of, prepare_commit
from odradek.api.produce.txn_verification import verify
from odradek.api.request.call import Call
from odradek.api.request.known_partitions import Partitions, RequestedTopic
from odradek.api.request.outcome import Slices, Wait
from odradek.api.request.sliced_response import CHEAP, Parts, settled
from odradek.base.errors import ErrorCode, Refused, fenced_as
from odradek.base.limits import SLICE_ELEMENTS
from odradek.base.units import ProducerEpoch, ProducerId
from odradek.base.uuids import Uuid
from odradek.core.coordinators.durable import PendingWrite, PendingWrites
from odradek.core.coordinators.state_log import ProducerIdAndEpoch
from odradek.core.groups.group_offset_commit import Committer, OffsetCommitResult, commit
from odradek.core.groups.long_commit import LongCommit
from odradek.core.groups.shard.group_shard import GroupShard
from odradek.core.kernel.access import Operation, ResourceType
from odradek.core.transactions.additions import TransactionQuery
from odradek.core.transactions.verification import Verification
from odradek.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from odradek.wire.schema.schema import maker

LOADING_SINCE = 2
ABORTABLE_SINCE = 4
JOINS_SINCE = 5
TOPIC_IDS_SINCE = 6
FENCED_NEVER = TOPIC_IDS_SINCE + 1

# Errors of the transaction's coordinator on another broker, as returned to clients; clients retry all of them.
_CLIENT_CODES = {
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}

_partition = maker(TxnOffsetCommitResponsePartition)


def handle(call: Call, body: TxnOffsetCommitRequest) -> Slices:
    call.check(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, body.transactional_id)
    if not may_commit(call.rights, body.group_id):
        raise call.denied(Operation.READ, ResourceType.GROUP, body.group_id)
    requested = ((RequestedTopic(topic.name, Uuid(topic.topic_id)), topic.partitions) for topic in body.topics)
    partitions: Partitions[TxnOffsetCommitRequestPartition] = Partitions()
    yield from partitions.find_partitions(
        call.broker.view, call.rights, requested, by_id=call.version >= TOPIC_IDS_SINCE
    )
    if not partitions.known:
        return (yield from _answer(partitions, ()))
    try:
        join, committed = yield from _commit(call, body, partitions)
    except Refused as refused:
        return (yield from _answer(partitions, repeat(_code_for_version(call.version, refused.code))))
    if committed.written is None:
        return (yield from _answer(partitions, committed.codes))
    writes = PendingWrites([committed.written] if join is None else [join, committed.written])

    def answer() -> Parts[TxnOffsetCommitResponse]:
        return _answer(partitions, committed.codes_after(writes.code))

    return (yield from settled(writes, call.now, partitions.count, answer, call.broker.groups.write_timeout_ms))


def refuse(call: Call, body: TxnOffsetCommitRequest, code: ErrorCode) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        throttle_time_ms=0,
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    TxnOffsetCommitResponsePartition(partition_index=part.partition_index, error_code=code)
                    for part in topic.partitions
                ],
            )
            for topic in body.topics
        ],
    )


def _code_for_version(version: int, code: ErrorCode) -> ErrorCode:
    """Return a code that clients of this version know; none of them knows PRODUCER_FENCED here."""
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
) -> Generator[Wait, Any, tuple[PendingWrite | None, OffsetCommitResult]]:
    """Commit the offsets in the transaction. Raise Refused.

    Return the commit, and the write that adds the group's partition to the transaction if it is not safe yet.
    """
    shard = call.broker.groups.shard_of(body.group_id)
    if body.producer_id < 0:
        raise Refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"invalid producer id {body.producer_id}")
    producer = ProducerIdAndEpoch(ProducerId(body.producer_id), ProducerEpoch(body.producer_epoch))
    committer = Committer(
        body.group_id,
        body.member_id,
        body.group_instance_id,
        body.generation_id_or_member_epoch,
        call.version,
        producer,
    )
    verified = yield from _verify(call, body, shard, producer)
    shard = call.broker.groups.shard_of(body.group_id)
    if len(partitions.known) <= SLICE_ELEMENTS:
        join = _join(call, body, shard, producer, verified)
        return join, commit(shard, committer, list(offsets_of(partitions)), call.now)
    long = yield from prepare_commit(partitions, LongCommit(shard, committer, call.now))
    shard = call.broker.groups.shard_of(body.group_id)
    join = _join(call, body, shard, producer, verified)  # Last, because the transaction may have ended by then.
    return join, long.finish(shard, call.now)


def _verify(
    call: Call, body: TxnOffsetCommitRequest, shard: GroupShard, producer: ProducerIdAndEpoch
) -> Generator[Wait, Any, Verification | None]:
    """Consult the transaction's coordinator; return None if that is not required."""
    transactions, leading = call.broker.transactions, shard.log.leading
    transactional_id, adds = body.transactional_id, call.version >= JOINS_SINCE
    if not transactional_id or not transactions.verifies(adds=adds):
        return None
    if transactions.is_sure(leading, transactional_id, producer) or not transactions.must_verify_first(
        leading, transactional_id
    ):
        return None
    query = TransactionQuery(transactional_id, producer, adds)
    verification = Verification(query)
    verification.add(leading)
    yield from verify(call, verification, retries=False)
    return verification


def _join(
    call: Call,
    body: TxnOffsetCommitRequest,
    shard: GroupShard,
    producer: ProducerIdAndEpoch,
    verified: Verification | None,
) -> PendingWrite | None:
    if verified is not None:
        try:
            verified.check(shard.log.leading)
        except Refused as refused:
            raise Refused(_CLIENT_CODES.get(refused.code, refused.code), refused.detail) from refused
        return None
    adds = call.version >= JOINS_SINCE
    return call.broker.transactions.admit(shard.log.leading, producer, body.transactional_id, call.now, adds=adds)


def _answer(
    partitions: Partitions[TxnOffsetCommitRequestPartition], known_codes: Iterable[ErrorCode]
) -> Parts[TxnOffsetCommitResponse]:
    topics = []
    for topic, codes in (yield from partitions.codes(known_codes)).items():
        parts = []
        for index, code in codes:
            parts.append(_partition(partition_index=index, error_code=code))
            if not len(parts) % CHEAP:
                yield
        topics.append(TxnOffsetCommitResponseTopic(name=topic.name, topic_id=topic.id, partitions=parts))
        yield
    return TxnOffsetCommitResponse(throttle_time_ms=0, topics=topics)
