"""OffsetCommit requests of groups without members, made once; only the offset is patched.

v9 is the newest version that names topics, and its answers are of one size for names of one length:

│ i32 length │ i32 correlation id │ tags │ i32 throttle │ 1 topic │ name │ 1 partition │ i32 index │ i16 error │ tags │
│ tags │ tags │
"""

from __future__ import annotations

from frames import AckLayout, whole

from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

VERSION = 9
_MARKER = 0x00_C0_FF_EE_C0_FF_EE_00
_OFFSET_BYTES = 8
_BEFORE_NAME = 4 + 4 + 1 + 4 + 1


def answer_layout(topic: str) -> AckLayout:
    error_at = _BEFORE_NAME + 1 + len(topic) + 1 + 4
    return AckLayout(error_at + 2 + 3, (error_at,))


class Commit:
    """What one group sends: always the same, at another offset."""

    def __init__(self, group: str, topic: str) -> None:
        partition = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=_MARKER, committed_leader_epoch=0, committed_metadata=""
        )
        topics = [OffsetCommitRequestTopic(name=topic, partitions=[partition])]
        self._frame = bytearray(whole(OffsetCommitRequest(group_id=group, topics=topics), VERSION))
        self._offset_at = self._frame.index(_MARKER.to_bytes(_OFFSET_BYTES))

    def at(self, offset: int) -> bytearray:
        self._frame[self._offset_at : self._offset_at + _OFFSET_BYTES] = offset.to_bytes(_OFFSET_BYTES)
        return self._frame
