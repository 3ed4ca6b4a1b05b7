"""Requests made once and sent many times, and what their answers look like.

Produce v9 and Fetch v12 are the newest versions that name topics instead of using ids, so that the same bytes are good
for any broker.  Topic names have a fixed length: then an acknowledgement has a fixed size, and clients count bytes
instead of parsing.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from odradek.record.builder import encode_batch
from odradek.record.compression import Codec
from odradek.wire.client_codec import encode_request
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

PRODUCE_VERSION = 9
FETCH_VERSION = 12
CLIENT_ID = "bench"
CORRELATION_ID = 7
TIMEOUT_MS = 30_000
RECORD_OVERHEAD_BYTES_MAX = 16
BATCH_HEADER_BYTES = 61

PARTITION_BYTES = 1 << 20  # Kafka's default for max.partition.fetch.bytes.
FETCH_BYTES = 50 << 20  # Its default for fetch.max.bytes.
LONG_POLL_MS = 500  # Its default for fetch.max.wait.ms.

# An acknowledgement of one partition, Produce v9:
#
# │ i32 length │ i32 correlation id │ tags │ 1 topic │ name │ 1 partition │ i32 index │ i16 error │ i64 base offset │
# │ i64 append time │ i64 log start offset │ no record errors │ no message │ tags │ tags │ i32 throttle │ tags │
_BEFORE_NAME = 4 + 4 + 1 + 1
_PART_BYTES = 4 + 2 + 8 + 8 + 8 + 1 + 1 + 1
_AFTER_ERROR = 8 + 8 + 8 + 1 + 1 + 1 + 1 + 4 + 1


class Refusal(RuntimeError):
    """The broker refused what it was sent."""


class Batches(NamedTuple):
    """One record batch as it is sent, and how many records are in it."""

    data: bytes
    records: int


class AckLayout(NamedTuple):
    """Where the error codes stand in each acknowledgement, and how long one is with its length."""

    size_bytes: int
    errors_at: tuple[int, ...]

    def check(self, acks: bytes, count: int) -> None:
        """Raises Refusal if any of `count` acknowledgements is one; strides, so that there is no loop over them."""
        size, end = self.size_bytes, count * self.size_bytes
        are_right = acks[3:end:size].count((size - 4) & 0xFF) == count
        for at in self.errors_at:
            are_right = are_right and acks[at + 1 : end : size].count(0) == acks[at:end:size].count(0) == count
        if not are_right:
            raise Refusal(f"a request was answered with error {self._first_error(acks, end)}")

    def _first_error(self, acks: bytes, end: int) -> int:
        """What comes behind it is not aligned: an error may bring a message."""
        starts = range(0, end, self.size_bytes)
        codes = (int.from_bytes(acks[start + at :][:2], signed=True) for start in starts for at in self.errors_at)
        return next((code for code in codes if code), 0)


def ack_layout(topic: str, partitions: int = 1) -> AckLayout:
    """Of a request that names so many partitions."""
    error_at = _BEFORE_NAME + 1 + len(topic) + 1 + 4
    errors_at = tuple(range(error_at, error_at + partitions * _PART_BYTES, _PART_BYTES))
    return AckLayout(errors_at[-1] + 2 + _AFTER_ERROR, errors_at)


def ack_bytes(topic: str) -> bytes:
    """A successful acknowledgement, for the lower bound."""
    layout = ack_layout(topic)
    body = CORRELATION_ID.to_bytes(4) + b"\0\2" + bytes([len(topic) + 1]) + topic.encode() + b"\2" + bytes(4 + 2)
    body += bytes(8) + b"\xff" * 8 + bytes(8) + b"\1\0\0\0" + bytes(4) + b"\0"
    assert len(body) == layout.size_bytes - 4
    return len(body).to_bytes(4) + body


def values(value_bytes: int, count: int) -> list[bytes]:
    """Half random, half of one letter: a codec has something to do, and about halves them."""
    noise = random.Random(value_bytes).randbytes(count * (value_bytes // 2 + 1))
    half = max(value_bytes // 2, 1)
    rest = b"x" * (value_bytes - half)
    return [noise[i * half : (i + 1) * half] + rest for i in range(count)]


@cache
def batch(value_bytes: int, batch_bytes: int, codec: str = "none") -> Batches:
    """As many records as fit into batch_bytes before compression, but at least one."""
    count = max(1, (batch_bytes - BATCH_HEADER_BYTES) // (value_bytes + RECORD_OVERHEAD_BYTES_MAX))
    now = time.time_ns() // 1_000_000
    data = encode_batch(((None, value, (), now) for value in values(value_bytes, count)), Codec[codec.upper()])
    return Batches(bytes(data), count)


def produce(topic: str, partition: int, acks: int, records: bytes) -> bytes:
    return produce_to(topic, [partition], acks, records)


def produce_to(topic: str, partitions: Sequence[int], acks: int, records: bytes) -> bytes:
    """The same to each of them."""
    data = [PartitionProduceData(index=partition, records=memoryview(records)) for partition in partitions]
    request = ProduceRequest(
        acks=acks, timeout_ms=TIMEOUT_MS, topic_data=[TopicProduceData(name=topic, partition_data=data)]
    )
    return whole(request, PRODUCE_VERSION)


class Fetching:
    """A Fetch request of one partition whose offset is patched in place."""

    def __init__(
        self, topic: str, partition: int, *, min_bytes: int = 1, partition_bytes: int = PARTITION_BYTES
    ) -> None:
        marker = int.from_bytes(os.urandom(7))
        self.frame = bytearray(_fetch(topic, partition, marker, min_bytes, partition_bytes))
        self._offset_at = self.frame.index(marker.to_bytes(8))

    def at(self, offset: int) -> bytearray:
        self.frame[self._offset_at : self._offset_at + 8] = offset.to_bytes(8)
        return self.frame


def _fetch(topic: str, partition: int, offset: int, min_bytes: int, partition_bytes: int) -> bytes:
    fetch_partition = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=partition_bytes)
    request = FetchRequest(
        max_wait_ms=LONG_POLL_MS,
        min_bytes=min_bytes,
        max_bytes=FETCH_BYTES,
        topics=[FetchTopic(topic=topic, partitions=[fetch_partition])],
    )
    return whole(request, FETCH_VERSION)


def whole(message: object, version: int) -> bytes:
    return b"".join(bytes(chunk) for chunk in encode_request(message, version, CORRELATION_ID, CLIENT_ID))


# A Fetch v12 answer of one partition, from its length to its records:
#
# │ i32 length │ i32 correlation id │ tags │ i32 throttle │ i16 error │ i32 session │ 1 topic │ name │ 1 partition │
# │ i32 index │ i16 error │ i64 high watermark │ i64 last stable │ i64 log start │ aborted (nullable, none) │
# │ i32 preferred replica │ records: uvarint length + 1 │ ... │ tags │ tags │ tags │
_FETCH_BEFORE_NAME = 4 + 4 + 1 + 4 + 2 + 4 + 1


class FetchLayout(NamedTuple):
    """Positions in an answer, counted from its length."""

    request_error_at: int
    error_at: int
    high_watermark_at: int
    records_size_at: int


def fetch_layout(topic: str) -> FetchLayout:
    error_at = _FETCH_BEFORE_NAME + 1 + len(topic) + 1 + 4
    return FetchLayout(4 + 4 + 1 + 4, error_at, error_at + 2, error_at + 2 + 8 + 8 + 8 + 1 + 4)


# A fetch session's requests and answers.


def session_begin(topic: str, offsets: Sequence[int], *, epoch: int = 0, first: int = 0) -> bytes:
    """The first request: all partitions, from these offsets on.  With epoch -1 there is no session.

    `first` is the partition that is named first, before all behind it and then the others.
    """
    parts = [
        FetchPartition(partition=index, fetch_offset=offsets[index], partition_max_bytes=PARTITION_BYTES)
        for index in (*range(first, len(offsets)), *range(first))
    ]
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=FETCH_BYTES,
        session_epoch=epoch,
        topics=[FetchTopic(topic=topic, partitions=parts)],
    )
    return whole(request, FETCH_VERSION)


class SessionRequests:
    """Those that follow, of a frame for each kind, patched in place."""

    def __init__(self, topic: str, session_id: int) -> None:
        self._topic = topic
        self._session_id = session_id
        self._epoch = 0
        self._of_one: dict[int, _Patched] = {}  # By how long to wait.
        self._of_none: dict[int, _Patched] = {}

    def next(self, partition: int | None, offset: int, max_wait_ms: int) -> bytearray:
        self._epoch += 1
        known = self._of_none if partition is None else self._of_one
        patched = known.get(max_wait_ms)
        if patched is None:
            patched = known[max_wait_ms] = self._make_request(max_wait_ms, names_one=partition is not None)
        patched.put(_EPOCH, self._epoch)
        if partition is not None:
            patched.put(_PARTITION, partition)
            patched.put(_OFFSET, offset)
        return patched.frame

    def _make_request(self, max_wait_ms: int, *, names_one: bool) -> _Patched:
        epoch, partition, offset = (int.from_bytes(os.urandom(size - 1)) for size in (4, 4, 8))
        fetch_partition = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=PARTITION_BYTES)
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            session_id=self._session_id,
            session_epoch=epoch,
            topics=[FetchTopic(topic=self._topic, partitions=[fetch_partition])] if names_one else [],
        )
        marks = {_EPOCH: epoch.to_bytes(4)}
        if names_one:
            marks |= {_PARTITION: partition.to_bytes(4), _OFFSET: offset.to_bytes(8)}
        return _Patched(whole(request, FETCH_VERSION), marks)


_EPOCH, _PARTITION, _OFFSET = "epoch", "partition", "offset"


class _Patched:
    def __init__(self, frame: bytes, marks: dict[str, bytes]) -> None:
        self.frame = bytearray(frame)
        self._places = {name: (frame.index(mark), len(mark)) for name, mark in marks.items()}

    def put(self, name: str, value: int) -> None:
        at, size = self._places[name]
        self.frame[at : at + size] = value.to_bytes(size)


def session_error(response: bytes) -> int:
    """Of the whole request."""
    return int.from_bytes(response[13:15], signed=True)


def session_of(response: bytes) -> int:
    return int.from_bytes(response[15:19])


def has_topics(response: bytes) -> bool:
    return response[_FETCH_BEFORE_NAME - 1] > 1


def records_of_one(response: bytes, layout: FetchLayout) -> tuple[int, int] | None:
    """The partition and the first offset of the records, of an answer about one; None for an error, or without any."""
    error = response[layout.error_at : layout.error_at + 2]
    size, start = read_uvarint(response, layout.records_size_at)
    if error != b"\0\0" or size < 2:
        return None
    return int.from_bytes(response[layout.error_at - 4 : layout.error_at]), int.from_bytes(response[start : start + 8])


FETCH_TRAILER = b"\0\0\0"  # Tags of the partition, of the topic, of the answer.


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_uvarint(data: bytes | bytearray | memoryview, at: int) -> tuple[int, int]:
    """Value, and the position behind it."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def fetch_head(topic: str, records_bytes: int) -> bytes:
    """The answer up to its records, for the lower bound."""
    body = CORRELATION_ID.to_bytes(4) + bytes(1 + 4 + 2 + 4) + b"\2" + bytes([len(topic) + 1]) + topic.encode()
    body += b"\2" + bytes(4 + 2 + 8 + 8 + 8) + b"\0" + b"\xff" * 4 + uvarint(records_bytes + 1)
    return (len(body) + records_bytes + len(FETCH_TRAILER)).to_bytes(4) + body
