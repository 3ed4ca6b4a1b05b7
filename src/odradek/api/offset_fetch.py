"""OffsetFetch, versions 1 to 10: where groups got to.

v2: null topics asks for all (KIP-88).  v5: leader epochs.  v6: flexible.  v7: only what no open transaction is about to
change, UNSTABLE_OFFSET_COMMIT for the rest (KIP-447).  v8: many groups, each with an error of its own.  v9: a member of
the consumer protocol asks with its epoch (KIP-848).  v10: topics by id.

What was never committed has the offset -1, for topics that are not there, too; only an unknown id is an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from odradek.api import repeats
from odradek.api.call import Call
from odradek.api.known_partitions import Asked
from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import NO_EPOCH, TopicName
from odradek.base.uuids import ZERO_UUID, Uuid
from odradek.core.access import Operation, ResourceType
from odradek.core.coordinators.settled import Settled
from odradek.core.groups.offset_fetch import Fetched, FetchedTopic, GroupReader, nothing_for
from odradek.core.parked import Parked
from odradek.core.partition import Partition
from odradek.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

ERROR_OF_ALL_SINCE = 2
MANY_GROUPS_SINCE = 8
TOPIC_IDS_SINCE = 10

Topics = list[tuple[Asked, list[int]]]


class _Group(NamedTuple):
    """What is asked of one group.  `topics` is None for all."""

    id: str
    member_id: str | None
    epoch: int
    topics: Topics | None


class _Found(NamedTuple):
    """What it has; counts if all that was written to `partition` before counts."""

    topics: list[FetchedTopic]
    partition: Partition


def handle(call: Call, body: OffsetFetchRequest) -> OffsetFetchResponse | Parked[OffsetFetchResponse]:
    groups = _groups(call, body)
    repeats.check([group.id for group in groups if group.topics is None])
    found = [_find(call, group, body.require_stable) for group in groups]
    settled = Settled(one.partition for one in found if isinstance(one, _Found))
    return settled.then(lambda: _answer(call, groups, found, settled), call.now)


def refuse(call: Call, body: OffsetFetchRequest, code: ErrorCode) -> OffsetFetchResponse:
    groups = _groups(call, body)
    return _shaped(call, [_refused(call, group, code) for group in groups])


def _groups(call: Call, body: OffsetFetchRequest) -> list[_Group]:
    if call.version >= MANY_GROUPS_SINCE:
        return [_Group(group.group_id, group.member_id, group.member_epoch, _topics(group)) for group in body.groups]
    topics = body.topics
    asked = None if topics is None else [(Asked(topic.name), topic.partition_indexes) for topic in topics]
    return [_Group(body.group_id, None, NO_EPOCH, asked)]


def _topics(group: OffsetFetchRequestGroup) -> Topics | None:
    if group.topics is None:
        return None
    return [(Asked(topic.name, Uuid(topic.topic_id)), topic.partition_indexes) for topic in group.topics]


def _find(call: Call, group: _Group, is_stable: bool) -> _Found | ErrorCode:
    try:
        call.check(Operation.DESCRIBE, ResourceType.GROUP, group.id)
        shard = call.broker.groups.shard_of(group.id, may_be_empty=True)
        reader = GroupReader(shard, group.id, group.member_id, group.epoch, is_stable=is_stable)
    except Refused as refused:
        return refused.code
    topics = _all(call, reader) if group.topics is None else [_topic(call, reader, *one) for one in group.topics]
    return _Found(topics, shard.log.partition)


def _all(call: Call, reader: GroupReader) -> list[FetchedTopic]:
    """By id only what has one; nothing of topics that may not be described."""
    by_id = call.version >= TOPIC_IDS_SINCE
    return [
        topic
        for topic in reader.all(call.broker.view)
        if (topic.id != ZERO_UUID or not by_id) and _may_describe(call, topic.name)
    ]


def _may_describe(call: Call, topic: str) -> bool:
    return call.may(Operation.DESCRIBE, ResourceType.TOPIC, topic)


def _topic(call: Call, reader: GroupReader, asked: Asked, partitions: list[int]) -> FetchedTopic:
    view, name, topic_id = call.broker.view, TopicName(asked.name), asked.id
    if call.version >= TOPIC_IDS_SINCE:
        known = view.names.get(topic_id)
        if known is None:
            return _nothing(asked, partitions, ErrorCode.UNKNOWN_TOPIC_ID)
        name = known
    if not _may_describe(call, name):
        return _nothing(asked, partitions, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if call.version < TOPIC_IDS_SINCE and name in view.topics:
        topic_id = view.topics[name].id
    return FetchedTopic(name, topic_id, [(index, reader.find(name, topic_id, index)) for index in partitions])


def _nothing(asked: Asked, partitions: Iterable[int], code: ErrorCode) -> FetchedTopic:
    nothing = nothing_for(code)
    return FetchedTopic(TopicName(asked.name), asked.id, [(index, nothing) for index in partitions])


def _answer(
    call: Call, groups: Sequence[_Group], found: Iterable[_Found | ErrorCode], settled: Settled
) -> OffsetFetchResponse:
    answers = []
    for group, one in zip(groups, found, strict=True):
        code = settled.code_of(one.partition) if isinstance(one, _Found) else one
        if isinstance(one, _Found) and not code:
            answers.append(_told(group, one.topics))
        else:
            answers.append(_refused(call, group, code))
    return _shaped(call, answers)


def _refused(call: Call, group: _Group, code: ErrorCode) -> OffsetFetchResponseGroup:
    """Before v2 there is no place for an error but at each partition."""
    if call.version >= ERROR_OF_ALL_SINCE:
        return _told(group, [], code)
    return _told(group, [_nothing(asked, partitions, code) for asked, partitions in group.topics or ()])


def _told(group: _Group, topics: Iterable[FetchedTopic], code: ErrorCode = ErrorCode.NONE) -> OffsetFetchResponseGroup:
    return OffsetFetchResponseGroup(
        group_id=group.id,
        error_code=code,
        topics=[
            OffsetFetchResponseTopics(
                name=topic.name,
                topic_id=topic.id,
                partitions=[_partition(index, fetched) for index, fetched in topic.partitions],
            )
            for topic in topics
        ],
    )


def _partition(index: int, fetched: Fetched) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=fetched.offset,
        committed_leader_epoch=fetched.leader_epoch,
        metadata=fetched.metadata,
        error_code=fetched.code,
    )


def _shaped(call: Call, answers: list[OffsetFetchResponseGroup]) -> OffsetFetchResponse:
    if call.version >= MANY_GROUPS_SINCE:
        return OffsetFetchResponse(groups=answers)
    (one,) = answers
    return OffsetFetchResponse(error_code=one.error_code, topics=[_shaped_topic(topic) for topic in one.topics])


def _shaped_topic(topic: OffsetFetchResponseTopics) -> OffsetFetchResponseTopic:
    return OffsetFetchResponseTopic(
        name=topic.name,
        partitions=[
            OffsetFetchResponsePartition(
                partition_index=part.partition_index,
                committed_offset=part.committed_offset,
                committed_leader_epoch=part.committed_leader_epoch,
                metadata=part.metadata,
                error_code=part.error_code,
            )
            for part in topic.partitions
        ],
    )
