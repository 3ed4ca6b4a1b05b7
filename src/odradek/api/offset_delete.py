"""OffsetDelete, version 0: a group forgets its offsets of some partitions (KIP-496).

Not those of topics that its members are subscribed to.  A group of another kind than consumers (of Connect workers,
say) must have no members: what they read is not known here.
"""

from __future__ import annotations

from odradek.api.call import Call
from odradek.api.known_partitions import Asked, Partitions
from odradek.base.errors import ErrorCode
from odradek.core.access import Operation, ResourceType
from odradek.core.groups.offset_delete import delete
from odradek.core.parked import Parked
from odradek.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


def handle(call: Call, body: OffsetDeleteRequest) -> OffsetDeleteResponse | Parked[OffsetDeleteResponse]:
    call.check(Operation.DELETE, ResourceType.GROUP, body.group_id)
    asked = ((Asked(topic.name), topic.partitions) for topic in body.topics)
    partitions = Partitions(call.broker.view, call.rights, asked, by_id=False)
    shard = call.broker.groups.shard_of(body.group_id)
    places = [(topic.name, wanted.partition_index) for _, topic, wanted in partitions.known]
    deleted = delete(shard, body.group_id, places, call.now)

    def answer(failure: ErrorCode) -> OffsetDeleteResponse:
        if failure:
            return refuse(call, body, failure)
        return OffsetDeleteResponse(
            error_code=ErrorCode.NONE,
            throttle_time_ms=0,
            topics=[
                OffsetDeleteResponseTopic(
                    name=asked.name,
                    partitions=[
                        OffsetDeleteResponsePartition(partition_index=index, error_code=code) for index, code in codes
                    ],
                )
                for asked, codes in partitions.codes(deleted.codes).items()
            ],
        )

    if deleted.written is None:
        return answer(ErrorCode.NONE)
    return deleted.written.then(answer, call.now, call.broker.groups.write_timeout_ms)


def refuse(call: Call, body: OffsetDeleteRequest, code: ErrorCode) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=code, throttle_time_ms=0, topics=[])
