"""One connection: request boundaries, refused input, buffer growth, and the order of responses."""

from __future__ import annotations

import tracemalloc
from itertools import permutations
from mmap import mmap
from struct import pack

import pytest

from odradek.base.limits import RECEIVE_BUFFER_BYTES
from odradek.wire.client_codec import encode_request
from odradek.wire.connection import Connection
from odradek.wire.messages.metadata import MetadataRequest
from odradek.wire.request import Request
from odradek.wire.schema.api_keys import ApiKey, request_header_version, response_header_version
from odradek.wire.schema.malformed import Malformed
from odradek.wire.schema.primitives import Chunk


def frame(  # noqa: PLR0917
    body: bytes = b"",
    key: int = ApiKey.METADATA,
    version: int = 1,
    correlation_id: int = 7,
    client_id: bytes | None = b"me",
    tags: bytes = b"",
) -> bytes:
    name = pack(">h", -1) if client_id is None else pack(">h", len(client_id)) + client_id
    rest = pack(">hhi", key, version, correlation_id) + name + tags + body
    return pack(">i", len(rest)) + rest


def put(connection: Connection, data: bytes) -> list[Request]:
    """Receive the data like a socket: in pieces, into the offered space."""
    requests = []
    while data:
        space = connection.get_buffer()
        size = min(len(space), len(data))
        space[:size], data = data[:size], data[size:]
        requests += connection.buffer_updated(size)
    return requests


def test_request_is_parsed() -> None:
    (request,) = Connection().receive_data(frame(b"body"))
    assert (request.api_key, request.api_version, request.correlation_id) == (3, 1, 7)
    assert (request.client_id, bytes(request.body), request.sequence) == ("me", b"body", 0)
    assert request.size == len(frame(b"body"))
    assert "correlation 7" in repr(request)


def test_bodies_are_writable_views_of_the_receive_buffer() -> None:
    connection = Connection()
    space = connection.get_buffer()
    data = frame(b"one") + frame(b"two", client_id=None)
    space[: len(data)] = data
    one, two = connection.buffer_updated(len(data))
    one.body[0:1] = b"O"
    assert bytes(space[: len(data)]) == frame(b"One") + frame(b"two", client_id=None)
    assert two.client_id is None


@pytest.mark.parametrize(
    ("client_id", "expected"),
    [(None, None), (b"", ""), (b"me", "me"), ("ż".encode(), "ż"), (b"\xff", "\ufffd"), (b"x" * 32767, "x" * 32767)],
)
def test_client_ids_are_decoded(client_id: bytes | None, expected: str | None) -> None:
    connection = Connection()
    requests = connection.receive_data(frame(b"1", client_id=client_id) * 2 + frame(b"2", client_id=b"other"))
    assert [request.client_id for request in requests] == [expected, expected, "other"]
    assert [bytes(request.body) for request in requests] == [b"1", b"1", b"2"]


def test_negative_length_of_a_client_id_is_null() -> None:
    """As in Apache Kafka 4.3.0."""
    data = frame(b"body", client_id=None).replace(pack(">h", -1), pack(">h", -5))
    (request,) = Connection().receive_data(data)
    assert (request.client_id, bytes(request.body)) == (None, b"body")


@pytest.mark.parametrize("tags", [b"\0", b"\1\0\3abc", b"\2\5\0\x90\1\1x"])
def test_flexible_header_is_parsed(tags: bytes) -> None:
    (request,) = Connection().receive_data(frame(b"body", version=9, tags=tags))
    assert (request.client_id, bytes(request.body)) == ("me", b"body")


def test_header_without_client_id_is_parsed() -> None:
    """ControlledShutdown v0 is the only remaining request with that header."""
    rest = pack(">hhi", ApiKey.CONTROLLED_SHUTDOWN, 0, 7) + b"body"
    for data, expected in [(rest, b"body"), (rest[:-4], b"")]:
        request, after = Connection().receive_data(pack(">i", len(data)) + data + frame(b"after"))
        assert (request.client_id, bytes(request.body), bytes(after.body)) == (None, expected, b"after")


@pytest.mark.parametrize(("key", "version"), [(3, 99), (18, 99), (18, -1), (999, 0), (-1, -1), (3, -1), (3, 32767)])
def test_requests_of_unknown_apis_are_returned(key: int, version: int) -> None:
    tags = b"\0" if request_header_version(key, version) == 2 else b""
    request, after = Connection().receive_data(frame(b"body", key, version, tags=tags) + frame(b"after"))
    assert (request.api_key, request.api_version, bytes(request.body)) == (key, version, b"body")
    assert bytes(after.body) == b"after"


@pytest.mark.parametrize("rest", [b"", b"\0", b"\0\2x", b"\0\1x", b"\0\1x\x7f", b"\0\1x\xff\xff"])
@pytest.mark.parametrize(("key", "version"), [(18, 99), (18, 3), (999, 0)])
def test_unparsable_header_of_a_newer_version_is_accepted(key: int, version: int, rest: bytes) -> None:
    data = pack(">hhi", key, version, 7) + rest
    (request,) = Connection().receive_data(pack(">i", len(data)) + data)
    assert (request.api_key, request.api_version, request.correlation_id) == (key, version, 7)


@pytest.mark.parametrize("rest", [b"", b"\0", b"\0\2x", b"\0\1x", b"\0\1x\x7f", b"\0\1x\1\1\5a"])
def test_truncated_header_is_refused(rest: bytes) -> None:
    data = pack(">hhi", ApiKey.METADATA, 9, 7) + rest
    with pytest.raises(Malformed, match="header of API key 3 version 9"):
        Connection().receive_data(pack(">i", len(data)) + data)


@pytest.mark.parametrize("size", [-(1 << 31), -1, 0, 7, 1001, (1 << 31) - 1])
def test_invalid_size_is_refused_before_the_request_arrives(size: int) -> None:
    connection = Connection(request_bytes_max=1000)
    with pytest.raises(Malformed, match=f"invalid request size {size}: it must be from 8 to 1000 bytes"):
        connection.receive_data(pack(">i", size))


def test_too_large_request_is_refused_even_if_complete() -> None:
    connection = Connection(request_bytes_max=100)
    (request,) = connection.receive_data(frame(b"x" * 88) + frame(b"x" * 89))
    assert request.size == 104
    assert "invalid request size 101" in str(connection.failure)


def test_size_limit_can_be_raised() -> None:
    connection = Connection(request_bytes_max=20)
    assert len(connection.receive_data(frame(b"x" * 8))) == 1
    connection.request_bytes_max = 1000
    assert len(connection.receive_data(frame(b"x" * 900))) == 1


def test_requests_before_malformed_bytes_are_returned_first() -> None:
    connection = Connection()
    requests = connection.receive_data(frame(b"1") + frame(b"2") + pack(">i", -1))
    assert [bytes(request.body) for request in requests] == [b"1", b"2"]
    assert connection.failure is not None
    for call in (connection.get_buffer, lambda: connection.buffer_updated(0), lambda: connection.receive_data(b"x")):
        with pytest.raises(Malformed):
            call()
    connection.answer(requests[0], [b"a"])
    connection.answer(requests[1], [b"b"])
    assert connection.data_to_send() == [b"a", b"b"]


def test_buffer_is_reused() -> None:
    connection = Connection()
    places = set()
    for _ in range(100):
        data = frame(b"x" * 1000)
        space = connection.get_buffer()
        places.add((id(space.obj), len(space)))
        space[: len(data)] = data
        assert len(connection.buffer_updated(len(data))) == 1
    assert len(places) == 1


@pytest.mark.parametrize("size", [200, 251, 252, 253, 256, 257, 511, 512, 513, 5000])
def test_frames_around_and_above_the_buffer_size_are_received(size: int) -> None:
    connection = Connection(buffer_bytes=256)
    data = frame(b"first") + frame(bytes(i % 251 for i in range(size))) + frame(b"last")
    for receive in (put, Connection.receive_data):
        requests = receive(connection, data)
        assert [len(request.body) for request in requests] == [5, size, 4]
        assert bytes(requests[-1].body) == b"last"


def test_large_frame_keeps_its_bytes() -> None:
    connection = Connection()
    body = bytes(range(256)) * 8192
    (request,) = put(connection, frame(body))
    assert request.body == body
    request.body[0:1] = b"!"


def test_declared_length_allocates_no_memory() -> None:
    connection = Connection()
    tracemalloc.start()
    try:
        assert connection.receive_data(pack(">ihhih", 100_000_000, 0, 9, 1, -1) + bytes(1000)) == []
        for _ in range(10):
            assert put(connection, bytes(1000)) == []
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < RECEIVE_BUFFER_BYTES
    assert len(connection.get_buffer()) <= RECEIVE_BUFFER_BYTES


def test_memory_grows_with_the_received_bytes() -> None:
    """At most twice the received bytes, and for large frames at most the frame."""
    connection = Connection(buffer_bytes=1024)
    size = 5_000_000
    data = frame(bytes(size))
    sent = 0
    while sent < len(data):
        space = connection.get_buffer()
        assert isinstance(space.obj, bytearray | mmap)
        assert len(space.obj) <= max(1024, min(2 * sent, len(data)))
        step = min(len(space), 7000, len(data) - sent)
        space[:step] = data[sent : sent + step]
        sent += step
        requests = connection.buffer_updated(step)
    assert [len(request.body) for request in requests] == [size]


def test_bodies_returned_by_one_call_stay_valid_together() -> None:
    """One receive_data call with more requests than fit into a buffer leaves all bodies intact."""
    connection = Connection(buffer_bytes=64)
    requests = connection.receive_data(b"".join(frame(b"%d" % i) for i in range(100)) + b"\0\0")
    assert [bytes(request.body) for request in requests] == [b"%d" % i for i in range(100)]
    (request,) = connection.receive_data(frame(b"rest")[2:])
    assert bytes(request.body) == b"rest"


def test_body_may_be_referenced_while_the_buffer_is_replaced() -> None:
    """The content of such a body is undefined, but no error occurs: a viewed bytearray is never resized."""
    connection = Connection(buffer_bytes=64)
    held = [request.body for size in (1, 100, 1000, 5, 60) for request in put(connection, frame(bytes(size)))]
    assert [len(body) for body in held] == [1, 100, 1000, 5, 60]


@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_responses_are_sent_in_request_order(order: tuple[int, ...]) -> None:
    connection = Connection()
    requests = connection.receive_data(b"".join(frame(correlation_id=i) for i in range(4)))
    answers: list[list[Chunk] | None] = [[b"0"], [b"1a", b"1b"], None, [b"3"]]
    sent: list[Chunk] = []
    answered = set[int]()
    for number in order:
        connection.answer(requests[number], answers[number])
        answered.add(number)
        sent += connection.data_to_send()
        ready = next((i for i in range(4) if i not in answered), 4)
        assert sent == [chunk for answer in answers[:ready] for chunk in answer or ()]
        assert connection.in_flight == 4 - ready
    assert connection.data_to_send() == []


def test_second_response_to_a_request_is_an_error() -> None:
    connection = Connection()
    first, second = connection.receive_data(frame() * 2)
    connection.answer(second, [b"2"])
    with pytest.raises(AssertionError, match="more than one response"):
        connection.answer(second, [b"2"])
    connection.answer(first, [b"1"])
    with pytest.raises(AssertionError, match="more than one response"):
        connection.answer(first, [b"1"])


def test_header_versions_match_kafka() -> None:
    assert [request_header_version(ApiKey.PRODUCE, version) for version in (0, 8, 9, 13, 99)] == [1, 1, 2, 2, 2]
    assert [request_header_version(ApiKey.CONTROLLED_SHUTDOWN, version) for version in (0, 1, 3)] == [0, 1, 2]
    assert [request_header_version(ApiKey.SASL_HANDSHAKE, version) for version in (0, 99)] == [1, 1]
    assert request_header_version(12345, 3) == 1
    assert [response_header_version(ApiKey.PRODUCE, version) for version in (8, 9)] == [0, 1]
    assert [response_header_version(ApiKey.API_VERSIONS, version) for version in (0, 3, 5)] == [0, 0, 0]


def test_encoded_request_is_received_unchanged() -> None:
    connection = Connection()
    for version in (1, 9, 13):
        (data,) = encode_request(MetadataRequest(topics=[]), version, 42, None)
        assert isinstance(data, bytes)
        (request,) = connection.receive_data(data)
        assert (request.api_key, request.api_version, request.correlation_id) == (3, version, 42)
        assert request.client_id is None
