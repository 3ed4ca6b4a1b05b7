"""Holds a producer's records to what their topic asks of them, as Kafka's LogValidator does: Batch.checked reads only
the header.

Kafka reads every record of every batch.  Here it is the topic's choice: compiled, it costs less than the checksum where
there is no codec, and a decompression where there is one.
"""

from __future__ import annotations

from typing import NamedTuple

from odradek.base.errors import ErrorCode, Refused
from odradek.base.limits import RECORD_ERRORS_MAX
from odradek.base.units import TimestampMs, TopicPartition
from odradek.record.batch import Batch
from odradek.record.kernels.decode import Check


class RecordError(NamedTuple):
    """One record that may not enter, by its place in the batch (KIP-467)."""

    place: int
    detail: str

    def __str__(self) -> str:
        return f"record {self.place}: {self.detail}"


class RecordsRefused(Refused):
    """A batch that is refused for some of its records, as Kafka says it."""

    def __init__(self, name: TopicPartition, check: Check) -> None:
        self._name = name
        self._check = check
        if check.untimely:
            code, text = ErrorCode.INVALID_TIMESTAMP, "due to invalid timestamp"
        else:
            code, text = ErrorCode.INVALID_RECORD, f"due to {check.faults} record errors in total"
        first = self.errors(1)[0]
        super().__init__(code, f"One or more records have been rejected {text}; the first is {first}")

    def errors(self, count: int) -> list[RecordError]:
        """Returns the first `count` of the records that may not enter, or all if they are fewer, or very many."""
        noted = min(count, self._check.faults, RECORD_ERRORS_MAX)
        return [self._error(*self._check.fault(number)) for number in range(noted)]

    def _error(self, index: int, time: int | None) -> RecordError:
        if time is None:
            text = f"Compacted topic cannot accept message without key in topic partition {self._name}."
        else:
            bounds = f"[{self._check.oldest}, {self._check.latest}]"
            text = f"Timestamp {time} of message with offset {index} is out of range. It should be within {bounds}"
        return RecordError(index, text)


def check_records(name: TopicPartition, batch: Batch, payload: memoryview, check: Check) -> TimestampMs:
    """Returns the greatest time of a batch's unpacked records, which are well-formed and as the topic wants them.

    Raises Refused: INVALID_RECORD unless there are exactly records_count well-formed records with offset deltas from 0
    up; RecordsRefused: INVALID_TIMESTAMP if the time of a record is out of bounds, INVALID_RECORD if one lacks its key.
    Kafka 4.3.0 lets deltas out of order pass where there is no codec.
    """
    count, base_timestamp = batch.records_count, batch.base_timestamp
    bad = check.run(payload, count, base_timestamp)
    if bad == count:
        raise Refused(ErrorCode.INVALID_RECORD, f"bytes are left behind the last of {count} records")
    if bad >= 0:
        raise Refused(ErrorCode.INVALID_RECORD, f"record {bad} of {count} is malformed, or out of order")
    if check.faults:
        check.note(min(check.faults, RECORD_ERRORS_MAX))
        check.run(payload, count, base_timestamp)
        raise RecordsRefused(name, check)
    return TimestampMs(check.newest)
