"""Requests of a follower to its leader as messages of any version, and the answers per partition.

These are Fetch, OffsetForLeaderEpoch and ListOffsets. Their reasons are in core/replication/replica_fetcher_manager.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from odradek.api.fetch.follower_fetch import REPLICA_STATE_SINCE
from odradek.base.errors import ErrorCode, error_code
from odradek.base.units import NO_OFFSET, BrokerId, LeaderEpoch, Offset, TopicName, TopicPartition
from odradek.base.uuids import Uuid
from odradek.core.replication.leader_endpoint import EpochEnd, Fetch, Fetched, OffsetsForLeaderEpoch
from odradek.core.replication.replica_fetcher_manager import (
    LeaderEpochsRequest,
    LeaderOffsetsRequest,
    PartitionRequest,
    ReplicaFetch,
)
from odradek.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from odradek.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

LAST_FETCHED_EPOCH_SINCE, BY_ID_SINCE = 12, 13
NO_RECORDS = memoryview(b"")


class FetchSettings(NamedTuple):
    """The fetching broker and its limits; times are in milliseconds."""

    broker: BrokerId
    broker_epoch: int
    max_wait_ms: int  # replica.fetch.wait.max.ms
    min_bytes: int  # replica.fetch.min.bytes
    max_bytes: int  # replica.fetch.response.max.bytes
    partition_max_bytes: int  # replica.fetch.max.bytes


# Fetch.


def fetch_version(request: ReplicaFetch, newest: int) -> int:
    """Return the version to send: one with names if a topic has no id (created before Kafka 2.8)."""
    return newest if request.by_id else min(newest, BY_ID_SINCE - 1)


def fetch_message(request: ReplicaFetch, settings: FetchSettings, version: int) -> FetchRequest:
    """Return the message, with each topic once."""
    topics: dict[tuple[TopicName, Uuid], FetchTopic] = {}
    for partition_request in request.named:
        assert isinstance(partition_request.request, Fetch), "a fetch session contains nothing else"
        name, key = partition_request.name, (partition_request.name.topic, partition_request.topic_id)
        topic = topics.get(key)
        if topic is None:
            topic = topics[key] = FetchTopic(topic=name.topic, topic_id=partition_request.topic_id, partitions=[])
        topic.partitions.append(
            FetchPartition(
                partition=name.partition,
                current_leader_epoch=partition_request.following.epoch,
                fetch_offset=partition_request.request.offset,
                last_fetched_epoch=partition_request.request.last_fetched_epoch
                if version >= LAST_FETCHED_EPOCH_SINCE
                else -1,
                log_start_offset=partition_request.log_start,
                partition_max_bytes=settings.partition_max_bytes,
            )
        )
    has_replica_state = version >= REPLICA_STATE_SINCE
    state = ReplicaState(replica_id=settings.broker, replica_epoch=settings.broker_epoch)
    return FetchRequest(
        replica_id=-1 if has_replica_state else settings.broker,
        replica_state=state if has_replica_state else ReplicaState(),
        max_wait_ms=settings.max_wait_ms,
        min_bytes=settings.min_bytes,
        max_bytes=settings.max_bytes,
        session_id=request.session_id,
        session_epoch=request.session_epoch,
        topics=list(topics.values()),
        forgotten_topics_data=_forgotten_topics(
            request.forgotten
        ),  # Only sessions use these; a leader before v7 has none.
    )


def _forgotten_topics(forgotten: Iterable[PartitionRequest]) -> list[ForgottenTopic]:
    topics: dict[tuple[TopicName, Uuid], ForgottenTopic] = {}
    for partition_request in forgotten:
        key = partition_request.name.topic, partition_request.topic_id
        topic = topics.get(key)
        if topic is None:
            topic = topics[key] = ForgottenTopic(
                topic=partition_request.name.topic, topic_id=partition_request.topic_id, partitions=[]
            )
        topic.partitions.append(partition_request.name.partition)
    return list(topics.values())


def fetch_results(
    response: FetchResponse, names: Mapping[Uuid, TopicName], version: int
) -> Iterator[tuple[TopicPartition, Fetched]]:
    """Yield the result of each partition in the response; `names` are those of the session's topics."""
    for topic in response.responses:
        name = names.get(topic.topic_id) if version >= BY_ID_SINCE else TopicName(topic.topic)
        if name is not None:
            for partition_data in topic.partitions:
                yield TopicPartition(name, partition_data.partition_index), _fetch_result(partition_data)


def _fetch_result(data: PartitionData) -> Fetched:
    diverging = data.diverging_epoch
    records = data.records
    assert records is None or isinstance(records, bytes | bytearray | memoryview), "received records are in memory"
    return Fetched(
        error_code(data.error_code),
        NO_RECORDS if records is None else memoryview(records),
        Offset(data.high_watermark),
        Offset(data.log_start_offset),
        EpochEnd(LeaderEpoch(diverging.epoch), Offset(diverging.end_offset)) if diverging.end_offset >= 0 else None,
    )


# OffsetForLeaderEpoch.


def epochs_message(request: LeaderEpochsRequest, broker: BrokerId) -> OffsetForLeaderEpochRequest:
    topics: dict[TopicName, OffsetForLeaderTopic] = {}
    for name, partition_request in request.named.items():
        assert isinstance(partition_request.request, OffsetsForLeaderEpoch), "the request is an OffsetForLeaderEpoch"
        topic = topics.setdefault(name.topic, OffsetForLeaderTopic(topic=name.topic, partitions=[]))
        topic.partitions.append(
            OffsetForLeaderPartition(
                partition=name.partition,
                current_leader_epoch=partition_request.following.epoch,
                leader_epoch=partition_request.request.leader_epoch,
            )
        )
    return OffsetForLeaderEpochRequest(replica_id=broker, topics=list(topics.values()))


def epoch_ends(response: OffsetForLeaderEpochResponse) -> Iterator[tuple[TopicPartition, ErrorCode, EpochEnd]]:
    for topic in response.topics:
        for partition_result in topic.partitions:
            end = EpochEnd(LeaderEpoch(partition_result.leader_epoch), Offset(partition_result.end_offset))
            yield (
                TopicPartition(TopicName(topic.topic), partition_result.partition),
                error_code(partition_result.error_code),
                end,
            )


# ListOffsets.


def offsets_message(request: LeaderOffsetsRequest, broker: BrokerId, timestamp: int) -> ListOffsetsRequest:
    topics: dict[TopicName, ListOffsetsTopic] = {}
    for name, partition_request in request.named.items():
        topic = topics.setdefault(name.topic, ListOffsetsTopic(name=name.topic, partitions=[]))
        topic.partitions.append(
            ListOffsetsPartition(
                partition_index=name.partition,
                current_leader_epoch=partition_request.following.epoch,
                timestamp=timestamp,
            )
        )
    return ListOffsetsRequest(replica_id=broker, topics=list(topics.values()))


def offsets(response: ListOffsetsResponse) -> Iterator[tuple[TopicPartition, ErrorCode, Offset]]:
    for topic in response.topics:
        for partition_result in topic.partitions:
            name = TopicPartition(TopicName(topic.name), partition_result.partition_index)
            yield name, error_code(partition_result.error_code), Offset(partition_result.offset)


def both_offsets(
    starts: ListOffsetsResponse, ends: Mapping[TopicPartition, tuple[ErrorCode, Offset]]
) -> Iterator[tuple[TopicPartition, ErrorCode, Offset, Offset]]:
    """Yield the start and the end of each log, or the error of either."""
    for name, error, start in offsets(starts):
        end_error, end = ends.get(name, (ErrorCode.UNKNOWN_SERVER_ERROR, NO_OFFSET))
        yield name, error if error is not ErrorCode.NONE else end_error, start, end
