"""Detection of Kafka 0.7 requests, however the current parser reads them, without false positives."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from odradek.wire.catalog import APIS
from odradek.wire.client_codec import encode_request
from odradek.wire.connection import Connection
from odradek.wire.kafka_0_7 import explain_request, is_kafka_0_7
from odradek.wire.messages.fetch import FetchRequest
from odradek.wire.messages.metadata import MetadataRequest
from odradek.wire.schema.malformed import Malformed
from support.kafka_0_7 import FETCH, MULTIFETCH, MULTIPRODUCE, OFFSETS, PRODUCE, part, request

KINDS = [PRODUCE, FETCH, MULTIFETCH, MULTIPRODUCE, OFFSETS]
MALFORMED = Malformed("as it was")
topics = st.text("abcXYZ019._-", min_size=1, max_size=249).map(str.encode)


@given(st.sampled_from(KINDS), topics, st.integers(-1, 100) | st.integers(101, 1 << 20), st.binary(max_size=200))
@example(PRODUCE, b"t", -1, b"")
def test_all_requests_of_kafka_0_7_are_recognized(kind: int, topic: bytes, partition: int, payload: bytes) -> None:
    """Recognized in the header or, if that can be parsed, in the request parsed from it."""
    frame = request(kind, topic, partition=partition, payload=payload)
    assert is_kafka_0_7(frame[4:])
    try:
        (read,) = Connection().receive_data(frame)
    except Malformed as malformed:
        assert "Kafka 0.7" in str(malformed)
        return
    if "\ufffd" not in (read.client_id or ""):
        assert "Kafka 0.7" in str(explain_request(read, read.body, MALFORMED))


@pytest.mark.parametrize("kind", [MULTIFETCH, MULTIPRODUCE])
def test_request_with_several_partitions_is_recognized(kind: int) -> None:
    assert is_kafka_0_7(request(kind, b"one", b"another", b"third")[4:])


@pytest.mark.parametrize("kind", KINDS)
def test_incomplete_request_is_not_recognized(kind: int) -> None:
    frame = request(kind, b"topic")[4:]
    assert not any(is_kafka_0_7(frame[:end]) for end in range(len(frame)))
    assert not is_kafka_0_7(frame + b"\0")


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\0\5" + part(FETCH, b"topic"),
        b"\0\1" + part(FETCH, b"to/pic"),
        b"\0\1" + part(FETCH, b""),
        b"\0\1" + part(FETCH, b"topic", -2),
        b"\0\2\0\0",
        b"\0\2\xff\xff" + part(FETCH, b"topic"),
        b"\0\2\0\2" + part(FETCH, b"topic"),
    ],
    ids=["nothing", "type 5", "name", "no name", "partition", "of none", "negative", "fewer"],
)
def test_other_frames_are_not_recognized(frame: bytes) -> None:
    assert not is_kafka_0_7(frame)


def test_current_requests_are_not_recognized() -> None:
    """Truncated ones included: the log has to show their actual error."""
    fetch = FetchRequest(max_wait_ms=1, min_bytes=1, topics=[])
    for message, version in ((MetadataRequest(topics=None), 1), (fetch, 4)):
        frame = b"".join(map(bytes, encode_request(message, version, 7, "client")))
        assert not any(is_kafka_0_7(frame[4:end]) for end in range(4, len(frame) + 1))
        (read,) = Connection().receive_data(frame)
        assert explain_request(read, read.body, MALFORMED) is MALFORMED
    assert set(KINDS) <= set(APIS)
