"""Survey of the records of a batch, without creating an object for any of them.

A lookup by time needs a summary of every record but none of the records themselves. The survey of a million records
takes about as long as their decompression; reading them one by one takes seconds.
"""

from __future__ import annotations

from typing import NamedTuple

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import INT64_MAX, Offset, TimestampMs
from odradek.record.kernels.decode import Survey
from odradek.record.record_batch import Batch

INT64_MIN = -INT64_MAX - 1
NEVER = TimestampMs(INT64_MAX)
FIRST = Offset(0)


class FoundRecord(NamedTuple):
    """The timestamp and offset of a record."""

    timestamp: TimestampMs
    offset: Offset


class BatchSummary(NamedTuple):
    """A summary of all records of a batch; without records, `oldest` is greater than `newest`.

    In a batch with log append time, all times are that time.
    """

    oldest: TimestampMs
    newest: TimestampMs
    null_keys: int
    found: FoundRecord | None


def survey(batch: Batch, payload: memoryview, *, timestamp: TimestampMs = NEVER, start: Offset = FIRST) -> BatchSummary:
    """Read every record of an unpacked batch and return a summary.

    `found` is the first record from offset `start` on with a timestamp of at least `timestamp`. Raise
    Refused(CORRUPT_MESSAGE) unless there are exactly records_count well-formed records.
    """
    kernel, count = Survey(), batch.records_count
    append_time = batch.max_timestamp if batch.is_log_append_time else None
    kernel.seek(timestamp if append_time is None else INT64_MIN, start)
    bad = kernel.run(payload, count, batch.base_offset, batch.base_timestamp)
    if bad == count or count < 0:
        raise Refused(ErrorCode.CORRUPT_MESSAGE, f"the batch has bytes after the last of {count} records")
    if bad >= 0:
        raise Refused(ErrorCode.CORRUPT_MESSAGE, f"record {bad} of {count} is malformed")
    offset = Offset(kernel.found_offset)
    if append_time is not None and count:
        found = FoundRecord(append_time, offset) if kernel.is_found and append_time >= timestamp else None
        return BatchSummary(append_time, append_time, kernel.null_keys, found)
    found = FoundRecord(TimestampMs(kernel.found_timestamp), offset) if kernel.is_found else None
    return BatchSummary(TimestampMs(kernel.oldest), TimestampMs(kernel.newest), kernel.null_keys, found)
