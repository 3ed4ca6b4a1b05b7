"""What a connection's last commits of offsets were like, and how they are answered.

    │ group │ generation │ member │ topic │ partition │ offset │ leader epoch │ metadata │ ...
                                                       (differs, one for each partition)

Learned as fetch requests are (fetch_outlines.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import NamedTuple

from odradek.api.answer_marks import FRONT_BYTES, SIZE_BYTES, behind_front
from odradek.api.learned import LearnedBodies
from odradek.base.errors import ErrorCode
from odradek.base.limits import COMMIT_OUTLINES_MAX
from odradek.core.broker import Broker
from odradek.core.cluster import CONSUMER_OFFSETS
from odradek.core.groups.repeated_commit import RepeatedCommit
from odradek.core.groups.shard import GroupShard
from odradek.wire.api_keys import ApiKey
from odradek.wire.compile import encode
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
)
from odradek.wire.primitives import Chunk
from odradek.wire.request import Request
from odradek.wire.response import encode_response

Respond = Callable[[ErrorCode], OffsetCommitResponse]

_OFFSET = Struct(">q")
_unpack_offset = _OFFSET.unpack_from
_OFFSET_MARK = 0x2F8D13E6A94C7B00  # As no other field could contain; offsets are counted from it.
_pack_front = Struct(">ii").pack


class CommitShape(NamedTuple):
    """Of the bodies of one version: their size, and where they differ."""

    version: int
    size: int
    offsets_at: tuple[int, ...]

    def key(self, body: bytes) -> bytes:
        pieces, start = [], 0
        for at in self.offsets_at:
            pieces.append(body[start:at])
            start = at + _OFFSET.size
        pieces.append(body[start:])
        return b"".join(pieces)

    def offsets(self, body: bytes) -> list[int]:
        return [_unpack_offset(body, at)[0] for at in self.offsets_at]


class CommitOutline:
    """One committer and its partitions, all but the offsets."""

    def __init__(self, version: int, repeated: RepeatedCommit, respond: Respond, broker: Broker) -> None:
        """`respond` gives what is answered, all partitions having the same code.  Raises Refused."""
        self.repeated = repeated
        self._respond = respond
        self._topics = repeated.topics()
        self._index = broker.groups.shards.partition_of(repeated.who.group_id)
        self._offsets_topic = broker.view.topics[CONSUMER_OFFSETS]
        self._answer = behind_front(ApiKey.OFFSET_COMMIT, version, respond(ErrorCode.NONE))

    def shard(self, broker: Broker) -> GroupShard | None:
        """None if the outline is out of date: a topic is gone, or another of the same name, or has grown.

        Raises Refused.
        """
        topics = broker.view.topics
        if topics.get(CONSUMER_OFFSETS) is not self._offsets_topic:
            return None
        for topic in self._topics:
            if topics.get(topic.name) is not topic:
                return None
        return broker.groups.shards.shard(self._index)

    def answer(self, request: Request, failure: ErrorCode) -> list[Chunk]:
        """The whole frame."""
        if failure:
            return encode_response(request, self._respond(failure))
        answer = self._answer
        return [_pack_front(len(answer) + FRONT_BYTES - SIZE_BYTES, request.correlation_id) + answer]


class CommitOutlines(LearnedBodies[CommitShape, CommitOutline]):
    """Those of one connection."""

    def __init__(self) -> None:
        super().__init__(COMMIT_OUTLINES_MAX)
        self._seen: set[tuple[str, int]] = set()

    def find(self, request: Request) -> tuple[CommitOutline, Sequence[int]] | None:
        """What the request is like, and its offsets."""
        if not self._shapes:
            return None
        body = request.body.tobytes()
        place = self._place(request.api_version, body)
        if place is None:
            return None
        outline, shape = place
        return outline, shape.offsets(body)

    def may_learn(self, group_id: str, received: memoryview) -> bool:
        """To be asked before `learn`: is it worth it?  Some commit once and never again."""
        seen = group_id, len(received)
        if seen not in self._seen:
            if len(self._seen) >= COMMIT_OUTLINES_MAX:
                self._seen.clear()
            self._seen.add(seen)
            return False
        return self._has_room()

    def learn(self, version: int, body: OffsetCommitRequest, outline: CommitOutline, received: bytes) -> None:
        """Remember what was read from `received`."""
        text, shape = _marked(version, body)
        key = self._new_key(shape, text, received) if shape is not None else None
        if key is not None:
            self._known[key] = outline


def _marked(version: int, body: OffsetCommitRequest) -> tuple[bytes, CommitShape | None]:
    """The body written with marks for offsets; no shape for a name that has a mark in it."""
    parts = [part for topic in body.topics for part in topic.partitions]
    offsets = [part.committed_offset for part in parts]
    marks = [_OFFSET_MARK + number for number in range(len(parts))]
    _set_offsets(parts, marks)
    text = encode(body, version)
    _set_offsets(parts, offsets)
    sought = [_OFFSET.pack(mark) for mark in marks]
    if any(text.count(mark) != 1 for mark in sought):
        return text, None
    return text, CommitShape(version, len(text), tuple(text.index(mark) for mark in sought))


def _set_offsets(parts: Sequence[OffsetCommitRequestPartition], offsets: Sequence[int]) -> None:
    for part, offset in zip(parts, offsets, strict=True):
        part.committed_offset = offset
