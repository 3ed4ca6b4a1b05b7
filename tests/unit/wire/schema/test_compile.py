"""Compiled readers and writers: results, refused values, and inspectable source."""

from __future__ import annotations

import traceback
from struct import pack

import pytest

from odradek.base.units import INT32_MAX
from odradek.wire.messages.create_topics import CreateTopicsRequest
from odradek.wire.messages.delete_topics import DeletableTopicResult, DeleteTopicsResponse
from odradek.wire.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest
from odradek.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
)
from odradek.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from odradek.wire.schema.compile import decode, encode, reader, reader_text, writer, writer_text
from odradek.wire.schema.malformed import Malformed
from odradek.wire.schema.primitives import Splices


def produce(records: bytes | bytearray | memoryview | None) -> ProduceRequest:
    partition = PartitionProduceData(index=1, records=records)
    topic = TopicProduceData(name="t", partition_data=[partition])
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic])


def fetch_request(replica_id: int = -1, max_bytes: int = INT32_MAX, session_epoch: int = -1) -> FetchRequest:
    return FetchRequest(
        replica_id=replica_id,
        max_wait_ms=1,
        min_bytes=1,
        max_bytes=max_bytes,
        session_epoch=session_epoch,
        topics=[],
    )


@pytest.mark.parametrize("version", [3, 9])
def test_records_are_a_writable_view_of_the_received_bytes(version: int) -> None:
    buffer = bytearray(encode(produce(b"0123456789"), version))
    records = decode(ProduceRequest, version, memoryview(buffer)).topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    records[0:2] = b"!!"
    assert b"!!23456789" in buffer


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
@pytest.mark.parametrize("version", [3, 9])
def test_records_are_copied_from_any_buffer(kind: type, version: int) -> None:
    assert encode(produce(kind(b"x" * 200)), version) == encode(produce(b"x" * 200), version)


@pytest.mark.parametrize("version", [3, 9])
def test_null_records_round_trip(version: int) -> None:
    assert decode(ProduceRequest, version, encode(produce(None), version)) == produce(None)


class Slice:
    def __init__(self, size: int) -> None:
        self.size = size


@pytest.mark.parametrize("version", [4, 12])
def test_file_slice_is_omitted_and_its_position_returned(version: int) -> None:
    def response(*records: Slice | bytes) -> FetchResponse:
        partitions = [
            PartitionData(partition_index=i, error_code=0, high_watermark=9, records=each)
            for i, each in enumerate(records)
        ]
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])

    whole = encode(response(b"a" * 200, b"bc", b""), version)
    out, splices, slices = bytearray(), Splices(), (Slice(200), Slice(2), Slice(0))
    writer(FetchResponse, version)(out, response(*slices), splices)
    assert [splice for _, splice in splices] == list(slices)
    for (position, _), data in zip(reversed(splices), (b"", b"bc", b"a" * 200), strict=True):
        out[position:position] = data
    assert bytes(out) == whole
    with pytest.raises(ValueError, match="splice"):
        encode(response(Slice(1)), version)


def test_fields_missing_in_the_version_are_omitted_or_refused() -> None:
    """Ignorable fields and defaults are omitted; any other value is refused."""
    assert encode(fetch_request(max_bytes=7, session_epoch=4), 2) == encode(fetch_request(), 2)
    with pytest.raises(ValueError, match=r"CreateTopicsRequest\.validate_only is not supported in version 0"):
        encode(CreateTopicsRequest(topics=[], validate_only=True), 0)
    with pytest.raises(ValueError, match="replica_id is not supported in version 15"):
        encode(fetch_request(replica_id=3), 15)
    partition = PartitionData(
        partition_index=0, error_code=0, high_watermark=0, current_leader=LeaderIdAndEpoch(leader_id=1), records=None
    )
    response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])
    with pytest.raises(ValueError, match="current_leader"):
        encode(response, 11)
    assert decode(FetchResponse, 12, encode(response, 12)) == response
    old = ListOffsetsRequest(
        replica_id=-1,
        topics=[ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])],
    )
    assert decode(ListOffsetsRequest, 1, encode(old, 1)) == old
    old.topics[0].partitions[0].max_num_offsets = 2
    with pytest.raises(ValueError, match="max_num_offsets"):
        encode(old, 1)


def test_null_is_refused_in_versions_without_it() -> None:
    with pytest.raises(ValueError, match=r"MetadataRequest\.topics must not be None in version 0"):
        encode(MetadataRequest(topics=None), 0)
    nameless = MetadataRequest(topics=[MetadataRequestTopic(name=None)])
    with pytest.raises(ValueError, match=r"MetadataRequestTopic\.name must not be None in version 9"):
        encode(nameless, 9)
    assert decode(MetadataRequest, 10, encode(nameless, 10)) == nameless
    result = DeleteTopicsResponse(responses=[DeletableTopicResult(name=None, error_code=0)])
    with pytest.raises(ValueError, match="name must not be None in version 5"):
        encode(result, 5)


def test_numbers_out_of_range_and_long_strings_are_refused() -> None:
    with pytest.raises(ValueError, match="ProduceResponse v1"):
        encode(ProduceResponse(responses=[], throttle_time_ms=1 << 31), 1)
    for version in (3, 9):
        request = ProduceRequest(
            acks=1, timeout_ms=1, topic_data=[TopicProduceData(name="x" * 32768, partition_data=[])]
        )
        with pytest.raises(ValueError):
            encode(request, version)
        request.topic_data[0].name = "x" * 32767
        assert decode(ProduceRequest, version, encode(request, version)) == request


@pytest.mark.parametrize("version", [-1, 14])
def test_nonexistent_version_is_refused(version: int) -> None:
    with pytest.raises(ValueError, match=f"ProduceRequest has no version {version}, only 0-13"):
        reader(ProduceRequest, version)
    with pytest.raises(ValueError, match=f"ProduceRequest has no version {version}, only 0-13"):
        writer(ProduceRequest, version)


def test_nullable_struct_round_trips() -> None:
    """KIP-893: a marker byte of -1 means null. Other negative values are read as null, too."""
    for cursor in (None, Cursor(topic_name="t", partition_index=3)):
        request = DescribeTopicPartitionsRequest(topics=[], cursor=cursor)
        assert decode(DescribeTopicPartitionsRequest, 0, encode(request, 0)) == request
    data = encode(DescribeTopicPartitionsRequest(topics=[]), 0)
    assert data == b"\1" + pack(">i", 2000) + b"\xff\0"
    assert decode(DescribeTopicPartitionsRequest, 0, data.replace(b"\xff", b"\x80")).cursor is None


def test_message_is_read_from_an_offset() -> None:
    data = b"front" + encode(MetadataRequest(topics=[]), 1) + b"back"
    assert reader(MetadataRequest, 1)(data, 5) == (MetadataRequest(topics=[]), len(data) - 4)
    assert decode(MetadataRequest, 1, data, 5) == MetadataRequest(topics=[])


def test_functions_are_compiled_once_and_appear_in_tracebacks() -> None:
    assert reader(ProduceRequest, 9) is reader(ProduceRequest, 9)
    assert writer(ProduceRequest, 9) is writer(ProduceRequest, 9)
    with pytest.raises(Malformed) as caught:
        decode(ProduceRequest, 9, b"\x05")
    shown = "".join(traceback.format_exception(caught.value))
    assert "read_ProduceRequest_v9" in shown
    assert 'raise cut_short("transactional_id", n, limit - at)' in shown


def test_generated_source_is_valid_python() -> None:
    for text in (reader_text(FetchRequest, 12), writer_text(FetchRequest, 12)):
        compile(text, "text", "exec")
