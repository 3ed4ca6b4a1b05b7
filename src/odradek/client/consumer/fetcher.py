"""Fetching of raw batches from many partitions, with the next request sent during decoding.

    fetcher = Fetcher(cluster, {TopicPartition("t", 0): 0}, until={TopicPartition("t", 0): 1_000_000})
    while not fetcher.is_done:
        for fetched in fetcher.poll(timeout_ms=1000):
            ...                       # The broker is already sending the next answer.

This needs no thread: poll() sends the next request before it returns, and the answer waits in the socket's buffer. At
most one answer per leader is on the wire and one with the caller; fetch_max_bytes bounds both. A request to a leader
contains all its partitions, with those that returned data most recently at the end, so that a busy partition does not
starve the others.

Fetch sessions (KIP-227) are not used: they save bytes for thousands of idle partitions but require additional state.
"""

from __future__ import annotations

import select
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from odradek.base.errors import ErrorCode
from odradek.base.units import INT64_MAX, TopicPartition
from odradek.base.uuids import ZERO_UUID, Uuid
from odradek.client.cluster.cluster import Cluster
from odradek.client.cluster.leader_requests import group_by_leader
from odradek.client.connection.broker_connection import Connection, Pending
from odradek.client.connection.client_errors import ClientError, OffsetOutOfRange, TopicRecreated, response_error
from odradek.client.connection.retry import Backoff, is_retriable
from odradek.client.consumer.completed_fetch import Fetched, whole_batches
from odradek.client.consumer.fetch_messages import VERSION_WITH_TOPIC_IDS, fetch_request, partition_responses
from odradek.client.consumer.offset_lookup import EARLIEST, LATEST, MAX_TIMESTAMP, ListedOffset, list_offsets
from odradek.wire.messages.fetch import FetchRequest, FetchResponse, PartitionData

__all__ = ["EARLIEST", "LATEST", "MAX_TIMESTAMP", "Fetched", "Fetcher", "ListedOffset", "list_offsets"]


@dataclass(slots=True)
class _LeaderFetch:
    """The connection to one leader, and the partitions of the last request to it."""

    connection: Connection
    pending: Pending[FetchResponse]
    requested: dict[TopicPartition, int]


@dataclass(slots=True)
class _FailedPartition:
    """State of a partition with retriable errors."""

    since: float
    retry_at: float
    backoff: Backoff = field(repr=False)


class Fetcher:
    """Reader of partitions from given offsets on.

    It is not thread-safe. Close it or the cluster at the end.
    """

    def __init__(
        self,
        cluster: Cluster,
        positions: Mapping[TopicPartition, int],
        *,
        until: Mapping[TopicPartition, int] | None = None,
        topic_ids: Mapping[str, Uuid] | None = None,
    ) -> None:
        """Create a fetcher that starts at `positions`.

        until: the offset at which a partition is done; a partition without one is never done.

        topic_ids: the expected ids of the topics; by default, the first id seen must not change.
        """
        self._cluster = cluster
        self._positions = dict(positions)
        self._until = dict(until or {})
        self._topic_ids = dict(topic_ids or {})
        self._fetches: dict[int, _LeaderFetch] = {}
        self._failing: dict[TopicPartition, _FailedPartition] = {}
        self._errors: list[ClientError] = []

    @property
    def is_done(self) -> bool:
        """Return whether every partition is read up to its `until` and no error is left to raise."""
        return not self._errors and not any(map(self._is_fetchable, self._positions))

    def position(self, partition: TopicPartition) -> int:
        """Return the offset after the last batch that poll() returned."""
        return self._positions[partition]

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at this offset, or add a partition."""
        self._positions[partition] = offset
        self._failing.pop(partition, None)

    def remove(self, partition: TopicPartition) -> None:
        """Stop reading a partition."""
        self._positions.pop(partition, None)
        self._failing.pop(partition, None)

    def poll(self, timeout_ms: int) -> list[Fetched]:
        """Return the data that arrived, or [] if none arrived in time.

        Raise OffsetOutOfRange (call seek() to continue), TopicRecreated, UnknownTopic or another ErrorResponse, or
        KafkaUnavailable if a leader stays unavailable for api_timeout_ms. Data that arrived with an error is returned
        first.
        """
        deadline = time.monotonic() + timeout_ms / 1000
        while True:
            if self._errors:
                raise self._errors.pop(0)
            self._send()
            arrived = [fetched for leader in self._wait(deadline) for fetched in self._receive(leader)]
            if arrived:
                self._send()
                return arrived
            if not self._errors and (time.monotonic() >= deadline or self.is_done):
                return []

    def close(self) -> None:
        for fetch in self._fetches.values():
            fetch.connection.close()
        self._fetches.clear()

    # Requests.

    def _is_fetchable(self, partition: TopicPartition) -> bool:
        return self._positions[partition] < self._until.get(partition, INT64_MAX)

    def _send(self) -> None:
        """Send one request to each leader without a pending answer that has partitions to read."""
        requested = {partition for fetch in self._fetches.values() for partition in fetch.requested}
        now = time.monotonic()
        due = [
            partition
            for partition in self._positions
            if partition not in requested
            and self._is_fetchable(partition)
            and (partition not in self._failing or self._failing[partition].retry_at <= now)
        ]
        if not due:
            return
        try:
            self._cluster.learn(due)
        except ClientError as error:
            self._handle_error(due, error)
            return
        failures: dict[TopicPartition, ClientError] = {}
        for leader, partitions in group_by_leader(self._cluster, due, failures).items():
            if leader not in self._fetches or not self._fetches[leader].requested:
                try:
                    self._send_to(leader, partitions)
                except ClientError as error:
                    failures |= dict.fromkeys(partitions, error)
        # Must come after the loop: it also drops the topic metadata, which is needed to find the other leaders.
        for partition, failure in failures.items():
            self._handle_error([partition], failure)

    def _send_to(self, leader: int, partitions: list[TopicPartition]) -> None:
        requested = {partition: self._positions[partition] for partition in partitions}
        config = self._cluster.config
        fetch = self._fetches.get(leader)
        is_usable = fetch is not None and fetch.connection.is_open
        connection = fetch.connection if fetch and is_usable else self._cluster.dedicated(leader)
        ids = {partition.topic: self._pinned_id(partition.topic) for partition in partitions}
        version = connection.version(FetchRequest)
        if ZERO_UUID in ids.values():
            version = min(version, VERSION_WITH_TOPIC_IDS - 1)
        request = fetch_request(config, requested, ids)
        timeout_ms = config.request_timeout_ms + config.fetch_max_wait_ms
        pending = connection.send(request, FetchResponse, version=version, timeout_ms=timeout_ms)
        self._fetches[leader] = _LeaderFetch(connection, pending, requested)

    def _pinned_id(self, topic: str) -> Uuid:
        """Return the topic's id and check that it did not change, or raise TopicRecreated."""
        known = self._cluster.metadata.topics[topic].id
        pinned = self._topic_ids.get(topic, ZERO_UUID)
        if ZERO_UUID not in (pinned, known) and pinned != known:
            raise TopicRecreated(f"topic {topic} was deleted and recreated while it was read: its offsets have changed")
        self._topic_ids[topic] = known if pinned == ZERO_UUID else pinned
        return known

    # Answers.

    def _wait(self, deadline: float) -> list[int]:
        """Return the leaders whose answers arrive or are overdue; [] if the deadline comes first."""
        poller = select.poll()
        until = deadline
        leaders: dict[int, int] = {}
        for leader, fetch in self._fetches.items():
            if not fetch.requested:
                continue
            if not fetch.connection.is_open or fetch.connection.has_received:
                return [leader]
            leaders[fetch.connection.fileno()] = leader
            poller.register(fetch.connection.fileno(), select.POLLIN)
            until = min(until, fetch.pending.deadline)
        now = time.monotonic()
        # An overdue retry waits for its leader's answer to the other partitions, not for the clock.
        until = min([until, *(failing.retry_at for failing in self._failing.values() if failing.retry_at > now)])
        wait_ms = max(0.0, (until - now) * 1000)
        ready = [leaders[number] for number, _ in poller.poll(wait_ms + 1 if wait_ms else 0)]
        return ready or [leader for leader in leaders.values() if self._fetches[leader].pending.deadline <= until]

    def _receive(self, leader: int) -> Iterable[Fetched]:
        fetch = self._fetches[leader]
        requested, fetch.requested = fetch.requested, {}
        try:
            response = fetch.pending.result()
            if response.error_code != ErrorCode.NONE:
                raise response_error(response.error_code, f"fetch from {fetch.connection.where}")
        except ClientError as error:
            self._handle_error(requested, error)
            return []
        return self._parse_response(response, requested)

    def _parse_response(self, response: FetchResponse, requested: dict[TopicPartition, int]) -> list[Fetched]:
        arrived = []
        for partition, data in partition_responses(response, requested, self._topic_ids):
            if self._positions.get(partition) != requested[partition]:
                continue  # seek() or remove() was called in the meantime.
            try:
                fetched = self._parse_partition(partition, requested[partition], data)
            except ClientError as error:
                self._handle_error([partition], error)
                continue
            self._failing.pop(partition, None)
            if fetched is not None:
                arrived.append(fetched)
        return arrived

    def _parse_partition(self, partition: TopicPartition, offset: int, data: PartitionData) -> Fetched | None:
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            raise OffsetOutOfRange(partition.topic, partition.partition, offset)
        if data.error_code != ErrorCode.NONE:
            raise response_error(data.error_code, str(partition))
        if not data.records:
            return None
        assert isinstance(data.records, memoryview), "fetched records are a view of their frame"
        records = data.records
        size, next_offset = whole_batches(records, partition)
        if next_offset <= offset:
            return None  # Only a partial batch: this partition comes first in a later request.
        del self._positions[partition]  # Moves the partition to the end of the request order.
        self._positions[partition] = next_offset
        aborted = tuple((each.producer_id, each.first_offset) for each in data.aborted_transactions or ())
        return Fetched(
            partition,
            offset,
            next_offset,
            records[:size],
            data.high_watermark,
            data.last_stable_offset,
            data.log_start_offset,
            aborted,
        )

    # Errors.

    def _handle_error(self, partitions: Iterable[TopicPartition], error: ClientError) -> None:
        """Retry retriable errors with new metadata until api_timeout_ms; keep others for the next poll()."""
        now = time.monotonic()
        is_final = not is_retriable(error)
        partitions = [partition for partition in partitions if partition in self._positions]
        for partition in partitions:
            failing = self._failing.get(partition)
            if failing is None:
                failing = self._failing[partition] = _FailedPartition(now, now, Backoff(self._cluster.config))
            failing.retry_at = now + failing.backoff.next_ms() / 1000
            is_final = is_final or now - failing.since > self._cluster.config.api_timeout_ms / 1000
        self._cluster.forget(partitions)
        if is_final and partitions:
            self._errors.append(error)
