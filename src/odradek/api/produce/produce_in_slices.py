"""Produce requests that take long: very many partitions, or batches that a thread must inspect first.

They are staged and written in slices. Other connections are served between slices; later requests of the same
connection wait.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import suppress
from functools import partial

from odradek.api.produce import txn_verification
from odradek.api.produce.produce_acks import ACKS_ALL, ACKS_NONE, Acknowledgement, Appended, check_unanswered
from odradek.api.produce.produce_parts import TOPIC_IDS_SINCE, join, topic_name, transactional_of, wrong_as_a_whole
from odradek.api.produce.produce_staging import named_max_of, refused_part, stage_partition, topic_answer
from odradek.api.request.call import Call
from odradek.api.request.outcome import PAUSE, Slices, Wait
from odradek.api.request.sliced_answer import pauses
from odradek.base.errors import Refused
from odradek.base.limits import SLICE_ELEMENTS
from odradek.base.units import TopicName, TopicPartition
from odradek.base.uuids import Uuid
from odradek.core.kernel.work import Work
from odradek.core.partition import ingress
from odradek.core.partition.partition import Partition
from odradek.core.transactions.verification import Verification
from odradek.record.record_batch import Batch, BatchHeader
from odradek.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from odradek.wire.schema.schema import maker

LOOKED_INTO_PARTS = 10  # Parts of a slice: extra cost of a small batch whose records are read.
FIRST_WRITE_PARTS = 20  # Parts of a slice: extra cost of the first write in a leader epoch.

_answer = maker(ProduceResponse)


def takes_long(call: Call, body: ProduceRequest) -> bool:
    """Return whether the request has to be handled in slices.

    This is so if it has very many partitions, a batch that a thread has to inspect, or several batches with checks. It
    is also so if several partitions have no write in this leader epoch yet: the first write creates one or two files
    each.
    """
    count = sum(len(topic.partition_data) for topic in body.topic_data)
    if count > SLICE_ELEMENTS or (count > SLICE_ELEMENTS // FIRST_WRITE_PARTS and _are_some_new(call, body)):
        return True
    return _looked_into(call, body)


def _are_some_new(call: Call, body: ProduceRequest) -> bool:
    for topic in body.topic_data:
        with suppress(Refused):
            name = topic_name(call, topic)
            found = (call.broker.partitions.get(TopicPartition(name, part.index)) for part in topic.partition_data)
            if any(map(_is_new, found)):
                return True
    return False


def _is_new(partition: Partition | None) -> bool:
    return partition is not None and partition.leading is not None and partition.leading.is_new


def _looked_into(call: Call, body: ProduceRequest) -> bool:
    """Return whether a thread has to inspect a batch, or many batches have to be inspected."""
    left = SLICE_ELEMENTS // LOOKED_INTO_PARTS
    by_id, view, partitions = call.version >= TOPIC_IDS_SINCE, call.broker.view, call.broker.partitions
    for topic in body.topic_data:
        name = view.names.get(Uuid(topic.topic_id)) if by_id else TopicName(topic.name)
        for part in topic.partition_data:
            partition = partitions.get(TopicPartition(name, part.index)) if name is not None else None
            if partition is not None and part.records and ingress.is_particular(partition.configs):
                left -= 1
                if left < 0 or ingress.needs_thread(partition, part.records):
                    return True
    return False


def in_slices(call: Call, body: ProduceRequest) -> Slices:
    """Handle the request as `produce.handle` does, in slices; as in Kafka, later requests wait."""
    transactional: list[BatchHeader] = []
    for topic in body.topic_data:
        for part in topic.partition_data:
            transactional += transactional_of(part)
            yield PAUSE
    wrong = wrong_as_a_whole(call, body, transactional)
    if wrong is not None:
        if body.acks == ACKS_NONE:
            return None
        raise Refused(wrong)
    verified = yield from txn_verification.asked(call, body, transactional)
    if verified is None:
        join(call, body, transactional)
    return (yield from staged_in_slices(call, body, verified))


def staged_in_slices(call: Call, body: ProduceRequest, verified: Verification | None) -> Slices:
    waiting = Acknowledgement(body.acks)
    topics = []
    for topic in body.topic_data:
        topics.append((yield from _stage_topic_in_slices(call, body, topic, waiting, verified)))  # noqa: PERF401
    return (yield from _settled_in_slices(call, body, _answer(responses=topics), waiting))


def _settled_in_slices(call: Call, body: ProduceRequest, response: ProduceResponse, waiting: Acknowledgement) -> Slices:
    """Answer as PendingProduce.settle does, in slices. Raise ConnectionAbortedError."""
    if body.acks == ACKS_NONE:
        check_unanswered(response)
        return None
    if waiting.pending:
        yield waiting.parked(None, call.now, body.timeout_ms)
        yield from waiting.settle()
    return response


def _stage_topic_in_slices(
    call: Call,
    body: ProduceRequest,
    topic: TopicProduceData,
    waiting: Acknowledgement,
    verified: Verification | None,
) -> Generator[Wait, object, TopicProduceResponse]:
    """Stage and commit a topic's batches one by one.

    A finished batch leaves only its answer: the rest is most of the memory of a hundred thousand batches.
    """
    parts, named_max = [], named_max_of(body, topic)
    for part in topic.partition_data:
        try:
            name = topic_name(call, topic)  # Checked again, because time passes between two batches.
            looked_into = yield from _looked_into_beside(call, name, part)
        except Refused as refused:
            parts.append(refused_part(part.index, refused, named_max))
        else:
            partition = call.broker.partitions.get(TopicPartition(name, part.index))
            is_new = _is_new(partition)
            appended: list[Appended] = []
            parts.append(stage_partition(call, body, name, part, appended, named_max, looked_into, verified))
            call.broker.commit(call.now)  # Nothing stays staged while other requests run.
            for one in appended:
                if one.append.refused is not None:
                    one.fail(one.append.refused)
                elif one.append.needs_sync or body.acks == ACKS_ALL:
                    waiting.add(one)
            if is_new:
                yield from pauses(FIRST_WRITE_PARTS)
            if partition is not None and ingress.is_particular(partition.configs):
                yield from pauses(LOOKED_INTO_PARTS)
        part.records = None
        yield PAUSE
    return topic_answer(name=topic.name, topic_id=topic.topic_id, partition_responses=parts)


def _looked_into_beside(
    call: Call, topic: TopicName, part: PartitionProduceData
) -> Generator[Wait, object, Batch | None]:
    """Return the batch in the topic's form if a thread has to inspect it, else None.

    The batch is inspected again if the topic's configuration changes in the meantime. Raise Refused.
    """
    done: Batch | None = None
    configs = None
    while True:
        partition = call.broker.leader(topic, part.index).partition
        if partition.configs is configs:
            return done
        configs = partition.configs
        if not part.records or not ingress.needs_thread(partition, part.records):
            return None
        batch = ingress.checked(partition, part.records, call.now)
        looked = yield Work(partial(ingress.validate_records, partition.topic_partition, configs, batch, call.now))
        assert isinstance(looked, Batch)
        done = looked
