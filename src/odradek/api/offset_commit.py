"""OffsetCommit, versions 2 to 10: a group's progress is written down.

v2 to v4: offsets that expire at a time of their own.  v5: they expire with the group instead (KIP-211).  v6: leader
epochs.  v7: static members.  v8: flexible.  v9: members of the consumer protocol, with an epoch where a generation was
(KIP-848).  v10: topics by id.

What a partition is refused for is told of it alone.  What the committer is refused for is told of every partition.
"""

from __future__ import annotations

from itertools import repeat

from odradek.api.call import Call
from odradek.api.known_partitions import Asked, Codes, Partitions
from odradek.api.offset_places import places_of
from odradek.base.errors import ErrorCode, Refused
from odradek.base.uuids import Uuid
from odradek.core.access import Operation, ResourceType
from odradek.core.groups.offset_commit import Committer, commit
from odradek.core.parked import Parked
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

TOPIC_IDS_SINCE = 10


def handle(call: Call, body: OffsetCommitRequest) -> OffsetCommitResponse | Parked[OffsetCommitResponse]:
    call.check(Operation.READ, ResourceType.GROUP, body.group_id)
    asked = ((Asked(topic.name, Uuid(topic.topic_id)), topic.partitions) for topic in body.topics)
    partitions = Partitions(call.broker.view, call.rights, asked, by_id=call.version >= TOPIC_IDS_SINCE)
    if not partitions.known:
        return response(partitions.codes(()))
    try:
        return _commit(call, body, partitions)
    except Refused as refused:
        return response(partitions.codes(repeat(refused.code)))


def refuse(call: Call, body: OffsetCommitRequest, code: ErrorCode) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=part.partition_index, error_code=code)
                    for part in topic.partitions
                ],
            )
            for topic in body.topics
        ]
    )


def _commit(
    call: Call, body: OffsetCommitRequest, partitions: Partitions[OffsetCommitRequestPartition]
) -> OffsetCommitResponse | Parked[OffsetCommitResponse]:
    shard = call.broker.groups.shard_of(body.group_id, may_be_empty=True)
    committer = committer_of(body, call.version)
    committed = commit(shard, committer, places_of(partitions), call.now, body.retention_time_ms)
    if committed.written is None:
        return response(partitions.codes(committed.codes))
    return committed.written.then(
        lambda failure: response(partitions.codes(committed.codes_after(failure))),
        call.now,
        call.broker.groups.write_timeout_ms,
    )


def committer_of(body: OffsetCommitRequest, version: int) -> Committer:
    return Committer(body.group_id, body.member_id, body.group_instance_id, body.generation_id_or_member_epoch, version)


def response(codes: Codes) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=asked.name,
                topic_id=asked.id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=index, error_code=code) for index, code in some
                ],
            )
            for asked, some in codes.items()
        ]
    )
