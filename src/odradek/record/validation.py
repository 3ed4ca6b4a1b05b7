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
from odradek.record.kernels.decode import Check
from odradek.record.record_batch import Batch


class RecordError(NamedTuple):
    """One record that may not enter, by its place in the batch (KIP-467)."""

    place: int
    detail: str

    def __str__(self) -> str:
        return f"record {self.place}: {self.detail}"


class RecordsRefused(Refused):
    """A batch that is refused for some of its records, as Kafka says it; `reason` is the first that explains the code.

    One record with a wrong time makes INVALID_TIMESTAMP of it all, however many before it lack their keys.
    """

    def __init__(self, name: TopicPartition, check: Check, reason: tuple[int, int | None]) -> None:
        self._name = name
        self._check = check
        self._reason = self._error(*reason)
        if check.untimely:
            code, text = ErrorCode.INVALID_TIMESTAMP, "due to invalid timestamp"
        else:
            code, text = ErrorCode.INVALID_RECORD, f"due to {check.faults} record errors in total"
        super().__init__(code, f"One or more records have been rejected {text}; the first is {self._reason}")

    def errors(self, count: int) -> list[RecordError]:
        """Returns the first `count` of the records that may not enter, the reason for the code among them.

        They are all if there are fewer, or very many.
        """
        noted = min(count, self._check.faults, RECORD_ERRORS_MAX)
        errors = [self._error(*self._check.fault(number)) for number in range(noted)]
        if errors and self._reason not in errors:
            errors[-1] = self._reason
        return errors

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
        raise RecordsRefused(name, check, _reason(check, payload, count, base_timestamp))
    return TimestampMs(check.newest)


def _reason(check: Check, payload: memoryview, count: int, base_timestamp: TimestampMs) -> tuple[int, int | None]:
    """Returns the first fault, as Check has it; the first that is one of time if there is any of those."""
    noted = [check.fault(number) for number in range(min(check.faults, RECORD_ERRORS_MAX))]
    if not check.untimely:
        return noted[0]
    for fault in noted:
        if fault[1] is not None:
            return fault
    times = Check(False, check.oldest, check.latest)  # So many lack their keys that it was not noted.
    times.note(1)
    times.run(payload, count, base_timestamp)
    return times.fault(0)
