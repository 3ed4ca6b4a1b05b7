"""Length checks before allocation, for every encoding of a length."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from struct import pack
from types import FrameType
from typing import Any

import pytest

from odradek.base.limits import REQUEST_ELEMENTS_INLINE_MAX, REQUEST_ELEMENTS_MAX, TAGGED_FIELDS_MAX
from odradek.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.wire.messages.delete_topics import DeleteTopicsRequest
from odradek.wire.messages.fetch import FetchRequest
from odradek.wire.messages.header import RequestHeader
from odradek.wire.messages.metadata import MetadataRequest
from odradek.wire.messages.produce import ProduceRequest
from odradek.wire.schema.compile import decode, decode_small
from odradek.wire.schema.malformed import Malformed, TooManyElements
from odradek.wire.schema.varint import uvarint

EMPTY_TAGS = b"\0"
LINES_PER_TURN_MAX = 10_000  # Some milliseconds; the whole request takes two million.


def refused(cls: type, version: int, data: bytes) -> str:
    """Return the text of the refusal, after checking that it allocated no memory."""
    decode_or_none(cls, version, b"")  # Compiled before memory is looked at.
    tracemalloc.start()
    try:
        with pytest.raises(Malformed) as caught:
            decode(cls, version, data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000
    return str(caught.value)


def decode_or_none(cls: type, version: int, data: bytes) -> None:
    with pytest.raises(Malformed):
        decode(cls, version, data)


@contextmanager
def lines_executed() -> Iterator[list[int]]:
    """Count the lines of Python that are executed, which is the same on each machine; yield a list of one number."""
    lines = [0]

    def count(frame: FrameType, event: str, argument: Any) -> Any:
        lines[0] += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        yield lines
    finally:
        sys.settrace(before)


@pytest.mark.parametrize("count", [-1, -2, -(1 << 31)])
def test_negative_count_is_refused_if_null_is_not_allowed(count: int) -> None:
    assert "null" in refused(DeleteTopicsRequest, 0, pack(">i", count) + pack(">i", 1000))
    assert "null" in refused(MetadataRequest, 0, pack(">i", count))


@pytest.mark.parametrize("count", [-1, -7, -(1 << 31)])
def test_negative_count_is_null_if_allowed(count: int) -> None:
    """As in Apache Kafka 4.3.0."""
    assert decode(MetadataRequest, 1, pack(">i", count)).topics is None


@pytest.mark.parametrize("count", [1, 1000, 1 << 20, (1 << 31) - 1])
def test_count_beyond_the_data_is_refused(count: int) -> None:
    assert f"{count} elements" in refused(DeleteTopicsRequest, 0, pack(">i", count))
    assert f"{count} elements" in refused(DeleteTopicsRequest, 4, uvarint(count + 1))
    assert f"{count} elements" in refused(MetadataRequest, 9, uvarint(count + 1) + b"\1")


@pytest.mark.parametrize("size", [1, 32767, 1 << 20, (1 << 31) - 1, (1 << 35) - 2])
def test_string_beyond_the_data_is_refused(size: int) -> None:
    text = refused(ApiVersionsRequest, 3, uvarint(size + 1))
    assert text == f"client_software_name needs {size} bytes, but only 0 remain"


def test_string_longer_than_the_maximum_is_refused() -> None:
    text = refused(ApiVersionsRequest, 3, uvarint(32769) + bytes(40_000))
    assert "maximum of 32767" in text


def test_records_beyond_the_data_are_refused() -> None:
    front = pack(">hhi", -1, 1, 1000) + pack(">ih1sii", 1, 1, b"t", 1, 0)
    assert "records needs 2147483647 bytes, but only 0 remain" in refused(
        ProduceRequest, 3, front + pack(">i", (1 << 31) - 1)
    )


def test_endless_varint_is_refused() -> None:
    assert "five bytes" in refused(ApiVersionsRequest, 3, b"\xff" * 20)
    assert "is truncated" in refused(ApiVersionsRequest, 3, b"\xff" * 3)


def test_one_byte_elements_are_bounded_over_the_whole_message() -> None:
    count = REQUEST_ELEMENTS_MAX + 1
    data = uvarint(count + 1) + b"\1" * count + pack(">i", 1000) + EMPTY_TAGS
    assert f"{count} elements" in refused(DeleteTopicsRequest, 4, data)


def test_elements_of_all_arrays_are_counted_together() -> None:
    """Each of two arrays is within the limit; together they exceed it."""
    half = REQUEST_ELEMENTS_MAX // 2 + 1
    topic = uvarint(2) + b"t" + uvarint(half + 1) + bytes(4 * half) + EMPTY_TAGS
    front = pack(">iiiibii", -1, 1, 1, 1, 0, 0, 0)
    forgotten = uvarint(3) + topic + topic
    with pytest.raises(Malformed, match=f"{half} elements"):
        decode(FetchRequest, 12, front + uvarint(1) + forgotten + uvarint(1) + EMPTY_TAGS)


def test_unknown_tags_are_skipped() -> None:
    body = uvarint(2) + b"a" + uvarint(2) + b"b"
    known = decode(ApiVersionsRequest, 3, body + EMPTY_TAGS)
    tags = uvarint(2) + uvarint(7) + uvarint(3) + b"abc" + uvarint(100_000) + uvarint(0)
    assert decode(ApiVersionsRequest, 3, body + tags) == known


def test_number_of_tagged_fields_is_bounded() -> None:
    body = uvarint(2) + b"a" + uvarint(2) + b"b"
    tags = b"".join(uvarint(tag) + uvarint(0) for tag in range(TAGGED_FIELDS_MAX))
    decode(ApiVersionsRequest, 3, body + uvarint(TAGGED_FIELDS_MAX) + tags)
    text = refused(ApiVersionsRequest, 3, body + uvarint(TAGGED_FIELDS_MAX + 1) + tags + uvarint(9) + uvarint(0))
    assert f"limit of {TAGGED_FIELDS_MAX}" in text


@pytest.mark.parametrize("count", [TAGGED_FIELDS_MAX + 1, 20_000_000, (1 << 35) - 1])
@pytest.mark.parametrize("cls", [ApiVersionsRequest, RequestHeader], ids=["body", "header"])
def test_count_of_tagged_fields_without_data_is_refused(cls: type, count: int) -> None:
    """CVE-2026-111115: a count is refused before anything is read or allocated for it."""
    fronts = {ApiVersionsRequest: uvarint(2) + b"a" + uvarint(2) + b"b", RequestHeader: pack(">hhih", 18, 3, 7, -1)}
    version = {ApiVersionsRequest: 3, RequestHeader: 2}[cls]
    assert f"{count} tagged fields" in refused(cls, version, fronts[cls] + uvarint(count))


def tagged_topics(topics: int, fields: int) -> bytes:
    """Return a Metadata body with this many unknown tagged fields of two bytes in each topic."""
    section = uvarint(fields) + (uvarint(99) + uvarint(0)) * fields
    return uvarint(topics + 1) + (bytes(16) + b"\0" + section) * topics + bytes(3)


def test_tagged_fields_are_counted_with_the_elements() -> None:
    """Each section and the array are within the limit; together they exceed it."""
    allowed = REQUEST_ELEMENTS_MAX // 1_000 - 1
    assert decode(MetadataRequest, 12, tagged_topics(allowed, 1_000)).topics is not None
    with pytest.raises(TooManyElements, match="1000 tagged fields"):
        decode(MetadataRequest, 12, tagged_topics(allowed + 1, 1_000))


def test_many_tagged_fields_do_not_block_the_event_loop() -> None:
    """A body decoded on the event loop has few tagged fields, too: two megabytes of them took 0.7 s."""
    data = tagged_topics(REQUEST_ELEMENTS_INLINE_MAX - 1, 1_000)
    with lines_executed() as lines, pytest.raises(TooManyElements):
        decode_small(MetadataRequest, 12, data, REQUEST_ELEMENTS_INLINE_MAX)
    assert lines[0] < LINES_PER_TURN_MAX, f"{lines[0]} lines"


@pytest.mark.parametrize("size", [1, 1 << 20, (1 << 32) - 1])
def test_tagged_field_beyond_the_data_is_refused(size: int) -> None:
    body = uvarint(2) + b"a" + uvarint(2) + b"b"
    assert f"tagged field 5 needs {size} bytes" in refused(
        ApiVersionsRequest, 3, body + uvarint(1) + uvarint(5) + uvarint(size)
    )


@pytest.mark.parametrize(("announced", "there"), [(7, 8), (9, 9), (0, 8)])
def test_tagged_field_with_a_wrong_size_is_refused(announced: int, there: int) -> None:
    """Tag 1 of ApiVersionsResponse is an int64. Apache Kafka does not check its size."""
    front = pack(">h", 0) + uvarint(1) + pack(">i", 0)
    data = front + uvarint(1) + uvarint(1) + uvarint(announced) + bytes(there)
    assert "finalized_features_epoch" in refused(ApiVersionsResponse, 3, data)


def test_client_id_has_a_16_bit_length_in_the_flexible_header() -> None:
    data = pack(">hhih", 18, 3, 7, 2) + b"me" + EMPTY_TAGS
    assert decode(RequestHeader, 2, data).client_id == "me"
    assert "client_id" in refused(RequestHeader, 2, pack(">hhih", 18, 3, 7, 300))


def test_invalid_utf8_is_decoded_as_replacement_characters() -> None:
    """As in Apache Kafka, which then refuses the topic by its name."""
    topics = decode(DeleteTopicsRequest, 0, pack(">ih", 1, 2) + b"\xff\xfe" + pack(">i", 1)).topic_names
    assert topics == ["\ufffd\ufffd"]


def test_bytes_after_the_message_are_ignored() -> None:
    """As in Apache Kafka."""
    assert decode(MetadataRequest, 1, pack(">i", -1) + b"abc") == MetadataRequest(topics=None)
