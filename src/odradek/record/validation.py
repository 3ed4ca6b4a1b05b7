"""Validation of a producer's records against their topic, as in Kafka's LogValidator.

Batch.checked reads only the header. Kafka reads every record of every batch. Here the topic decides: the compiled check
costs less than the checksum for a batch without a codec, and one decompression for a batch with a codec.
"""

from __future__ import annotations

from typing import NamedTuple

from odradek.base.errors import ErrorCode, Refused
from odradek.base.limits import RECORD_ERRORS_MAX
from odradek.base.units import TimestampMs, TopicPartition
from odradek.record.kernels.decode import Check
from odradek.record.record_batch import Batch


class RecordError(NamedTuple):
    """An invalid record, identified by its index in the batch (KIP-467)."""

    place: int
    detail: str

    def __str__(self) -> str:
        return f"record {self.place}: {self.detail}"


class RecordsRefused(Refused):
    """Error for a batch with invalid records, with Kafka's message text; `reason` is the first that explains the code.

    One record with a wrong time makes the code INVALID_TIMESTAMP, however many records before it lack their keys.
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
        """Return the first `count` invalid records, the reason for the code among them.

        These are all of them if there are fewer, or more than RECORD_ERRORS_MAX.
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
    """Check a batch's unpacked records against their topic and return the greatest timestamp.

    Raise Refused(INVALID_RECORD) unless there are exactly records_count well-formed records with offset deltas from 0
    upwards. Raise RecordsRefused with INVALID_TIMESTAMP for a timestamp out of bounds, or INVALID_RECORD for a missing
    key. Kafka 4.3.0 accepts deltas out of order in a batch without a codec.
    """
    count, base_timestamp = batch.records_count, batch.base_timestamp
    bad = check.run(payload, count, base_timestamp)
    if bad == count:
        raise Refused(ErrorCode.INVALID_RECORD, f"the batch has bytes after the last of {count} records")
    if bad >= 0:
        raise Refused(ErrorCode.INVALID_RECORD, f"record {bad} of {count} is malformed, or out of order")
    if check.faults:
        check.note(min(check.faults, RECORD_ERRORS_MAX))
        check.run(payload, count, base_timestamp)
        raise RecordsRefused(name, check, _reason(check, payload, count, base_timestamp))
    return TimestampMs(check.newest)


def _reason(check: Check, payload: memoryview, count: int, base_timestamp: TimestampMs) -> tuple[int, int | None]:
    """Return the first fault as Check has it: the first wrong timestamp if there is one."""
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
