"""Production of single records: chooses partitions, fills batches, and keeps one Delivery in flight.

A full batch is sent when full batches amount to REQUEST_BYTES, when the next batch of its partition is full, or on
flush(). There is no timer and no thread, so a caller with infrequent records calls flush() after its maximum delay.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Self

from odradek.base.errors import ErrorCode
from odradek.base.units import MIB, TopicName, TopicPartition
from odradek.client.cluster.cluster import Cluster
from odradek.client.connection.client_errors import ClientError, response_error
from odradek.client.producer.batch_encoder import encode_records
from odradek.client.producer.delivery import ACKS_ALL, Delivery
from odradek.client.producer.idempotence import Buffer, Sequences
from odradek.client.producer.partitioner import StickyPartition, partition_of_key
from odradek.record.builder import RecordIn
from odradek.record.compression import Codec

REQUEST_BYTES = 1 * MIB  # max.request.size of Kafka's producer; full batches of this total size are sent.
RECORD_OVERHEAD_BYTES = 16  # Upper estimate of lengths, deltas and attributes of one record.


@dataclass(slots=True)
class _OpenBatch:
    """A batch that accepts more records."""

    records: list[RecordIn] = field(default_factory=list)
    size: int = 0


class _Topic:
    """The open batches of a topic by partition, and the partitioner of records without a key."""

    __slots__ = ("fillings", "name", "sticky")

    def __init__(self, name: str, partitions: int, is_led: Callable[[int], bool]) -> None:
        self.name = TopicName(name)
        self.fillings = [_OpenBatch() for _ in range(partitions)]
        self.sticky = StickyPartition(partitions, is_led)


class Producer:
    """Producer of records; not thread-safe.

    It is a context manager: leaving it flushes, unless an exception is raised.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        acks: int = ACKS_ALL,
        codec: Codec = Codec.NONE,
        level: int | None = None,
        may_create: bool = True,
        sequences: Sequences | None = None,
    ) -> None:
        """Create a producer without connecting.

        may_create: lets the broker create a missing topic, if its configuration allows that.

        sequences: makes writes idempotent, see sequences.idempotent(); acks must then be ACKS_ALL.
        """
        self._cluster = cluster
        self._acks = acks
        self._codec = codec
        self._level = level
        self._may_create = may_create
        self._sequences = sequences
        self._batch_bytes = cluster.config.batch_bytes
        self._topics: dict[str, _Topic] = {}
        self._ready: dict[TopicPartition, Buffer] = {}
        self._ready_bytes = 0
        self._in_flight: Delivery | None = None
        self._in_flight_records = 0
        self._ready_records = 0
        self.records_sent = 0
        self.records_written = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self.flush()

    @property
    def is_empty(self) -> bool:
        """Return whether everything sent is written."""
        return self.records_written == self.records_sent

    def send(
        self,
        topic: str,
        value: Buffer | None,
        *,
        key: bytes | None = None,
        headers: Sequence[tuple[str, Buffer | None]] = (),
        timestamp: int | None = None,
        partition: int | None = None,
    ) -> None:
        """Add one record; raise the error of an earlier delivery.

        The timestamp is in milliseconds, by default the current time.
        """
        state = self._topics.get(topic) or self._load_topic(topic)
        at = self._partition_of(state, key, partition)
        open_batch = state.fillings[at]
        size = RECORD_OVERHEAD_BYTES + (len(key) if key else 0) + (len(value) if value else 0)
        if headers:
            size += sum(2 * len(name) + len(content or b"") + 4 for name, content in headers)
        if open_batch.records and open_batch.size + size > self._batch_bytes:
            self._close_batch(state, at)
            # Repeated because a record without a key now goes to a different partition.
            self.send(topic, value, key=key, headers=headers, timestamp=timestamp, partition=partition)
            return
        open_batch.records.append((key, value, headers, now_ms() if timestamp is None else timestamp))
        open_batch.size += size
        self.records_sent += 1

    def send_batch(self, partition: TopicPartition, batch: Buffer, records: int) -> None:
        """Add an encoded batch of format 2.

        The bytes must not change until flush(), and are modified here if sequences number them.
        """
        self.records_sent += records
        self._make_ready(partition, batch, records)

    def _make_ready(self, partition: TopicPartition, batch: Buffer, records: int) -> None:
        if partition in self._ready:
            self._send_ready()
        self._ready[partition] = batch
        self._ready_bytes += len(batch)
        self._ready_records += records
        if self._ready_bytes >= REQUEST_BYTES:
            self._send_ready()

    def flush(self) -> None:
        """Wait until everything sent so far is written as required by acks; raise the error otherwise."""
        for state in self._topics.values():
            for at, open_batch in enumerate(state.fillings):
                if open_batch.records:
                    self._close_batch(state, at)
        if self._ready:
            self._send_ready()
        self._await_in_flight()

    def discard(self) -> None:
        """Discard all unwritten records; batches in flight may still be written."""
        for state in self._topics.values():
            state.fillings = [_OpenBatch() for _ in state.fillings]
        self._ready, self._ready_bytes, self._ready_records = {}, 0, 0
        with suppress(ClientError):
            self._await_in_flight()
        self.records_sent = self.records_written

    def partitions(self, topic: str) -> int:
        """Return the number of a topic's partitions, after waiting for the topic or creating it if allowed."""
        return len((self._topics.get(topic) or self._load_topic(topic)).fillings)

    def _load_topic(self, topic: str) -> _Topic:
        found = self._cluster.topic(topic, may_create=self._may_create)
        state = self._topics[topic] = _Topic(topic, len(found.partitions), partial(self._is_led, topic))
        return state

    def _is_led(self, topic: str, partition: int) -> bool:
        """Return whether the partition has a leader, or True if that is unknown."""
        metadata = self._cluster.metadata
        known = metadata.topics[topic].partition(partition) if topic in metadata.topics else None
        return known is None or known.leader in metadata.brokers

    @staticmethod
    def _partition_of(state: _Topic, key: bytes | None, partition: int | None) -> int:
        if partition is None:
            return state.sticky.current if key is None else partition_of_key(key, len(state.fillings))
        if not 0 <= partition < len(state.fillings):
            # The partition count is known here, so no request is necessary.
            detail = f"{state.name}-{partition}, of {len(state.fillings)} partitions"
            raise response_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, detail)
        return partition

    def _close_batch(self, state: _Topic, at: int) -> None:
        open_batch, state.fillings[at] = state.fillings[at], _OpenBatch()
        if at == state.sticky.current:
            state.sticky.turn()
        batch = encode_records(open_batch.records, self._codec, self._level)
        self._make_ready(TopicPartition(state.name, at), batch, len(open_batch.records))

    def _send_ready(self) -> None:
        self._await_in_flight()
        ready, self._ready, self._ready_bytes = self._ready, {}, 0
        self._in_flight_records, self._ready_records = self._ready_records, 0
        self._in_flight = Delivery(self._cluster, ready, acks=self._acks, sequences=self._sequences)

    def _await_in_flight(self) -> None:
        delivery, self._in_flight = self._in_flight, None
        if delivery is not None:
            delivery.finish()
            self.records_written += self._in_flight_records


def now_ms() -> int:
    return time.time_ns() // 1_000_000
