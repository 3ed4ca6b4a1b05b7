"""Loop time with many parked fetches, or deletions in many partitions: no callback takes the loop for long.

As in test_loop_time.py, the processor time of the loop's thread is measured.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from odradek.record.builder import encode_batch
from odradek.wire.client_codec import decode_response
from odradek.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from odradek.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from support.asking import CREATE_TOPICS, FETCH, PRODUCE, fetch_request, produced
from support.crowd import need_files
from support.loop_time import no_long_callbacks
from support.raw_client import RawClient, frame
from support.timed_serve import TimedServing

MANY = 1_000
LIST_OFFSETS, EARLIEST = 7, -2
DELETED_SECONDS_MAX = 60
CONFIGS = {
    "log.retention.check.interval.ms": "300",
    "log.initial.task.delay.ms": "0",
    "log.segment.delete.delay.ms": "0",
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[TimedServing]:
    need_files(4 * MANY)
    with TimedServing(tmp_path, **CONFIGS) as serving:
        yield serving


def create(client: RawClient, name: str, partitions: int, **configs: str) -> None:
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        assignments=[],
        configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )
    answer = client.request(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), CREATE_TOPICS, CreateTopicsResponse)
    assert not answer.topics[0].error_code


def test_a_record_for_a_thousand_parked_fetches_does_not_block_the_loop(broker: TimedServing) -> None:
    with RawClient(broker.port) as producer, ExitStack() as leaving:
        create(producer, "t", 1)
        waiting = [leaving.enter_context(RawClient(broker.port)) for _ in range(MANY)]
        for one in waiting:
            one.send(frame(fetch_request("t", 0, wait_ms=60_000), FETCH))
        with no_long_callbacks(broker):
            produced(producer, "t", b"a record")
            for one in waiting:
                (part,) = decode_response(FetchResponse, FETCH, one.read_frame())[1].responses[0].partitions
                assert part.records and not part.error_code


def test_a_parked_fetch_of_many_partitions_does_not_block_the_loop(broker: TimedServing) -> None:
    with RawClient(broker.port) as producer, RawClient(broker.port) as consumer:
        create(producer, "t", MANY)
        partitions = [
            FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1000) for index in range(MANY)
        ]
        request = FetchRequest(
            max_wait_ms=60_000,
            min_bytes=1,
            max_bytes=1_000_000,
            topics=[FetchTopic(topic="t", partitions=partitions)],
            forgotten_topics_data=[],
        )
        with no_long_callbacks(broker):
            consumer.send(frame(request, FETCH))
            producer.ping()
            produced(producer, "t", b"a record", partition=MANY // 2)
            (topic,) = decode_response(FetchResponse, FETCH, consumer.read_frame())[1].responses
            assert [part.partition_index for part in topic.partitions if part.records] == [MANY // 2]


def test_retention_of_many_partitions_does_not_block_the_loop(broker: TimedServing) -> None:
    batch = bytes(encode_batch([(None, b"old", (), 1_000)]))
    parts = [PartitionProduceData(index=index, records=batch) for index in range(MANY)]
    request = ProduceRequest(acks=1, timeout_ms=60_000, topic_data=[TopicProduceData(name="t", partition_data=parts)])
    with RawClient(broker.port) as client:
        create(client, "t", MANY, retention_ms="1000")
        with no_long_callbacks(broker):
            (answer,) = client.request(request, PRODUCE, ProduceResponse).responses
            assert not any(part.error_code for part in answer.partition_responses)
            wait_until_all_is_deleted(client)


def test_deletion_in_many_partitions_does_not_block_the_loop(broker: TimedServing) -> None:
    batch = bytes(encode_batch([(None, b"some", (), time.time_ns() // 1_000_000)]))
    parts = [PartitionProduceData(index=index, records=batch) for index in range(MANY)]
    produce = ProduceRequest(acks=1, timeout_ms=60_000, topic_data=[TopicProduceData(name="t", partition_data=parts)])
    ends = [DeleteRecordsPartition(partition_index=index, offset=-1) for index in range(MANY)]
    delete = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=ends)], timeout_ms=60_000)
    with RawClient(broker.port) as client:
        create(client, "t", MANY)
        client.request(produce, PRODUCE, ProduceResponse)
        with no_long_callbacks(broker):
            (deleted,) = client.request(delete, 2, DeleteRecordsResponse).topics
            assert {(part.low_watermark, part.error_code) for part in deleted.partitions} == {(1, 0)}
            (described,) = client.request(DescribeLogDirsRequest(topics=None), 5, DescribeLogDirsResponse).results
            assert sum(len(topic.partitions) for topic in described.topics) == MANY


def wait_until_all_is_deleted(client: RawClient) -> None:
    partitions = [ListOffsetsPartition(partition_index=index, timestamp=EARLIEST) for index in range(MANY)]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=partitions)])
    deadline = time.monotonic() + DELETED_SECONDS_MAX
    while True:
        (topic,) = client.request(request, LIST_OFFSETS, ListOffsetsResponse).topics
        if {part.offset for part in topic.partitions} == {1}:
            return
        assert time.monotonic() < deadline, "retention does not end"
        time.sleep(0.2)
