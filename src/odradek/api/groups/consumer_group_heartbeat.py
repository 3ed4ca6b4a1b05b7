"""ConsumerGroupHeartbeat, versions 0 and 1.

Joins a group of the consumer protocol, stays in it and leaves it: one request covers a member's whole life (KIP-848). A
member joins with epoch 0 and leaves with epoch -1; a static member leaves temporarily with epoch -2. A null field means
that its value has not changed.

- v1: the member generates its own id (KIP-1082), and may subscribe by a regular expression.
"""

from __future__ import annotations

from odradek.api.request.call import Call
from odradek.api.request.outcome import Slices
from odradek.api.request.sliced_response import CHEAP, Parts
from odradek.base.errors import ErrorCode, Refused
from odradek.base.uuids import Uuid
from odradek.core.groups.assignors.spec import Assignment, Partitions
from odradek.core.groups.consumer import REPLAYS, heartbeating
from odradek.core.groups.consumer import rebalance_steps as steps
from odradek.core.groups.consumer.heartbeating import Heartbeat, HeartbeatResult
from odradek.core.groups.shard.group import CONSUMER
from odradek.core.kernel.access import Operation, ResourceType
from odradek.record.internal.internal_codec import compile_writers
from odradek.wire.messages import consumer_group_heartbeat as wire
from odradek.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse

Response = ConsumerGroupHeartbeatResponse


def load() -> None:
    compile_writers(REPLAYS)


def handle(call: Call, body: ConsumerGroupHeartbeatRequest) -> Slices:
    configs = call.broker.configs
    request = _request(call, body)
    try:
        if CONSUMER not in configs.list("group.coordinator.rebalance.protocols"):
            raise Refused(
                ErrorCode.UNSUPPORTED_VERSION, "group.coordinator.rebalance.protocols does not contain consumer"
            )
        yield from _check_allowed(call, body)
        heartbeating.check(request, steps.assignor_names(configs), makes_member_ids=call.version == 0)
        result = heartbeating.heartbeat(call.broker.groups.shard_of(request.group_id), request, call.now)
    except Refused as refused:
        return _refused(refused)
    if result.written is None:
        return _answer(result)
    return result.written.then(
        lambda code: _refused(Refused(code)) if code else _answer(result), call.now, call.broker.groups.write_timeout_ms
    )


def refuse(call: Call, body: ConsumerGroupHeartbeatRequest, code: ErrorCode) -> Response:
    return _refused(Refused(code))


def _check_allowed(call: Call, body: ConsumerGroupHeartbeatRequest) -> Parts[None]:
    """Raise Refused for the whole request if the member subscribes to a topic that it may not describe."""
    call.check(Operation.READ, ResourceType.GROUP, body.group_id)
    for number, topic in enumerate(body.subscribed_topic_names or (), 1):
        call.check(Operation.DESCRIBE, ResourceType.TOPIC, topic)
        if not number % CHEAP:
            yield


def _request(call: Call, body: ConsumerGroupHeartbeatRequest) -> Heartbeat:
    return Heartbeat(
        group_id=body.group_id,
        member_id=body.member_id,
        epoch=body.member_epoch,
        instance_id=body.instance_id,
        rack_id=body.rack_id,
        client_id=call.client_id or "",
        client_host=call.peer.client_host,
        rebalance_timeout_ms=body.rebalance_timeout_ms,
        topics=body.subscribed_topic_names,
        regex=body.subscribed_topic_regex,
        assignor=body.server_assignor,
        owned=None if body.topic_partitions is None else _owned(body.topic_partitions),
        can_describe=call.can_describe,
    )


def _owned(listed: list[wire.TopicPartitions]) -> Assignment:
    """Return the partitions that the member owns; the request may name a topic more than once."""
    owned: dict[Uuid, list[int]] = {}
    for topic_partitions in listed:
        owned.setdefault(Uuid(topic_partitions.topic_id), []).extend(topic_partitions.partitions)
    return {topic: Partitions(partitions) for topic, partitions in owned.items()}


def _refused(refused: Refused) -> Response:
    return Response(
        throttle_time_ms=0,
        error_code=refused.code,
        error_message=refused.detail or None,
        member_epoch=0,
        heartbeat_interval_ms=0,
    )


def _answer(result: HeartbeatResult) -> Response:
    assignment = None
    if result.assignment is not None:
        listed = [
            wire.TopicPartitions(topic_id=topic, partitions=sorted(partitions))
            for topic, partitions in sorted(result.assignment.items())
        ]
        assignment = wire.Assignment(topic_partitions=listed)
    return Response(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        member_id=result.member_id,
        member_epoch=result.epoch,
        heartbeat_interval_ms=result.interval_ms,
        assignment=assignment,
    )
