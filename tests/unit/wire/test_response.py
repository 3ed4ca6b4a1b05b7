"""Responses as frames, and their decoding on the client's side."""

from __future__ import annotations

from struct import pack, unpack

import pytest

from odradek.api.conversation import in_memory
from odradek.wire.client_codec import decode_response, encode_request
from odradek.wire.connection import Connection
from odradek.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from odradek.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from odradek.wire.messages.header import RequestHeader
from odradek.wire.messages.metadata import MetadataRequest, MetadataResponse
from odradek.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from odradek.wire.request import Request
from odradek.wire.response import encode_response
from odradek.wire.schema.malformed import Malformed
from odradek.wire.schema.primitives import Buffer, Chunk, SplicedRecords


class Slice:
    """A stand-in for a slice of a log file."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.size = len(data)


def joined(chunks: list[Chunk]) -> bytes:
    return b"".join(chunk.data if isinstance(chunk, Slice) else bytes_of(chunk) for chunk in chunks)


def bytes_of(chunk: Chunk) -> bytes:
    assert isinstance(chunk, bytes)
    return chunk


def request(message: object, version: int) -> Request:
    (made,) = Connection().receive_data(joined(encode_request(message, version, 42, "me")))
    return made


def fetched(*records: SplicedRecords | None) -> FetchResponse:
    partitions = [
        PartitionData(partition_index=i, error_code=0, high_watermark=1, records=each) for i, each in enumerate(records)
    ]
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])


@pytest.mark.parametrize("version", [4, 11, 12])
def test_file_slices_are_separate_chunks(version: int) -> None:
    slices = Slice(b"a" * 300), Slice(b""), Slice(b"bc")
    call = request(FetchRequest(max_wait_ms=1, min_bytes=1, topics=[]), version)
    chunks = encode_response(call, fetched(slices[0], slices[1], None, b"copied", slices[2]))
    assert [chunk for chunk in chunks if isinstance(chunk, Slice)] == [slices[0], slices[2]]
    frame = joined(chunks)
    assert frame[:8] == pack(">ii", len(frame) - 4, 42)
    correlation_id, message = decode_response(FetchResponse, version, frame[4:])
    assert correlation_id == 42
    assert message == fetched(b"a" * 300, b"", None, b"copied", b"bc")


@pytest.mark.parametrize("version", range(14))
def test_response_round_trips_in_every_version(version: int) -> None:
    call = request(MetadataRequest(topics=[]), version)
    answer = MetadataResponse(brokers=[], topics=[])
    (frame,) = encode_response(call, answer)
    assert decode_response(MetadataResponse, version, bytes_of(frame)[4:]) == (42, answer)


def test_api_versions_response_has_the_oldest_header() -> None:
    answer = ApiVersionsResponse(error_code=0, api_keys=[ApiVersion(api_key=0, min_version=3, max_version=13)])
    call = request(ApiVersionsRequest(client_software_name="c", client_software_version="1"), 3)
    (frame,) = encode_response(call, answer)
    assert bytes_of(frame)[4:10] == pack(">ih", 42, 0)
    assert decode_response(ApiVersionsResponse, 3, bytes_of(frame)[4:]) == (42, answer)


def test_large_response_is_not_copied() -> None:
    topic = PartitionProduceResponse(index=0, error_code=0, base_offset=1, error_message=None)
    topics = [TopicProduceResponse(name="t" * 10_000, partition_responses=[topic]) for _ in range(200)]
    answer = ProduceResponse(responses=topics)
    (frame,) = encode_response(request(ProduceRequest(acks=1, timeout_ms=1, topic_data=[]), 9), answer)
    assert isinstance(frame, memoryview)
    assert in_memory([frame]) == len(frame) == 4 + unpack(">i", frame[:4])[0]
    assert decode_response(ProduceResponse, 9, frame[4:]) == (42, answer)


def test_response_with_a_value_out_of_range_is_refused() -> None:
    call = request(MetadataRequest(topics=None), 1)
    with pytest.raises(ValueError, match="MetadataResponse v1"):
        encode_response(call, MetadataResponse(brokers=[], topics=[], controller_id=1 << 40))


def test_file_slices_can_be_produced() -> None:
    def produce(records: bytes | Slice) -> ProduceRequest:
        part = PartitionProduceData(index=0, records=b"")
        part.records = records  # type: ignore[assignment]  # A relay may hold the records in a file.
        return ProduceRequest(acks=1, timeout_ms=1, topic_data=[TopicProduceData(name="t", partition_data=[part])])

    for version in (3, 9):
        spliced = encode_request(produce(Slice(b"x" * 200)), version, 1, "me")
        assert joined(spliced) == joined(encode_request(produce(b"x" * 200), version, 1, "me"))


def test_request_with_a_value_unsupported_by_the_version_is_refused() -> None:
    with pytest.raises(ValueError, match="MetadataRequest"):
        encode_request(MetadataRequest(topics=None), 0, 1, "me")
    with pytest.raises(ValueError, match="MetadataRequest v1"):
        encode_request(MetadataRequest(topics=None), 1, 1 << 31, "me")


@pytest.mark.parametrize("frame", [b"", b"\0\0\0", b"\0\0\0\1", b"\0\0\0\1\xff"])
def test_truncated_response_is_refused(frame: Buffer) -> None:
    with pytest.raises(Malformed):
        decode_response(ProduceResponse, 9, frame)


def test_header_cannot_be_encoded_as_a_request() -> None:
    header = RequestHeader(request_api_key=0, request_api_version=0, correlation_id=1)
    with pytest.raises(AssertionError, match="has no API key"):
        encode_request(header, 0, 1, None)
