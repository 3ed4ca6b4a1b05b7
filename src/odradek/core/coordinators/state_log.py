"""The writing side of one partition of a state topic: records in Kafka's formats, one batch for a change.

A change is one batch, so a crash leaves all of it or nothing.  State follows the log: it is changed when the batch is
written, and made again from the log by whoever loads it (shard_loading.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import NO_TIMESTAMP, ProducerEpoch, ProducerId, TimestampMs, TopicPartition
from odradek.core.coordinators.durable import Written
from odradek.core.coordinators.runtime import Runtime
from odradek.core.kernel.moment import Moment
from odradek.core.partition.leading import Leading
from odradek.core.partition.partition import Append
from odradek.record.builder import NO_PRODUCER, NO_PRODUCER_EPOCH, encode_batch
from odradek.record.internal.internal_codec import encode
from odradek.record.record_batch import Batch

TOO_LARGE = ErrorCode.UNKNOWN_SERVER_ERROR
# What a failed write is to whoever asked: the coordinator can't do it now, or is none any more.
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
    """A record of a state topic: a key and its value from now on; None is a tombstone.

    `version` is that in which the value is written, where it differs from that of its class.
    """

    key: object
    value: object | None
    version: int | None = None


class ProducerIdAndEpoch(NamedTuple):
    """The producer in whose transaction records are written; NOBODY for records that belong to none."""

    id: ProducerId
    epoch: ProducerEpoch


NOBODY = ProducerIdAndEpoch(NO_PRODUCER, NO_PRODUCER_EPOCH)


class StateLog:
    """Writes one partition's records; `versions` are those in which values are written, by their class."""

    def __init__(self, leading: Leading, versions: Mapping[type, int], runtime: Runtime) -> None:
        self.leading = leading
        self._versions = versions
        self._runtime = runtime

    @property
    def name(self) -> TopicPartition:
        return self.leading.name

    def append(self, records: Sequence[StateRecord], now: Moment, producer: ProducerIdAndEpoch = NOBODY) -> Written:
        """Writes records as one batch.  Raises Refused (COORDINATOR_NOT_AVAILABLE, ...) with nothing written."""
        assert records, "a change is at least one record"
        return self.append_encoded(self.encoded(records, now.wall, producer), now)

    def append_encoded(self, batch: bytearray, now: Moment) -> Written:
        """Writes a batch that `encoded` made.  Raises Refused as `append`."""
        try:
            append = self._runtime.append(self.leading, Batch.trusted(batch), now)
        except Refused as refused:
            raise Refused(_FAILURES.get(refused.code, refused.code), refused.detail) from refused
        return Written(append)

    def inherited(self) -> Written:
        """Returns all that the log holds now as one write: of an earlier leader's, others in sync may lack the end."""
        log = self.leading.log
        return Written(Append(self.leading, log.start_offset, log.end_offset, NO_TIMESTAMP, needs_sync=False))

    def encoded(
        self, records: Iterable[StateRecord], time: TimestampMs, producer: ProducerIdAndEpoch = NOBODY
    ) -> bytearray:
        """Encodes the batch of one change.  Raises Refused(INVALID_REQUEST) for a text that is too long."""
        encoded = (encode(one.key, one.value, self._version_of(one)) for one in records)
        return encode_batch(
            ((key, value, (), time) for key, value in encoded),
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            is_transactional=producer.id >= 0,
        )

    def _version_of(self, record: StateRecord) -> int:
        return self._versions.get(type(record.value), 0) if record.version is None else record.version
