"""OffsetFetch, versions 1 to 10.

Returns the committed offsets of groups. A partition without a committed offset has offset -1, even if its topic does
not exist; only an unknown topic id is an error. All offsets of one group are a snapshot of the same time, however many
there are. Two groups may be read at different times.

- v2: null topics mean all topics (KIP-88).
- v5: leader epochs.
- v6: flexible.
- v7: on request, only stable offsets; partitions with offsets in an open transaction return UNSTABLE_OFFSET_COMMIT
  (KIP-447).
- v8: several groups per request, each with its own error.
- v9: a member of the consumer protocol sends its epoch (KIP-848).
- v10: topics by id.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from odradek.api.request import repeated_names as describing
from odradek.api.request.call import Call
from odradek.api.request.known_partitions import RequestedTopic
from odradek.api.request.outcome import Slices
from odradek.api.request.sliced_response import CHEAP, Parts, pauses, settled, whole
from odradek.base.errors import ErrorCode, Refused
from odradek.base.limits import SLICE_ELEMENTS
from odradek.base.units import NO_EPOCH, TopicName
from odradek.base.uuids import ZERO_UUID, Uuid
from odradek.core.coordinators.committed_read import CommittedRead
from odradek.core.groups.group_offset_fetch import CommittedOffset, GroupReader, nothing_for
from odradek.core.kernel.access import Operation, ResourceType
from odradek.core.partition.leading import Leading
from odradek.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from odradek.wire.schema.schema import maker

ERROR_OF_ALL_SINCE = 2
MANY_GROUPS_SINCE = 8
TOPIC_IDS_SINCE = 10

_response = maker(OffsetFetchResponse)
_group_response = maker(OffsetFetchResponseGroup)
_topic_response = maker(OffsetFetchResponseTopics)
_partition_response = maker(OffsetFetchResponsePartitions)
_topic_of_one = maker(OffsetFetchResponseTopic)
_partition_of_one = maker(OffsetFetchResponsePartition)

Topic = OffsetFetchRequestTopic | OffsetFetchRequestTopics


class _RequestedGroup(NamedTuple):
    """The request's part for one group; `topics` is None for all."""

    id: str
    member_id: str | None
    epoch: int
    topics: Sequence[Topic] | None


class _GroupAnswer(NamedTuple):
    """The answer about a group.

    It is valid once all writes to `leading` are safe, or at once if that is None.
    """

    group: _RequestedGroup
    answer: OffsetFetchResponseGroup
    leading: Leading | None


def handle(call: Call, body: OffsetFetchRequest) -> Slices:
    if len(body.groups) > describing.REPEATS_MAX:
        yield from describing.check_repeats(group.group_id for group in body.groups if group.topics is None)
    answers, count = [], 0
    read: dict[Leading, None] = {}
    for group in _groups(call, body):
        answer, leading = yield from _find(call, group, body.require_stable)
        if leading is not None:
            read[leading] = None
        answers.append(_GroupAnswer(group, answer, leading))
        count += 1 + sum(len(topic.partitions) for topic in answer.topics)
    writes = CommittedRead(read)
    call.free_later(answers)
    return (yield from settled(writes, call.now, count, lambda: _answer(call, answers, writes)))


def refuse(call: Call, body: OffsetFetchRequest, code: ErrorCode) -> OffsetFetchResponse:
    return whole(_refused_groups(call, body, code))


def _refused_groups(call: Call, body: OffsetFetchRequest, code: ErrorCode) -> Parts[OffsetFetchResponse]:
    answers = []
    for group in _groups(call, body):
        answers.append((yield from _refused(call, group, code)))  # noqa: PERF401
    return (yield from _shape_response(call, answers))


def _groups(call: Call, body: OffsetFetchRequest) -> Iterator[_RequestedGroup]:
    if call.version < MANY_GROUPS_SINCE:
        yield _RequestedGroup(body.group_id, None, NO_EPOCH, body.topics)
        return
    for group in body.groups:
        yield _RequestedGroup(group.group_id, group.member_id, group.member_epoch, group.topics)


def _requested_topic(topic: Topic) -> RequestedTopic:
    return (
        RequestedTopic(topic.name, Uuid(topic.topic_id))
        if isinstance(topic, OffsetFetchRequestTopics)
        else RequestedTopic(topic.name)
    )


def _find(
    call: Call, group: _RequestedGroup, is_stable: bool
) -> Parts[tuple[OffsetFetchResponseGroup, Leading | None]]:
    try:
        call.check(Operation.DESCRIBE, ResourceType.GROUP, group.id)
        shard = call.broker.groups.shard_of(group.id, may_be_empty=True)
        reader = GroupReader(shard, group.id, group.member_id, group.epoch, is_stable=is_stable)
    except Refused as refused:
        answer = yield from _refused(call, group, refused.code)
        yield
        return answer, None
    requested = group.topics
    count = (
        reader.count()
        if requested is None
        else len(requested) + sum(len(topic.partition_indexes) for topic in requested)
    )
    topics = _all(call, reader) if requested is None else _topics(call, reader, requested)
    if count > SLICE_ELEMENTS:
        reader.freeze()
        found = yield from topics
    else:
        found = whole(topics)
        yield from pauses(1 + count)
    return _group(group, found), shard.log.leading


def _all(call: Call, reader: GroupReader) -> Parts[list[OffsetFetchResponseTopics]]:
    """Return the offsets of all topics that may be described; by id, only of topics that have one."""
    by_id = call.version >= TOPIC_IDS_SINCE
    topics = []
    for name in reader.topics():
        known = call.broker.view.topics.get(name)
        topic_id = ZERO_UUID if known is None else known.id
        found = []
        for index, fetched in reader.all(name, topic_id):
            found.append(_partition(index, fetched))
            yield
        if found and (topic_id != ZERO_UUID or not by_id) and _may_describe(call, name):
            topics.append(_topic(name, topic_id, found))
        yield
    return topics


def _may_describe(call: Call, topic: str) -> bool:
    return call.may(Operation.DESCRIBE, ResourceType.TOPIC, topic)


def _topics(call: Call, reader: GroupReader, requested: Sequence[Topic]) -> Parts[list[OffsetFetchResponseTopics]]:
    topics = []
    for topic in requested:
        topics.append((yield from _one_topic(call, reader, _requested_topic(topic), topic.partition_indexes)))
        yield
    return topics


def _one_topic(
    call: Call, reader: GroupReader, topic: RequestedTopic, partitions: list[int]
) -> Parts[OffsetFetchResponseTopics]:
    view, name, topic_id = call.broker.view, TopicName(topic.name), topic.id
    if call.version >= TOPIC_IDS_SINCE:
        known = view.names.get(topic_id)
        if known is None:
            return (yield from _nothing(topic, partitions, ErrorCode.UNKNOWN_TOPIC_ID))
        name = known
    if not _may_describe(call, name):
        return (yield from _nothing(topic, partitions, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    if call.version < TOPIC_IDS_SINCE and name in view.topics:
        topic_id = view.topics[name].id
    found = []
    for index in partitions:
        found.append(_partition(index, reader.find_offset(name, topic_id, index)))
        yield
    return _topic(name, topic_id, found)


def _nothing(topic: RequestedTopic, partitions: list[int], code: ErrorCode) -> Parts[OffsetFetchResponseTopics]:
    nothing, found = nothing_for(code), []
    for index in partitions:
        found.append(_partition(index, nothing))
        yield
    return _topic(topic.name, topic.id, found)


def _answer(call: Call, group_answers: list[_GroupAnswer], writes: CommittedRead) -> Parts[OffsetFetchResponse]:
    answers = []
    for group, answer, leading in group_answers:
        code = ErrorCode.NONE if leading is None else writes.code_of(leading)
        answers.append((yield from _refused(call, group, code)) if code else answer)
        if not len(answers) % CHEAP:
            yield
    return (yield from _shape_response(call, answers))


def _refused(call: Call, group: _RequestedGroup, code: ErrorCode) -> Parts[OffsetFetchResponseGroup]:
    """Return a group's error; a response before v2 has room for it only in each partition."""
    if call.version >= ERROR_OF_ALL_SINCE:
        return _group(group, [], code)
    topics = []
    for topic in group.topics or ():
        topics.append((yield from _nothing(_requested_topic(topic), topic.partition_indexes, code)))  # noqa: PERF401
    return _group(group, topics, code)


def _group(
    group: _RequestedGroup, topics: list[OffsetFetchResponseTopics], code: ErrorCode = ErrorCode.NONE
) -> OffsetFetchResponseGroup:
    return _group_response(group_id=group.id, error_code=code, topics=topics)


def _topic(name: str, topic_id: Uuid, partitions: list[OffsetFetchResponsePartitions]) -> OffsetFetchResponseTopics:
    return _topic_response(name=name, topic_id=topic_id, partitions=partitions)


def _partition(index: int, fetched: CommittedOffset) -> OffsetFetchResponsePartitions:
    return _partition_response(
        partition_index=index,
        committed_offset=fetched.offset,
        committed_leader_epoch=fetched.leader_epoch,
        metadata=fetched.metadata,
        error_code=fetched.code,
    )


def _shape_response(call: Call, answers: list[OffsetFetchResponseGroup]) -> Parts[OffsetFetchResponse]:
    if call.version >= MANY_GROUPS_SINCE:
        return _response(groups=answers)
    (group,) = answers
    topics = []
    for topic in group.topics:
        topics.append((yield from _shape_topic(topic)))
        yield
    return _response(error_code=group.error_code, topics=topics)


def _shape_topic(topic: OffsetFetchResponseTopics) -> Parts[OffsetFetchResponseTopic]:
    partitions = []
    for part in topic.partitions:
        partitions.append(
            _partition_of_one(
                partition_index=part.partition_index,
                committed_offset=part.committed_offset,
                committed_leader_epoch=part.committed_leader_epoch,
                metadata=part.metadata,
                error_code=part.error_code,
            )
        )
        yield
    return _topic_of_one(name=topic.name, partitions=partitions)
