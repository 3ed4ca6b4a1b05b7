"""Common requests to a broker over a RawClient, each in one call."""

from __future__ import annotations

import time

from odradek.base.errors import ErrorCode
from odradek.base.uuids import ZERO_UUID
from odradek.record.builder import encode_batch
from odradek.record.record_batch import iter_batches
from odradek.record.records import decode
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from support.raw_client import RawClient
from support.waiting import PAUSE_SECONDS, SECONDS_MAX

ALL, LEADER = -1, 1
PRODUCE, FETCH, CREATE_TOPICS, DELETE_TOPICS, METADATA = 9, 12, 7, 6, 12  # The versions in use.
MIB = 1 << 20


def create_request(*names: str, partitions: int = 1) -> CreateTopicsRequest:
    topics = [
        CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
        for name in names
    ]
    return CreateTopicsRequest(topics=topics)


def create(client: RawClient, *names: str, partitions: int = 1) -> list[ErrorCode]:
    answer = client.request(create_request(*names, partitions=partitions), CREATE_TOPICS, CreateTopicsResponse)
    return [ErrorCode(topic.error_code) for topic in answer.topics]


def created(client: RawClient, *names: str, partitions: int = 1) -> None:
    assert set(create(client, *names, partitions=partitions)) == {ErrorCode.NONE}


def delete(client: RawClient, name: str) -> ErrorCode:
    states = [DeleteTopicState(name=name, topic_id=ZERO_UUID)]
    answer = client.request(DeleteTopicsRequest(topics=states, timeout_ms=20_000), DELETE_TOPICS, DeleteTopicsResponse)
    return ErrorCode(answer.responses[0].error_code)


def leaders(address: str, topic: str) -> dict[int, int]:
    """Return the leader of each partition according to this broker, -1 for none; wait until it responds.

    A client with its address sends requests to any broker that it knows.
    """
    host, _, port = address.rpartition(":")
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        try:
            with RawClient(int(port), host=host) as client:
                (found,) = client.request(request, METADATA, MetadataResponse).topics
        except ConnectionError:  # It is being started.
            assert time.monotonic() < deadline
            time.sleep(PAUSE_SECONDS)
        else:
            return {one.partition_index: one.leader_id for one in found.partitions}


def produce_request(
    topic: str,
    *values: bytes,
    partition: int = 0,
    acks: int = ALL,
    timestamp_ms: int | None = None,
    timeout_ms: int = 20_000,
) -> ProduceRequest:
    """Return a Produce request of one batch with a record for each value."""
    now = time.time_ns() // 1_000_000 if timestamp_ms is None else timestamp_ms
    records = encode_batch([(None, value, (), now) for value in values])
    topics = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=records)])]
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=topics)


def produce(
    client: RawClient,
    topic: str,
    *values: bytes,
    partition: int = 0,
    acks: int = ALL,
    timestamp_ms: int | None = None,
    timeout_ms: int = 20_000,
) -> tuple[ErrorCode, int]:
    """Produce; return the error, and the base offset or -1."""
    request = produce_request(
        topic, *values, partition=partition, acks=acks, timestamp_ms=timestamp_ms, timeout_ms=timeout_ms
    )
    (part,) = client.request(request, PRODUCE, ProduceResponse).responses[0].partition_responses
    return ErrorCode(part.error_code), part.base_offset


def produced(
    client: RawClient,
    topic: str,
    *values: bytes,
    partition: int = 0,
    acks: int = ALL,
    timestamp_ms: int | None = None,
) -> int:
    """Produce without an error; return the base offset."""
    error, offset = produce(client, topic, *values, partition=partition, acks=acks, timestamp_ms=timestamp_ms)
    assert error == ErrorCode.NONE, error
    return offset


def fetch_request(
    topic: str, offset: int, *, partition: int = 0, wait_ms: int = 0, bytes_max: int = 50 * MIB
) -> FetchRequest:
    partitions = [FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=bytes_max)]
    topics = [FetchTopic(topic=topic, partitions=partitions)]
    return FetchRequest(max_wait_ms=wait_ms, min_bytes=1, max_bytes=bytes_max, topics=topics, forgotten_topics_data=[])


def fetch(
    client: RawClient, topic: str, offset: int, *, partition: int = 0, wait_ms: int = 0, bytes_max: int = 50 * MIB
) -> tuple[ErrorCode, list[tuple[int, bytes]]]:
    """Fetch; return the error, and offsets and values from `offset` on, possibly not all."""
    request = fetch_request(topic, offset, partition=partition, wait_ms=wait_ms, bytes_max=bytes_max)
    (part,) = client.request(request, FETCH, FetchResponse).responses[0].partitions
    records = [
        (record.offset, bytes(record.value or b""))
        for batch in iter_batches(part.records or b"")  # type: ignore[arg-type]  # What was received is bytes.
        for record in decode(batch)
    ]
    return ErrorCode(part.error_code), [one for one in records if one[0] >= offset]


def fetch_all(client: RawClient, topic: str, *, partition: int = 0) -> list[tuple[int, bytes]]:
    """Return offsets and values of all records."""
    found: list[tuple[int, bytes]] = []
    while True:
        error, some = fetch(client, topic, found[-1][0] + 1 if found else 0, partition=partition)
        assert error == ErrorCode.NONE, error
        if not some:
            return found
        found += some
