"""AddOffsetsToTxn, versions 0 to 4.

Adds the offsets of a consumer group to a transaction. The partition of __consumer_offsets that stores the group joins
the transaction.

- v2: a fenced producer gets PRODUCER_FENCED (KIP-588).
"""

from __future__ import annotations

from odradek.api.request.call import Call
from odradek.base.errors import ErrorCode, Refused, fenced_as
from odradek.base.units import ProducerEpoch, ProducerId, TopicPartition
from odradek.core.coordinators.state_log import ProducerIdAndEpoch
from odradek.core.kernel.access import Operation, ResourceType
from odradek.core.kernel.cluster_view import CONSUMER_OFFSETS
from odradek.core.kernel.purgatory import ParkedRequest
from odradek.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

FENCED_SINCE = 2
WITHOUT_EPOCHS = 0


def handle(
    call: Call, body: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse | ParkedRequest[AddOffsetsToTxnResponse]:
    call.check(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, body.transactional_id)
    call.check(Operation.READ, ResourceType.GROUP, body.group_id)
    if not body.transactional_id:
        raise Refused(ErrorCode.INVALID_REQUEST)
    broker = call.broker
    if broker.changes.state_topic(CONSUMER_OFFSETS) is not None:
        raise Refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{CONSUMER_OFFSETS} is being created")
    name = TopicPartition(CONSUMER_OFFSETS, broker.groups.shards.partition_of(body.group_id))
    producer = ProducerIdAndEpoch(ProducerId(body.producer_id), ProducerEpoch(body.producer_epoch))
    written = broker.transactions.add_partitions(body.transactional_id, producer, (name,), WITHOUT_EPOCHS, call.now)
    if written is None:
        return refuse(call, body, ErrorCode.NONE)
    return written.then(lambda code: refuse(call, body, code), call.now)


def refuse(call: Call, body: AddOffsetsToTxnRequest, code: ErrorCode) -> AddOffsetsToTxnResponse:
    return AddOffsetsToTxnResponse(throttle_time_ms=0, error_code=fenced_as(code, call.version, FENCED_SINCE))
