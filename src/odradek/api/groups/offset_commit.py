"""OffsetCommit, versions 2 to 10.

Stores the offsets of a group. An error of a partition is returned for that partition, an error of the committer for
every partition. A commit is one batch in the log, whatever its size. A large commit is prepared in slices, but becomes
visible as a whole.

- v2 to v4: the request sets a retention time for its offsets.
- v5: offsets expire with the group instead (KIP-211).
- v6: leader epochs.
- v7: static members.
- v8: flexible.
- v9: members of the consumer protocol, which send an epoch in place of a generation (KIP-848).
- v10: topics by id.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from itertools import repeat
from typing import Any

from odradek.api.groups.offsets_to_commit import offsets_of, prepare_commit
from odradek.api.request.call import Call
from odradek.api.request.known_partitions import Codes, Partitions, RequestedTopic
from odradek.api.request.outcome import Slices, Wait
from odradek.api.request.sliced_response import CHEAP, Parts, settled
from odradek.base.errors import ErrorCode, Refused
from odradek.base.limits import SLICE_ELEMENTS
from odradek.base.uuids import Uuid
from odradek.core.groups.group_offset_commit import Committer, OffsetCommitResult, commit
from odradek.core.groups.long_commit import LongCommit
from odradek.core.kernel.access import Operation, ResourceType, Rights
from odradek.core.kernel.cluster_view import ClusterView
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from odradek.wire.schema.schema import maker

TOPIC_IDS_SINCE = 10

_partition = maker(OffsetCommitResponsePartition)


def handle(call: Call, body: OffsetCommitRequest) -> Slices:
    if not may_commit(call.rights, body.group_id):
        raise call.denied(Operation.READ, ResourceType.GROUP, body.group_id)
    partitions = yield from admit(call.broker.view, call.rights, body, call.version)
    if not partitions.known:
        return (yield from _answer(partitions, ()))
    try:
        committed = yield from _commit(call, body, partitions)
    except Refused as refused:
        return (yield from _answer(partitions, repeat(refused.code)))
    written = committed.written
    if written is None:
        return (yield from _answer(partitions, committed.codes))

    def answer() -> Parts[OffsetCommitResponse]:
        return _answer(partitions, committed.codes_after(written.code))

    return (yield from settled(written, call.now, partitions.count, answer, call.broker.groups.write_timeout_ms))


def may_commit(rights: Rights, group_id: str) -> bool:
    """Return whether a consumer with these rights may commit offsets of the group."""
    return rights.allows(Operation.READ, ResourceType.GROUP, group_id)


def admit(
    view: ClusterView, rights: Rights, body: OffsetCommitRequest, version: int
) -> Parts[Partitions[OffsetCommitRequestPartition]]:
    """Return the partitions for which the request may commit offsets, with the errors of the others."""
    requested = ((RequestedTopic(topic.name, Uuid(topic.topic_id)), topic.partitions) for topic in body.topics)
    partitions: Partitions[OffsetCommitRequestPartition] = Partitions()
    yield from partitions.find_partitions(view, rights, requested, by_id=version >= TOPIC_IDS_SINCE)
    return partitions


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
) -> Generator[Wait, Any, OffsetCommitResult]:
    """Commit the offsets as one batch in the log, however many there are. Raise Refused."""
    shard_of, committer = call.broker.groups.shard_of, committer_of(body, call.version)
    shard = shard_of(body.group_id, may_be_empty=True)
    if len(partitions.known) <= SLICE_ELEMENTS:
        return commit(shard, committer, list(offsets_of(partitions)), call.now, body.retention_time_ms)
    long = yield from prepare_commit(partitions, LongCommit(shard, committer, call.now, body.retention_time_ms))
    return long.finish(shard_of(body.group_id, may_be_empty=True), call.now)


def committer_of(body: OffsetCommitRequest, version: int) -> Committer:
    return Committer(body.group_id, body.member_id, body.group_instance_id, body.generation_id_or_member_epoch, version)


def _answer(
    partitions: Partitions[OffsetCommitRequestPartition], known_codes: Iterable[ErrorCode]
) -> Parts[OffsetCommitResponse]:
    return (yield from response((yield from partitions.codes(known_codes))))


def response(codes: Codes) -> Parts[OffsetCommitResponse]:
    topics = []
    for topic, partition_codes in codes.items():
        parts = []
        for index, code in partition_codes:
            parts.append(_partition(partition_index=index, error_code=code))
            if not len(parts) % CHEAP:
                yield
        topics.append(OffsetCommitResponseTopic(name=topic.name, topic_id=topic.id, partitions=parts))
        yield
    return OffsetCommitResponse(topics=topics)
