"""Partitions that one Produce makes part of a transaction join it together: its coordinator writes one record, not one
for each of them.

What is refused here is refused again, and answered, where each batch is looked at (produce.admit).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from odradek.api.call import Call
from odradek.api.produce_parts import is_transactional, topic_name
from odradek.base.errors import Refused
from odradek.core.coordinators.state_log import Producer
from odradek.core.partition import Partition
from odradek.core.transactions.rules import EPOCH_PER_TRANSACTION
from odradek.wire.messages.produce import ProduceRequest, TopicProduceData


def join(call: Call, body: ProduceRequest, producer: Producer) -> None:
    """`producer` is the one of all batches that are of a transaction."""
    joining = [
        partition.topic_partition
        for topic in body.topic_data
        for partition in _written_to(call, topic)
        if not partition.has_open_transaction(producer.id, producer.epoch)
    ]
    if len(joining) > 1 and body.transactional_id is not None:
        with suppress(Refused):
            call.broker.transactions.touch(body.transactional_id, producer, joining, EPOCH_PER_TRANSACTION, call.now)


def _written_to(call: Call, topic: TopicProduceData) -> Iterator[Partition]:
    with suppress(Refused):
        name = topic_name(call, topic)
        for part in filter(is_transactional, topic.partition_data):
            with suppress(Refused):
                yield call.broker.partition(name, part.index)
