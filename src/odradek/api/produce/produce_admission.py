"""Admission of Produce requests: what a request may write, and what must happen to its batches first.

All paths decide here, so that each rule is written once:

    produce             `admit` admits all batches at once; a request that takes long is handled in slices
    produce_in_slices   `admit_topic` and `admit_batch` admit one batch after the other, again after each wait
    plain_produce       a template keeps the answers about topics and transactional id; `admit_batch` admits the batches
    large_produce       a template; a batch whose header is not enough to admit it is received as a whole
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from odradek.api.produce.produce_acks import ALL_ACKS
from odradek.api.request.call import Call
from odradek.base.errors import ErrorCode, Refused
from odradek.base.limits import SLICE_ELEMENTS
from odradek.base.units import TopicName, TopicPartition
from odradek.base.uuids import Uuid
from odradek.core.kernel.access import Operation, ResourceType, Rights
from odradek.core.kernel.cluster_view import INTERNAL_TOPICS
from odradek.core.kernel.moment import Moment
from odradek.core.partition import ingress
from odradek.core.partition.leading import Leading
from odradek.core.partition.local_replica import LocalReplica
from odradek.record.compression import Codec
from odradek.record.record_batch import CODEC_MASK, HEADER_BYTES, TRANSACTIONAL, Batch, BatchHeader
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

ZSTD_SINCE = 7
TOPIC_IDS_SINCE = 13
ADMIN_CLIENT = "__admin_client"  # A client of this name may write to internal topics; Kafka's own tools use it.
INSPECTED_PARTS = 10  # Parts of a slice: extra cost of a small batch whose records are read.
FIRST_WRITE_PARTS = 20  # Parts of a slice: extra cost of the first write in a leader epoch.
_ATTRIBUTES_AT = 22  # Offset of the attributes' lower byte, read before any check of the records.


class AdmittedBatch(NamedTuple):
    """A batch that may be staged."""

    leading: Leading
    batch: Batch


BatchAdmission: TypeAlias = AdmittedBatch | Refused  # Of one partition.


def takes_long(call: Call, body: ProduceRequest) -> bool:
    """Return whether the request has too many partitions for one slice.

    Fewer are too many if one has no write in this leader epoch yet: the first write creates one or two files each.
    """
    count = sum(len(topic.partition_data) for topic in body.topic_data)
    if count <= SLICE_ELEMENTS // FIRST_WRITE_PARTS:
        return False
    return count > SLICE_ELEMENTS or any(_has_first_write(call, topic) for topic in body.topic_data)


def _has_first_write(call: Call, topic: TopicProduceData) -> bool:
    name = _name_of(call, topic)
    if name is None:
        return False
    found = (call.broker.partitions.get(TopicPartition(name, part.index)) for part in topic.partition_data)
    return any(
        partition is not None and partition.leading is not None and partition.leading.is_new for partition in found
    )


def _name_of(call: Call, topic: TopicProduceData) -> TopicName | None:
    """Return the topic's name; None if no topic has the requested id."""
    by_id = call.version >= TOPIC_IDS_SINCE
    return call.broker.view.names.get(Uuid(topic.topic_id)) if by_id else TopicName(topic.name)


# Rights.


def admit_topic(call: Call, topic: TopicProduceData) -> TopicName | Refused:
    """Return the name of a topic that the request may write to, or its error.

    The error is UNKNOWN_TOPIC_ID, TOPIC_AUTHORIZATION_FAILED or INVALID_TOPIC_EXCEPTION.
    """
    name = _name_of(call, topic)
    if name is None:
        return Refused(ErrorCode.UNKNOWN_TOPIC_ID)
    if not call.may(Operation.WRITE, ResourceType.TOPIC, name):
        return Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)  # No text, because the client may know only the id.
    if name in INTERNAL_TOPICS and call.client_id != ADMIN_CLIENT:
        return Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"cannot append to internal topic {name}")
    return name


def may_write(rights: Rights, transactional_id: str) -> bool:
    """Return whether the principal may write with the transactional id."""
    return rights.allows(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)


def request_error(call: Call, body: ProduceRequest, transactional: list[BatchHeader]) -> ErrorCode:
    """Return the error of the request as a whole, NONE if there is none; `transactional` has its such batches."""
    if transactional:
        if body.transactional_id is None or not may_write(call.rights, body.transactional_id):
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        if len({(batch.producer_id, batch.producer_epoch) for batch in transactional if batch.has_producer_id}) > 1:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return ErrorCode.NONE if body.acks in ALL_ACKS else ErrorCode.INVALID_REQUIRED_ACKS


# Batches.


def admit_batch(
    partition: LocalReplica, records: memoryview | bytes | bytearray | None, version: int, now: Moment
) -> Batch | None:
    """Return the batch, ready to be staged; None if a thread must inspect its records first. Raise Refused."""
    if version < ZSTD_SINCE and records and len(records) >= HEADER_BYTES and _is_zstd(records[_ATTRIBUTES_AT]):
        text = f"Produce requests with version {version} are not allowed to use ZStandard compression"
        raise Refused(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, text)
    return ingress.admit(partition, records, now)


def _is_zstd(attributes: int) -> bool:
    return attributes & CODEC_MASK == Codec.ZSTD


def admit(call: Call, body: ProduceRequest) -> list[list[BatchAdmission]] | None:
    """Admit all batches of the request, by topic and partition.

    Return None if the request has to be handled in slices: a thread must inspect a batch, or there are many to inspect.
    """
    left = SLICE_ELEMENTS // INSPECTED_PARTS
    topics = []
    for topic in body.topic_data:
        name = admit_topic(call, topic)
        parts: list[BatchAdmission] = []
        for part in topic.partition_data:
            if isinstance(name, Refused):
                parts.append(name)
                continue
            try:
                leading = call.broker.leader(name, part.index)
                left -= ingress.needs_record_checks(leading.partition.configs)
                batch = admit_batch(leading.partition, part.records, call.version, call.now) if left >= 0 else None
            except Refused as refused:
                parts.append(refused.with_traceback(None))  # Its frames would hold the request, and it them.
                continue
            if batch is None:
                return None
            parts.append(AdmittedBatch(leading, batch))
        topics.append(parts)
    return topics


# Transactional batches.


def is_transactional(part: PartitionProduceData) -> bool:
    """Return whether the batch has a complete header with the transactional flag; check nothing else."""
    records = part.records
    return records is not None and len(records) >= HEADER_BYTES and bool(records[_ATTRIBUTES_AT] & TRANSACTIONAL)


def transactional_of(part: PartitionProduceData) -> list[BatchHeader]:
    """Return the header of the batch if it is transactional."""
    return [BatchHeader(part.records)] if part.records is not None and is_transactional(part) else []


def transactional_batches(body: ProduceRequest) -> list[BatchHeader]:
    """Return the headers of the transactional batches."""
    return [header for topic in body.topic_data for part in topic.partition_data for header in transactional_of(part)]


def transactional_partitions(call: Call, body: ProduceRequest) -> Iterator[tuple[Leading, PartitionProduceData]]:
    """Yield each partition that this broker leads and the request may write to, with its transactional batch.

    The error of another partition is returned when its batch is admitted.
    """
    seen: set[TopicPartition] = set()
    for topic in body.topic_data:
        name = admit_topic(call, topic)
        if isinstance(name, Refused):
            continue
        for part in filter(is_transactional, topic.partition_data):
            partition = call.broker.partitions.get(TopicPartition(name, part.index))
            leading = None if partition is None else partition.leading
            if leading is not None and leading.name not in seen:
                seen.add(leading.name)
                yield leading, part
