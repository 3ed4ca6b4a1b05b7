"""The topic that a part of a Produce is for, and the transaction that its parts join together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from odradek.api.call import Call
from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import TopicName
from odradek.core.access import Operation, ResourceType
from odradek.core.cluster import INTERNAL_TOPICS
from odradek.core.coordinators.state_log import ProducerIdAndEpoch
from odradek.core.leading import Leading
from odradek.core.transactions.rules import EPOCH_PER_TRANSACTION
from odradek.record.batch import HEADER_BYTES, TRANSACTIONAL
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

TOPIC_IDS_SINCE = 13
ADMIN_CLIENT = "__admin_client"  # A client of this name may write to internal topics: Kafka's own tools do.
_ATTRIBUTES_AT = 22  # The attributes' lower byte; nothing was checked of the records yet.


def topic_name(call: Call, topic: TopicProduceData) -> TopicName:
    """Returns the topic's name.

    Raises Refused(UNKNOWN_TOPIC_ID, TOPIC_AUTHORIZATION_FAILED, INVALID_TOPIC_EXCEPTION).
    """
    by_id = call.version >= TOPIC_IDS_SINCE
    name = call.broker.topic_name(topic.topic_id) if by_id else TopicName(topic.name)
    if not call.may(Operation.WRITE, ResourceType.TOPIC, name):
        raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)  # Without a text: the client may know only the id.
    if name in INTERNAL_TOPICS and call.client_id != ADMIN_CLIENT:
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is the brokers' own")
    return name


def is_transactional(part: PartitionProduceData) -> bool:
    """True if the batch's header, which is whole, says so; nothing else was looked at."""
    records = part.records
    return records is not None and len(records) >= HEADER_BYTES and bool(records[_ATTRIBUTES_AT] & TRANSACTIONAL)


def join_together(call: Call, body: ProduceRequest, producer: ProducerIdAndEpoch) -> None:
    """Has the coordinator write one record for all partitions that the request makes part of its transaction.

    `producer` is the one of all its batches.  What is refused here is refused again, and answered, when each batch is
    staged (produce.admit).
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
