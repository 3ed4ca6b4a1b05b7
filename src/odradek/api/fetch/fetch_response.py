"""Results of a fetch per partition, and the response that contains them."""

from __future__ import annotations

from typing import TypeAlias

from odradek.api.request.sliced_response import Parts
from odradek.base.errors import ErrorCode
from odradek.base.units import NO_BROKER, BrokerId, LeaderEpoch, Offset
from odradek.base.uuids import ZERO_UUID, Uuid
from odradek.core.fetch.fetch_sessions import CachedPartition, FetchContext
from odradek.core.partition.local_replica import LogReadInfo
from odradek.core.partition.partition import Partition
from odradek.wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from odradek.wire.schema.schema import maker

NO_RECORDS = b""
# For an unknown partition, which was never read, Apache Kafka returns an empty list of aborted transactions. After a
# failed read it returns null.
_NEVER_READ = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
}
_partition_data = maker(PartitionData)

Read: TypeAlias = list[tuple[CachedPartition, PartitionData]]


def read_result(index: int, readable: LogReadInfo, read_committed: bool) -> PartitionData:
    """Return the result of a read of a partition."""
    return _partition_data(
        partition_index=index,
        error_code=ErrorCode.NONE,
        high_watermark=readable.high_watermark,
        last_stable_offset=readable.last_stable_offset,
        log_start_offset=readable.log_start_offset,
        aborted_transactions=[
            AbortedTransaction(producer_id=transaction.producer_id, first_offset=transaction.first_offset)
            for transaction in readable.aborted
        ]
        if read_committed
        else None,
        records=readable.records if readable.records.size else NO_RECORDS,
    )


def diverging_result(
    partition: Partition, index: int, divergence: tuple[LeaderEpoch, Offset], read_committed: bool
) -> PartitionData:
    """Return the result for a reader whose log diverges from some offset on (KIP-595)."""
    data = _without_records(partition, index)
    epoch, end = divergence
    data.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end)
    data.aborted_transactions = [] if read_committed else None
    return data


def redirect_result(partition: Partition, index: int, preferred: BrokerId) -> PartitionData:
    """Return the result that names another replica to read from (KIP-392)."""
    data = _without_records(partition, index)
    data.preferred_read_replica = preferred
    return data


def _without_records(partition: Partition, index: int) -> PartitionData:
    return PartitionData(
        partition_index=index,
        error_code=ErrorCode.NONE,
        high_watermark=partition.positions.high_watermark,
        last_stable_offset=partition.last_stable_offset,
        log_start_offset=partition.log.start_offset,
        aborted_transactions=None,
        records=NO_RECORDS,
    )


def error_result(index: int, code: ErrorCode) -> PartitionData:
    aborted: list[AbortedTransaction] | None = [] if code in _NEVER_READ else None
    return PartitionData(
        partition_index=index, error_code=code, high_watermark=-1, aborted_transactions=aborted, records=NO_RECORDS
    )


def size_of(data: PartitionData) -> int:
    records = data.records
    return 0 if records is None or isinstance(records, bytes | bytearray | memoryview) else records.size


def is_final(data: PartitionData) -> bool:
    """Return whether waiting cannot change a partition's result."""
    return bool(data.error_code) or data.diverging_epoch.end_offset >= 0 or data.preferred_read_replica != NO_BROKER


def respond(context: FetchContext, read: Read) -> Parts[FetchResponse]:
    """Make the response, without unchanged partitions of an incremental fetch; note returned positions."""
    topics: dict[str | Uuid, FetchableTopicResponse] = {}
    for cached_partition, data in read:
        must_respond = cached_partition.must_respond(data.high_watermark, data.log_start_offset)
        if must_respond or not context.is_incremental or data.records or is_final(data):
            cached_partition.remember_sent(data.high_watermark, data.log_start_offset)
            topic = cached_partition.key.topic
            answer = topics.get(topic)
            if answer is None:
                answer = topics[topic] = _topic_answer(topic)
            answer.partitions.append(data)
            if context.session is not None and (data.records or data.error_code):
                context.session.serve_last(cached_partition)
        yield
    return FetchResponse(session_id=context.session_id, responses=list(topics.values()))


def _topic_answer(topic: str | Uuid) -> FetchableTopicResponse:
    if isinstance(topic, bytes):
        return FetchableTopicResponse(topic_id=topic, partitions=[])
    return FetchableTopicResponse(topic=topic, topic_id=ZERO_UUID, partitions=[])
