"""ConsumerGroupDescribe, versions 0 and 1.

Returns the state and the members of groups of the consumer protocol (KIP-848). Each group has its own result or error.
A partition that a member is still revoking is part of its assignment. Deleted topics are left out.

- v1: whether a member uses the classic protocol (KIP-1099).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from odradek.api.request import authorized_operations as authorized
from odradek.api.request import repeated_names as describing
from odradek.api.request.call import Call
from odradek.api.request.outcome import PAUSE, Slices
from odradek.api.request.sliced_response import CHEAP, Parts, settled
from odradek.base.errors import ErrorCode, Refused
from odradek.base.uuids import Uuid
from odradek.core.coordinators.committed_read import CommittedRead
from odradek.core.groups.assignors.spec import Assignment
from odradek.core.groups.consumer import ConsumerGroup
from odradek.core.groups.consumer import rebalance_steps as steps
from odradek.core.groups.consumer.consumer_member import Member
from odradek.core.kernel.access import Operation, ResourceType
from odradek.core.partition.leading import Leading
from odradek.wire.messages import consumer_group_describe as wire
from odradek.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse

Response = ConsumerGroupDescribeResponse

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1


def handle(call: Call, body: ConsumerGroupDescribeRequest) -> Slices:
    if len(body.group_ids) > describing.REPEATS_MAX:
        yield from describing.check_repeats(body.group_ids)
    found, count = [], 0
    leaderships: dict[Leading, None] = {}
    for group_id in body.group_ids:
        group, leadership = yield from _find(call, group_id, body)
        found.append((group, leadership))
        if leadership is not None:
            leaderships[leadership] = None
        count += 1 + len(group.members)
        yield PAUSE
    writes = CommittedRead(leaderships)
    call.free_later(found)

    def answer() -> Parts[Response]:
        groups = []
        for group, leading in found:
            groups.append(_after_write(group, leading, writes))
            if not len(groups) % CHEAP:
                yield
        return Response(throttle_time_ms=0, groups=groups)

    return (yield from settled(writes, call.now, count, answer))


def refuse(call: Call, body: ConsumerGroupDescribeRequest, code: ErrorCode) -> Response:
    return Response(throttle_time_ms=0, groups=[_refused(group_id, Refused(code)) for group_id in body.group_ids])


def _find(
    call: Call, group_id: str, body: ConsumerGroupDescribeRequest
) -> Parts[tuple[wire.DescribedGroup, Leading | None]]:
    """Return the group and the partition that stores its state; None if there is no write to wait for."""
    try:
        call.check(Operation.DESCRIBE, ResourceType.GROUP, group_id)
        shard = call.broker.groups.shard_of(group_id)
        group = call.broker.groups.group(group_id)
        if not isinstance(group, ConsumerGroup):
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
    except Refused as refused:
        return _refused(group_id, refused), None
    operations = authorized.group(call, group_id) if body.include_authorized_operations else authorized.NOT_REQUESTED
    described = yield from _describe(call, group, operations)
    if not all(call.may(Operation.DESCRIBE, ResourceType.TOPIC, topic) for topic in _assigned_topics(described)):
        text = "The described group uses topics that the client is not authorized to describe."
        return _refused(group_id, Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, text)), None
    described.rebalances = describing.rebalances_of(group.rebalances, body.include_rebalances)
    return described, shard.log.leading


def _after_write(group: wire.DescribedGroup, leading: Leading | None, writes: CommittedRead) -> wire.DescribedGroup:
    code = ErrorCode.NONE if leading is None else writes.code_of(leading)
    return _refused(group.group_id, Refused(code)) if code else group


def _refused(group_id: str, refused: Refused) -> wire.DescribedGroup:
    return wire.DescribedGroup(
        error_code=refused.code,
        error_message=refused.detail or None,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=[],
    )


def _describe(call: Call, group: ConsumerGroup, operations: int) -> Parts[wire.DescribedGroup]:
    """Describe the group's current state: its members are values, which do not change between slices."""
    kept = group.kept
    described = wire.DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group.id,
        group_state=group.state,
        group_epoch=kept.epoch,
        assignment_epoch=kept.assigned.epoch,
        assignor_name=kept.preferred_assignor or steps.assignor_names(call.broker.configs)[0],
        members=[],
        authorized_operations=operations,
    )
    for member, target in [(member, kept.target_of(member.id)) for member in kept.members.values()]:
        described.members.append(_member(call, member, target))
        yield
    return described


def _member(call: Call, member: Member, target: Assignment) -> wire.Member:
    current, metadata = member.current, member.metadata
    return wire.Member(
        member_id=member.id,
        instance_id=metadata.instance_id,
        rack_id=metadata.rack_id,
        member_epoch=current.epoch,
        client_id=metadata.client_id,
        client_host=metadata.client_host,
        subscribed_topic_names=sorted(metadata.topics),
        subscribed_topic_regex=metadata.regex,
        assignment=_assignment(call, current.assigned, current.revoking),
        target_assignment=_assignment(call, target),
        member_type=CLASSIC_MEMBER if member.is_classic else CONSUMER_MEMBER,
    )


def _assigned_topics(group: wire.DescribedGroup) -> set[str]:
    assignments = [part for member in group.members for part in (member.assignment, member.target_assignment)]
    return {topic.topic_name for assignment in assignments for topic in assignment.topic_partitions}


def _assignment(call: Call, *parts: Mapping[Uuid, Iterable[int]]) -> wire.Assignment:
    """Return the union of the parts without deleted topics."""
    names, listed = call.broker.view.names, []
    for topic in sorted({topic for part in parts for topic in part}):
        partitions = {partition for part in parts for partition in part.get(topic, ())}
        if topic in names:
            topic_partitions = wire.TopicPartitions(
                topic_id=topic, topic_name=names[topic], partitions=sorted(partitions)
            )
            listed.append(topic_partitions)
    return wire.Assignment(topic_partitions=listed)
