"""Rules of Produce beyond one batch: writable topics, and the transaction that its partitions join."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from odradek.api.produce.produce_acks import ALL_ACKS
from odradek.api.request.call import Call
from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import TopicName
from odradek.core.coordinators.state_log import ProducerIdAndEpoch
from odradek.core.kernel.access import Operation, ResourceType, Rights
from odradek.core.kernel.cluster_view import INTERNAL_TOPICS
from odradek.core.partition.leading import Leading
from odradek.core.transactions.produce_verification import PRODUCE_ADDS_SINCE
from odradek.core.transactions.transaction_rules import EPOCH_PER_TRANSACTION
from odradek.record.record_batch import HEADER_BYTES, TRANSACTIONAL, BatchHeader
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

TOPIC_IDS_SINCE = 13
ADMIN_CLIENT = "__admin_client"  # A client of this name may write to internal topics; Kafka's own tools use it.
_ATTRIBUTES_AT = 22  # Offset of the attributes' lower byte, read before any check of the records.


def topic_name(call: Call, topic: TopicProduceData) -> TopicName:
    """Return the topic's name.

    Raise Refused(UNKNOWN_TOPIC_ID, TOPIC_AUTHORIZATION_FAILED, INVALID_TOPIC_EXCEPTION).
    """
    by_id = call.version >= TOPIC_IDS_SINCE
    name = call.broker.topic_name(topic.topic_id) if by_id else TopicName(topic.name)
    if not call.may(Operation.WRITE, ResourceType.TOPIC, name):
        raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)  # No text, because the client may know only the id.
    if name in INTERNAL_TOPICS and call.client_id != ADMIN_CLIENT:
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"cannot append to internal topic {name}")
    return name


def is_transactional(part: PartitionProduceData) -> bool:
    """Return whether the batch has a complete header with the transactional flag; check nothing else."""
    records = part.records
    return records is not None and len(records) >= HEADER_BYTES and bool(records[_ATTRIBUTES_AT] & TRANSACTIONAL)


def join_together(call: Call, body: ProduceRequest, producer: ProducerIdAndEpoch) -> None:
    """Let the coordinator write one record for all partitions that the request adds to its transaction.

    `producer` is the producer of all its batches. An error here is ignored: it occurs again, and is answered, when each
    batch is staged (produce_staging.admit).
    """
    joining = [
        leading.name
        for topic in body.topic_data
        for leading in _written_to(call, topic)
        if not call.broker.transactions.has_joined(leading, producer)
    ]
    if len(joining) > 1 and body.transactional_id is not None:
        with suppress(Refused):
            call.broker.transactions.touch(body.transactional_id, producer, joining, EPOCH_PER_TRANSACTION, call.now)


def _written_to(call: Call, topic: TopicProduceData) -> Iterator[Leading]:
    with suppress(Refused):
        name = topic_name(call, topic)
        for part in filter(is_transactional, topic.partition_data):
            with suppress(Refused):
                yield call.broker.leader(name, part.index)


def transactional_batches(body: ProduceRequest) -> list[BatchHeader]:
    """Return the headers of the transactional batches."""
    return [one for topic in body.topic_data for part in topic.partition_data for one in transactional_of(part)]


def transactional_of(part: PartitionProduceData) -> list[BatchHeader]:
    """Return the header of the batch if it is transactional."""
    return [BatchHeader(part.records)] if part.records is not None and is_transactional(part) else []


def join(call: Call, body: ProduceRequest, transactional: list[BatchHeader]) -> None:
    """Call `join_together` if this version adds partitions and there may be several."""
    if len(transactional) > 1 and call.version >= PRODUCE_ADDS_SINCE:
        producer = ProducerIdAndEpoch(transactional[0].producer_id, transactional[0].producer_epoch)
        join_together(call, body, producer)


def wrong_as_a_whole(call: Call, body: ProduceRequest, transactional: list[BatchHeader]) -> ErrorCode | None:
    """Return the error of the request as a whole; None if there is none."""
    if transactional:
        if body.transactional_id is None or not may_write(call.rights, body.transactional_id):
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        if len({(batch.producer_id, batch.producer_epoch) for batch in transactional if batch.has_producer_id}) > 1:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return None if body.acks in ALL_ACKS else ErrorCode.INVALID_REQUIRED_ACKS


def may_write(rights: Rights, transactional_id: str) -> bool:
    """Return whether the principal may write with the transactional id."""
    return rights.allows(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
