"""Malformed input to a running broker: the client gets the protocol's answer or loses its connection.

Other clients never notice.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.base.errors import ErrorCode
from odradek.base.limits import REQUEST_ELEMENTS_MAX
from odradek.record.builder import encode_batch
from odradek.record.compression import Codec
from odradek.testing import Broker
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from support import kafka_0_7
from support.raw_client import Closed, RawClient, frame, raw_frame
from support.waiting import until

METADATA, API_VERSIONS = 3, 18
NOW_MS = time.time_ns() // 1_000_000


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        with RawClient(running.port) as client:
            create(client, "t")
        yield running


@pytest.fixture(scope="module")
def bystander(broker: Broker) -> Iterator[RawClient]:
    """Connect another client from the first test to the last."""
    with RawClient(broker.port) as client:
        yield client


@pytest.fixture
def client(broker: Broker, bystander: RawClient, caplog: pytest.LogCaptureFixture) -> Iterator[RawClient]:
    """Connect a client that misbehaves; afterwards the bystander is served as before."""
    with RawClient(broker.port) as one:
        yield one
        before = time.monotonic()
        bystander.ping()
        assert time.monotonic() - before < 30
    broker.check()
    assert not [record for record in caplog.get_records("call") if record.exc_info]


def create(client: RawClient, name: str) -> int:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
    return client.request(CreateTopicsRequest(topics=[topic]), 7, CreateTopicsResponse).topics[0].error_code


def produce(client: RawClient, topic: str, records: bytes | bytearray | None) -> int:
    parts = [PartitionProduceData(index=0, records=records)]
    topics = [TopicProduceData(name=topic, partition_data=parts)]
    answer = client.request(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=topics), 9, ProduceResponse)
    return answer.responses[0].partition_responses[0].error_code


def metadata(client: RawClient, topic: str) -> int:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=True)
    return client.request(request, 12, MetadataResponse).topics[0].error_code


def batch(value: bytes = b"v") -> bytearray:
    return encode_batch([(b"k", value, (), NOW_MS)])


def test_a_topic_name_with_a_slash_is_rejected(client: RawClient) -> None:
    assert create(client, "a/b") == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert metadata(client, "a/b") == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert metadata(client, "../../etc") == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert produce(client, "a/b", batch()) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("position", [17, 21, 60, -1])
def test_a_batch_with_a_flipped_bit_is_rejected(client: RawClient, position: int) -> None:
    records = batch()
    records[position] ^= 0x10
    assert produce(client, "t", records) == ErrorCode.CORRUPT_MESSAGE
    assert produce(client, "t", batch()) == ErrorCode.NONE


def test_a_compression_bomb_is_stored_unread(client: RawClient) -> None:
    """The broker does not decompress batches; readers limit the decompressed size."""
    bomb = encode_batch([(None, bytes(50_000_000), (), NOW_MS)], codec=Codec.GZIP)
    assert len(bomb) < 100_000
    before = time.monotonic()
    assert produce(client, "t", bomb) == ErrorCode.NONE
    assert time.monotonic() - before < 30


@pytest.mark.parametrize("size", [2**31 - 1, 100 * 2**20 + 1, -1, -(2**31), 0, 7])
def test_an_impossible_request_length_closes_the_connection(client: RawClient, size: int) -> None:
    client.send(struct.pack(">i", size))
    assert client.is_closed()


def test_a_length_without_its_data_costs_no_memory(broker: Broker, client: RawClient) -> None:
    before = memory_kib()
    liars = [RawClient(broker.port) for _ in range(50)]
    for liar in liars:
        liar.send(struct.pack(">i", 100 * 2**20) + b"only the beginning")
    client.ping()
    assert memory_kib() - before < 60 * 1024
    for liar in liars:
        liar.close()


def memory_kib() -> int:
    """Return the resident memory of this process, which includes the broker."""
    return int(Path("/proc/self/status").read_text().partition("VmRSS:")[2].split()[0])


def array_of_topics(count: int, rest: bytes = b"") -> bytes:
    return struct.pack(">i", count) + rest


def name_of(length: int, text: bytes = b"") -> bytes:
    return array_of_topics(1, struct.pack(">h", length) + text)


@pytest.mark.parametrize(
    "body",
    [
        array_of_topics(2**31 - 1),
        array_of_topics(1000, b"\0\1a"),
        name_of(-1),
        name_of(-2),
        name_of(-(2**15)),
        name_of(2**15 - 1, b"abc"),
        name_of(5, b"ab"),
        b"",
        b"\0\0",
    ],
)
def test_an_invalid_body_closes_the_connection(client: RawClient, body: bytes) -> None:
    client.send(raw_frame(METADATA, 1, body))
    assert client.is_closed()


@pytest.mark.parametrize("count", [-1, -2, -(2**31)])
def test_a_negative_array_length_is_null_or_closes_the_connection(client: RawClient, count: int) -> None:
    """As in Apache Kafka, -1 means null where the version has nullable arrays; otherwise the request is invalid."""
    client.send(raw_frame(METADATA, 1, array_of_topics(count)))
    assert client.read_frame()
    client.send(raw_frame(METADATA, 0, array_of_topics(count)))
    assert client.is_closed()


@pytest.mark.parametrize("varint", [b"\xff" * 5, b"\xff" * 20, b"\xff\xff\xff\xff\x0f", b"\x80"])
def test_an_invalid_compact_length_closes_the_connection(client: RawClient, varint: bytes) -> None:
    client.send(raw_frame(METADATA, 9, varint, tags=b"\0"))
    assert client.is_closed()


@pytest.mark.parametrize(
    "header",
    [
        struct.pack(">hhi", METADATA, 1, 1),  # No client id.
        struct.pack(">hhih", METADATA, 1, 1, 100),
        struct.pack(">hhih", METADATA, 12, 1, -1),  # No tagged fields.
        struct.pack(">hhih", METADATA, 12, 1, -1) + b"\xff\xff\xff\xff\xff\xff",
    ],
)
def test_a_truncated_header_closes_the_connection(client: RawClient, header: bytes) -> None:
    client.send(struct.pack(">i", len(header)) + header)
    assert client.is_closed()


@pytest.mark.parametrize(
    ("key", "version"), [(999, 0), (-1, 0), (METADATA, 99), (METADATA, -1), (0, 2), (45, 0), (4, 0)]
)
def test_an_unknown_api_or_version_closes_the_connection(client: RawClient, key: int, version: int) -> None:
    client.send(raw_frame(key, version, b"\0" * 20))
    assert client.is_closed()


@pytest.mark.parametrize("version", [6, 99, 32767])
def test_api_versions_of_the_future_gets_the_supported_versions(client: RawClient, version: int) -> None:
    client.send(raw_frame(API_VERSIONS, version, b"whatever", tags=b"\0"))
    answer = client.read_frame()
    correlation_id, code, count, key = struct.unpack_from(">ihih", answer)
    assert (correlation_id, code) == (7, ErrorCode.UNSUPPORTED_VERSION)
    assert (count, key) == (1, API_VERSIONS), "which versions of this API it may ask with"
    client.ping()  # And the connection stays open.


def test_bytes_after_the_body_are_ignored(client: RawClient) -> None:
    client.send(raw_frame(METADATA, 1, array_of_topics(0, b"and more")))
    assert client.read_frame()


def test_a_request_sent_byte_by_byte_is_answered(client: RawClient) -> None:
    for byte in frame(MetadataRequest(topics=[]), 12):
        client.send(bytes([byte]))
        time.sleep(0.002)
    assert client.read_frame()


def test_requests_before_invalid_bytes_are_answered(client: RawClient) -> None:
    client.send(frame(ApiVersionsRequest(), 0) + struct.pack(">i", -5))
    assert client.read_frame()
    assert client.is_closed()


def test_an_http_request_closes_the_connection(client: RawClient) -> None:
    client.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert client.is_closed()


def test_a_half_closed_connection_gets_its_answer(broker: Broker, client: RawClient) -> None:
    client.send(frame(ApiVersionsRequest(), 0))
    client.end_of_sending()
    assert client.read_frame()
    assert client.is_closed()


def test_disconnects_in_the_middle_of_a_request_are_harmless(broker: Broker, client: RawClient) -> None:
    whole = frame(ApiVersionsRequest(), 0)
    for end in range(len(whole)):
        with RawClient(broker.port) as other:
            other.send(whole[:end])
    client.ping()


def test_disconnects_during_a_long_poll_are_harmless(broker: Broker, client: RawClient) -> None:
    partition = FetchPartition(partition=0, fetch_offset=1_000_000, partition_max_bytes=1)
    partition.fetch_offset = end_of(client, "t")
    topics = [FetchTopic(topic="t", partitions=[partition])]
    poll = FetchRequest(max_wait_ms=60_000, min_bytes=1, topics=topics, forgotten_topics_data=[])
    for _ in range(20):
        with RawClient(broker.port) as other:
            other.send(frame(poll, 12))
            # Reset instead of the usual end.
            other.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert produce(client, "t", batch()) == ErrorCode.NONE


def end_of(client: RawClient, topic: str) -> int:
    topics = [FetchTopic(topic=topic, partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)])]
    request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=topics, forgotten_topics_data=[])
    return client.request(request, 12, FetchResponse).responses[0].partitions[0].high_watermark


def test_unread_responses_take_bounded_memory(broker: Broker, client: RawClient) -> None:
    """A client that reads no responses gets no more of the broker's memory than any other."""
    before = memory_kib()
    flood = frame(ApiVersionsRequest(), 0) * 5_000
    glutton = RawClient(broker.port, receive_buffer=4096)
    glutton.socket.setblocking(False)
    for _ in range(20):
        try:
            glutton.socket.send(flood)
        except BlockingIOError:
            break
        client.ping()
    assert memory_kib() - before < 30 * 1024
    glutton.close()


@pytest.mark.parametrize("topic", [b"top", b"test", b"a-topic", b"a-topic-with-a-long-name"])
@pytest.mark.parametrize("kind", range(5))
def test_a_client_of_kafka_0_7_is_named_in_the_log(
    client: RawClient, kind: int, topic: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    client.send(kafka_0_7.request(kind, topic))
    assert client.is_closed()
    (line,) = caplog.messages
    assert line.endswith("the client uses the protocol of Kafka 0.7, which is not supported")
    assert line.startswith("closed connection of 127.0.0.1:")


def test_requests_are_bounded_in_elements(broker: Broker, client: RawClient, bystander: RawClient) -> None:
    client.send(_metadata_of(REQUEST_ELEMENTS_MAX))
    assert client.read_frame()
    client.send(_metadata_of(REQUEST_ELEMENTS_MAX + 1))
    with pytest.raises(Closed):
        client.read_frame()
    bystander.ping()


def _metadata_of(topics: int) -> bytes:
    return raw_frame(METADATA, 4, array_of_topics(topics, b"\0\x01x" * topics) + b"\0")


def is_served(port: int) -> bool:
    try:
        with RawClient(port) as one:
            one.ping()
    except Closed:
        return False
    return True


def test_refused_connections_do_not_pile_up() -> None:
    with Broker(max_connections=5) as broker:
        clients = [RawClient(broker.port) for _ in range(5)]
        for one in clients:
            one.ping()
        with RawClient(broker.port) as one_too_many, pytest.raises(Closed):
            one_too_many.ping()
        with RawClient(broker.port) as one_too_many:
            assert one_too_many.is_closed(), "told before it has asked for anything"
        clients.pop().close()
        until(lambda: is_served(broker.port))
        for one in clients:
            one.ping()
            one.close()
