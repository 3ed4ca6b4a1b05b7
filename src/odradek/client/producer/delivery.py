"""Production of whole batches: at least once, in order within each partition.

    Delivery(cluster, {partition: batch, ...})    sends one request to each leader, and returns
    .finish()                                     waits for the answers, and retries

A caller encodes its next batches between the two calls. If order within a partition matters, only one Delivery may be
unfinished: a retry must not be overtaken by later batches. A retry after a lost answer writes a batch twice, unless
Sequences number the batches: then each is written once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from odradek.base.errors import ErrorCode
from odradek.base.units import TopicName, TopicPartition
from odradek.base.uuids import ZERO_UUID, Uuid
from odradek.client.cluster.cluster import Cluster
from odradek.client.cluster.leader_requests import group_by_leader
from odradek.client.connection.broker_connection import Pending
from odradek.client.connection.client_errors import ClientError, ErrorResponse, response_error
from odradek.client.connection.retry import RetryDeadline, is_retriable
from odradek.client.producer.idempotence import Buffer, Sequences
from odradek.record.builder import encode_batch
from odradek.record.record_batch import Batch
from odradek.record.records import decode
from odradek.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

ACKS_NONE, ACKS_LEADER, ACKS_ALL = 0, 1, -1
VERSION_WITH_TOPIC_IDS = 13
TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})


class Produced(NamedTuple):
    """The location of a written batch; -1 for values that the broker does not return (all with acks=0)."""

    base_offset: int
    log_append_time: int = -1
    log_start_offset: int = -1


def produce(
    cluster: Cluster,
    batches: Mapping[TopicPartition, Buffer],
    *,
    acks: int = ACKS_ALL,
    timeout_ms: int | None = None,
    sequences: Sequences | None = None,
) -> dict[TopicPartition, Produced]:
    """Write one batch (format 2, base offset 0) to each partition.

    Errors are retried until timeout_ms (default delivery_timeout_ms). A batch that is too large for the broker is sent
    in halves. Raise the first error that can't be retried; other partitions of the call may have been written then.
    """
    return Delivery(cluster, batches, acks=acks, timeout_ms=timeout_ms, sequences=sequences).finish()


class Delivery:
    """Batches in flight, one to each partition."""

    def __init__(
        self,
        cluster: Cluster,
        batches: Mapping[TopicPartition, Buffer],
        *,
        acks: int = ACKS_ALL,
        timeout_ms: int | None = None,
        sequences: Sequences | None = None,
    ) -> None:
        """Send the batches; with sequences, the batches are modified, and acks must be ACKS_ALL."""
        assert sequences is None or acks == ACKS_ALL, "idempotent writes require acks=all"
        config = cluster.config
        self._cluster = cluster
        self._acks = acks
        self._sequences = sequences
        self._deadline = RetryDeadline(config, config.delivery_timeout_ms if timeout_ms is None else timeout_ms)
        self._unwritten = dict(batches)
        if sequences is not None:
            self._unwritten = {
                partition: sequences.assign_numbers(partition, batch) for partition, batch in batches.items()
            }
        self._produced: dict[TopicPartition, Produced] = {}
        self._failures: dict[TopicPartition, ClientError] = {}
        self._in_flight: list[tuple[list[TopicPartition], Pending[ProduceResponse]]] = []
        # By id: the cluster may drop a topic from its metadata before the answer arrives.
        self._names: dict[bytes, TopicName] = {}
        self._send()

    def finish(self) -> dict[TopicPartition, Produced]:
        """Wait for the answers, retry if possible, and return the location of every batch."""
        try:
            while True:
                self._receive()
                if not self._failures:
                    return self._produced
                self._split_too_large()
                self._retry_or_raise()
        except BaseException:
            if self._sequences is not None:
                for partition in self._unwritten:
                    # The batch may or may not be written: later batches need a new epoch.
                    self._sequences.renew(partition)
            raise

    def _send(self) -> None:
        self._failures = {}
        try:
            self._cluster.learn(self._unwritten)
            if self._sequences is not None:
                self._sequences.announce(self._unwritten)
        except ClientError as error:
            self._failures = dict.fromkeys(self._unwritten, error)
            return
        for leader, partitions in group_by_leader(self._cluster, self._unwritten, self._failures).items():
            try:
                self._send_to(leader, partitions)
            except ClientError as error:
                self._failures.update(dict.fromkeys(partitions, error))

    def _send_to(self, leader: int, partitions: list[TopicPartition]) -> None:
        connection = self._cluster.connection(leader)
        version = connection.version(ProduceRequest)
        ids = {partition.topic: self._cluster.metadata.topics[partition.topic].id for partition in partitions}
        self._names.update((bytes(topic_id), name) for name, topic_id in ids.items())
        if ZERO_UUID in ids.values():
            version = min(version, VERSION_WITH_TOPIC_IDS - 1)
        if self._sequences is not None:
            version = min(version, self._sequences.produce_version_max)
        request = ProduceRequest(
            transactional_id=None if self._sequences is None else self._sequences.transactional_id,
            acks=self._acks,
            timeout_ms=self._cluster.config.request_timeout_ms,
            topic_data=topic_data(self._unwritten, partitions, ids),
        )
        is_answered = self._acks != ACKS_NONE
        pending = connection.send(request, ProduceResponse, version=version, is_answered=is_answered)
        if is_answered:
            self._in_flight.append((partitions, pending))
        else:
            self._mark_written((partition, Produced(-1)) for partition in partitions)

    def _receive(self) -> None:
        in_flight, self._in_flight = self._in_flight, []
        for partitions, pending in in_flight:
            try:
                self._handle_response(pending.result())
            except ClientError as error:
                self._failures.update(dict.fromkeys(partitions, error))
        for partition in self._unwritten:
            if partition not in self._failures:
                missing = response_error(ErrorCode.UNKNOWN_SERVER_ERROR, str(partition), "missing in the response")
                self._failures[partition] = missing

    def _handle_response(self, response: ProduceResponse) -> None:
        for topic in response.responses:
            name = topic.name or self._names.get(bytes(topic.topic_id), "")
            for part in topic.partition_responses:
                partition = TopicPartition(TopicName(name), part.index)
                if part.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER and self._sequences is not None:
                    # Written so long ago that the broker no longer knows the offset.
                    self._mark_written([(partition, Produced(-1))])
                elif part.error_code != ErrorCode.NONE:
                    self._failures[partition] = response_error(part.error_code, str(partition), reason_of(part))
                else:
                    location = Produced(part.base_offset, part.log_append_time_ms, part.log_start_offset)
                    self._mark_written([(partition, location)])

    def _mark_written(self, produced: Iterable[tuple[TopicPartition, Produced]]) -> None:
        for partition, location in produced:
            if self._unwritten.pop(partition, None) is not None:
                self._produced[partition] = location

    def _split_too_large(self) -> None:
        """Write the halves of batches that are too large for their topic, one after the other."""
        for partition, error in list(self._failures.items()):
            if not (isinstance(error, ErrorResponse) and error.code in TOO_LARGE):
                continue
            halves = split_in_half(self._unwritten[partition])
            if not halves:
                continue
            del self._failures[partition]
            if self._sequences is not None:
                self._sequences.rewind(partition, self._unwritten[partition])
            written = [self._produce_half(partition, half) for half in halves]
            self._mark_written([(partition, written[0])])

    def _produce_half(self, partition: TopicPartition, batch: Buffer) -> Produced:
        return produce(self._cluster, {partition: batch}, acks=self._acks, sequences=self._sequences)[partition]

    def _retry_or_raise(self) -> None:
        if not self._failures:
            return
        fatal = next((error for error in self._failures.values() if not self._can_retry(error)), None)
        if fatal is not None:
            raise fatal
        self._cluster.forget(self._failures)
        self._deadline.wait(next(iter(self._failures.values())))
        self._renumber()
        self._send()

    def _can_retry(self, error: ClientError) -> bool:
        return is_retriable(error) or (self._sequences is not None and self._sequences.may_renew(error))

    def _renumber(self) -> None:
        """Renumber batches that the broker rejected because of their sequence numbers."""
        for partition, error in self._failures.items():
            if self._sequences is not None and self._sequences.may_renew(error):
                self._sequences.renew(partition)
                self._unwritten[partition] = self._sequences.assign_numbers(partition, self._unwritten[partition])


def topic_data(
    batches: Mapping[TopicPartition, Buffer], partitions: list[TopicPartition], ids: Mapping[TopicName, Uuid]
) -> list[TopicProduceData]:
    topics: dict[str, TopicProduceData] = {}
    for partition in partitions:
        topic = topics.get(partition.topic)
        if topic is None:
            topic = TopicProduceData(name=partition.topic, topic_id=ids[partition.topic], partition_data=[])
            topics[partition.topic] = topic
        topic.partition_data.append(PartitionProduceData(index=partition.partition, records=batches[partition]))
    return list(topics.values())


def reason_of(part: PartitionProduceResponse) -> str | None:
    """Return the broker's message about the batch and its first invalid record (KIP-467)."""
    first = part.record_errors[0] if part.record_errors else None
    if first is not None and first.batch_index_error_message:
        return f"record {first.batch_index} of the batch: {first.batch_index_error_message}"
    return part.error_message


def split_in_half(batch: Buffer) -> list[bytearray]:
    """Return the records of a batch as two batches without producer id, or [] for a single record."""
    whole = Batch.trusted(batch)
    if whole.records_count < 2:
        return []
    records = [(record.key, record.value, record.headers, record.timestamp) for record in decode(whole)]
    middle = len(records) // 2
    return [encode_batch(records[:middle], whole.codec), encode_batch(records[middle:], whole.codec)]
