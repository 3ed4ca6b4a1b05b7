"""ListOffsets: where a partition starts, where it ends, and which offset a time has; for many partitions at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from odradek.base.errors import ErrorCode
from odradek.base.units import TopicName, TopicPartition
from odradek.client.cluster import Cluster
from odradek.client.connection import Connection, Pending
from odradek.client.errors import ClientError, Unsupported, answer_error
from odradek.client.retry import Patience, is_retriable
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

LATEST = -1  # The end: the high watermark, or with read_committed the last stable offset.
EARLIEST = -2
MAX_TIMESTAMP = -3  # The record with the largest timestamp (KIP-734, from version 7).
VERSIONS_FROM = {MAX_TIMESTAMP: 7}


class ListedOffset(NamedTuple):
    """offset is -1 when no record has the time asked for, or a later one; timestamp is -1 where it was not asked."""

    offset: int
    timestamp: int
    leader_epoch: int


def list_offsets(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], *, timeout_ms: int | None = None
) -> dict[TopicPartition, ListedOffset]:
    """Returns the offset of each partition at EARLIEST, LATEST, MAX_TIMESTAMP or a time.

    A time is in milliseconds, its offset that of the first record at or after it.  One request goes to each leader, all
    before the first answer is read; a retriable error is retried until timeout_ms (default api_timeout_ms).
    """
    listed: dict[TopicPartition, ListedOffset] = {}
    missing = dict(wanted)
    patience = Patience(cluster.config, timeout_ms)
    while missing:
        failures = _ask_leaders(cluster, missing, listed)
        missing = {partition: missing[partition] for partition in failures}
        if failures:
            _retry_or_raise(cluster, failures, patience)
    return {partition: listed[partition] for partition in wanted}


def _retry_or_raise(cluster: Cluster, failures: Mapping[TopicPartition, ClientError], patience: Patience) -> None:
    worst = next((error for error in failures.values() if not is_retriable(error)), None)
    if worst is not None:
        raise worst
    cluster.forget(failures)
    patience.again(next(iter(failures.values())))


def _ask_leaders(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], listed: dict[TopicPartition, ListedOffset]
) -> dict[TopicPartition, ClientError]:
    """Asks once: fills `listed`, and returns what failed."""
    failures: dict[TopicPartition, ClientError] = {}
    asked: list[tuple[list[TopicPartition], Pending[ListOffsetsResponse]]] = []
    try:
        cluster.learn(wanted)
    except ClientError as error:
        return dict.fromkeys(wanted, error)
    for leader, partitions in group_by_leader(cluster, wanted, failures).items():
        try:
            asked.append((partitions, _send(cluster, cluster.connection(leader), partitions, wanted)))
        except ClientError as error:
            failures.update(dict.fromkeys(partitions, error))
    for partitions, pending in asked:
        try:
            _take(pending.result(), listed, failures)
        except ClientError as error:
            failures.update(dict.fromkeys(partitions, error))
    for partition in wanted:
        if partition not in listed and partition not in failures:
            failures[partition] = answer_error(ErrorCode.UNKNOWN_SERVER_ERROR, str(partition), "left out of the answer")
    return failures


def group_by_leader(
    cluster: Cluster, partitions: Iterable[TopicPartition], failures: dict[TopicPartition, ClientError]
) -> dict[int, list[TopicPartition]]:
    """Groups partitions by the broker that leads them, in their order; those that nobody leads go into `failures`."""
    groups: dict[int, list[TopicPartition]] = {}
    for partition in partitions:
        try:
            groups.setdefault(cluster.leader(partition), []).append(partition)
        except ClientError as error:
            failures[partition] = error
    return groups


def _send(
    cluster: Cluster, connection: Connection, partitions: list[TopicPartition], wanted: Mapping[TopicPartition, int]
) -> Pending[ListOffsetsResponse]:
    topics: dict[str, ListOffsetsTopic] = {}
    for partition in partitions:
        topic = topics.setdefault(partition.topic, ListOffsetsTopic(name=partition.topic, partitions=[]))
        asked = ListOffsetsPartition(partition_index=partition.partition, timestamp=wanted[partition])
        topic.partitions.append(asked)
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=cluster.config.isolation_level,
        topics=list(topics.values()),
        timeout_ms=cluster.config.request_timeout_ms,
    )
    version = connection.version(ListOffsetsRequest)
    for timestamp, version_from in VERSIONS_FROM.items():
        if version < version_from and timestamp in wanted.values():
            raise Unsupported(f"{connection.where} cannot look up the largest timestamp: it is older than Kafka 3.0")
    return connection.send(request, ListOffsetsResponse, version=version)


def _take(
    answer: ListOffsetsResponse,
    listed: dict[TopicPartition, ListedOffset],
    failures: dict[TopicPartition, ClientError],
) -> None:
    for topic in answer.topics:
        for part in topic.partitions:
            partition = TopicPartition(TopicName(topic.name), part.partition_index)
            if part.error_code == ErrorCode.NONE:
                listed[partition] = _listed(part)
            else:
                failures[partition] = answer_error(part.error_code, str(partition))


def _listed(part: ListOffsetsPartitionResponse) -> ListedOffset:
    return ListedOffset(part.offset, part.timestamp, part.leader_epoch)
