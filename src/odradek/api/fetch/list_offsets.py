"""ListOffsets, versions 1 to 11.

Returns the first offset at or after a timestamp, or the start or end of a partition. Only the leader answers, except to
a debugging consumer (replica id -2), which may query any replica. For a broker, which sends its replica id, the end is
the log end offset.

Negative timestamps have special meanings:

- -1: the end.
- -2: the start.
- -3: the record with the largest timestamp (v7, KIP-734).
- -4: the start of the local log (v8, KIP-405).
- -5: the end of the tiered log (v9, KIP-1005).
- -6: the first offset that is not tiered yet (v11, KIP-1023).

Odradek has no tiered storage, so -5 and -6 find nothing.

Changes by version:

- v2: isolation level. For read_committed, the end is the last stable offset, and a timestamp finds nothing beyond it.
- v4: leader epochs.
- v5: OFFSET_NOT_AVAILABLE until the followers of a new leader have fetched (KIP-207).
- v6: flexible.
- v10: a timeout, which is unused without remote storage.

Lookups that read the log do not block other requests. Later requests of the connection may run before a lookup ends,
but are answered after it. Leadership is checked again when the lookup ends.

Differences from Apache Kafka:

- -3 returns the largest timestamp of the readable records. Kafka finds nothing if a later record has a larger one.
- A batch whose records decompress to more than 64 MiB returns INVALID_RECORD. So does a batch with a record larger than
  max.decompressed.message.bytes.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from odradek.api.request.call import Call
from odradek.api.request.outcome import PAUSE, Slices
from odradek.api.request.sliced_response import CHEAP, Parts, parked
from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import NO_EPOCH, NO_OFFSET, NO_TIMESTAMP, Offset, TimestampMs, TopicName
from odradek.core.kernel.access import Operation, ResourceType
from odradek.core.kernel.purgatory import NEVER
from odradek.core.partition.lookups import AllQueriesAnswered, TimestampQuery
from odradek.core.partition.partition import Partition
from odradek.core.partition.positions import ISOLATION_LEVELS, READ_COMMITTED
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from odradek.wire.schema.schema import maker

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
EPOCHS_SINCE = 4
OFFSET_NOT_AVAILABLE_SINCE = 5
CONSUMER, DEBUGGING_CONSUMER = -1, -2  # The replica ids of clients that are not brokers.
_partition_response = maker(ListOffsetsPartitionResponse)
NOT_FOUND = (NO_TIMESTAMP, NO_OFFSET, NO_EPOCH)

TimestampAndOffset = tuple[TimestampMs, Offset, int]


class Reader(NamedTuple):
    """The client: a consumer, possibly read_committed, or a follower, which reads up to the log's end.

    A debugging client is no consumer and may read from any replica.
    """

    is_consumer: bool
    committed: bool
    only_leader: bool


class PendingLookup(NamedTuple):
    """A partition whose answer needs a lookup in the log."""

    part: ListOffsetsPartition
    query: TimestampQuery
    reader: Reader


Part: TypeAlias = ListOffsetsPartitionResponse | PendingLookup
Topics: TypeAlias = list[tuple[TopicName, list[Part]]]


def handle(call: Call, body: ListOffsetsRequest) -> Slices:
    if body.isolation_level not in ISOLATION_LEVELS:
        raise Refused(ErrorCode.INVALID_REQUEST, f"Unknown isolation level {body.isolation_level}")
    requested: dict[str, dict[int, list[ListOffsetsPartition]]] = {}
    count = 0
    for topic in body.topics:
        for part in topic.partitions:
            requested.setdefault(topic.name, {}).setdefault(part.partition_index, []).append(part)
            yield PAUSE
            count += 1
            if not count % CHEAP:
                yield PAUSE
    is_consumer = body.replica_id == CONSUMER
    reader = Reader(
        is_consumer=is_consumer,
        committed=is_consumer and body.isolation_level == READ_COMMITTED,
        only_leader=body.replica_id != DEBUGGING_CONSUMER,
    )
    topics: Topics = []
    queries: list[TimestampQuery] = []
    call.free_later((requested, topics, queries))
    for name, parts in requested.items():
        topics.append((TopicName(name), (yield from _parts(call, TopicName(name), parts, reader, queries))))
    if not queries:
        return (yield from _response(call, topics))
    # Every lookup ends, so there is no deadline.
    return (yield from parked(AllQueriesAnswered(queries), NEVER, count, lambda: _response(call, topics)))


def refuse(call: Call, body: ListOffsetsRequest, code: ErrorCode) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name, partitions=[_refused(part.partition_index, code) for part in topic.partitions]
            )
            for topic in body.topics
        ]
    )


def _parts(
    call: Call,
    name: TopicName,
    requested: dict[int, list[ListOffsetsPartition]],
    reader: Reader,
    queries: list[TimestampQuery],
) -> Parts[list[Part]]:
    """Look up each partition, and add pending lookups to `queries`.

    A partition that is named more than once gets an error.
    """
    is_allowed = call.may(Operation.DESCRIBE, ResourceType.TOPIC, name)
    found: list[Part] = []
    for index, parts in requested.items():
        if not is_allowed:
            found.append(_refused(index, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        elif len(parts) > 1:
            found.append(_refused(index, ErrorCode.INVALID_REQUEST))
        else:
            part = _partition(call, name, parts[0], reader)
            found.append(part)
            if isinstance(part, PendingLookup):
                queries.append(part.query)
        yield
    return found


def _partition(call: Call, topic: TopicName, part: ListOffsetsPartition, reader: Reader) -> Part:
    try:
        partition = _replica(call, topic, part, reader)
        position = _look_up(call, partition, part.timestamp, reader)
        if isinstance(position, TimestampQuery):
            if not position.is_answered:
                return PendingLookup(part, position, reader)
            position = _lookup_result(call, position, reader)
    except Refused as refused:
        return _refused(part.partition_index, refused.code)
    return _found_response(call, part, position)


def _replica(call: Call, topic: TopicName, part: ListOffsetsPartition, reader: Reader) -> Partition:
    """Return the requested replica.

    Raise Refused if the replica does not lead and only a leader may answer.
    """
    partition = call.broker.replica(topic, part.partition_index)
    if reader.only_leader:
        partition.check_leader(part.current_leader_epoch)
    else:
        partition.check_replica(part.current_leader_epoch)
    return partition


def _response(call: Call, topics: Topics) -> Parts[ListOffsetsResponse]:
    answers = []
    for name, parts in topics:
        partitions = []
        for part in parts:
            partitions.append(_lookup_response(call, name, part) if isinstance(part, PendingLookup) else part)
            if not len(partitions) % CHEAP:
                yield
        answers.append(ListOffsetsTopicResponse(name=name, partitions=partitions))
        yield
    return ListOffsetsResponse(topics=answers)


def _lookup_response(call: Call, topic: TopicName, pending: PendingLookup) -> ListOffsetsPartitionResponse:
    """Return the result of a finished lookup; the topic may have been deleted or recreated since."""
    part, query, reader = pending
    try:
        if _replica(call, topic, part, reader) is not query.partition:
            raise Refused(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"{topic}-{part.partition_index} was deleted or recreated during the lookup",
            )
        position = _lookup_result(call, query, reader)
    except Refused as refused:
        return _refused(part.partition_index, refused.code)
    return _found_response(call, part, position)


def _lookup_result(call: Call, query: TimestampQuery, reader: Reader) -> TimestampAndOffset:
    """Return the result of a lookup.

    The record with the largest timestamp is searched among all records. Raise Refused if it may not be read.
    """
    found = query.found
    if found is None or (reader.committed and found.offset >= query.partition.last_stable_offset):
        _check_is_known(call, query.partition, reader)
        return NOT_FOUND
    return found


def _found_response(
    call: Call, part: ListOffsetsPartition, position: TimestampAndOffset
) -> ListOffsetsPartitionResponse:
    timestamp, offset, epoch = position
    return _partition_response(
        partition_index=part.partition_index,
        error_code=ErrorCode.NONE,
        timestamp=timestamp,
        offset=offset,
        leader_epoch=epoch if call.version >= EPOCHS_SINCE else NO_EPOCH,
    )


def _refused(index: int, code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=index, error_code=code)


def _look_up(call: Call, partition: Partition, timestamp: int, reader: Reader) -> TimestampAndOffset | TimestampQuery:
    if call.version < SINCE.get(timestamp, 0) or timestamp < EARLIEST_PENDING_UPLOAD:
        raise Refused(
            ErrorCode.UNSUPPORTED_VERSION, f"timestamp {timestamp} is not supported in version {call.version}"
        )
    if timestamp == LATEST:
        _check_is_known(call, partition, reader)
        readable = partition.readable_end(read_committed=reader.committed)
        return NO_TIMESTAMP, readable if reader.is_consumer else partition.log.end_offset, partition.info.leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return NO_TIMESTAMP, partition.log.start_offset, _epoch_at_start(partition)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return NOT_FOUND
    if timestamp == MAX_TIMESTAMP:  # Searches all visible records, as in Kafka; an uncommitted result is not returned.
        return call.broker.lookups.request_lookup(partition, None, read_committed=False)
    return call.broker.lookups.request_lookup(partition, TimestampMs(timestamp), read_committed=reader.committed)


def _check_is_known(call: Call, partition: Partition, reader: Reader) -> None:
    """Raise Refused for a consumer if a new leader does not know yet how much is committed (KIP-207).

    Its high watermark may be below the previous leader's, which the consumer has seen.
    """
    if not reader.is_consumer:
        return
    in_sync = partition.leader().in_sync
    if in_sync is not None and in_sync.epoch_start > partition.positions.high_watermark:
        knows_code = call.version >= OFFSET_NOT_AVAILABLE_SINCE
        code = ErrorCode.OFFSET_NOT_AVAILABLE if knows_code else ErrorCode.LEADER_NOT_AVAILABLE
        raise Refused(code, f"no follower of {partition.topic_partition} has fetched from the new leader yet")


def _epoch_at_start(partition: Partition) -> int:
    if partition.log.start_offset == partition.log.end_offset:
        return partition.info.leader_epoch  # The next record will have that epoch.
    return partition.log.epochs.epoch_of(partition.log.start_offset)
