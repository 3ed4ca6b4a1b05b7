"""OffsetDelete, version 0.

Deletes a group's offsets of some partitions (KIP-496). Offsets of topics to which the group's members are subscribed
are kept. A group of another kind than consumers (Connect workers, for example) must have no members, because the broker
does not know their topics. Each offset is deleted independently; other requests may run after each hundred offsets.
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek.api.request.call import Call
from odradek.api.request.known_partitions import Partitions, RequestedTopic
from odradek.api.request.outcome import Slices
from odradek.api.request.sliced_response import CHEAP, Parts, pauses, settled
from odradek.base.errors import ErrorCode
from odradek.base.limits import SLICE_ELEMENTS
from odradek.core.coordinators.durable import PendingWrite
from odradek.core.groups.group_offset_delete import delete
from odradek.core.kernel.access import Operation, ResourceType
from odradek.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from odradek.wire.schema.schema import maker

_partition = maker(OffsetDeleteResponsePartition)


def handle(call: Call, body: OffsetDeleteRequest) -> Slices:
    call.check(Operation.DELETE, ResourceType.GROUP, body.group_id)
    requested = ((RequestedTopic(topic.name), topic.partitions) for topic in body.topics)
    partitions: Partitions[OffsetDeleteRequestPartition] = Partitions()
    yield from partitions.find_partitions(call.broker.view, call.rights, requested, by_id=False)
    codes, written = yield from _delete(call, body.group_id, partitions)
    if written is None:
        return (yield from _answer(partitions, codes))

    def answer() -> Parts[OffsetDeleteResponse]:
        if written.code:
            return refuse(call, body, written.code)
        return (yield from _answer(partitions, codes))

    return (yield from settled(written, call.now, partitions.count, answer, call.broker.groups.write_timeout_ms))


def _delete(
    call: Call, group_id: str, partitions: Partitions[OffsetDeleteRequestPartition]
) -> Parts[tuple[list[ErrorCode], PendingWrite | None]]:
    """Delete the offsets, a hundred at a time; check the group's subscriptions each time.

    Return each partition's error code and the last write. Raise Refused.
    """
    codes: list[ErrorCode] = []
    written: PendingWrite | None = None
    for start in range(0, max(len(partitions.known), 1), SLICE_ELEMENTS):
        batch = partitions.known[start : start + SLICE_ELEMENTS]
        topic_partitions = [(topic.name, partition.partition_index) for _, topic, partition in batch]
        deleted = delete(call.broker.groups.shard_of(group_id), group_id, topic_partitions, call.now)
        codes += deleted.codes
        written = deleted.written or written
        yield from pauses(len(batch))
    return codes, written


def _answer(
    partitions: Partitions[OffsetDeleteRequestPartition], known_codes: Iterable[ErrorCode]
) -> Parts[OffsetDeleteResponse]:
    topics = []
    for topic, codes in (yield from partitions.codes(known_codes)).items():
        parts = []
        for index, code in codes:
            parts.append(_partition(partition_index=index, error_code=code))
            if not len(parts) % CHEAP:
                yield
        topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=parts))
        yield
    return OffsetDeleteResponse(error_code=ErrorCode.NONE, throttle_time_ms=0, topics=topics)


def refuse(call: Call, body: OffsetDeleteRequest, code: ErrorCode) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=code, throttle_time_ms=0, topics=[])
