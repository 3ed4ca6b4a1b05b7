"""The writing side of one partition of a state topic: Kafka's record formats, one batch per change.

A change is one batch, so a crash keeps all of it or nothing. State follows the log: it changes when the batch is
written, and is rebuilt from the log by shard_loading.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import NO_TIMESTAMP, ProducerEpoch, ProducerId, TimestampMs, TopicPartition
from odradek.core.coordinators.durable import PendingWrite
from odradek.core.coordinators.runtime import Runtime
from odradek.core.kernel.moment import Moment
from odradek.core.partition.leading import Leading
from odradek.core.partition.staging import Append
from odradek.record.builder import NO_PRODUCER, NO_PRODUCER_EPOCH, encode_batch
from odradek.record.internal.internal_codec import encode
from odradek.record.record_batch import Batch

TOO_LARGE = ErrorCode.UNKNOWN_SERVER_ERROR
# Error codes of failed writes as coordinator errors: not available now, or not coordinator anymore.
_FAILURES = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE: TOO_LARGE,
}


class StateRecord(NamedTuple):
    """A record of a state topic: a key and its new value; None is a tombstone.

    `version` is the version of the value, if it differs from the version of its class.
    """

    key: object
    value: object | None
    version: int | None = None


class ProducerIdAndEpoch(NamedTuple):
    """The producer of a transaction's records; NON_TRANSACTIONAL for records outside transactions."""

    id: ProducerId
    epoch: ProducerEpoch


NON_TRANSACTIONAL = ProducerIdAndEpoch(NO_PRODUCER, NO_PRODUCER_EPOCH)


class StateLog:
    """Writer of one partition's records; `versions` maps the class of a value to its version."""

    def __init__(self, leading: Leading, versions: Mapping[type, int], runtime: Runtime) -> None:
        self.leading = leading
        self._versions = versions
        self._runtime = runtime

    @property
    def name(self) -> TopicPartition:
        return self.leading.name

    def append(
        self, records: Sequence[StateRecord], now: Moment, producer: ProducerIdAndEpoch = NON_TRANSACTIONAL
    ) -> PendingWrite:
        """Write records as one batch, or raise Refused (COORDINATOR_NOT_AVAILABLE, ...) and write nothing."""
        assert records, "a state change has at least one record"
        return self.append_encoded(self.encoded(records, now.wall, producer), now)

    def append_encoded(self, batch: bytearray, now: Moment) -> PendingWrite:
        """Write a batch made by `encoded`, or raise Refused as `append` does."""
        try:
            append = self._runtime.append(self.leading, Batch.trusted(batch), now)
        except Refused as refused:
            raise Refused(_FAILURES.get(refused.code, refused.code), refused.detail) from refused
        assert append.base_offset < append.end, "a state change has at least one record"
        return PendingWrite(append)

    def inherited(self) -> PendingWrite:
        """Return the whole log as one write; in-sync followers may lack the end from an earlier leader."""
        log = self.leading.log
        return PendingWrite(Append(self.leading, log.start_offset, log.end_offset, NO_TIMESTAMP, needs_sync=False))

    def encoded(
        self, records: Iterable[StateRecord], time: TimestampMs, producer: ProducerIdAndEpoch = NON_TRANSACTIONAL
    ) -> bytearray:
        """Encode the batch of one change; Refused(INVALID_REQUEST) if a string is too long."""
        encoded = (encode(record.key, record.value, self._version_of(record)) for record in records)
        return encode_batch(
            ((key, value, (), time) for key, value in encoded),
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            is_transactional=producer.id >= 0,
        )

    def _version_of(self, record: StateRecord) -> int:
        return self._versions.get(type(record.value), 0) if record.version is None else record.version
