"""What a producer's records must be before they may enter a partition, beyond being a whole and intact batch."""

from __future__ import annotations

from odradek.base.errors import ErrorCode, Refused
from odradek.core.moment import Moment
from odradek.core.partition import Partition
from odradek.record.batch import Batch


def admitted(partition: Partition, records: memoryview | bytes | bytearray | None, now: Moment) -> Batch:
    """The one batch of a produce request, checked.  Raises Refused."""
    configs = partition.configs
    if not records:
        raise Refused(ErrorCode.INVALID_RECORD, "a produce request must hold exactly one batch for each partition")
    batch = Batch.checked(records)
    if batch.size > configs.max_message_bytes:
        text = (
            f"The record batch size in the append to {partition.topic_partition} is {batch.size} bytes "
            f"which exceeds the maximum configured value of {configs.max_message_bytes}."
        )
        raise Refused(ErrorCode.MESSAGE_TOO_LARGE, text)
    if not configs.is_log_append_time:
        _check_timestamp(partition, batch, now)
    return batch


def _check_timestamp(partition: Partition, batch: Batch, now: Moment) -> None:
    newest = now.wall + partition.configs.message_timestamp_after_max_ms
    if batch.max_timestamp > newest:
        text = f"Timestamp {batch.max_timestamp} of {partition.topic_partition} is later than {newest}"
        raise Refused(ErrorCode.INVALID_TIMESTAMP, text)
