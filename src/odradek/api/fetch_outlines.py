"""What a connection's last fetch requests for one partition were like, and how they are answered.

    │ ... session id │ session epoch │ topic │ partition │ leader epoch │ fetch offset │ ... tags │
                            (differs)                                        (differs)

A consumer's requests for one partition differ in two numbers, so one that is like an earlier one but for them need not
be read again, and its answer is the earlier one with other numbers.  Learned as produce requests are (outlines.py).
"""

from __future__ import annotations

from copy import copy
from struct import Struct
from typing import NamedTuple

from odradek.api.answer_marks import MARKS, SIZE_BYTES, around
from odradek.api.isolation import READ_COMMITTED
from odradek.api.learned import LearnedBodies, OnePartition
from odradek.base.errors import ErrorCode
from odradek.base.limits import FETCH_OUTLINES_MAX
from odradek.base.units import Offset, TopicPartition
from odradek.base.uuids import Uuid
from odradek.core.fetch_sessions import FINAL_EPOCH, SESSIONLESS, Wanted
from odradek.wire.api_keys import FLEXIBLE_FROM, ApiKey
from odradek.wire.compile import encode
from odradek.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from odradek.wire.primitives import Chunk, Splice
from odradek.wire.request import Request
from odradek.wire.varint import uvarint

_FLEXIBLE_FROM = FLEXIBLE_FROM[ApiKey.FETCH] or 0
_SESSIONS_SINCE = 7
_LOG_START_OFFSET_SINCE = 5
_LENGTH = Struct(">i")
_EPOCH = Struct(">i")
_OFFSET = Struct(">q")
_unpack_epoch, _unpack_offset = _EPOCH.unpack_from, _OFFSET.unpack_from
_EPOCH_MARK, _OFFSET_MARK = 0x5B3C79A1, 0x4D95E2B86F1C3A70  # As no other field could contain.
_BEFORE_RECORDS_BYTES = (4, 1)  # The length of one byte of records, without and with flexible versions.


class FetchShape(NamedTuple):
    """Of the bodies of one version: their size, and where they differ."""

    version: int
    size: int
    epoch_at: int
    epoch_bytes: int  # 0 where there are no sessions yet.
    offset_at: int

    def key(self, body: bytes) -> bytes:
        after_epoch, after_offset = self.epoch_at + self.epoch_bytes, self.offset_at + _OFFSET.size
        return body[: self.epoch_at] + body[after_epoch : self.offset_at] + body[after_offset:]


class FetchOutline(OnePartition):
    """One partition, as one consumer reads it, all but the session's epoch and the offset."""

    def __init__(self, version: int, body: FetchRequest, name: TopicPartition, wanted: Wanted) -> None:
        """`wanted` of the partition, with the offset of any request."""
        (topic,) = body.topics
        super().__init__(name, Uuid(topic.topic_id))
        self.wanted = wanted
        self.body = copy(body)  # Of any such request, without what it named.
        self.body.topics = []
        self.session_id = SESSIONLESS if body.session_epoch == FINAL_EPOCH else body.session_id
        self.max_wait_ms = body.max_wait_ms
        self.min_bytes = body.min_bytes
        self.max_bytes = body.max_bytes
        self.isolation_level = body.isolation_level
        self.is_read_committed = body.isolation_level == READ_COMMITTED
        self.answer = FetchAnswer(version, self._sample(topic))

    @property
    def may_wait(self) -> bool:
        """True if it waits for the first record."""
        return self.min_bytes == 1 and self.max_wait_ms > 0

    def _sample(self, topic: FetchTopic) -> FetchResponse:
        """An answer with MARKS where the numbers go, one byte of records, and no aborted transaction."""
        high_watermark, last_stable_offset, log_start_offset = MARKS
        part = PartitionData(
            partition_index=self.name.partition,
            error_code=ErrorCode.NONE,
            high_watermark=high_watermark,
            last_stable_offset=last_stable_offset,
            log_start_offset=log_start_offset,
            aborted_transactions=[] if self.is_read_committed else None,
            records=b"\0",
        )
        answer = FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=[part])
        return FetchResponse(session_id=self.session_id, responses=[answer])


class FetchAnswer:
    """The answer with records of one partition, but for them and its numbers."""

    def __init__(self, version: int, sample: FetchResponse) -> None:
        self._is_flexible = version >= _FLEXIBLE_FROM
        self._has_log_start_offset = version >= _LOG_START_OFFSET_SINCE
        numbers = 3 if self._has_log_start_offset else 2
        self._before, after = around(ApiKey.FETCH, version, sample, numbers)
        self._end = b"\0\0\0" if self._is_flexible else b""  # No tags of the partition, the topic and the answer.
        assert after.endswith(b"\0" + self._end)
        self._between = after[: -len(self._end) - 1 - _BEFORE_RECORDS_BYTES[self._is_flexible]]
        layout = Struct(f">ii{len(self._before)}s{numbers}q{len(self._between)}s")
        self._pack = layout.pack
        self._size = layout.size - SIZE_BYTES

    def encode(
        self, request: Request, high_watermark: Offset, last_stable_offset: Offset, start: Offset, records: Splice
    ) -> list[Chunk]:
        """The whole frame."""
        records_size = records.size
        length = uvarint(records_size + 1) if self._is_flexible else _LENGTH.pack(records_size)
        size = self._size + len(length) + records_size + len(self._end)
        if self._has_log_start_offset:
            numbers: tuple[Offset, ...] = high_watermark, last_stable_offset, start
        else:
            numbers = high_watermark, last_stable_offset
        head = self._pack(size, request.correlation_id, self._before, *numbers, self._between) + length
        if not records_size:
            return [head + self._end]
        return [head, records, self._end] if self._end else [head, records]


class FetchOutlines(LearnedBodies[FetchShape, FetchOutline]):
    """Those of one connection."""

    def __init__(self) -> None:
        super().__init__(FETCH_OUTLINES_MAX)

    def find(self, request: Request) -> tuple[FetchOutline, int, Offset] | None:
        """What the request is like, and where it differs: the session's epoch, and the offset."""
        body = request.body.tobytes()
        place = self._place(request.api_version, body)
        if place is None:
            return None
        outline, shape = place
        epoch = _unpack_epoch(body, shape.epoch_at)[0] if shape.epoch_bytes else FINAL_EPOCH
        return outline, epoch, _unpack_offset(body, shape.offset_at)[0]

    def may_learn(self, version: int, received: bytes) -> bool:
        """To be asked before `learn`."""
        return self._place(version, received) is None and self._has_room()

    def learn(self, version: int, body: FetchRequest, name: TopicPartition, wanted: Wanted, received: bytes) -> None:
        """Remember what was read from `received`: a request for one partition."""
        text, shape = _marked(version, body)
        key = self._new_key(shape, text, received) if shape is not None else None
        if key is not None:
            self._known[key] = FetchOutline(version, body, name, wanted)


def _marked(version: int, body: FetchRequest) -> tuple[bytes, FetchShape | None]:
    """The body written with marks where requests differ; no shape for a name that has a mark in it."""
    (topic,) = body.topics
    (part,) = topic.partitions
    epoch, offset = body.session_epoch, part.fetch_offset
    body.session_epoch, part.fetch_offset = _EPOCH_MARK, _OFFSET_MARK
    text = encode(body, version)
    body.session_epoch, part.fetch_offset = epoch, offset
    epoch_mark = _EPOCH.pack(_EPOCH_MARK) if version >= _SESSIONS_SINCE else b""
    offset_mark = _OFFSET.pack(_OFFSET_MARK)
    if text.count(offset_mark) != 1 or (epoch_mark and text.count(epoch_mark) != 1):
        return text, None
    return text, FetchShape(version, len(text), text.index(epoch_mark), len(epoch_mark), text.index(offset_mark))
