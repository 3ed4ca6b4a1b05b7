from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from odradek.base.errors import ErrorCode
from odradek.client.connection.broker_connection import Connection
from odradek.client.connection.client_config import ClientConfig
from odradek.client.connection.client_errors import (
    ConnectionLost,
    ErrorResponse,
    KafkaUnavailable,
    NotKafka,
    Unsendable,
    Unsupported,
)
from odradek.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from odradek.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from odradek.wire.messages.metadata import MetadataRequest, MetadataResponse
from odradek.wire.schema.api_keys import ApiKey
from support.scripted_broker import HangUp, ScriptedBroker

pytestmark = pytest.mark.waits


@contextmanager
def peer(behave: Callable[[socket.socket], None]) -> Iterator[tuple[str, int]]:
    """Run a listener that is not Kafka."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        try:
            stream, _ = listener.accept()
            with stream:
                behave(stream)
        except OSError:
            pass  # The client has left.

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()
    finally:
        listener.close()
        thread.join(5)


def connect(address: tuple[str, int], **settings: int) -> Connection:
    return Connection(address, ClientConfig("unused:1", **settings))  # type: ignore[arg-type]  # All ints.


def test_closed_port_is_unavailable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
    with pytest.raises(KafkaUnavailable, match=r"cannot connect to 127\.0\.0\.1:\d+: connection refused"):
        connect(address)


def test_unknown_host_is_unavailable() -> None:
    with pytest.raises(KafkaUnavailable, match=r"cannot connect to no-such-host\.invalid:9092"):
        connect(("no-such-host.invalid", 9092))


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\x15\x03\x03\x00\x02\x02\x46",  # A TLS alert.
        struct.pack(">i", -1),
        struct.pack(">i", 0x7FFFFFFF),
        struct.pack(">ii", 4, 12345),  # Another request's answer.
        struct.pack(">iih", 6, 1, 0),  # Ours, but cut short.
        struct.pack(">iihi", 10, 1, 0, 2_000_000_000),  # Two billion APIs.
    ],
)
def test_response_of_another_protocol_is_not_kafka(answer: bytes) -> None:
    def behave(stream: socket.socket) -> None:
        stream.recv(1000)
        stream.sendall(answer)
        stream.recv(1000)

    with peer(behave) as address, pytest.raises(NotKafka):
        connect(address, connect_timeout_ms=2_000)


def test_peer_that_closes_immediately_is_reported() -> None:
    with peer(lambda stream: stream.close()) as address, pytest.raises(ConnectionLost, match="plaintext listener"):
        connect(address)


def test_silent_peer_times_out() -> None:
    def behave(stream: socket.socket) -> None:
        while stream.recv(1000):
            pass

    started = time.monotonic()
    with peer(behave) as address, pytest.raises(ConnectionLost, match="timed out"):
        connect(address, connect_timeout_ms=100)
    assert time.monotonic() - started < 30


def test_newest_common_version_is_used() -> None:
    with ScriptedBroker() as broker:
        broker.versions[ApiKey.METADATA] = (0, 9)
        connection = connect(("127.0.0.1", broker.port))
        assert connection.version(MetadataRequest) == 9
        assert connection.version(ApiVersionsRequest) == 5
        connection.close()


def test_broker_with_only_old_api_versions_is_supported() -> None:
    with ScriptedBroker() as broker:
        broker.versions[ApiKey.API_VERSIONS] = (0, 1)
        connection = connect(("127.0.0.1", broker.port))
        assert connection.version(ApiVersionsRequest) == 1
        connection.close()


def test_missing_api_is_unsupported() -> None:
    with ScriptedBroker() as broker:
        del broker.versions[ApiKey.DESCRIBE_CLUSTER]
        broker.versions[ApiKey.METADATA] = (0, 3)  # Older than 0.11.
        broker.versions[ApiKey.LIST_OFFSETS] = (90, 99)
        connection = connect(("127.0.0.1", broker.port))
        with pytest.raises(Unsupported, match="does not support DescribeCluster"):
            connection.version(DescribeClusterRequest)
        with pytest.raises(Unsupported, match="Metadata versions 0 to 3, this client requires 4 to"):
            connection.version(MetadataRequest)
        with pytest.raises(Unsupported, match="ListOffsets versions 90 to 99"):
            connection.version(ListOffsetsRequest)
        connection.close()


def test_api_versions_may_be_refused() -> None:
    with ScriptedBroker() as broker:
        refusal = ApiVersionsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, api_keys=[])
        broker.on(ApiVersionsRequest, lambda request, version: refusal)
        with pytest.raises(ErrorResponse, match="CLUSTER_AUTHORIZATION_FAILED"):
            connect(("127.0.0.1", broker.port))


def test_pipelined_responses_can_be_read_in_any_order() -> None:
    with ScriptedBroker() as broker:
        broker.on(ListOffsetsRequest, lambda request, version: ListOffsetsResponse(throttle_time_ms=7, topics=[]))
        connection = connect(("127.0.0.1", broker.port))
        request = ListOffsetsRequest(replica_id=-1, topics=[])
        pending = [connection.send(request, ListOffsetsResponse) for _ in range(100)]
        metadata = connection.call(MetadataRequest(topics=[]), MetadataResponse)
        assert metadata.cluster_id == "scripted"
        assert [answer.result() for answer in reversed(pending)] == [
            ListOffsetsResponse(throttle_time_ms=7, topics=[])
        ] * 100
        connection.close()


def test_lost_connection_fails_all_waiting_requests() -> None:
    def hang_up(request: DescribeClusterRequest, version: int) -> None:
        raise HangUp

    with ScriptedBroker() as broker:
        broker.on(DescribeClusterRequest, hang_up)
        connection = connect(("127.0.0.1", broker.port))
        request = DescribeClusterRequest(include_cluster_authorized_operations=False)
        first = connection.send(request, DescribeClusterResponse)
        second = connection.send(MetadataRequest(topics=[]), MetadataResponse)
        with pytest.raises(ConnectionLost, match=r"lost the connection to .*: the broker closed the connection"):
            second.result()
        with pytest.raises(ConnectionLost):
            first.result()
        assert not connection.is_open
        with pytest.raises(ConnectionLost):
            connection.call(request, DescribeClusterResponse)


def test_late_response_closes_the_connection() -> None:
    def late(request: DescribeClusterRequest, version: int) -> DescribeClusterResponse:
        time.sleep(0.3)
        return DescribeClusterResponse(error_code=0, cluster_id="late", brokers=[])

    with ScriptedBroker() as broker:
        broker.on(DescribeClusterRequest, late)
        connection = connect(("127.0.0.1", broker.port))
        request = DescribeClusterRequest(include_cluster_authorized_operations=False)
        with pytest.raises(ConnectionLost, match="timed out"):
            connection.call(request, DescribeClusterResponse, timeout_ms=50)
        assert not connection.is_open


def test_interrupted_response_is_not_mixed_with_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(events: int, deadline: float) -> None:
        raise KeyboardInterrupt

    with ScriptedBroker() as broker:
        released = threading.Event()
        broker.on(ListOffsetsRequest, lambda request, version: released.wait(5) and ListOffsetsResponse(topics=[]))
        connection = connect(("127.0.0.1", broker.port))
        monkeypatch.setattr(connection, "_wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            connection.call(ListOffsetsRequest(replica_id=-1, topics=[]), ListOffsetsResponse)
        released.set()
        assert not connection.is_open


def test_unencodable_request_is_not_sent() -> None:
    with ScriptedBroker() as broker:
        connection = connect(("127.0.0.1", broker.port))
        with pytest.raises(
            Unsendable, match=r"^The request cannot be encoded: FindCoordinatorRequest\.key is longer than 32767"
        ):
            connection.call(FindCoordinatorRequest(key="g" * 32768), FindCoordinatorResponse, version=3)
        assert connection.call(MetadataRequest(topics=[]), MetadataResponse).cluster_id == "scripted"
        connection.close()
