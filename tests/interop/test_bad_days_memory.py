"""Many clients with the largest requests or unread responses: the broker's memory stays under its bound.

The bound is in docs/BAD_DAYS.md; the measurement is the process's high-water mark.
"""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from odradek.base.errors import ErrorCode
from odradek.base.limits import RECEIVE_BUDGET_BYTES, RECEIVE_BUFFER_BYTES_MIN
from odradek.record.builder import encode_batch
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.wire.messages.metadata import MetadataRequest
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from support.crowd import Crowd, need_files
from support.raw_client import RawClient, frame
from support.serving import Serving, serving
from support.waiting import until

CLIENTS = 200
SECONDS_MAX = 300
KIB, MIB = 1 << 10, 1 << 20
LEADER = 1
# Added by the interpreter and the kernel's accounting to the sums below.
SLACK_BYTES = 32 * MIB


def peak_bytes(broker: Serving) -> int:
    status = Path(f"/proc/{broker.pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) * KIB  # type: ignore[index]  # A process that runs has it.


def create(client: RawClient, *names: str) -> None:
    topics = [
        CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]) for name in names
    ]
    made = client.request(CreateTopicsRequest(topics=topics), 7, CreateTopicsResponse).topics
    assert {topic.error_code for topic in made} == {ErrorCode.NONE}


def produce_request(topic: str, value: bytes) -> ProduceRequest:
    records = encode_batch([(None, value, (), time.time_ns() // 1_000_000)])
    topics = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)])]
    return ProduceRequest(acks=LEADER, timeout_ms=10_000, topic_data=topics)


def produce(client: RawClient, topic: str, value: bytes) -> ErrorCode:
    answer = client.request(produce_request(topic, value), 9, ProduceResponse)
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


@pytest.mark.nightly
def test_memory_with_200_requests_of_the_configured_maximum_size(tmp_path: Path) -> None:
    """Each client is answered, and memory never exceeds the budget plus one request."""
    largest, budget = 8 * MIB, 32 * MIB
    with serving(tmp_path, socket_request_max_bytes=str(largest), queued_max_request_bytes=str(budget)) as broker:
        send_the_largest(broker, largest, budget, seconds_max=SECONDS_MAX)


@pytest.mark.soak
def test_memory_with_200_requests_of_the_largest_possible_size(tmp_path: Path) -> None:
    with serving(tmp_path) as broker:
        send_the_largest(broker, 100 * MIB, 256 * MIB, seconds_max=900)


def send_the_largest(broker: Serving, largest: int, budget: int, seconds_max: float) -> None:
    with RawClient(broker.port) as client:
        create(client, "t")
        # Larger than the topic's maximum, so that the disk is not measured.
        data = frame(produce_request("t", bytes(largest - 200)), 9)
        before = peak_bytes(broker)
        with Crowd(broker.port, CLIENTS, data) as crowd:
            crowd.work_until(lambda: all(one.answers for one in crowd.members), seconds_max)
            assert not crowd.closed
            assert produce(client, "t", b"small") == ErrorCode.NONE
        # While the last one grows, its old buffer is copied into the new one.
        bound = budget + largest * 3 // 2 + CLIENTS * RECEIVE_BUFFER_BYTES_MIN + SLACK_BYTES
        assert peak_bytes(broker) - before < bound
        assert CLIENTS * largest > 4 * bound, "the test would not notice"


def test_stuck_requests_are_closed_when_others_need_their_memory(tmp_path: Path) -> None:
    """A half-sent large request holds memory; when other requests need it, its connection is closed."""
    largest, budget = 8 * MIB, 16 * MIB
    with serving(tmp_path, socket_request_max_bytes=str(largest), queued_max_request_bytes=str(budget)) as broker:
        with RawClient(broker.port) as client:
            create(client, "t")
            data = frame(produce_request("t", bytes(largest - 200)), 9)
            with Crowd(broker.port, 4, data[: largest // 2]) as stuck:
                stuck.work_for(1)
                assert produce(client, "t", b"needs none of it") == ErrorCode.NONE
                with Crowd(broker.port, 5, data) as honest:
                    honest.work_until(lambda: all(one.answers for one in honest.members), SECONDS_MAX)
                    assert not honest.closed
                stuck.work_for(0.1)
        assert "it reads too slowly" in broker.errors()


def test_memory_with_200_clients_that_do_not_read_fetched_records(tmp_path: Path) -> None:
    """Records are slices of files until they are sent."""
    with serving(tmp_path) as broker, RawClient(broker.port) as client:
        create(client, "t")
        for _ in range(32):
            assert produce(client, "t", bytes(MIB - 100)) == ErrorCode.NONE
        partitions = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=50 * MIB)]
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            topics=[FetchTopic(topic="t", partitions=partitions)],
            forgotten_topics_data=[],
        )
        before = peak_bytes(broker)
        with Crowd(broker.port, CLIENTS, frame(request, 12), repeats=200, reads=False, receive_buffer=4096) as crowd:
            crowd.work_for(3)
            assert produce(client, "t", b"small") == ErrorCode.NONE
            assert not crowd.closed
        assert peak_bytes(broker) - before < CLIENTS * 256 * KIB + SLACK_BYTES


def test_memory_with_200_clients_that_do_not_read_large_responses(tmp_path: Path) -> None:
    with serving(tmp_path) as broker, RawClient(broker.port) as client:
        create(client, *(f"a-topic-with-a-name-of-some-length-{number}" for number in range(200)))
        before = peak_bytes(broker)
        data = frame(MetadataRequest(topics=None), 12)
        with Crowd(broker.port, CLIENTS, data, repeats=10_000, reads=False, receive_buffer=4096) as crowd:
            crowd.work_for(5)
            client.ping()
            assert not crowd.closed
        assert peak_bytes(broker) - before < CLIENTS * 2 * MIB + SLACK_BYTES


@pytest.mark.nightly
def test_memory_with_200_clients_that_pipeline_small_requests(tmp_path: Path) -> None:
    """A parsed request takes twenty times its bytes on the wire, so requests are read in small pieces.

    That holds for a connection with a large buffer, too, left by a large first request.
    """
    with serving(tmp_path) as broker, RawClient(broker.port) as client:
        create(client, "t")
        before = peak_bytes(broker)
        data = frame(produce_request("t", bytes(2 * MIB)), 9) + frame(ApiVersionsRequest(), 0) * 100_000
        with Crowd(broker.port, CLIENTS, data, reads=False, receive_buffer=4096) as crowd:
            crowd.work_for(5)
            client.ping()
            assert not crowd.closed
        assert peak_bytes(broker) - before < RECEIVE_BUDGET_BYTES + CLIENTS * 2 * MIB + SLACK_BYTES


def test_memory_with_2000_idle_connections(tmp_path: Path) -> None:
    """A connection with one small request has a small buffer, and none after a while."""
    need_files(2500)
    with serving(tmp_path) as broker, Crowd(broker.port, 2000, frame(ApiVersionsRequest(), 0)) as crowd:
        before = peak_bytes(broker)
        crowd.work_until(lambda: crowd.answered == 2000, SECONDS_MAX)
        assert peak_bytes(broker) - before < 2000 * 2 * RECEIVE_BUFFER_BYTES_MIN


def resident_bytes(broker: Serving) -> int:
    return broker.memory_kib() * KIB


def test_memory_with_concurrent_requests_of_many_elements(tmp_path: Path) -> None:
    """Each request grows tenfold when parsed, so they are parsed one by one, and little memory stays."""
    records = encode_batch([(None, b"v", (), 0)])
    topics = [
        TopicProduceData(name=f"none-{number}", partition_data=[PartitionProduceData(index=0, records=records)])
        for number in range(49_000)
    ]
    data = frame(ProduceRequest(acks=LEADER, timeout_ms=1000, topic_data=topics), 9)
    with serving(tmp_path) as broker:
        with RawClient(broker.port) as client:
            client.ping()
            before, peak_before = resident_bytes(broker), peak_bytes(broker)
            with Crowd(broker.port, 6, data) as crowd:
                crowd.work_until(lambda: all(one.answers for one in crowd.members), SECONDS_MAX)
                assert not crowd.closed
        assert peak_bytes(broker) - peak_before < 6 * 2 * len(data) + 80 * MIB
        until(lambda: resident_bytes(broker) - before < 64 * MIB)


@pytest.mark.soak
def test_memory_with_ten_requests_of_100000_batches_each(tmp_path: Path) -> None:
    records = encode_batch([(None, b"v", (), 0)])
    parts = [PartitionProduceData(index=0, records=records) for _ in range(99_000)]
    topics = [TopicProduceData(name="t", partition_data=parts)]
    data = frame(ProduceRequest(acks=LEADER, timeout_ms=1000, topic_data=topics), 9)
    with serving(tmp_path) as broker:
        with RawClient(broker.port) as client:
            create(client, "t")
            before = resident_bytes(broker)
            with Crowd(broker.port, 10, data) as crowd:
                crowd.work_until(lambda: all(one.answers for one in crowd.members), SECONDS_MAX)
                assert not crowd.closed
        assert peak_bytes(broker) - before < 200 * MIB
        until(lambda: resident_bytes(broker) - before < 64 * MIB)
