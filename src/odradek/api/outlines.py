"""How a connection's last produce requests began, and what that meant.

    │ transactional id, acks, timeout, topic, partition: the outline │ length │ records │ tags, none │

A producer's requests to one partition differ in their records alone, so one that begins like an earlier one need not be
read again, and its answer is the earlier one with other numbers.  An outline is learned from a request that was read,
and only if writing what was read gives the same bytes: what is recognised can be nothing else.
"""

from __future__ import annotations

from struct import Struct, pack

from odradek.api.learned import Learned
from odradek.base.errors import ErrorCode
from odradek.base.limits import PRODUCE_OUTLINES_MAX
from odradek.base.units import Offset, TimestampMs, TopicPartition
from odradek.base.uuids import ZERO_UUID
from odradek.wire.api_keys import FLEXIBLE_FROM, ApiKey
from odradek.wire.compile import encode
from odradek.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from odradek.wire.primitives import Chunk
from odradek.wire.request import Request
from odradek.wire.response import encode_response
from odradek.wire.varint import read_uvarint

_FLEXIBLE_FROM = FLEXIBLE_FROM[ApiKey.PRODUCE] or 0
_LOG_START_OFFSET_SINCE = 5
_LENGTH = Struct(">i")
_SIZE_BYTES = 4
_FRONT_BYTES = 8  # Of an answer: its size and the correlation id.
_NO_TAGS = b"\0\0\0"  # Of the partition, the topic and the request.
_REST_BYTES_MIN = 16  # Less is no batch.
_NO_RECORDS_BYTES = 4  # How a request without records ends: an empty length, and no tags if there could be some.
_NUMBERS = (0x0123456789ABCDEF, 0x1122334455667788, 0x1032547698BADCFE)  # As no name could contain.


class Outline:
    """One partition, as one producer writes to it, all but the records."""

    __slots__ = ("acks", "answer", "has_topic_id", "name", "size", "timeout_ms", "topic_id", "version")

    def __init__(self, version: int, body: ProduceRequest, name: TopicPartition, size: int) -> None:
        self.version = version
        self.acks = body.acks
        self.timeout_ms = body.timeout_ms
        self.topic_id = body.topic_data[0].topic_id
        self.has_topic_id = self.topic_id != ZERO_UUID
        self.name = name
        self.size = size
        self.answer = Answer(version, self.response(*_NUMBERS))

    def response(self, base_offset: int, log_append_time: int, log_start_offset: int) -> ProduceResponse:
        """The whole answer to a batch that was appended."""
        part = PartitionProduceResponse(
            index=self.name.partition,
            error_code=ErrorCode.NONE,
            base_offset=base_offset,
            log_append_time_ms=log_append_time,
            log_start_offset=log_start_offset,
        )
        topic = TopicProduceResponse(name=self.name.topic, topic_id=self.topic_id, partition_responses=[part])
        return ProduceResponse(responses=[topic])

    @property
    def tail_bytes(self) -> int:
        """What follows the records."""
        return 0 if self.version < _FLEXIBLE_FROM else len(_NO_TAGS)

    def records_of(self, body: memoryview) -> memoryview | None:
        """The records of a request that begins like this; None if it goes on in another way."""
        end = len(body)
        start = self.records_from(body, end)
        if not start or self.version < _FLEXIBLE_FROM:
            return body[start:] if start else None
        end -= len(_NO_TAGS)
        return body[start:end] if body[end:] == _NO_TAGS else None

    def records_from(self, body: memoryview, size: int) -> int:
        """Where the records begin, if all that follows in a body of `size` bytes is they and the tail; else 0.

        Of the body only the first part need be there.
        """
        at = self.size
        if len(body) - at < _REST_BYTES_MIN:
            return 0
        if self.version < _FLEXIBLE_FROM:
            start = at + _LENGTH.size
            return start if _LENGTH.unpack_from(body, at)[0] == size - start else 0
        first, second = body[at], body[at + 1]
        if first > 127 > second:
            length, start = first & 127 | second << 7, at + 2
        else:
            length, start = read_uvarint(body, at)
        return start if length - 1 == size - len(_NO_TAGS) - start else 0


class Answer:
    """The answer to a batch that was appended, but for its numbers."""

    __slots__ = ("_after", "_before", "_has_log_start_offset", "_pack", "_size")

    def __init__(self, version: int, sample: ProduceResponse) -> None:
        """`sample` has _NUMBERS where the numbers go."""
        self._has_log_start_offset = version >= _LOG_START_OFFSET_SINCE
        numbers = _NUMBERS if self._has_log_start_offset else _NUMBERS[:2]
        mark = pack(f">{len(numbers)}q", *numbers)
        whole = b"".join(chunk for chunk in encode_response(_request(version), sample) if isinstance(chunk, bytes))
        before, found, self._after = whole.partition(mark)
        assert found, "the numbers follow each other"
        self._before = before[_FRONT_BYTES:]
        self._size = len(whole) - _SIZE_BYTES
        self._pack = Struct(f">ii{len(self._before)}s{len(numbers)}q{len(self._after)}s").pack

    def encode(self, request: Request, base_offset: Offset, time: TimestampMs, log_start_offset: Offset) -> list[Chunk]:
        """The whole frame."""
        size, before, after = self._size, self._before, self._after
        if self._has_log_start_offset:
            return [self._pack(size, request.correlation_id, before, base_offset, time, log_start_offset, after)]
        return [self._pack(size, request.correlation_id, before, base_offset, time, after)]


class Outlines(Learned[int, Outline]):
    """Those of one connection.  Their shapes are their sizes: a producer's differ in the partition, and little else."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(PRODUCE_OUTLINES_MAX)

    def find(self, request: Request) -> tuple[Outline, memoryview] | None:
        """What the request is, and its records, if it is like one of those known here."""
        outline = self.outline_of(request)
        if outline is None:
            return None
        records = outline.records_of(request.body)
        return None if records is None else (outline, records)

    def outline_of(self, request: Request) -> Outline | None:
        """The one the request begins like."""
        body = request.body
        for size in self._shapes:
            outline = self._known.get(body[:size].tobytes())
            if outline is not None and outline.version == request.api_version:
                return outline
        return None

    def learn(self, version: int, body: ProduceRequest, name: TopicPartition, received: memoryview) -> None:
        """Remember what was read from `received`: a request for one partition, that has records."""
        text = encode(_without_records(body), version)[:-_NO_RECORDS_BYTES]
        if received[: len(text)] == text and self._has_room(len(text)):  # And not another way of writing the same.
            self._known[text] = Outline(version, body, name, len(text))


def _without_records(body: ProduceRequest) -> ProduceRequest:
    (topic,) = body.topic_data
    (part,) = topic.partition_data
    empty = PartitionProduceData(index=part.index, records=b"")
    return ProduceRequest(
        transactional_id=body.transactional_id,
        acks=body.acks,
        timeout_ms=body.timeout_ms,
        topic_data=[TopicProduceData(name=topic.name, topic_id=topic.topic_id, partition_data=[empty])],
    )


def _request(version: int) -> Request:
    return Request(ApiKey.PRODUCE, version, 0, None, memoryview(b""), 0, 0)
