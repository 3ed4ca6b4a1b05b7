"""Many clients, pipelines and slow readers: responses stay in order, and slow clients slow only themselves."""

from __future__ import annotations

import selectors
import socket
import struct
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import pytest

from odradek.base.errors import ErrorCode
from odradek.record.builder import encode_batch
from odradek.record.record_batch import iter_batches
from odradek.wire.client_codec import decode_response
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from odradek.wire.messages.metadata import MetadataRequest
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from support.raw_client import Closed, RawClient, frame
from support.serving import Serving, serving

ALL, LEADER = -1, 1
MIB = 1 << 20


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("load")) as running:
        yield running
        assert "Traceback" not in running.errors()


@pytest.fixture
def client(broker: Serving) -> Iterator[RawClient]:
    with RawClient(broker.port) as one:
        yield one


@pytest.fixture
def topic(client: RawClient) -> str:
    name = f"load-{uuid4().hex[:12]}"
    creatable = CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
    (made,) = client.request(CreateTopicsRequest(topics=[creatable]), 7, CreateTopicsResponse).topics
    assert made.error_code == ErrorCode.NONE
    return name


def produce_request(topic: str, value: bytes, acks: int = ALL) -> ProduceRequest:
    records = encode_batch([(None, value, (), time.time_ns() // 1_000_000)])
    parts = [PartitionProduceData(index=0, records=records)]
    return ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=[TopicProduceData(name=topic, partition_data=parts)])


def fetch_request(topic: str, offset: int, *, wait_ms: int = 0, max_bytes: int = 50 * MIB) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    topics = [FetchTopic(topic=topic, partitions=[partition])]
    return FetchRequest(max_wait_ms=wait_ms, min_bytes=1, max_bytes=max_bytes, topics=topics, forgotten_topics_data=[])


def produce(client: RawClient, topic: str, value: bytes, acks: int = ALL) -> int:
    answer = client.request(produce_request(topic, value, acks), 9, ProduceResponse)
    (part,) = answer.responses[0].partition_responses
    assert part.error_code == ErrorCode.NONE
    return part.base_offset


def test_two_hundred_concurrent_connections_are_served(broker: Serving, topic: str) -> None:
    clients = [RawClient(broker.port) for _ in range(200)]
    for number, one in enumerate(clients):
        one.send(frame(produce_request(topic, b"%d" % number), 9))
    offsets = []
    for one in clients:
        _, answer = decode_response(ProduceResponse, 9, one.read_frame())
        offsets.append(answer.responses[0].partition_responses[0].base_offset)
    assert sorted(offsets) == list(range(200))
    for one in clients:
        one.close()


def test_pipelined_requests_are_answered_in_order(client: RawClient, topic: str) -> None:
    requests: list[tuple[object, int]] = []
    for number in range(50):
        requests += [
            (produce_request(topic, b"%d" % number), 9),
            (MetadataRequest(topics=None), 12),
            (fetch_request(topic, number + 1, wait_ms=5), 12),
            (produce_request(topic, b"%d" % number, acks=LEADER), 9),
            (ApiVersionsRequest(), 0),
        ]
    client.send(b"".join(frame(message, version, number) for number, (message, version) in enumerate(requests)))
    correlation_ids = [int.from_bytes(client.read_frame()[:4], "big") for _ in requests]
    assert correlation_ids == list(range(len(requests)))


def test_a_long_poll_holds_up_its_own_connection_only(broker: Serving, client: RawClient, topic: str) -> None:
    client.send(frame(fetch_request(topic, 0, wait_ms=20_000), 12, 1) + frame(ApiVersionsRequest(), 0, 2))
    with RawClient(broker.port) as other:
        before = time.monotonic()
        other.ping()
        produce(other, topic, b"news")
        assert time.monotonic() - before < 15
    assert [int.from_bytes(client.read_frame()[:4], "big") for _ in range(2)] == [1, 2]


def test_thousands_of_parked_requests_complete(broker: Serving, client: RawClient, topic: str) -> None:
    """Requests beyond a connection's limit stay in its socket, and all complete in the end."""
    poll = [frame(fetch_request(topic, 0, wait_ms=60_000), 12, number) for number in range(3000)]
    client.send(b"".join(poll))
    with RawClient(broker.port) as other:
        produce(other, topic, b"news")
    assert [int.from_bytes(client.read_frame()[:4], "big") for _ in poll] == list(range(3000))


def filled(client: RawClient, topic: str, mebibytes: int) -> int:
    """Write so many batches of 1 MB, and return the end offset."""
    return max(produce(client, topic, b"x" * 1_000_000, acks=LEADER) for _ in range(mebibytes)) + 1


def test_slow_readers_slow_only_themselves(broker: Serving, client: RawClient, topic: str) -> None:
    end = filled(client, topic, 32)
    before = broker.memory_kib()
    slow = [RawClient(broker.port, receive_buffer=64 * 1024) for _ in range(20)]
    for one in slow:
        one.send(frame(fetch_request(topic, 0), 12) * 4)
    started = time.monotonic()
    offset = 0
    while offset < end:
        answer = client.request(fetch_request(topic, offset, max_bytes=8 * MIB), 12, FetchResponse)
        records = answer.responses[0].partitions[0].records
        assert isinstance(records, memoryview)
        offset = max(batch.next_offset for batch in iter_batches(records))
    assert time.monotonic() - started < 60
    # 20 readers requested 2.5 GB and have not read a byte of it.
    assert broker.memory_kib() - before < 40 * 1024
    _, answer = decode_response(FetchResponse, 12, slow[0].read_frame())
    records = answer.responses[0].partitions[0].records
    assert isinstance(records, memoryview)
    assert [batch.base_offset for batch in iter_batches(records)] == list(range(end))
    for one in slow:
        one.close()
    client.ping()


def test_a_client_that_reads_no_responses_takes_no_memory(broker: Serving, client: RawClient) -> None:
    """Responses that are not slices of files count against their connection."""
    before = broker.memory_kib()
    flood = frame(ApiVersionsRequest(), 0) * 10_000
    gluttons = [RawClient(broker.port, receive_buffer=4096) for _ in range(10)]
    poller = selectors.DefaultSelector()
    for glutton in gluttons:
        glutton.socket.setblocking(False)
        poller.register(glutton.socket, selectors.EVENT_WRITE)
    until = time.monotonic() + 1
    while time.monotonic() < until:
        for ready, _ in poller.select(0.1):
            assert isinstance(ready.fileobj, socket.socket)
            ready.fileobj.send(flood)
        client.ping()
    assert broker.memory_kib() - before < 50 * 1024
    for glutton in gluttons:
        glutton.close()


def test_closed_connections_leave_nothing_behind(broker: Serving, client: RawClient, topic: str) -> None:
    """Connections close with a response on its way, a parked long poll or half a request."""

    def visit(number: int) -> None:
        with RawClient(broker.port) as guest:
            match number % 4:
                case 0:
                    guest.ping()
                case 1:
                    guest.send(frame(fetch_request(topic, 0, wait_ms=60_000), 12) * 10)
                case 2:
                    guest.send(struct.pack(">i", 1000) + b"half")
                case _:
                    guest.send(frame(MetadataRequest(topics=None), 12) * 20)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(visit, range(50)))
        before = broker.memory_kib()
        list(threads.map(visit, range(400)))
    client.ping()
    assert broker.memory_kib() - before < 10 * 1024


def test_large_and_small_requests_share_a_connection(client: RawClient, topic: str) -> None:
    """Buffers grow for a large request and shrink again; small requests around it do not suffer."""
    for number in range(5):
        assert produce(client, topic, b"small") == 3 * number
        assert produce(client, topic, b"x" * 900_000) == 3 * number + 1
        client.send(frame(produce_request(topic, b"y"), 9) + frame(ApiVersionsRequest(), 0))
        assert client.read_frame() and client.read_frame()


def test_idle_connections_are_closed(tmp_path: Path) -> None:
    """A connection is idle without requests, or if it does not read responses; not during a long poll."""
    with serving(tmp_path, connections_max_idle_ms="1000") as broker:
        with RawClient(broker.port) as client:
            creatable = CreatableTopic(name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[])
            client.request(CreateTopicsRequest(topics=[creatable]), 7, CreateTopicsResponse)
            filled(client, "t", 8)
        idle, waiting = RawClient(broker.port), RawClient(broker.port)
        slow = RawClient(broker.port, receive_buffer=4096)
        idle.ping()
        waiting.send(frame(fetch_request("t", 8, wait_ms=4000), 12))
        slow.send(frame(fetch_request("t", 0), 12))
        time.sleep(3)
        assert idle.is_closed()
        with pytest.raises(Closed):
            slow.read_frame()
        _, answer = decode_response(FetchResponse, 12, waiting.read_frame())
        assert answer.responses[0].partitions[0].high_watermark == 8
        for one in (idle, waiting, slow):
            one.close()
