"""How produce requests began, and what that meant: those of one connection, and those of all under one admission.

    │ transactional id, acks, timeout, topic, partition: the outline │ length │ records │ tags, none │

A producer's requests to one partition differ in their records alone, so one that begins like an earlier one need not be
read again, and its answer is the earlier one with other numbers.  An outline is learned from a request that was read,
and only if writing what was read gives the same bytes: what is recognised can be nothing else.

A producer that connects anew, or one of a thousand that are alike, need not be read even once: its connection looks
among the outlines of all that have the same rights.
"""

from __future__ import annotations

from struct import Struct

from odradek.api.answer_marks import MARKS, SIZE_BYTES, around
from odradek.api.learned import SHAPES_MAX, Learned, OnePartition
from odradek.base.errors import ErrorCode
from odradek.base.limits import PRODUCE_OUTLINES_MAX
from odradek.base.units import Offset, TimestampMs, TopicPartition
from odradek.base.uuids import Uuid
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
from odradek.wire.varint import read_uvarint

_FLEXIBLE_FROM = FLEXIBLE_FROM[ApiKey.PRODUCE] or 0
_LOG_START_OFFSET_SINCE = 5
_LENGTH = Struct(">i")
_NO_TAGS = b"\0\0\0"  # Of the partition, the topic and the request.
_REST_BYTES_MIN = 16  # Less is no batch.
_NO_RECORDS_BYTES = 4  # How a request without records ends: an empty length, and no tags if there could be some.


class Outline(OnePartition):
    """One partition, as one producer writes to it, all but the records."""

    def __init__(self, version: int, body: ProduceRequest, name: TopicPartition, size: int) -> None:
        super().__init__(name, Uuid(body.topic_data[0].topic_id))
        self.version = version
        self.transactional_id = body.transactional_id
        self.acks = body.acks
        self.timeout_ms = body.timeout_ms
        self.size = size
        self.answer = Answer(version, self.response(*MARKS))

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

    def __init__(self, version: int, sample: ProduceResponse) -> None:
        """`sample` has MARKS where the numbers go."""
        self._has_log_start_offset = version >= _LOG_START_OFFSET_SINCE
        numbers = 3 if self._has_log_start_offset else 2
        self._before, self._after = around(ApiKey.PRODUCE, version, sample, numbers)
        layout = Struct(f">ii{len(self._before)}s{numbers}q{len(self._after)}s")
        self._size = layout.size - SIZE_BYTES
        self._pack = layout.pack

    def encode(self, request: Request, base_offset: Offset, time: TimestampMs, log_start_offset: Offset) -> list[Chunk]:
        """The whole frame."""
        size, before, after = self._size, self._before, self._after
        if self._has_log_start_offset:
            return [self._pack(size, request.correlation_id, before, base_offset, time, log_start_offset, after)]
        return [self._pack(size, request.correlation_id, before, base_offset, time, after)]


class Outlines(Learned[int, Outline]):
    """Their shapes are their sizes: a producer's differ in the partition, and little else."""

    def __init__(self, size_max: int = PRODUCE_OUTLINES_MAX, shapes_max: int = SHAPES_MAX) -> None:
        super().__init__(size_max, shapes_max)

    def find(self, request: Request, others: Outlines) -> tuple[Outline, memoryview] | None:
        """What the request is, and its records, if it is like one of those known here, or to `others`."""
        outline = self.outline_of(request)
        if outline is None:
            outline = others.outline_of(request)
            if outline is None:
                return None
            self._keep(request.body[: outline.size].tobytes(), outline)
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

    def learn(
        self, version: int, body: ProduceRequest, name: TopicPartition, received: memoryview, others: Outlines
    ) -> None:
        """Remember what was read from `received`: a request for one partition, that has records.  And tell `others`."""
        if not self._has_room():
            return
        text = encode(_without_records(body), version)[:-_NO_RECORDS_BYTES]
        if received[: len(text)] == text:  # And not another way of writing the same.
            outline = Outline(version, body, name, len(text))
            self._keep(text, outline)
            others._keep(text, outline)

    def _keep(self, text: bytes, outline: Outline) -> None:
        if self._has_room() and self._has_room_for(len(text)):
            self._known[text] = outline


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
